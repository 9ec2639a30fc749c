"""A whole engine under siege: canaries everywhere, and an oracle that says who may see which.

The oracle is written from the documentation and calls nothing of `bot.identity.view` or
`bot.identity`: what they get wrong, it must notice.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote as escaped

import aiohttp
import numpy as np
import psycopg
import pytest
import structlog
from pydantic import BaseModel, Field
from structlog._config import BoundLoggerLazyProxy

from bot import app as composition
from bot.agent.models import Request, ToolSpec
from bot.agent.recall import LATER
from bot.app import App, Parts
from bot.channel import Address, Capabilities, ChannelPlugin, ChannelScope, ChatType, Inbound
from bot.memory import note_store, vectors
from bot.memory.row_notes import RowNotes, space_of
from bot.memory.transcripts import TranscriptFeed
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.settings import config_model
from bot.testing import InMemoryChannel, ScriptedModel, calls, says
from tests.fakes.brain import added, settled
from tests.support import FakeClock, OpenConfig, write_file

BLURTED = 12  # canaries in one reply; the prompt itself is scanned for all
WAIT = 20.0  # seconds until a missing answer counts as lost
FAST = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF")
TOKEN = re.compile(r"zq[0-9]{9}z", re.IGNORECASE)
STEP = re.compile(r"#(\d+)#")
CHANNELS = ("memory", "other", "nct")
T = TypeVar("T")
TOPICS = (
    "the code of the garage door",
    "my sister's illness and her doctor",
    "the salary at the new job",
    "the name of the red boat",
    "车库门的密码和女儿的医生",
)
QUESTIONS = (
    "What opens the garage?",
    "Who is ill in the family, and who is the doctor?",
    "How much is earned at the new work?",
    "what is the red ship called? boat name",
    "车库 密码 医生",
    "canary secret code name salary",
)


class Leak(AssertionError):
    """Somebody was shown what was not theirs."""


def remembered(judge: Callable[[Setting, Who], T]) -> Callable[[Setting, Who], T]:
    """An answer of the oracle, worked out once for each setting: it is asked thousands of times."""

    @wraps(judge)
    def once(setting: Setting, who: Who) -> T:
        key = judge.__name__, who
        if key not in setting.known:
            setting.known[key] = judge(setting, who)
        return setting.known[key]

    return once


@dataclass(frozen=True)
class Who:
    """Somebody at one place: in a direct chat, or in a room."""

    channel: str
    sender: str
    account: str = "default"
    thread: str = ""
    room: str = ""

    @property
    def id(self) -> str:
        return f"{self.channel}:{self.sender}"

    @property
    def chat(self) -> str:
        return self.room or self.sender

    @property
    def chat_type(self) -> ChatType:
        return "group" if self.room else "direct"

    @property
    def address(self) -> Address:
        return Address(self.channel, self.account, self.chat, self.thread)


PEOPLE = tuple(
    Who(channel, sender, account, thread)
    for channel, sender, account, thread in (
        ("memory", "ada", "default", ""),
        ("memory", "ada", "second", ""),
        ("memory", "ada", "default", "t1"),
        ("memory", "bob", "default", ""),
        ("memory", "boss", "default", ""),
        ("memory", "Ada", "default", ""),
        ("memory", "@ada", "default", ""),
        ("memory", "main", "default", ""),
        ("memory", "ada:thread:t1", "default", ""),
        ("memory", "../ada", "default", ""),
        ("memory", "%40ada", "default", ""),
        ("other", "ada", "default", ""),
        ("other", "eve", "default", ""),
        ("other", "memory:ada", "default", ""),
        ("nct", "bob", "default", ""),
        ("nct", "chief", "default", "t1"),
        ("nct", "阿达", "default", ""),
        # Chosen so that 40 bits of what their folders are called after are the same ...
        ("memory", "kOLliSIOnsFReUnduNDnAchbarin", "default", ""),
        ("memory", "kOllISionsFReUNDunDNAchbarin", "default", ""),
        # ... and 48 bits of what their session keys are made of.
        ("memory", "kOlliSiOnSFReuNdUndnAcHBarin", "default", ""),
        ("memory", "kOllisiONSFREunDuNDNaChBArin", "default", ""),
    )
)
LINKER = Who("memory", "mallory")  # whose folder is a link to Ada's
EVERYONE = (*PEOPLE, LINKER)
# People who may talk in rooms: several in one, one in several, and rooms called like each other.
MEMBERS = tuple(
    Who(channel, sender, account, thread, room)
    for channel, sender, account, thread, room in (
        ("memory", "ada", "default", "", "den"),
        ("memory", "bob", "default", "", "den"),
        ("memory", "boss", "default", "", "den"),
        ("memory", "bob", "default", "t1", "den"),
        ("memory", "ada", "second", "", "den"),
        ("memory", "bob", "second", "", "den"),
        ("memory", "bob", "default", "", "cave"),
        ("memory", "boss", "default", "", "cave"),
        ("memory", "bob", "default", "", "people/ada"),
        ("other", "eve", "default", "", "den"),
        ("other", "ada", "default", "", "den"),
        ("nct", "阿达", "default", "t1", "@ada"),
    )
)
# People who are in a room, and may not talk to it there.
BYSTANDERS = (Who("memory", "ada", room="cave"), Who("memory", "mallory", room="cave"))
GROUPS = {"closed": {"enabled": False}, "cave": {"allow_from": ["bob", "memory:boss"]}}
ADMIN = "bob"
DECLINED = "Sorry, I'm not allowed to talk here. The person who runs me decides where I may."


@dataclass(frozen=True)
class Rules:
    """Scope rules as data: (action, field, value); an empty field matches everybody."""

    default: str = "deny"
    rules: tuple[tuple[str, str, str], ...] = (("allow", "chat_type", "direct"),)

    def as_config(self) -> dict[str, Any]:
        rules = [{"action": a, **({f: v} if f else {})} for a, f, v in self.rules]
        return {"default": self.default, "rules": rules}


@dataclass(frozen=True)
class Agent:
    """One of `[agents]`; each of `binds` is a rule as pairs of field and value."""

    name: str
    binds: tuple[tuple[tuple[str, str], ...], ...]
    has_own: bool = False

    def as_config(self) -> dict[str, Any]:
        return {"memory": "own" if self.has_own else "main", "bind": [*map(dict, self.binds)]}


# One with memory of its own, for a room, a person, a thread of Ada's and one account of the owner's
# with links; and one with that of `[agent]`, for another room and another person.
AGENTS = (
    Agent(
        "family",
        (
            (("channel", "memory"), ("account", "default"), ("chat", "den")),
            (("channel", "memory"), ("sender", "bob")),
            (("channel", "memory"), ("sender", "ada"), ("thread", "t1")),
            (("channel", "nct"), ("sender", "chief")),
        ),
        has_own=True,
    ),
    Agent("clerk", ((("channel", "memory"), ("chat", "cave")), (("sender", "eve"),))),
)


@dataclass(frozen=True)
class Setting:
    """A configuration as the oracle understands it."""

    dm_scope: str = "per-channel-peer"
    owner: tuple[str, ...] = ()
    links: tuple[tuple[str, tuple[str, ...]], ...] = ()
    scope: Rules = field(default_factory=Rules)
    channel_scopes: tuple[tuple[str, Rules], ...] = ()
    account_scopes: tuple[tuple[str, Rules], ...] = ()  # of the channel "memory"
    embedder: str = "none"
    night: str = "rules"  # how notes are kept in order at night
    joined: tuple[tuple[str, str], ...] = ()  # with /link: whom an account counts as
    agents: tuple[Agent, ...] = ()
    known: dict[tuple[str, Who], Any] = field(
        default_factory=dict[tuple[str, "Who"], Any], init=False, repr=False, compare=False
    )

    # --- the oracle -------------------------------------------------------------------------------

    def as_whom(self, who: Who) -> Who:
        """The account one counts as, once it was joined to another one."""
        root = dict(self.joined).get(who.id, who.id)
        channel, _, sender = root.partition(":")
        return replace(who, channel=channel, sender=sender)

    def is_configured(self, who: Who) -> bool:
        return who.id in self.owner or bool(self._link(who.id))

    def _link(self, id_: str) -> str:
        return next((name for name, places in self.links if id_ in places), "")

    @remembered
    def link(self, who: Who) -> str:
        return self._link(self.as_whom(who).id)

    @remembered
    def is_owner(self, who: Who) -> bool:
        joined = dict(self.links).get(self.link(who), ())
        return self.as_whom(who).id in self.owner or any(place in self.owner for place in joined)

    @remembered
    def agent(self, who: Who) -> str:
        """Who answers: the first with a rule that fits; a sender is one of a direct chat."""
        for agent in self.agents:
            for bind in agent.binds:
                fits = all(not value or getattr(who, name) == value for name, value in bind)
                if fits and not (who.room and dict(bind).get("sender")):
                    return agent.name
        return "main"

    def memory(self, agent: str) -> str:
        """Whose memory an agent has: its own, or that of `[agent]`, which is called ""."""
        return agent if any(each.has_own for each in self.agents if each.name == agent) else ""

    def in_memory(self, memory: str, space: str) -> str:
        """What a space of `[agent]` is in some memory."""
        if not memory:
            return space
        return f"agents/{memory}" if space == "main" else f"agents/{memory}/{space}"

    @property
    def memories(self) -> tuple[str, ...]:
        return ("", *(each.name for each in self.agents if each.has_own))

    @remembered
    def person(self, who: Who) -> str:
        if self.is_owner(who):
            return "the owner"
        return f"@{self.link(who)}" if self.link(who) else self.as_whom(who).id

    @remembered
    def talker(self, who: Who) -> str:
        """Whose the talk of a direct chat is, in the memory it is in."""
        return f"{self.memory(self.agent(who))}/{self.person(who)}"

    @remembered
    def persons(self, who: Who) -> frozenset[str]:
        """Everybody somebody is: also the accounts that were joined, from before they were."""
        own = self.person(who)
        seats = {Who(*id_.split(":", 1)) for pair in self.joined for id_ in pair}
        return frozenset({own, *(seat.id for seat in seats if self.person(seat) == own)})

    @remembered
    def space(self, who: Who) -> str:
        return self.in_memory(self.memory(self.agent(who)), self.main_space(who))

    @remembered
    def main_space(self, who: Who) -> str:
        if who.room:
            account = "-" if who.account == "default" else f"/{who.account}/"
            return f"rooms/{folder_of(f'{who.channel}{account}{who.room}')}"
        if self.is_owner(who):
            return "main"
        # Who is called like the owner's memory is somebody else.
        link = "@main" if self.link(who) == "main" else self.link(who)
        return f"people/{folder_of(link or self.as_whom(who).id)}"

    @remembered
    def conversation(self, who: Who) -> tuple[str, ...]:
        """Who shares whose prompt, by the table in docs/operating.md."""
        if who.room:
            place = who.channel, who.account, who.room, who.thread
            return ("room", *place, self.agent(who))
        root = self.as_whom(who)
        peer = f"@{self.link(who)}" if self.link(who) else ""
        if not peer and root.id != who.id and self.dm_scope != "per-peer":
            peer = f"@@{root.id}"
        found: tuple[str, ...]
        match self.dm_scope:
            case "main":
                found = ("main",)
            case "per-peer":
                found = (peer,) if peer else (root.channel, root.sender)
            case "per-channel-peer":
                found = (who.channel, peer or f"={who.sender}")
            case _:
                found = (who.channel, who.account, peer or f"={who.sender}")
        return (*found, who.thread, self.agent(who))

    @remembered
    def sees_memory(self, who: Who) -> bool:
        """Own rules of the account, else of the channel; then those of [scope]; first match."""
        own = dict(self.channel_scopes).get(who.channel, Rules("", ()))
        if who.channel == "memory":
            own = dict(self.account_scopes).get(who.account, own)
        rules = own.rules if own.default else (*own.rules, *self.scope.rules)
        for action, name, value in rules:
            if self._matches(who, name, value):
                return action == "allow"
        return (own.default or self.scope.default) == "allow"

    def _matches(self, who: Who, name: str, value: str) -> bool:
        if name == "key_prefix":
            begins = {"main": "main", "per-peer": "dm:"} if not who.room else {}
            rest = begins.get(self.dm_scope, f"{who.channel}:")
            return f"agent:{self.agent(who)}:{rest}".startswith(value)
        return (getattr(who, name) if name else "") == value


def folder_of(identity: str) -> str:
    """`people/<id>`: safe ids as they are, others readable and with a digest."""
    if re.fullmatch(r"[a-z0-9_](?:[a-z0-9_.-]{0,46}[a-z0-9_])?", identity):
        return identity
    readable = re.sub(r"[^a-z0-9_.-]+", "-", identity.lower()).strip("-.")[:48]
    return f"{readable or 'id'}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


# --- doubles --------------------------------------------------------------------------------------


class Account(BaseModel):
    scope: ChannelScope = Field(default_factory=ChannelScope)


class WithAccounts(OpenConfig):
    accounts: dict[str, Account] = Field(default_factory=dict)


@dataclass
class Recorded(InMemoryChannel):
    """A channel that also knows for whom a draft was."""

    drafted: list[tuple[Address, str]] = field(default_factory=list)

    async def is_admin(self, address: Address, sender: str) -> bool:
        return sender == ADMIN

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        self.drafted.append((address, text))


class HashEmbedder:
    """Vectors of letters in a row: alike texts are near, also when they share no whole word."""

    provider, model, endpoint, dims = "hash", "letters", "", 64

    async def embed(self, texts: Sequence[str]) -> vectors.Vectors:
        rows = np.zeros((len(texts), self.dims), np.float32)
        for row, text in zip(rows, texts, strict=True):
            flat = text.lower()
            for at in range(max(1, len(flat) - 2)):
                row[zlib.crc32(flat[at : at + 3].encode("utf-8", "replace")) % self.dims] += 1
        return vectors.normalised(rows)

    async def close(self) -> None:
        return None


class DrivenFeed(TranscriptFeed):
    """The feed, which here looks only when a test says so."""

    async def run(self) -> None:
        await asyncio.Event().wait()


class Wiretap(logging.Handler):
    """Every log line of everything, whatever its level."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def note(self, _logger: object, _method: str, event: Any) -> Any:
        self.lines.append(repr(event))
        raise structlog.DropEvent

    @contextmanager
    def listening(self) -> Any:
        root = logging.getLogger()
        level, before = root.level, structlog.get_config()
        root.addHandler(self)
        root.setLevel(1)
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                self.note,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            cache_logger_on_first_use=False,
        )
        _forget_loggers()
        try:
            yield self
        finally:
            root.removeHandler(self)
            root.setLevel(level)
            structlog.configure(**before)


