"""A model that answers by what a request is for, and a look at what an engine keeps of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from bot.agent.models import Purpose, Reply, Request, TextDelta, Usage
from bot.messages import Message, Text, ToolUse
from bot.testing import ScriptedModel

SUMMARY = "- They talked about the harbour and its boats.\n- Nothing is left to be done."
# About 220 tokens, and nothing in it that a summary would have to name.
LONG = "we talked about the harbour and the boats in it for quite a while " * 13

Answer = str | Reply | Exception
Answers = Answer | Callable[[Request], Answer]


@dataclass
class Brain(ScriptedModel):
    """A scripted model with an answer for each purpose.

    `used` is what chat replies report to be in the window; `held` holds the replies of a purpose
    back until its event is set.
    """

    used: int = 1_000
    chat: Answers = "All right."
    flush: Answers = "NO_REPLY"
    summary: Answers = SUMMARY
    held: dict[Purpose, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.script = self._answer

    def asked(self, purpose: Purpose) -> list[Request]:
        return [request for request in self.requests if request.purpose == purpose]

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        events = super().stream(request)
        async for event in events:
            if (gate := self.held.get(request.purpose)) is not None:
                await gate.wait()
            yield event

    def _answer(self, request: Request) -> Any:
        answers = {"chat": self.chat, "flush": self.flush, "summary": self.summary}
        answer = answers[request.purpose]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, str) and request.purpose == "chat":
            return says(answer, self.used)
        return answer


def says(words: str, used: int = 0, *uses: ToolUse, stop: Any = "") -> Reply:
    """A reply that leaves so many tokens in the window."""
    text = (Text(words),) if words else ()
    usage = Usage(input_tokens=used - 10, output_tokens=10) if used else Usage()
    message = Message("assistant", (*text, *uses))
    return Reply(message, stop or ("tool_use" if uses else "end"), usage)


def writing(text: str) -> Callable[[Request], Answer]:
    """A flush that writes one entry, and is done once that is answered."""

    def script(request: Request) -> Answer:
        if len(request.messages) > 1:
            return "NO_REPLY"
        return says("", 0, ToolUse("save-1", "memory_write", {"text": text}))

    return script


async def settled() -> None:
    """Wait until an engine has no saving and no compacting to do any more."""
    while tasks := [task for task in asyncio.all_tasks() if _is_upkeep(task)]:
        await asyncio.wait(tasks)


def _is_upkeep(task: asyncio.Task[Any]) -> bool:
    work: Any = task.get_coro()
    return getattr(work, "__qualname__", "").startswith("Upkeep.")


def query(folder: Path, sql: str, *values: object) -> list[Any]:
    connection = apsw.Connection(str(folder / "confidant.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(sql, values))
    finally:
        connection.close()


def change(folder: Path, sql: str, *values: object) -> list[Any]:
    """Run a statement in the database of a folder, as another program would."""
    with contextlib.closing(apsw.Connection(str(folder / "confidant.db"))) as connection:
        connection.set_busy_timeout(5_000)
        return list(connection.execute(sql, values))


def current(folder: Path, key: str = "agent:main:memory:dm:ada") -> dict[str, Any]:
    """The row of the session a key's next message belongs to."""
    connection = apsw.Connection(str(folder / "confidant.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        cursor = connection.execute(
            "SELECT * FROM sessions WHERE id = "
            "(SELECT session_id FROM conversations WHERE key = ?)",
            (key,),
        )
        names = [column[0] for column in cursor.get_description()]
        return dict(zip(names, next(cursor), strict=True))
    finally:
        connection.close()
