"""Public doubles: they pass the same contract suites as the real parts.

`InMemoryChannel` is a channel without a platform, `ScriptedModel` a model that says what it is
told, `RecordingEngine` an engine for testing a channel alone, `HashEmbedder` an embedder to whom
texts are alike when they share words.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bot.agent.models import Model, Reply, Request, StopReason, TextDelta, Usage, Window
from bot.channel import (
    Activity,
    Address,
    Capabilities,
    Command,
    Engine,
    Health,
    HistoryItem,
    Inbound,
    Media,
    ModelChoice,
    Outbound,
    Piece,
    Reaction,
)
from bot.channel.kit.text import TakesMarkdown
from bot.errors import EmbedderError, StorageError
from bot.memory.vectors import Vectors, normalised
from bot.messages import Message, Text, ToolUse
from bot.storage import fulltext

TWO_MODELS = ModelChoice("scripted/one", offered=("scripted/one", "scripted/two"))


@dataclass
class RecordingEngine:
    """An engine that keeps what a channel gives it; `failures` makes `receive` fail so often.

    `drops` counts what the channel left out, by reason; `notes` is what it keeps; `shown` is what
    was broadcast, of which `stored` may lie in the database on its way; `reached` who was to be
    told what while away; `uploads` the files put here. `owned` has an event for each account this
    node has: `take_away` sets them all, and until `free` is set again another node has them.
    """

    received: list[Inbound] = field(default_factory=list)
    health: dict[tuple[str, str], tuple[Health, str]] = field(default_factory=dict)
    lines: list[HistoryItem] = field(default_factory=list)
    moved: list[tuple[Address, str]] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter[str])
    notes: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])
    failures: int = 0
    attempts: int = 0
    owned: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    free: asyncio.Event = field(default_factory=asyncio.Event)
    shown: list[tuple[str, str]] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    reached: list[tuple[Address, str]] = field(default_factory=list)
    choice: ModelChoice = TWO_MODELS
    uploads: dict[tuple[Address, str], tuple[Media, bytes]] = field(default_factory=dict)
    reactions: list[Reaction] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        """As on one machine: nobody else wants an account."""
        self.free.set()

    def take_away(self) -> None:
        """Another node has every account now."""
        self.free.clear()
        for lost in self.owned.values():
            lost.set()

    async def receive(self, inbound: Inbound) -> None:
        """Keep it, or fail like a full disk."""
        async with self._changed:
            self.attempts += 1
            if self.failures > 0:
                self.failures -= 1
                self._changed.notify_all()
                raise StorageError("the disk is full")
            self.received.append(inbound)
            self._changed.notify_all()

    async def reacted(self, reaction: Reaction) -> None:
        """Keep it."""
        async with self._changed:
            self.reactions.append(reaction)
            self._changed.notify_all()

    async def chat_moved(self, address: Address, chat: str) -> None:
        """Keep it, or fail like a full disk."""
        async with self._changed:
            self._changed.notify_all()
            if self.failures > 0:
                self.failures -= 1
                raise StorageError("the disk is full")
            self.moved.append((address, chat))

    async def history(
        self, address: Address, limit: int, before: str = ""
    ) -> Sequence[HistoryItem]:
        """The lines set on this double, or those of them that stand before a place."""
        places = [line.place for line in self.lines]
        if before:
            end = places.index(before) if before in places else 0
            return self.lines[max(0, end - limit) : end]
        return self.lines[-limit:]

    async def switch(self, address: Address, message_id: str) -> bool:
        """Note it, as if nobody waited for an answer."""
        self.switched.append(message_id)
        return True

    async def withdraw(self, address: Address, message_id: str) -> bool:
        """Forget that it came."""
        before = len(self.received)
        self.received = [each for each in self.received if each.message_id != message_id]
        return len(self.received) < before

    async def last_seen(self, channel: str, account: str) -> Mapping[str, str]:
        """The newest message received in each chat."""
        found = (inbound for inbound in self.received if inbound.channel == channel)
        return {inbound.chat: inbound.message_id for inbound in found if inbound.account == account}

    async def keep(self, channel: str, account: str, name: str, text: str) -> None:
        """Keep it, or fail like a full disk."""
        async with self._changed:
            self._changed.notify_all()
            if self.failures > 0:
                self.failures -= 1
                raise StorageError("the disk is full")
            self.notes.pop((channel, account, name), None)
            if text:
                self.notes[channel, account, name] = text

    async def kept(self, channel: str, account: str) -> Mapping[str, str]:
        """The kept texts, by name."""
        return {n: text for (c, a, n), text in self.notes.items() if (c, a) == (channel, account)}

    async def put_file(self, address: Address, media: Media, part: int, data: bytes) -> bool:
        """Keep it behind the parts before it."""
        _, before = self.uploads.get((address, media.ref), (media, b""))
        self.uploads[address, media.ref] = media, before + data
        return True

    async def files(self, address: Address) -> Mapping[str, Media]:
        """The files of an address, by ref."""
        return {ref: media for (at, ref), (media, _) in self.uploads.items() if at == address}

    async def file(self, address: Address, ref: str) -> bytes | None:
        """The bytes of a file."""
        return self.uploads[address, ref][1] if (address, ref) in self.uploads else None

    async def drop_file(self, address: Address, ref: str) -> None:
        """Forget it."""
        self.uploads.pop((address, ref), None)

    async def models(self, address: Address, sender: str) -> ModelChoice:
        """The choice set on this double."""
        return self.choice

    def commands(self, locale: str) -> Sequence[Command]:
        """Two commands, enough to fill a menu."""
        chinese = locale.startswith("zh")
        return (
            Command("new", "开始新对话" if chinese else "Start a new conversation", "[model]"),
            Command("status", "状态" if chinese else "Status"),
        )

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Keep the latest state of each connection."""
        self.health[channel, account] = (health, detail)

    def dropped(self, channel: str, reason: str) -> None:
        """Count it by its reason."""
        self.drops[reason] += 1

    @asynccontextmanager
    async def owning(self, channel: str, account: str) -> AsyncGenerator[asyncio.Event]:
        """Wait while another node has it."""
        await self.free.wait()
        lost = self.owned[channel, account] = asyncio.Event()
        try:
            yield lost
        finally:
            del self.owned[channel, account]

    async def broadcast(self, channel: str, body: str, *, stored: bool = True) -> None:
        """Keep it; the channel hears nothing unless the test tells it."""
        self.shown.append((channel, body))
        self.stored += [body] * stored

    def reach(self, address: Address, words: str) -> None:
        """Keep it."""
        self.reached.append((address, words))

    async def wait_until(self, ready: Callable[[RecordingEngine], bool]) -> None:
        """Return once something received makes `ready` true."""
        async with self._changed:
            await self._changed.wait_for(lambda: ready(self))