def _forget_loggers() -> None:
    """Loggers that were used before remember how they were set up then."""
    import sys

    for name, module in list(sys.modules.items()):
        if name.startswith(("bot", "adapters")):
            for value in list(vars(module).values()):
                if isinstance(value, BoundLoggerLazyProxy):
                    vars(value).pop("bind", None)


# Folders of documents, and who they are for beside the owner.
ADA = Who("memory", "ada")
FOLDERS = {"vault": "owner", "adas": "memory:ada", "handbook": "everyone"}


# --- the world ------------------------------------------------------------------------------------


@dataclass
class Canary:
    """A unique word; `spaces` whose files hold it rightly, `said` the conversations it is in.

    Of a folder of documents, `folder` is the account it is for, whoever that is by now.
    """

    spaces: set[str] = field(default_factory=set)
    folder: str = ""
    said: set[tuple[str, ...]] = field(default_factory=set)
    persons: set[str] = field(default_factory=set)


May = Callable[[Canary], bool]


@dataclass
class Plan:
    """What the model does in one turn."""

    who: Who | None  # None: nobody may be answered
    tools: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    blurts: bool = True
    keeps: bool = False  # writes whatever it was shown into memory


class World:
    """One workspace, one engine, many people, and everything they are shown."""

    def __init__(self, folder: Path, setting: Setting, tap: Wiretap, url: str = "") -> None:
        """Notes are files below `folder`, or rows of the database that `url` names."""
        self.folder = folder
        self.url = url
        self._planted: list[tuple[str, str]] = []  # rows that are not in the database yet
        self.setting = setting
        self.tap = tap
        self.clock = FakeClock()
        self.canaries: dict[str, Canary] = {}
        self.plans: dict[int, Plan] = {}
        self.counts: Counter[str] = Counter()
        self.numbers = itertools.count(1)
        self.model = ScriptedModel(script=self._script)
        self.channels: dict[str, Recorded] = {}
        self.memory: Any = None
        self.feed: Any = None
        self._stack = AsyncExitStack()
        self._replies: Counter[Address] = Counter()
        # where, what, and what may be in it, which prompts decide that are not looked at yet
        self._answers: list[tuple[str, str, May]] = []
        self._reads: list[str] = []
        self._held: dict[Who, set[tuple[str, ...]]] = {}
        # The canaries in what was shown, by its identity, with it so that this stays its own:
        # prompts have most in common.
        self._scanned: dict[int, tuple[object, frozenset[str]]] = {}
        # What the model of chores says of somebody's notes.
        self.proposes: Callable[[str], str] = lambda listed: listed
        self._always: set[tuple[str, ...]] = set()  # rooms where all that is said is answered
        # What the owner is called stands in the owner's own direct chats, as their MEMORY.md does.
        self.owner_name = self.canary(space="main")

    # --- its life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        self.channels = {
            name: Recorded(name, Capabilities(1_000_000, typing=True, drafts=True))
            for name in CHANNELS
        }
        self._replies.clear()
        config, plugins = self._config()
        patch = pytest.MonkeyPatch()
        self._stack = AsyncExitStack()
        self._stack.callback(patch.undo)
        original, opened = composition.Memory.from_settings, note_store.opened

        def memory_of(*arguments: Any, **named: Any) -> Any:
            self.memory = original(*arguments, **named)
            return self.memory

        def feed_of(*arguments: Any) -> DrivenFeed:
            self.feed = DrivenFeed(*arguments)
            return self.feed

        def read(parent: int, name: str) -> Any:
            self._reads.append(name)
            return opened(parent, name)

        # This proof is about who sees what: losing power is that of others.
        patch.setattr("bot.storage.sqlite._PRAGMAS", FAST)

        def keep(_file: object) -> None: ...

        patch.setattr("os.fsync", keep)
        patch.setattr(note_store, "opened", read)
        reading = RowNotes.read

        def read_row(notes: RowNotes, path: str, limit: int) -> Any:
            self._reads.append(path.rpartition("/")[2])
            return reading(notes, path, limit)

        patch.setattr(RowNotes, "read", read_row)
        patch.setattr(composition.Memory, "from_settings", staticmethod(memory_of))
        patch.setattr(composition, "TranscriptFeed", feed_of)
        if self.setting.embedder == "hash":

            def embedder(*_given: object) -> HashEmbedder:
                return HashEmbedder()

            patch.setattr("bot.memory.embed.make", embedder)
        parts = Parts(clock=self.clock, remote=self.model, channels=self.channels, dashboard=True)
        self.app = await self._stack.enter_async_context(App(config, plugins, parts))
        self.client = await self._stack.enter_async_context(aiohttp.ClientSession())
        await self._index()

    async def stop(self) -> None:
        for page in ("healthz", "metrics"):  # its figures only grow, so the last ones say it all
            await self._get(page, nothing)
        await self._stack.aclose()
        self.scan()

    def _config(self) -> tuple[Any, dict[str, ChannelPlugin]]:
        plugins = {
            name: ChannelPlugin(name, WithAccounts, lambda _config: InMemoryChannel())
            for name in CHANNELS
        }
        setting = self.setting
        channels: dict[str, Any] = {
            name: {"scope": rules.as_config()} for name, rules in setting.channel_scopes
        }
        accounts = {name: {"scope": rules.as_config()} for name, rules in setting.account_scopes}
        for name in CHANNELS:
            channels.setdefault(name, {}).update(group_policy="open", groups=GROUPS)
        channels["memory"]["accounts"] = accounts
        provider = "none" if setting.embedder == "none" else "multilingual"
        data = {
            "agent": {"timezone": "UTC"},
            "storage": {"dir": self.folder, "backup_hours": 0, "url": self.url or None},
            "memory": {
                "embedder": {"provider": provider},
                "watch": False,
                "min_score": 0.0,
                "night": {"mode": setting.night},
                "folders": {
                    name: {"path": self.vaults / name, "who": (who,)}
                    for name, who in FOLDERS.items()
                },
            },
            "session": {
                "dm_scope": setting.dm_scope,
                "owner": setting.owner,
                "owner_name": self.owner_name,
                "identity_links": dict(setting.links),
            },
            "scope": setting.scope.as_config(),
            "channels": channels,
            "dashboard": {"port": 0},
            "agents": {each.name: each.as_config() for each in setting.agents},
        }
        return config_model(plugins).model_validate(data), plugins

    async def restart(self, **changes: Any) -> None:
        await self.stop()
        self.setting = replace(self.setting, **changes)
        await self.start()

    # --- canaries ---------------------------------------------------------------------------------

    def canary(self, *, space: str = "", said_by: Who | None = None) -> str:
        """A new unique word, in nobody's view but those who are named."""
        token = f"zq{next(self.numbers):09d}z"
        made = self.canaries[token] = Canary()
        if space:
            made.spaces.add(space)
        if said_by is not None:
            self._is_said(made, said_by)
        return token

    def _is_said(self, canary: Canary, who: Who) -> None:
        canary.said.add(self.setting.conversation(who))
        if not who.room:  # what is said in a room is nobody's
            canary.persons.add(self.setting.talker(who))

    def sentence(self, token: str, topic: int = 0) -> str:
        return f"{TOPICS[topic % len(TOPICS)]} is {token}"

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def vaults(self) -> Path:
        """Folders of documents, which are none of the bot's own."""
        return self.folder.with_name(f"{self.folder.name}-vaults")

    def plant(self, space: str, name: str, topic: int, *, visible: bool = True) -> None:
        """An editor writes a canary into a file; `visible` for whoever has that space."""
        token = self.canary(space=space if visible else "")
        self.write(space, name, f"- {self.sentence(token, topic)}\n")

    def write(self, space: str, name: str, line: str) -> None:
        """An editor adds a line to a file."""
        path = name if space in {"", "main"} else f"{space}/{name}"
        if self.url:
            self._planted.append((path, line))
            return
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(line)

    def plant_everywhere(self) -> None:
        """Every space, every kind of file, and every place beside them that is nobody's."""
        setting = self.setting
        mains = {"main", *map(setting.main_space, PEOPLE)}
        spaces = {setting.in_memory(each, space) for space in mains for each in setting.memories}
        names = ("MEMORY.md", "USER.md", "memory/2026-11-21.md", "memory/2026-11-20.md")
        for space in sorted(spaces):
            for topic, name in enumerate((*names, "memory/topics/deep/trip.md", "memory/红船.md")):
                self.plant(space, name, topic)
            self.plant(space, f"memory/{self.canary(space=space)}.md", 1)
            for topic, name in enumerate(("ROOM.md", "topic.md", "memory/.hidden.md", "a.txt")):
                self.plant(space, name, topic, visible=False)
            folder = self.workspace / ("" if space == "main" else space)
            # A file that is in trouble has a name too, which must not be told.
            if not self.url:
                odd = folder / "memory" / f"odd-{self.canary(space=space)}.md"
                odd.write_bytes(b"- \xff\xfe\x81 odd\n")
        mains = set(map(setting.main_space, (*MEMBERS, *BYSTANDERS)))
        rooms = {setting.in_memory(each, space) for space in mains for each in setting.memories}
        for space in sorted(rooms):
            for topic, name in enumerate(("ROOM.md", "memory/talk.md", "memory/2026-11-21.md")):
                self.plant(space, name, topic)
            for topic, name in enumerate(("MEMORY.md", "USER.md", "topic.md")):
                self.plant(space, name, topic, visible=False)
        for space in ("rooms/memory-closed", "rooms/stranger", "people/stranger"):
            for topic, name in enumerate(("ROOM.md", "MEMORY.md", "USER.md", "memory/talk.md")):
                self.plant(space, name, topic, visible=False)
        for topic, name in enumerate(("notes.md", "bank/loose.md", "people/loose.md", ".e.md")):
            self.plant("", name, topic, visible=False)
        for topic, name in enumerate(("how-to.md", "MEMORY.md", "deep/er.md")):
            self.plant("shared", name, topic)
        for name, whose in FOLDERS.items():
            space = "shared" if whose == "everyone" else "main"
            for topic, path in enumerate(("notes.md", "deep/er/talk.txt", "trip.md")):
                token = self.canary()
                self.canaries[token] = Canary({space}, whose)
                write_file(
                    self.vaults / name / path, f"# {topic}\n- {self.sentence(token, topic)}\n"
                )
            named = self.canary()
            self.canaries[named] = Canary({space}, whose)
            write_file(self.vaults / name / f"{named}.md", f"- {TOPICS[1]} is far\n")
        if not self.url:
            self._lay_links()

    def _lay_links(self) -> None:
        ada, bob = (self.setting.space(Who("memory", name)) for name in ("ada", "bob"))
        links = {
            f"{bob}/memory/link.md": f"{ada}/MEMORY.md",
            f"{bob}/memory/dir": f"{ada}/memory",
            "shared/link.md": "MEMORY.md",
            "shared/all": "people",
            self.setting.space(LINKER): ada,
        }
        for name, target in links.items():
            path = self.workspace / name
            if not path.is_symlink() and not path.exists():
                path.symlink_to(self.workspace / target)

    # --- what people and the model do -------------------------------------------------------------

    async def say(self, who: Who, text: str, plan: Plan | None = None, **changes: Any) -> None:
        """Say something and wait for the answer; what came out before is scanned first."""
        self.scan()
        await self._push(who, text, plan or Plan(who), **changes)
        await self._answered(who, 2 if text.startswith("/new ") else 1)
        self.counts["steps"] += 1

    async def together(self, several: Sequence[tuple[Who, str, Plan]]) -> None:
        """Several people at the same time, one message each."""
        unique = {who: (text, plan) for who, text, plan in several}
        await asyncio.gather(*(self._push(who, t, plan) for who, (t, plan) in unique.items()))
        for who in unique:
            await self._answered(who)
        self.counts["steps"] += len(unique)

    async def elsewhere(self, who: Who, kind: str, text: str) -> None:
        """Something said where nobody is answered: no file opened for it, and no word but one."""
        self.scan()
        # What ended before is being saved still, and what was written then is being indexed.
        await settled()
        await self._index()
        before = (len(self.model.requests), len(self._reads), self._outputs())
        more = {"chat": "closed", "chat_type": kind, "mentions_bot": True}
        await self._push(who, text, Plan(None), **more)
        self.counts["steps"] += 1
        if before != (len(self.model.requests), len(self._reads), self._outputs()):
            raise Leak(f"something was done for a {kind}")

    def _outputs(self) -> int:
        """How much was said, but for the line that says that nothing is said here."""
        return sum(
            len(channel.drafted)
            + sum(out.text != DECLINED or out.kind != "notice" for out in channel.sent)
            for channel in self.channels.values()
        )

    async def mutter(self, who: Who, topic: int) -> str:
        """Say something in a room that is not for the bot: it may show in that room alone."""
        token = self.canary(said_by=who)
        text = self.sentence(token, topic)
        if self.setting.conversation(who) in self._always and who not in BYSTANDERS:
            await self._push(who, text, Plan(who), mentions_bot=False)
            await self._answered(who)
        else:
            await settled()
            self.scan()
            before = len(self.model.requests), self._outputs()
            await self._push(who, text, Plan(None), mentions_bot=False)
            if before != (len(self.model.requests), self._outputs()):
                raise Leak(f"something was done for what {who} only said to others")
        self.counts["steps"] += 1
        return token

    async def activate(self, who: Who, wish: str) -> None:
        """Choose when a room is answered; only those who look after it may."""
        answer = await self.answer(who, f"/activation {wish}")
        may = who.sender == ADMIN or self.setting.is_owner(who)
        if may != ("From now on" in answer):
            raise Leak(f"{who} was told: {answer}")
        if may:
            change = self._always.add if wish == "always" else self._always.discard
            change(self.setting.conversation(who))

    async def join(self, who: Who, first: Who) -> None:
        """Let `who` type a code that `first` was given."""
        await settled()  # what is being saved is saved for whoever it was said by until now
        setting = self.setting
        code = re.findall("/link ([A-Z2-9]{8})", await self.answer(first, "/link"))
        answer = await self.answer(who, f"/link {code[0]}")
        if "now linked" not in answer:
            return
        if setting.is_configured(who) or setting.person(who) == setting.person(first):
            raise Leak(f"{who} was joined to {first}")
        root = setting.as_whom(first).id
        kept = {id_: root if old == who.id else old for id_, old in setting.joined}
        self.setting = replace(setting, joined=tuple({**kept, who.id: root}.items()))
        self.counts["links"] += 1

    async def expose(self, first: Who, member: Who, thief: Who) -> None:
        """Let a code that `first` was given be typed in a room, and then by who read it there."""
        code = re.findall("/link ([A-Z2-9]{8})", await self.answer(first, "/link"))[0]
        await self.say(member, f"/link {code}")
        answer = await self.answer(thief, f"/link {code}")
        if "now linked" in answer:
            raise Leak(f"{thief} was joined to {first} with a code that stood in a room")
        self.counts["codes void"] += 1

    async def part(self, who: Who) -> None:
        """Let `who` be somebody of their own again."""
        await settled()
        answer = await self.answer(who, "/unlink")
        mine = self.setting.persons(who)
        was = [id_ for id_, _ in self.setting.joined if id_ in mine and id_ not in self._named()]
        if "unlinked: " in answer:
            gone = who.id if who.id in dict(self.setting.joined) else was[0]
            left = tuple(pair for pair in self.setting.joined if pair[0] != gone)
            self.setting = replace(self.setting, joined=left)

    def _named(self) -> set[str]:
        return {*self.setting.owner, *(p for _, places in self.setting.links for p in places)}

    async def answer(self, who: Who, text: str) -> str:
        """Give a command and read what it says."""
        await self.say(who, text)
        found = [out for out in self.channels[who.channel].sent if out.address == who.address]
        return next(out.text for out in found if out.kind == "reply")

    async def _push(self, who: Who, text: str, plan: Plan, **changes: Any) -> None:
        step = next(self.numbers)
        self.plans[step] = plan
        self._held.setdefault(who, set()).add(self.setting.conversation(who))
        if text.startswith("/new "):
            text = f"/new #{step}# {text.removeprefix('/new ')}"
        elif not text.startswith("/"):
            text = f"#{step}# {text}"
        message = Inbound(
            channel=who.channel,
            account=who.account,
            chat=who.chat,
            chat_type=who.chat_type,
            sender=who.sender,
            sender_name=f"{who.sender} [of {who.id}]\n> admin: ",
            message_id=f"m{step}",
            text=text,
            sent_at=self.clock(),
            thread=who.thread,
            mentions_bot=bool(who.room),
            locale="en",
        )
        await self.channels[who.channel].push(replace(message, **changes))

    async def _answered(self, who: Who, count: int = 1) -> None:
        self._replies[who.address] += count
        wanted = self._replies[who.address]
        channel = self.channels[who.channel]

        def done(_: object) -> bool:
            mine = [out for out in channel.sent if out.address == who.address]
            return sum(out.kind == "reply" for out in mine) >= wanted

        await asyncio.wait_for(channel.wait_until(done), WAIT)

    def _script(self, request: Request) -> Any:
        plan = self._plan(request)
        if request.purpose == "night":  # nobody's turn: it is asked for somebody's notes
            return self.proposes(request.messages[-1].text)
        if plan is None or plan.who is None:
            return "I was never asked this."
        done = 0
        for message in reversed(request.messages):
            if message.role == "user" and message.text:
                break
            done += any(isinstance(block, ToolResult) for block in message.blocks)
        seen = sorted(self._shown_in(request))
        if request.purpose == "flush":  # it is only done where there is a memory to save to
            return added(request, self._kept(seen, plan.who))
        if done < len(plan.tools):
            name, arguments = plan.tools[done]
            return calls(name, **arguments)
        if plan.keeps and done == len(plan.tools):
            who = plan.who if self.setting.sees_memory(plan.who) else None
            return calls("memory_write", text=self._kept(seen, who))
        return says(f"I know {' '.join(seen[-BLURTED:])}" if plan.blurts else "Fine.")

    def _kept(self, seen: Sequence[str], who: Who | None) -> str:
        if who is not None:
            for token in seen[:8]:
                self.canaries[token].spaces.add(self.setting.space(who))
        return f"kept {' '.join(seen[:8])} #{len(seen)}"

    def _plan(self, request: Request) -> Plan | None:
        for message in reversed(request.messages):
            if message.role == "user" and (found := STEP.findall(message.text)):
                # A conversation that is saved is the last speaker's, whoever else spoke in it.
                return self.plans.get(int(found[0 if request.purpose == "chat" else -1]))
        return None

    # --- what is looked at from outside -----------------------------------------------------------

    async def index_catches_up(self) -> None:
        await self._index()
        await self.feed.reconcile()
        await self.feed.follow()

    async def _index(self) -> None:
        """Bring the index up to the notes, with what was planted in rows since."""
        if self._planted:
            await asyncio.to_thread(plant_rows, self.url, self._planted)
            self._planted.clear()
        await self.memory.index.sync("test")
        await self.memory.folders.sync()

    async def probe(self) -> None:
        """The page that tells how things are, and nothing else."""
        await self._get("readyz", nothing)

    async def ask_the_page(self, topic: int, spaces: Iterable[str]) -> None:
        """Search over HTTP: the owner's memory is what there is to see."""
        query = escaped(QUESTIONS[topic % len(QUESTIONS)])
        for space in spaces:
            url = f"api/memory/search?space={escaped(space)}&q={query}&k=50"
            status = await self._get(url, partial(self._is_owners, space))
            if status != (200 if space in {"", "main", "shared"} else 404):
                raise Leak(f"the space {space!r} was answered with {status}")
        owners = partial(self._is_owners, "")
        named = (f"memory/file?path={escaped(f'{space}/MEMORY.md')}" for space in spaces)
        drawn = ("memory", f"memory/search?q={query}", "memory/file?path=MEMORY.md")
        for url in (*drawn, "memory/edit?path=MEMORY.md", "memory/history?path=MEMORY.md", *named):
            if (status := await self._get(url, owners)) not in {200, 404}:
                raise Leak(f"{url} was answered with {status}")

        for memory in self.setting.memories[1:]:
            of_agent = partial(self._is_the_owners_with, memory)
            for url in ("memory?", f"memory/search?q={query}&", "memory/file?path=MEMORY.md&"):
                if (status := await self._get(f"{url}agent={memory}", of_agent)) not in {200, 404}:
                    raise Leak(f"{url} of {memory} was answered with {status}")
                self.counts[f"pages of {memory}"] += status == 200

    async def redraw(self, who: Who) -> None:
        """A channel asks for the history of an address."""
        engine = self.channels[who.channel].engine
        assert engine is not None
        items = await engine.history(who.address, 500)
        # With every link that is made or ended, a chat goes on with another conversation.
        held = {self.setting.conversation(who), *self._held.get(who, ())}
        words = " ".join(item.text for item in items)
        may: May = lambda canary: bool(held & canary.said)  # noqa: E731
        self._answers.append((f"the history of {who}", words, may))

    async def look_at(self, *urls: str) -> None:
        """Pages that show what is the owner's."""
        for url in urls:
            await self._get(url, partial(self._is_owners, ""))

    def is_shown(self, what: str, words: str, address: Address) -> None:
        """Something is made of the notes of whoever is in a direct chat."""
        spaces = {self.setting.space(who) for who in EVERYONE if who.address == address}
        self._answers.append((what, words, lambda canary: bool(canary.spaces & spaces)))

    async def _get(self, url: str, may: May) -> int:
        assert self.app.address is not None
        async with self.client.get(self.app.address.url + url) as answer:
            text = f"{await answer.text()} {dict(answer.headers)}"
            self._answers.append((f"GET /{url}", text, may))
            return answer.status

    def _is_owners(self, space: str, canary: Canary) -> bool:
        everybody = self.setting.dm_scope == "main" and self._is_direct(canary, "")
        is_own = "main" in canary.spaces or "/the owner" in canary.persons or everybody
        return "shared" in canary.spaces or (space in {"", "main"} and is_own)

    def _is_the_owners_with(self, memory: str, canary: Canary) -> bool:
        everybody = self.setting.dm_scope == "main" and self._is_direct(canary, memory)
        spaces = {self.setting.in_memory(memory, "main"), "shared"}
        said = f"{memory}/the owner" in canary.persons or everybody
        return bool(canary.spaces & spaces or canary.folder or said)

    # --- the scanner ------------------------------------------------------------------------------

    def scan(self) -> None:
        """Look at everything that came out since the last time.

        Raises:
            Leak: a canary shows where it may not be seen.
        """
        for request in self.model.requests:
            self._scan_prompt(request)
        self.counts["prompts"] += len(self.model.requests)
        self.model.requests.clear()
        for channel in self.channels.values():
            outputs = [(out.address, out.text, "replies") for out in channel.sent]
            outputs += [(address, text, "drafts") for address, text in channel.drafted]
            for address, text, kind in outputs:
                self._scan_output(address, text)
                self.counts[kind] += 1
            for out in channel.sent:
                if out.kind == "reply":
                    self._replies[out.address] -= 1
            channel.sent.clear()
            channel.drafted.clear()
        for line in self.tap.lines:
            self._judge("a log line", tokens_in(line), nothing)
        self.counts["log lines"] += len(self.tap.lines)
        self.tap.lines.clear()
        for where, text, may in self._answers:
            self._judge(where, tokens_in(text), may)
        self.counts["answers"] += len(self._answers)
        self._answers.clear()

    def _scan_prompt(self, request: Request) -> None:
        plan = self._plan(request)
        if plan is None and request.purpose != "chat":
            self._scan_forgotten(request)
            return
        if plan is None or plan.who is None:
            raise Leak("a model was asked on behalf of nobody")
        who = plan.who
        sees = self.setting.sees_memory(who)
        own = {self.setting.space(who)} if sees else set[str]()
        system = self._tokens_of(request.system) | self._tokens_of(request.tools)
        self._judge(f"the system prompt of {who}", system, lambda each: bool(each.spaces & own))
        if request.purpose == "chat" and own == {"main"}:
            if self.owner_name not in system:
                raise AssertionError(f"the prompt of {who} does not say what the owner is called")
            self.counts["owner named"] += 1
        # A conversation is saved with the rights of whoever of those in it was the last to do
        # anything there, which may have been a command.
        may = self._may(*(self._those_in(who) if request.purpose == "flush" else [who]))
        found = self._judge(f"a prompt of {who}", self._shown_in(request), may)
        self.counts["recalled later"] += sum(map(_recalled_later, request.messages[-1:]))
        self._now_said(found, who)

    def _scan_forgotten(self, request: Request) -> None:
        """Saving a conversation that was all forgotten: somebody must be allowed all the rest."""
        found = {token.lower() for token in self._shown_in(request)}
        each = [self.canaries[token] for token in found]
        if not any(all(map(self._may(who), each)) for who in (*EVERYONE, *MEMBERS)):
            raise Leak(f"{sorted(found)} are shown together, and nobody may see them all")

    def _scan_output(self, address: Address, text: str) -> None:
        there = [who for who in (*EVERYONE, *MEMBERS, *BYSTANDERS) if who.address == address]
        if text == DECLINED and (address.chat == "closed" or there):
            return
        if not there:
            raise Leak(f"something was sent to {address}")
        found = self._judge(f"sent to {there[0]}", tokens_in(text), self._may(*there))
        self._now_said(found, there[0])

    def _now_said(self, tokens: Iterable[str], who: Who) -> None:
        for token in tokens:
            self._is_said(self.canaries[token], who)

    def _those_in(self, who: Who) -> list[Who]:
        """Everybody whose conversation this is too; in a direct chat that is one person."""
        mine = self.setting.conversation(who)
        return [each for each in (*EVERYONE, *MEMBERS) if self.setting.conversation(each) == mine]

    def _may(self, *whos: Who) -> May:
        """What may be shown to one of some: what is in their conversation, and what is theirs."""
        each = [self._may_one(who) for who in whos]
        return each[0] if len(each) == 1 else lambda canary: any(may(canary) for may in each)

    def _may_one(self, who: Who) -> May:
        setting = self.setting
        mine = setting.conversation(who)
        memory = setting.memory(setting.agent(who))
        named = frozenset[str]() if who.room else setting.persons(who)
        persons = {f"{memory}/{name}" for name in named}
        sees = setting.sees_memory(who)
        spaces = {setting.space(who), "shared"} if sees else set[str]()
        everybody = setting.dm_scope == "main" and not who.room
        is_ada = sees and not who.room and setting.person(who) == setting.person(ADA)
        is_owner = sees and not who.room and setting.is_owner(who)

        def may(canary: Canary) -> bool:
            return bool(
                mine in canary.said
                or canary.spaces & spaces
                or (is_ada and canary.folder == ADA.id)
                or (is_owner and canary.folder)
                or (sees and canary.persons & persons)
                or (sees and everybody and self._is_direct(canary, memory))
            )

        return may

    def _is_direct(self, canary: Canary, memory: str) -> bool:
        """Whether somebody said it in a direct chat with one of the agents that share a memory."""
        return any(
            place[0] != "room" and self.setting.memory(place[-1]) == memory for place in canary.said
        )

    def _shown_in(self, request: Request) -> frozenset[str]:
        """The canaries in all that a model is given."""
        parts = (request.system, request.tools, *request.messages)
        return frozenset[str]().union(*map(self._tokens_of, parts))

    def _tokens_of(self, part: str | Message | tuple[ToolSpec, ...]) -> frozenset[str]:
        if id(part) not in self._scanned:
            words = shown(part) if isinstance(part, Message) else str(part)
            self._scanned[id(part)] = part, tokens_in(words)
        return self._scanned[id(part)][1]

    def _judge(self, where: str, tokens: Iterable[str], may: May) -> set[str]:
        found = {token.lower() for token in tokens}
        if wrong := [token for token in found if not may(self.canaries[token])]:
            raise Leak(f"{sorted(wrong)} in {where}")
        self.counts["rightly seen"] += len(found)
        return found


