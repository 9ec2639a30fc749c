"""People who write to the cluster all the time, and what they are owed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from adapters.web.channel import HISTORY_ITEMS
from tests.fakes.telegram_parts import Sent
from tests.proofs.cluster.cluster import ROOM, Cluster
from tests.proofs.cluster.model import CANARY

PAGE = 0  # stands for the owner's page where a chat's number does
DIRECT = (1, 2, 3, 4)
PERSON_IN_ROOM = (5, 6)
QUIET = 60.0  # seconds within which everything is answered once nothing fails any more
LOOK = 0.1  # seconds between two looks into the database

_ANSWER = re.compile(r"re (q\d+)\b")


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that is to be answered, of somebody in a chat."""

    name: str
    chat: int
    sender: int
    at: float


@dataclass
class Verdict:
    """What came of everything that was said."""

    messages: int
    commands: int
    repeats: int  # sends that came twice, each in flight at a fault
    stopped: int  # answers that /stop took away


def canary(chat: int) -> str:
    """A word that nobody but the people of one chat may see."""
    return "canary" + "".join("abcdefghij"[int(digit)] for digit in str(abs(chat)))


class People:
    """They write; `settled` waits until all is answered, `judge` looks at what came of it.

    `faults` has the beginning and the end of each fault, by time.monotonic().
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.asked: dict[str, Asked] = {}
        self.commands: dict[int, list[str]] = defaultdict(list)
        self.faults: list[tuple[float, float]] = []
        self.page = Page(cluster)
        self._stops: list[tuple[int, float]] = []
        self._cluster = cluster
        self._chance = random.Random(seed)  # noqa: S311 - chance, not a secret
        self._numbers = itertools.count(1)

    # --- writing ----------------------------------------------------------------------------------

    def ask(self, chat: int) -> str:
        """Somebody writes to the bot; the message's name."""
        name = f"q{next(self._numbers)}"
        words = f"ask {name} {canary(chat)}"
        sender = self._chance.choice(PERSON_IN_ROOM) if chat == ROOM else chat
        self.asked[name] = Asked(name, chat, sender, time.monotonic())
        if chat == PAGE:
            self.page.send(name, words)
        elif chat == ROOM:
            self._cluster.telegram.say(ROOM, sender, f"@confidant_bot {words}")
        else:
            self._cluster.telegram.push_text(chat, words)
        return name

    def command(self, chat: int, words: str) -> None:
        """Somebody types a command."""
        self.commands[chat].append(words)
        if words == "/stop":
            self._stops.append((chat, time.monotonic()))
        self._cluster.telegram.push_text(chat, words)

    def anything(self) -> None:
        """Somebody does something."""
        dice = self._chance.random()
        if dice < 0.05:
            self.command(self._chance.choice(DIRECT), "/new")
        elif dice < 0.1:
            self.command(self._chance.choice(DIRECT), "/stop")
        else:
            self.ask(self._chance.choice((*DIRECT, ROOM, PAGE)))

    @asynccontextmanager
    async def writing(self, pause: float) -> AsyncGenerator[None]:
        """Write all the time, a message in about so many seconds."""

        async def write() -> None:
            while True:
                self.anything()
                await asyncio.sleep(self._chance.uniform(0, 2 * pause))

        task = asyncio.create_task(write())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # --- what came of it --------------------------------------------------------------------------

    async def settled(self, within: float = QUIET) -> None:
        """Return once every message was stored and answered, and no job or text waits."""
        missing: Any = None
        try:
            async with asyncio.timeout(within):
                while missing := await self._missing():  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise AssertionError(f"still waiting after {within:g} s: {missing}") from None

    async def _missing(self) -> object:
        telegram = self._cluster.telegram
        if telegram.pending() or self.page.waiting:
            return "acknowledged", telegram.pending(), sorted(self.page.waiting)
        owed = len(self.asked) + sum(map(len, self.commands.values()))
        stored = await self._cluster.query("SELECT state, count(*) FROM inbox GROUP BY state")
        if stored != [("done", owed)]:
            return "inbox", owed, stored
        waiting = await self._cluster.query(
            "SELECT id, channel, chat, created_at FROM outbox WHERE state <> 'sent'"
        )
        if waiting:
            return "outbox", waiting
        jobs = await self._cluster.query("SELECT id, status, lock FROM procrastinate_jobs")
        return jobs and ("jobs", jobs)

    async def judge(self) -> Verdict:
        """Look at everything that was answered, on the platforms and in the database."""
        stopped = await self._judge_entries()
        repeats = self._judge_telegram(stopped)
        await self._judge_page(stopped)
        assert not self._cluster.model.leaks, self._cluster.model.leaks[:3]
        return Verdict(
            len(self.asked), sum(map(len, self.commands.values())), repeats, len(stopped)
        )

    async def _judge_entries(self) -> set[str]:
        """Each message is in one turn, in the order of its chat; the names of those stopped."""
        rows = await self._cluster.query(
            "SELECT role, session_id, line FROM entries WHERE kind = 'message' ORDER BY seq"
        )
        turns: dict[str, list[str]] = {"user": [], "assistant": []}
        words: dict[str, set[str]] = defaultdict(set)
        for role, session, line in rows:
            said = str(json.loads(line)["message"]["text"])
            words[session] |= {*CANARY.findall(said)}
            turns[role] += re.findall(r"\b(?:ask|re) (q\d+)\b", said)
        assert all(len(found) <= 1 for found in words.values()), "words of two in one session"
        asked, answered = Counter(turns["user"]), Counter(turns["assistant"])
        twice = {name: n for name, n in (asked | answered).items() if n > 1}
        assert not twice, f"in more than one turn: {twice}"
        assert asked.keys() == self.asked.keys(), {*self.asked} ^ {*asked}
        for chat in {each.chat for each in self.asked.values()}:
            mine = [name for name in self.asked if self.asked[name].chat == chat]
            turned = [name for name in turns["user"] if self.asked[name].chat == chat]
            assert turned == mine, f"not in order in {chat}: {turned} for {mine}"
        unanswered = self.asked.keys() - answered.keys()
        for name in unanswered:
            one = self.asked[name]
            assert any(chat == one.chat and at > one.at for chat, at in self._stops), (
                f"{name} has no answer, and nobody stopped it"
            )
        return unanswered

    def _judge_telegram(self, stopped: set[str]) -> int:
        """Each answer came once, in order, where it belongs; how many sends were repeated.

        In a room nobody waits for another's answer that could not be sent yet: the order is each
        person's own.
        """
        repeats = 0
        by_chat: dict[int, list[Sent]] = defaultdict(list)
        for sent in self._cluster.telegram.sent:
            by_chat[sent.chat_id].append(sent)
            foreign = {*CANARY.findall(sent.text)} - {canary(sent.chat_id)}
            assert not foreign, f"{foreign} was shown in {sent.chat_id}"
        for chat in (*DIRECT, ROOM):
            for sender in PERSON_IN_ROOM if chat == ROOM else (chat,):
                repeats += self._judge_answers(chat, sender, by_chat[chat], stopped)
            repeats += self._judge_commands(chat, by_chat[chat])
        return repeats

    def _judge_answers(
        self, chat: int, sender: int, sent: Sequence[Sent], stopped: set[str]
    ) -> int:
        """Somebody's messages were answered in order; how many of those sends were repeated."""
        mine = {n for n, one in self.asked.items() if (one.chat, one.sender) == (chat, sender)}
        named = [(each, found[1]) for each in sent if (found := _ANSWER.match(each.text))]
        strange = {name for _, name in named} - self.asked.keys()
        assert not strange, f"nobody asked {strange}"
        once, again = self._without_repeats([each for each, name in named if name in mine])
        names = [found[1] for text in once if (found := _ANSWER.match(text))]
        owed = [name for name in self.asked if name in mine and name not in stopped]
        assert names == owed, f"answered to {sender} in {chat}: {names}, asked: {owed}"
        return again

    def _judge_commands(self, chat: int, sent: Sequence[Sent]) -> int:
        """Each command was answered; how many of those sends were repeated."""
        others = [each for each in sent if not _ANSWER.match(each.text)]
        texts = [each.text for each in others]
        again = len(others) - len(self.commands[chat])
        # Two answers may be the same words: at most as many as a fault met are repeats.
        _, repeats = self._without_repeats(others)
        assert 0 <= again <= repeats, f"commands {self.commands[chat]} in {chat}: {texts}"
        return again

    def _without_repeats(self, sent: Sequence[Sent]) -> tuple[list[str], int]:
        """The texts without sends that a fault met; how many those were."""
        once: list[str] = []
        repeats = 0
        before: Sent | None = None
        for each in sent:
            is_same = before is not None and before.text == each.text and self._met(before, each)
            repeats += is_same
            if not is_same:
                once.append(each.text)
            before = each
        return once, repeats

    def _met(self, first: Sent, again: Sent) -> bool:
        """True when a fault may have lost that the first one was sent."""
        return any(begin < again.at and end > first.at - 0.5 for begin, end in self.faults)

    async def _judge_page(self, stopped: set[str]) -> None:
        """Every node that runs shows the same, each answer once."""
        owed = [n for n, one in self.asked.items() if one.chat == PAGE and n not in stopped]
        for node in self._cluster.nodes:
            if node.runs:
                lines = [str(line["text"]) for line in await self.page.history(node.url)]
                names = [found[1] for text in lines if (found := _ANSWER.match(text))]
                # Of more than it shows, the page has the newest.
                shown = owed if len(lines) < HISTORY_ITEMS else owed[-len(names) :]
                assert names == shown, f"the page of node {node.number}: {names}, asked: {owed}"
                foreign = {*CANARY.findall(" ".join(lines))} - {canary(PAGE)}
                assert not foreign, f"{foreign} is on the page"


