"""A model that answers by what a request is for, and a look at what an engine keeps of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from bot.agent.models import Purpose, Reply, Request, TextDelta, Usage
from bot.context import sentences
from bot.memory import guard
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
    flush: Answers = guard.NO_DECISION
    summary: Answers = SUMMARY
    title: Answers = ""
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
        chores = {"flush": self.flush, "summary": self.summary, "title": self.title}
        answer = {"chat": self.chat, **chores}[request.purpose]
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


def writing(*texts: str) -> Callable[[Request], Answer]:
    """A flush that decides to add these entries."""
    return lambda request: added(request, *texts)


_LINE = re.compile(r"^> \[(e?\d+)\] (\w+): (.*(?:\n>   .*)*)", re.MULTILINE)


def numbered(request: Request, who: str = "person") -> dict[str, str]:
    """The lines of a flush that somebody said, by their numbers; entries are "memory"."""
    said = _LINE.findall(request.messages[-1].text)
    return {number: text for number, by, text in said if by == who}


def added(request: Request, *texts: str) -> str:
    """The decisions that add some entries, each citing the lines of the person that fit it best."""
    said = {number: _content(text) for number, text in numbered(request).items()}
    lines = (f"+ {_cited(dict(said), _content(each))} {' '.join(each.split())}" for each in texts)
    return "\n".join(lines) or guard.NO_DECISION


def _content(text: str) -> frozenset[str]:
    return sentences.stems(text).union(map(str, sentences.numbers(text)))


def _cited(said: dict[str, frozenset[str]], left: frozenset[str]) -> str:
    cited = ""
    for _ in range(min(guard.MOST_CITED, len(said))):
        best = max(said, key=lambda number: len(left & said[number]))
        if cited and not left & said[best]:
            break
        cited += f"[{best}]"
        left -= said.pop(best)
    return cited


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