@dataclass(eq=False)
class InMemoryChannel(TakesMarkdown):
    """A channel without a platform: tests push messages in and read what was sent."""

    name: str = "memory"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            max_length=4000,
            typing=True,
            drafts=True,
            buttons=True,
            attachments=True,
            activities=True,
        )
    )
    activities: list[Activity] = field(default_factory=list)
    sent: list[Piece] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    typed: list[Address] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)  # raised by the next sends, in order
    engine: Engine | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self, engine: Engine) -> None:
        """Remember the engine and report up."""
        self.engine = engine
        engine.report(self.name, "default", Health.UP)

    async def push(self, inbound: Inbound) -> None:
        """Deliver a message as the platform would."""
        if self.engine is None:
            raise RuntimeError("the channel is not started")
        await self.engine.receive(inbound)

    async def press(self, outbound: Outbound | Piece, label: str) -> None:
        """Press a button below something that was sent, as the person of that chat would.

        A message takes one press: a second one has the same id.
        """
        command = next(button.command for button in outbound.buttons if button.label == label)
        place = outbound.address
        await self.push(
            Inbound(
                channel=place.channel,
                account=place.account,
                chat=place.chat,
                thread=place.thread,
                chat_type="direct",
                sender=place.chat,
                message_id=f"press-{outbound.id}",
                text=command,
                sent_at=outbound.at,
            )
        )

    async def send(self, piece: Piece) -> str:
        """Keep it, or raise the next planned error."""
        async with self._changed:
            if self.errors:
                raise self.errors.pop(0)
            self.sent.append(piece)
            self._changed.notify_all()
            return f"sent-{len(self.sent)}"

    async def typing(self, address: Address) -> None:
        """Keep that it was shown."""
        self.typed.append(address)

    async def activity(self, address: Address, activity: Activity) -> None:
        """Keep what was shown."""
        self.activities.append(activity)

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Keep what was shown."""
        self.drafts.append(text)

    async def stop(self) -> None:
        """Forget the engine."""
        self.engine = None

    async def wait_until(self, ready: Callable[[list[Piece]], bool]) -> None:
        """Return once what was sent makes `ready` true."""
        async with self._changed:
            await self._changed.wait_for(lambda: ready(self.sent))

    async def wait_sent(self, count: int) -> list[Piece]:
        """Return once `count` pieces were sent."""
        await self.wait_until(lambda sent: len(sent) >= count)
        return self.sent


Script = Callable[[Request], "str | Reply | Exception"]


@dataclass
class ScriptedModel(Model):
    """A model that says what its script says; by default it repeats the person's last words.

    `gate`, when set, holds every reply back after its first delta until the event is set. `thinks`
    is what it thinks before each of them, `thought_gate` holds it back after that.
    """

    script: Script = lambda request: f"You said: {request.messages[-1].text}"
    name: str = "scripted"
    input_window: int = 0  # not told, as by a service that says nothing of its models
    requests: list[Request] = field(default_factory=list)
    gate: asyncio.Event | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    thinks: str = ""
    thought_gate: asyncio.Event | None = None

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Stream the scripted answer word by word."""
        self.requests.append(request)
        answer = self.script(request)
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, Reply) else says(answer)
        if request.on_thought is not None and self.thinks:
            for word in self.thinks.split(" "):
                request.on_thought(f"{word} ")
            if self.thought_gate is not None:
                await self.thought_gate.wait()
        words = reply.message.text.split(" ")
        for index, word in enumerate(words):
            if reply.message.text:
                yield TextDelta(word if index == 0 else f" {word}")
            if index == 0:
                self.started.set()
                if self.gate is not None:
                    await self.gate.wait()
        yield reply

    async def window(self, model: str) -> Window:
        """The window set on this double."""
        return Window(self.input_window, 8192)

    async def names(self) -> tuple[str, ...]:
        """Two names."""
        return ("scripted", "scripted-two")