@dataclass
class Page:
    """The owner at the page: a message is sent again, to any node, until one has taken it."""

    cluster: Cluster
    waiting: dict[str, str] = field(default_factory=dict)
    frames: list[dict[str, Any]] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, name: str, text: str) -> None:
        """Write a message, under an id of its own."""
        self.waiting[name] = text
        self._more.set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Sit in front of it."""
        task = asyncio.create_task(self._sit())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def history(self, url: str) -> list[dict[str, Any]]:
        """What a page shows that is opened now."""
        async with aiohttp.ClientSession() as http, _opened(http, url) as ws:
            while (frame := json.loads(await ws.receive_str()))["type"] != "history":
                pass
            return frame["items"]

    async def _sit(self) -> None:
        async with aiohttp.ClientSession() as http:
            for node in itertools.cycle(self.cluster.nodes):
                if not node.runs:
                    await asyncio.sleep(LOOK)
                    continue
                with contextlib.suppress(aiohttp.ClientError, TypeError, TimeoutError):
                    async with _opened(http, node.url) as ws:
                        await self._talk(ws)

    async def _talk(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        """Send what waits, one after the other, until the connection or an answer is lost."""
        while True:
            for name, text in tuple(self.waiting.items()):
                await ws.send_json({"type": "send", "id": name, "text": text})
                await asyncio.wait_for(self._until_taken(ws, name), 5)
            self._more.clear()
            if not self.waiting:
                await self._more.wait()

    async def _until_taken(self, ws: aiohttp.ClientWebSocketResponse, name: str) -> None:
        while name in self.waiting:
            frame = json.loads(await ws.receive_str())
            self.frames.append(frame)
            if frame["type"] == "ack":
                self.waiting.pop(frame["id"], None)
            elif frame["type"] == "error":
                raise TimeoutError


@asynccontextmanager
async def _opened(
    http: aiohttp.ClientSession, url: str
) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
    async with (
        asyncio.timeout(10) as patience,
        http.ws_connect(f"{url}chat/ws", headers={"Origin": url.rstrip("/")}) as ws,
    ):
        patience.reschedule(None)
        await ws.send_json({"type": "hello", "version": 1, "format": "text"})
        yield ws