def nothing(_canary: Canary) -> bool:
    """No canary may show."""
    return False


def tokens_in(text: str) -> frozenset[str]:
    """The canaries in a text, as they stand there."""
    return frozenset(TOKEN.findall(text))


def _recalled_later(message: Message) -> int:
    """How many canaries were recalled for a message in the middle of a conversation."""
    texts = (block.text for block in message.blocks if isinstance(block, Text))
    return sum(len(tokens_in(text)) for text in texts if text.startswith(LATER))


def shown(message: Message) -> str:
    """Everything in a message that a model is given."""
    parts = list[str]()
    for block in message.blocks:
        match block:
            case Text() | ToolResult():
                parts.append(block.text)
            case ToolUse():
                parts.append(repr(block.input))
            case _:
                parts.append(repr(block))
    return "\n".join(parts)


def hostile(setting: Setting, token_paths: Sequence[str] = ()) -> list[str]:
    """Names of files that are somebody else's, in every spelling."""
    ada, boss = setting.space(Who("memory", "ada")), setting.space(Who("memory", "boss"))
    den = f"rooms/{folder_of('memory-den')}"
    others = [
        setting.in_memory(memory, space)
        for memory in setting.memories
        for space in ("main", "people/ada", "people/bob", den)
        if setting.agents and (memory or space != "main")
    ]
    plain = [
        *(f"{ada}/{name}" for name in ("MEMORY.md", "USER.md", "memory/2026-11-21.md")),
        *(
            f"{boss}/MEMORY.md",
            f"{den}/ROOM.md",
            f"{den}/memory/talk.md",
            "rooms/memory-den/ROOM.md",
        ),
        *("MEMORY.md", "USER.md", "ROOM.md", "notes.md", "topic.md", "bank/loose.md", "a.txt"),
        *("shared/link.md", "shared/all/stranger/MEMORY.md", "shared/how-to.md", "shared"),
        *("memory/link.md", "memory/dir/2026-11-21.md", "memory/.hidden.md", "memory/红船.md"),
        *("memory/2026-11-21.md", "people/stranger/MEMORY.md", "people/loose.md", ".e.md"),
        *(f"{name}/{path}" for name in FOLDERS for path in ("notes.md", "deep/er/talk.txt")),
        *("folders/vault/notes.md", "vault", "vault/", "handbook/../vault/notes.md"),
        *(f"{space}/{name}" for space in others for name in ("MEMORY.md", "memory/2026-11-21.md")),
    ]
    twisted = [
        spelled
        for path in (f"{ada}/MEMORY.md", "MEMORY.md", f"{den}/ROOM.md", "confidant.db")
        for spelled in (
            *(f"../{path}", f"../../{path}", f"memory/../../../{path}", f"shared/../{path}"),
            *(f"./{path}", f"/{path}", f"//{path}", f"memory//../{path}", f"{path}/", f" {path}"),
            *(f"memory/..%2f..%2f{path}", f"..\\..\\{path}", f"memory/\u2024\u2024/{path}"),
            *(f"memory/\uff0e\uff0e/\uff0e\uff0e/{path}", f"shared\u2215..\u2215{path}"),
            *(f"{path}\x00.md", f"memory/\u202e{path}", f"file://{path}", f"~/{path}"),
            *(path.upper(), path.replace("e", "\u0435"), "memory/" + "x/" * 40 + path),
        )
    ]
    return [*plain, *twisted, "x" * 499, "memory/" + "é" * 240 + ".md", *token_paths]


def plant_rows(url: str, planted: Sequence[tuple[str, str]]) -> None:
    """Add lines to rows by the names they are given, whatever these are."""
    with psycopg.connect(url) as connection:
        for path, line in planted:
            connection.execute(
                """INSERT INTO notes(path, space, version, text, size, made_at, changed_at)
                   VALUES (%(path)s, %(space)s, 1, %(line)s, octet_length(%(line)s), 0, 0)
                   ON CONFLICT (path) DO UPDATE SET text = notes.text || excluded.text,
                       size = notes.size + excluded.size, version = notes.version + 1""",
                {"path": path, "space": space_of(path), "line": line},
            )
