"""A Messages API whose every answer names the message it answers, and that sees every prompt."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.fakes.messages_api import end, model_info, running, sse, start, text

MARK = re.compile(r"\bq\d+\b")  # the name of a message
CANARY = re.compile(r"\bcanary[a-z]+\b")  # what only one conversation may hold
NAME = "claude-sonnet-5-5"
NOTHING = "NO_REPLY"  # to a request that is for no message: nothing is worth being kept

Hold = Callable[[str, int], Awaitable[None]]


class Model:
    """The model; `url` is where it is.

    Attributes:
        thinks: seconds between the least and most of which it answers.
        before_end: awaited with the message's name and the port it was asked through when an
            answer is out but for its end: the node that asked cannot have stored anything yet.
        leaks: prompts in which somebody else's words stood.
        asked: how often each message was asked.
    """

    def __init__(self, seed: int) -> None:
        self.thinks = (0.0, 0.3)
        self.before_end: Hold | None = None
        self.leaks: list[set[str]] = []
        self.asked: dict[str, int] = {}
        self.url = ""
        self._chance = random.Random(seed)  # noqa: S311 - chance, not a secret

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body: dict[str, Any] = await request.json()
        canaries = {*CANARY.findall(str(body))}
        if len(canaries) > 1:
            self.leaks.append(canaries)
        marks = MARK.findall(str(body["messages"][-1]["content"]))
        name = marks[-1] if marks else ""
        words = f"re {name} {' '.join(canaries)}".strip() if name else NOTHING
        self.asked[name] = self.asked.get(name, 0) + 1
        await asyncio.sleep(self._chance.uniform(*self.thinks))
        port = int(request.headers["Host"].rpartition(":")[2])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with contextlib.suppress(ConnectionResetError):  # who asked may be gone
            await response.prepare(request)
            opening = (start(input_tokens=20), *text(0, words))
            await response.write(b"".join(map(sse, opening)))
            if self.before_end is not None:
                await self.before_end(name, port)
            await response.write(b"".join(map(sse, end(output_tokens=5))))
            await response.write_eof()
        return response


@asynccontextmanager
async def a_model(seed: int) -> AsyncGenerator[Model]:
    """Start one on a free port of this machine."""
    model = Model(seed)
    async with running(model.answer) as api:
        api.models[NAME] = model_info(NAME, 200_000, 64_000)
        model.url = api.base_url
        yield model
