"""Nodes whose pages have different tokens: noticed by what each tells of its own, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.cluster import census, visitor
from bot.cluster.census import Census, Member, NodeFacts, mark_of
from bot.push.pusher import PUBLIC
from bot.storage import Database
from bot.testing import ScriptedModel
from tests.fakes.page_nodes import on_postgres, page_node
from tests.fakes.page_people import TOKEN
from tests.support import PATIENCE, pause


@asynccontextmanager
async def visiting_url(url: str) -> AsyncGenerator[Database]:
    async with visitor.visiting(url, "", migrates=False) as here:
        yield here.database


def member(name: str, mark: int, silent: int = 0) -> Member:
    return Member(name, "1", 0, silent, (), 0, NodeFacts(page_token=mark))


def test_a_mark_says_little_and_is_the_same_for_the_same_token():
    assert mark_of("a" * 20) == mark_of("a" * 20)
    assert len({mark_of(f"token number {n}") for n in range(500)}) > 400
    assert all(4096 <= mark_of(f"{n}") < 8192 for n in range(50))
    assert mark_of("") == 0
    assert "page_token" not in NodeFacts(1, 2, 3, mark_of("")).told()


@pytest.mark.parametrize(
    ("nodes", "differ"),
    [
        ([member("one", 5000), member("two", 5000)], ()),
        ([member("one", 5000), member("two", 5001)], ("one", "two")),
        ([member("one", 5000), member("older", 0)], ()),
        ([member("one", 5000), member("gone", 5001, silent=60_000)], ()),
    ],
)
def test_nodes_that_are_there_are_compared(nodes: list[Member], differ: tuple[str, ...]):
    assert census.differing(Census(tuple(nodes)), 10.0) == differ


@pytest.mark.slow
async def test_a_node_with_another_token_is_noticed(postgres_url: str, tmp_path: Path):
    text = on_postgres(postgres_url)
    other = "x" * 24

    async def told(*tokens: str) -> Census:
        """All nodes, once they have told these."""
        async with asyncio.timeout(PATIENCE), visiting_url(postgres_url) as database:
            while True:
                found = await database.read(census.take)
                if {node.facts.page_token for node in found.nodes} == {*map(mark_of, tokens)}:
                    return found
                await pause(0.05)

    async with page_node(tmp_path / "one", text, ScriptedModel(), PUBLIC):
        assert census.differing(await told(TOKEN), 60.0) == ()
        async with page_node(tmp_path / "other", text, ScriptedModel(), PUBLIC, other):
            found = await told(TOKEN, other)
            assert len(census.differing(found, 60.0)) == 2
            assert other not in repr(found)
