"""Two whole programs on one PostgreSQL, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import Engine, running, until

GONE_AFTER = 2.0  # seconds


@dataclass
class Pair:
    """Two nodes with the same model behind them; whatever either sends is in `sent`."""

    one: Engine
    other: Engine
    url: str
    stacks: dict[int, AsyncExitStack]

    @property
    def sent(self) -> list[str]:
        return [piece.text for node in (self.one, self.other) for piece in node.channel.sent]

    async def answered(self, count: int) -> list[str]:
        await until(lambda: len(self.sent) >= count)
        return self.sent

    async def stop(self, node: Engine) -> None:
        await self.stacks.pop(id(node)).aclose()

    def look(self, sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql).fetchall()  # pyright: ignore[reportArgumentType]

    def do(self, sql: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def pair(
    url: str, folder: Path, model: ScriptedModel, pooled: str = "", **sections: Any
) -> AsyncIterator[Pair]:
    """Start two nodes and stop them at the end; `pooled` is the URL through a pooler, if any."""
    storage: dict[str, Any] = {"url": url, "node_timeout": GONE_AFTER}
    if pooled:
        storage |= {"url": pooled, "direct_url": url}
    stacks: dict[int, AsyncExitStack] = {}
    nodes: list[Engine] = []
    async with AsyncExitStack() as all_of_them:
        for name in ("one", "other"):
            stack = AsyncExitStack()
            all_of_them.push_async_callback(stack.aclose)
            node = await stack.enter_async_context(
                running(
                    folder / name,
                    model=model,
                    storage=storage,
                    channel=InMemoryChannel(),
                    **sections,
                )
            )
            stacks[id(node)] = stack
            nodes.append(node)
        yield Pair(*nodes, url, stacks)
