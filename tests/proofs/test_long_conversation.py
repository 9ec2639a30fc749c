"""A conversation that goes on for very long stays within its window and loses nothing.

Many turns with tool results, 2 000 in `make proof`, go through a window of 32 000 tokens, once with
a service that counts otherwise than the engine estimates and reports it, once with the offline
model, which reports nothing. Every request is counted as the service would; each must fit, differ
from the one before only at its end, and begin with the same bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from bot.agent.models import Reply, Request, TextDelta, Usage
from bot.agent.offline import OfflineModel, chore
from bot.context import tokens
from bot.context.history import size_of
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.sessions import entries
from bot.testing import ScriptedModel
from tests.fakes.brain import current, query, settled
from tests.proofs.rounds import long, rounds
from tests.support import Engine, running

MOST, OFFLINE_MOST, BRIEF = 2_000, 300, 60  # turns
WINDOW = 32_000
FULL = 24_000  # tokens; the rest is kept free for the reply
MOST_ADDED = 8_000  # tokens that a turn's tools may add
HEAVIER = 1.15  # what the service counts for one estimated token

_ENGLISH = """
harbour boat lantern ferry pier gull anchor rope sail tide cabin storm captain compass chart island
bridge market bakery garden fence piano violin theatre ticket museum river mountain
"""
_WORDS = (*_ENGLISH.split(), *"港口 渡船 灯塔 花园 面包店 小岛 地图 指南针".split())  # noqa: SIM905


def sent(messages: Sequence[Message]) -> list[Message]:
    """Messages as the service gets them: it is not told whose words they hold."""
    return [
        replace(
            message,
            blocks=tuple(
                replace(block, origin="") if isinstance(block, (Text, ToolResult)) else block
                for block in message.blocks
            ),
        )
        for message in messages
    ]


@dataclass
class Watched(ScriptedModel):
    """A model whose requests are checked as they come; each is compared with the one before."""

    input_window: int = WINDOW
    heavier: float = 1.0
    largest: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    prefixes: set[tuple[str, bytes]] = field(default_factory=set)
    grown: int = 0
    summaries: set[str] = field(default_factory=set)
    shortened: list[int] = field(default_factory=list)  # how full requests were that changed
    _last: Request | None = None
    _sizes: dict[int, tuple[Message, int]] = field(default_factory=dict)

    def weigh(self, request: Request) -> int:
        """What the service counts for a request."""
        tools = orjson.dumps([[t.name, t.description, dict(t.schema)] for t in request.tools])
        fixed = tokens.estimate(request.system) + tokens.estimate(tools.decode())
        return round((fixed + sum(map(self._size, request.messages))) * self.heavier)

    def _size(self, message: Message) -> int:
        """Weighed once for each message; it is kept, so that its identity stays its own."""
        found = self._sizes.get(id(message))
        if found is None:
            found = self._sizes[id(message)] = (message, size_of(message))
        return found[1]

    def check(self, request: Request) -> int:
        count = self.weigh(request)
        self.largest[request.purpose] = max(self.largest[request.purpose], count)
        self.calls[request.purpose] += 1
        assert count <= WINDOW, (request.purpose, count)
        if request.purpose == "chat":
            self._compare(request)
        return count

    def _compare(self, request: Request) -> None:
        specs = orjson.dumps([[tool.name, tool.description] for tool in request.tools])
        self.prefixes.add((request.system, specs))
        last, self._last = self._last, request
        opening = request.messages[0].blocks[0]
        assert isinstance(opening, Text)
        if last is None or opening != last.messages[0].blocks[0]:
            self.summaries.add(opening.text)
        elif sent(request.messages[: len(last.messages)]) == sent(last.messages):
            self.grown += 1
        else:
            self.shortened.append(self.weigh(last))


@dataclass
class Reporting(Watched):
    """It calls tools, reports what it counts, and summarises by picking sentences."""

    heavier: float = HEAVIER

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        count = self.check(request)
        message = self._chat(request) if request.purpose == "chat" else chore(request)
        yield TextDelta(message.text)
        uses = any(isinstance(block, ToolUse) for block in message.blocks)
        usage = Usage(input_tokens=count, output_tokens=round(size_of(message) * self.heavier))
        yield Reply(message, "tool_use" if uses else "end", usage)

    def _chat(self, request: Request) -> Message:
        said = request.messages[-1]
        if any(isinstance(block, ToolResult) for block in said.blocks):
            return Message("assistant", (Text(f"That is what I found. {sentence(9)}"),))
        number = int(said.text.split()[1])
        if number % 3:
            return Message("assistant", (Text(sentence(number)),))
        name = f"memory/book-{number % 5}.md"
        use = ToolUse(f"c{number}", "memory_get", {"path": name, "lines": 100})
        return Message("assistant", (Text("Let me see."), use))


@dataclass
class Offline(Watched):
    """The offline model in a window of 32 000 tokens."""

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        self.check(request)
        async for event in OfflineModel().stream(request):
            yield event


def sentence(number: int, words: int = 40) -> str:
    dice = random.Random(number)  # noqa: S311 - the same words every time
    return " ".join(dice.choice(_WORDS) for _ in range(words)).capitalize() + "."


def books(folder: Path) -> None:
    """Notes of different lengths: the longest is more than one call shows."""
    place = folder / "workspace" / "memory"
    place.mkdir(parents=True)
    for number in range(5):
        lines = (f"- {sentence(number * 1_000 + line, 12)}" for line in range(20 + 30 * number))
        (place / f"book-{number}.md").write_text("\n".join(lines))


async def converse(engine: Engine, said: Sequence[str]) -> None:
    for words in said:
        before = len(engine.channel.sent)
        await engine.say(words)
        await engine.channel.wait_until(
            lambda sent, before=before: any(each.kind == "reply" for each in sent[before:])
        )
    await settled()


def once_in_each_cycle(folder: Path) -> Counter[str]:
    """How often each thing was told; none of them twice between two summaries."""
    rows = query(folder, "SELECT line FROM entries ORDER BY seq")
    found: Counter[str] = Counter()
    cycle: Counter[str] = Counter()
    for entry in (entries.parse(row[0]) for row in rows):
        match entry.kind:
            case "compaction":
                found["compaction"] += 1
                cycle.clear()
            case "notice":
                what = " ".join(entry.text.split()[:2])
                if "% full" in entry.text:
                    percent = int(entry.text.split(" %")[0].split()[-1])
                    what = "85 %" if percent >= 85 else "70 %"
                cycle[what] += 1
                found[what] += 1
                assert cycle[what] == 1, entry.text
            case _:
                continue
    return found


def messages(folder: Path) -> list[entries.Entry]:
    rows = query(folder, "SELECT line FROM entries WHERE kind = 'message' ORDER BY seq")
    return [entries.parse(row[0]) for row in rows]


def flushes(engine: Engine) -> float:
    samples = (s for metric in engine.app.core.metrics.flushes.collect() for s in metric.samples)
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "turns"),
    [
        (Reporting(), BRIEF),
        long(Reporting(), min(rounds(MOST, few=400), MOST)),
        long(Offline(), min(rounds(OFFLINE_MOST, few=150), OFFLINE_MOST)),
    ],
    ids=["briefly", "reports", "offline"],
)
async def test_a_long_conversation_stays_within_its_window(
    tmp_path: Path, model: Watched, turns: int
):
    """The offline model has fewer turns: it reads all it has of a conversation for each reply."""
    books(tmp_path)
    said = [_words(model, number) for number in range(turns)]
    sections: dict[str, Any] = {"session": {"owner": ("memory:ada",)}}
    async with running(
        tmp_path, model=model, context={"enable_memory_flush": True}, **sections
    ) as engine:
        await converse(engine, said)
        flushed = flushes(engine)
    row = current(tmp_path)
    told = once_in_each_cycle(tmp_path)
    kept = messages(tmp_path)
    compactions = row["compaction_count"]
    print(
        f"\n{type(model).__name__}: {turns} turns, {dict(model.calls)} calls, largest requests "
        f"{dict(model.largest)} of {WINDOW}, {compactions} compactions, {flushed:.0f} flushes, "
        f"told {dict(told)}; {model.grown} requests only grew, {len(model.shortened)} were "
        f"shortened"
    )
    # Nothing is lost.
    assert [entry.text for entry in kept if entry.role == "user" and entry.source] == said
    assert row["turns"] == turns
    mirrored = next((tmp_path / "sessions").rglob("*.jsonl")).read_text().splitlines()
    assert len(mirrored) == row["entry_count"] + 1
    # Everything at most once a cycle.
    assert compactions >= 3
    assert told["compaction"] == compactions
    # One more wherever a compaction could not wait for the flush, which then goes on after it.
    assert flushed <= compactions + 1 + compactions // 4
    assert told["70 %"] <= compactions + 1
    # What a request begins with is the same for the whole session, and what follows only grows.
    assert len(model.prefixes) == 1
    assert len(model.summaries) <= compactions + 1
    asked = model.calls["chat"]
    assert model.grown + len(model.shortened) + len(model.summaries) == asked
    # Only a full conversation is shortened; the request before lacked results that had no room.
    assert all(full > FULL - MOST_ADDED for full in model.shortened)
    assert not any(later.at < earlier.at for earlier, later in pairwise(kept))


def _words(model: Watched, number: int) -> str:
    if isinstance(model, Reporting):
        return f"turn {number} {sentence(number, 30)}"
    wishes = (
        f"remember that my {_WORDS[number % 30]} number {number} is called {sentence(number, 2)}",
        f"what do you know about {_WORDS[number % 30]}?",
        f"turn {number} {sentence(number, 150)}",
    )
    return wishes[number % 3]