@dataclass
class HashEmbedder:
    """An embedder without a model: each word has a direction of its own, the same everywhere.

    `reason`, when set, is why it fails; `gate`, when set, holds every call back until the event is
    set. Changing `dims` is what a server does that was given another model.
    """

    dims: int = 64
    model: str = "hash"
    provider: str = "hash"
    endpoint: str = ""
    reason: str = ""
    gate: asyncio.Event | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """The mean direction of each text's words; zeros for a text without any.

        Raises:
            EmbedderError: `reason` is set.
        """
        self.asked.append(tuple(texts))
        self.started.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.reason:
            raise EmbedderError(self.reason)
        rows = np.zeros((len(texts), self.dims), np.float32)
        for at, text in enumerate(texts):
            for word in fulltext.runs(fulltext.spaced(text.lower())):
                rows[at] += _direction(word, self.dims)
        return normalised(rows)

    async def close(self) -> None:
        """Nothing to let go of."""


@lru_cache(10_000)
def _direction(word: str, dims: int) -> Vectors:
    seed = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    generator = np.random.default_rng(int.from_bytes(seed, "big"))
    return generator.normal(size=dims).astype(np.float32)


def says(text: str, *, stop: StopReason = "end") -> Reply:
    """A reply of words only, with usage a real service might report."""
    message = Message("assistant", (Text(text),) if text else ())
    return Reply(message, stop, Usage(input_tokens=len(text) + 10, output_tokens=len(text) // 4))


def calls(name: str, /, **arguments: object) -> Reply:
    """A reply that asks for one tool."""
    use = ToolUse(f"call-{name}", name, arguments)
    return Reply(Message("assistant", (use,)), "tool_use", Usage(10, 5))
