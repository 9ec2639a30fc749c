"""The contract of a channel: the values that go back and forth, and what each asks of the other."""

# ruff: noqa: B027 - what a channel does not define does nothing

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, Self

from bot.errors import ChannelError, SendRefused

ChatType = Literal["direct", "group", "channel", "thread"]
LengthUnit = Literal["chars", "utf16"]
OutboundKind = Literal["reply", "notice", "receipt", "reminder"]
ForeignKind = Literal["forwarded", "poll", "place", "card", "preview", "event"]

DEFAULT_ACCOUNT = "default"
PAGE_OWNER = "owner"  # what whoever owns the bot is called in its page, as others are by name


# --- what comes in -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a chat; sends to one address keep their order."""

    channel: str
    account: str
    chat: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Media:
    """Something other than text that came with a message; `ref` is the platform's own handle."""

    kind: Literal["photo", "voice", "audio", "video", "document", "sticker", "other"]
    name: str = ""
    mime: str = ""
    size: int = 0  # bytes, 0 when the platform does not say
    ref: str = ""


MAX_REPLY_TEXT: Final = 6_000  # characters of an answered message; an alert may have as many

# What `Engine.put_file` takes from a page.
UPLOAD_MARK: Final = "upload-"  # what their refs begin with; no platform's do
MOST_UPLOAD: Final = 20_000_000  # bytes of a file
MOST_UPLOAD_PART: Final = 1_000_000  # bytes of one part: also a slow line brings that in time


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The message this one answers or, with `is_start`, with which its thread began.

    As far as the platform tells; `quote` is the part the person selected, when they quoted only a
    part, and `media` what came with it: it is fetched and read like what comes with a message.
    """

    message_id: str
    sender_name: str = ""
    text: str = ""
    quote: str = ""
    from_bot: bool = False
    media: tuple[Media, ...] = ()
    is_start: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A part of a message that its sender passed on rather than wrote.

    "forwarded" are the words of another message, by `author` as far as the platform tells;
    "poll", "place", "card" (a contact, a task, a game …) and "preview" (of a link) are described in
    one line, such as "poll: Tea? — yes / no"; an "event" is what the program `author` reports, and
    nobody sent. Memory never takes any of it for the sender's words.
    """

    kind: ForeignKind
    text: str
    author: str = ""

    def __str__(self) -> str:
        """The part as a person reads it."""
        if self.kind == "forwarded":
            head = f"[forwarded from {self.author}]" if self.author else "[forwarded]"
            return f"{head}\n{self.text}" if self.text else head
        if self.kind == "event":
            return f"[event from {self.author}]\n{self.text}"
        return f"[{self.text}]"


@dataclass(frozen=True, slots=True)
class Heard:
    """Something said in a room that was not for the bot; `at` is in ms since the epoch.

    With a `reaction`, that emoji was put below a message of the bot's that begins with `text`.
    """

    sender_name: str
    text: str
    at: int
    media: tuple[Media, ...] = ()
    reaction: str = ""


@dataclass(frozen=True, slots=True)
class Reaction:
    """An emoji that somebody put below a message, or took away (`is_removed`).

    `emoji` is the character, or the name of one that only this platform has (":party:").
    `chat_type`, `sender`, `parent` and `server` are as in `Inbound`. `from_bot` says that the
    platform tells that the message is the bot's own; the engine knows what it has sent lately.
    """

    address: Address
    chat_type: ChatType
    sender: str
    message_id: str
    emoji: str
    at: int = 0  # ms since the epoch
    sender_name: str = ""
    parent: str = ""
    server: str = ""
    from_bot: bool = False
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message from a platform, in the engine's own words.

    `text` is what the sender wrote and nothing else; what they passed on is in `foreign`, in the
    order it came, and what they answer in `reply_to`. A message may have no `text`.
    `(channel, account, chat, thread, message_id)` identifies it: a second copy is dropped. All ids
    are the platform's stable ids as text, never display names. `sent_at` is in milliseconds since
    the epoch. `locale` is the person's language tag as the platform reports it, or empty, and
    `zone` the IANA name of their time zone.
    `edit_of` is the id of the message this one replaces, or empty; what `replaces` one takes its
    place in the conversation, and that of all that came after it. Where a platform nests chats,
    `parent` is the chat a thread hangs below and `server` the place all of them belong to; `title`
    is what a thread, topic or forum post is called.
    `mentions_bot` is the platform's own mention, also of a reply to the bot. The engine fills in
    `heard`, what was said in the room just before, `spoken`, the part of `text` that was said in a
    voice message, and `answers`, the id of the question whether a tool may be called that was
    answered with it.
    """

    channel: str
    account: str
    chat: str
    chat_type: ChatType
    sender: str
    message_id: str
    text: str
    sent_at: int
    thread: str = ""
    sender_name: str = ""
    media: tuple[Media, ...] = ()
    reply_to: ReplyTo | None = None
    mentions_bot: bool = False
    locale: str = ""
    edit_of: str = ""
    parent: str = ""
    server: str = ""
    title: str = ""
    heard: tuple[Heard, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    spoken: str = ""
    answers: str = ""
    zone: str = ""
    replaces: str = ""

    @property
    def voice(self) -> Media | None:
        """The voice message of its sender; None when they wrote, or forwarded one."""
        if any(part.kind == "forwarded" for part in self.foreign):
            return None
        return next((media for media in self.media if media.kind == "voice"), None)

    @property
    def shown(self) -> str:
        """The message as a person reads it, without its media."""
        return "\n".join(part for part in (self.text, *map(str, self.foreign)) if part)

    @property
    def address(self) -> Address:
        """The address of a reply to this message."""
        return Address(self.channel, self.account, self.chat, self.thread)

    @property
    def to_answer(self) -> str:
        """The message a reply refers to: where several people talk it says whom it answers."""
        return self.message_id if self.chat_type != "direct" else ""

    @property
    def asker(self) -> str:
        """The person whose turn to be answered this is, where several people talk; else nobody."""
        return self.sender if self.chat_type != "direct" else ""


# --- what goes out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press below a message: it gives `command` ("/compact") as if it were typed."""

    label: str
    command: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes out with a message; `mime` "image/…" is shown as a picture.

    "audio/ogg" has Opus in it, and is shown as a voice message where `Capabilities.voice` says so.
    """

    name: str
    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outbound:
    """A whole text to send to one place, and what comes with it.

    `text` is Markdown (CommonMark). `id` is stable across retries and restarts; a reply's is also
    that of its line in the history. `reply_to` is the message id to answer. Buttons and attachments
    come only to a channel whose `Capabilities` declare them. `draft` is the id under which a reply
    was shown while it was being written, the same after a restart. `begins` is the id of the
    message with which another conversation is taken up, as this tells its person, or empty. `aside`
    is the id of the command that this answers, where a page shows both as one sentence between the
    lines. `stopped` says that this is what there is of a reply that was stopped. `answers` are the
    ids of the messages that a reply answers. `failed` are
    the ids of messages that this says were not answered: a channel may offer to ask the same again.
    `asker` is whom it is for, where several people talk: a channel that may send but little there
    shares that out. `sources` counts the quotes of memory that a reply was given.
    """

    id: str
    address: Address
    text: str
    kind: OutboundKind = "reply"
    reply_to: str = ""
    at: int = 0  # when it was written, ms since the epoch
    buttons: tuple[Button, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    draft: str = ""
    begins: str = ""
    failed: tuple[str, ...] = ()
    asker: str = ""
    sources: int = 0
    aside: str = ""
    stopped: bool = False
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of a platform: a part of an `Outbound`, as `Channel.render` makes it.

    `text` is what the platform takes; `entities` format ranges of it where a platform wants that
    beside the text. The first piece is what answers a message or takes a draft's place; buttons
    stand below the last one.
    """

    whole: Outbound
    text: str
    entities: tuple[Mapping[str, object], ...] = ()
    attachments: tuple[Attachment, ...] = ()
    index: int = 0  # which of `count` it is
    count: int = 1

    @property
    def id(self) -> str:
        """The same each time it is tried: a key for a platform that takes a message once."""
        return f"{self.whole.id}.{self.index}" if self.index else self.whole.id

    @property
    def address(self) -> Address:
        """The address it goes to."""
        return self.whole.address

    @property
    def kind(self) -> OutboundKind:
        """The kind of the whole text."""
        return self.whole.kind

    @property
    def at(self) -> int:
        """The time the text was written, in ms since the epoch."""
        return self.whole.at

    @property
    def reply_to(self) -> str:
        """The message id to answer, or empty."""
        return "" if self.index else self.whole.reply_to

    @property
    def draft(self) -> str:
        """The draft it takes the place of, or empty."""
        return "" if self.index else self.whole.draft

    @property
    def buttons(self) -> tuple[Button, ...]:
        """The buttons below it."""
        return self.whole.buttons if self.index + 1 == self.count else ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The messages that may be asked again below it."""
        return self.whole.failed if self.index + 1 == self.count else ()


@dataclass(frozen=True, slots=True)
class Activity:
    """Something the engine does for a conversation beside its replies, as it begins and as it ends.

    The `id` is the same for both. `where` is what was saved where, when it ended and no message
    tells of it. `text` is what a model thinks on its way to a reply, its end as far as it has come,
    what it looks for in memory, of which so many are `found`, or the name of another tool that it
    is "calling": it is for whoever watches now and is kept nowhere. A call is "asked" when it waits
    for the person's word. `draft` is the id of the reply's draft it is on the way to, or empty.
    """

    id: str
    kind: Literal["saving", "summarising", "thinking", "searching", "calling"]
    state: Literal["begun", "done", "failed", "asked"]
    where: str = ""
    text: str = field(default="", repr=False)
    found: int = 0
    draft: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a channel; the engine calls only methods that are declared here."""

    max_length: int = 4000  # of one message, in `length_unit`
    length_unit: LengthUnit = "chars"
    typing: bool = False
    drafts: bool = False
    command_menu: bool = False
    buttons: bool = False
    attachments: bool = False
    voice: bool = False  # an attached "audio/ogg" can be listened to where it is shown
    files: bool = False  # what comes in can be fetched
    reactions: bool = False
    activities: bool = False
    pages: bool = False  # it has `routes` on the dashboard's address


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command as a channel shows it in menus and completion."""

    name: str  # without the slash
    description: str
    usage: str = ""  # e.g. "[model]"
    is_private: bool = False  # its answer is nobody else's business


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One line of the current conversation as a person saw it, for channels that redraw it.

    The `id` of a person's line is the message id it came with, that of the bot's the
    `Outbound.id` it was sent with. A line whose words were forgotten has no `text`. A divider is
    what the bot answered a command (`Outbound.aside`). `place` is what `Engine.history` goes on
    from; the first line of all has none, nor has one that waits for its answer. `files` are the
    refs of what came with it, as far as the engine has kept it (`Engine.put_file`); it may be gone
    by now. `failed`, `stopped` and `sources` are as in `Outbound`. One that `waits` is answered
    after others. `versions` are the ids of the messages that took one another's place, this one
    among them, or empty (`Engine.switch`).
    """

    id: str
    role: Literal["user", "bot", "divider"]
    text: str  # Markdown for "bot", plain text for "user"
    at: int  # ms since the epoch
    place: str = ""
    files: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    sources: int = 0
    stopped: bool = False
    waits: bool = False
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that was chosen for a conversation, and those its person may change it for.

    `stand_in` is the one that answers in its place for now, or empty. Of many `offered` the first
    are named, and `more` is how many others there are.
    """

    chosen: str
    stand_in: str = ""
    offered: tuple[str, ...] = ()
    more: int = 0


class Health(StrEnum):
    """The state of a connection, for /readyz and `/status`."""

    STARTING = "starting"
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


# --- what each asks of the other ------------------------------------------------------------------


NO_TERMINAL = "The channel is no terminal."


class Engine(Protocol):
    """The engine, as channels see it."""

    async def receive(self, inbound: Inbound) -> None:
        """Store a message; when this returns it is on disk and may be acknowledged.

        Raises:
            OutOfSight: the message that it `replaces` is not in the conversation any more.
            StorageError: it could not be stored: do not acknowledge, offer it again later.
        """
        ...

    async def switch(self, address: Address, message_id: str) -> bool:
        """Go on from another of the `HistoryItem.versions`; False while an answer is awaited.

        Raises:
            OutOfSight: there is no such version in the conversation that goes on there.
            StorageError: it could not be stored.
        """
        ...

    async def reacted(self, reaction: Reaction) -> None:
        """Note a reaction to one of the bot's messages; the next turn there is shown it.

        It starts no turn and is held in memory only. The thread may be left out of its address:
        the engine knows where the message went. Never raises.
        """
        ...

    async def history(
        self, address: Address, limit: int, before: str = ""
    ) -> Sequence[HistoryItem]:
        """The newest lines of the conversation that goes on there, about `limit`, oldest first.

        With `before`, the `HistoryItem.place` of a line, those that stand before it: none where
        the conversation begins, and none before a place that is not there.
        """
        ...

    async def withdraw(self, address: Address, message_id: str) -> bool:
        """Have a message of a direct chat not be answered; False when that has begun, or is done.

        Taking it back again changes nothing.

        Raises:
            StorageError: it could not be stored.
        """
        ...

    async def last_seen(self, channel: str, account: str) -> Mapping[str, str]:
        """The newest stored message id of each chat, to catch up after a downtime."""
        ...

    async def chat_moved(self, address: Address, chat: str) -> None:
        """A chat has another id now; its conversation goes on. Saying it again changes nothing.

        Raises:
            StorageError: it could not be stored; say it again later.
        """
        ...

    async def keep(self, channel: str, account: str, name: str, text: str) -> None:
        """Keep a small text of the channel's own on disk, until an empty one takes its place.

        Raises:
            StorageError: it could not be stored.
        """
        ...

    async def kept(self, channel: str, account: str) -> Mapping[str, str]:
        """The stored texts of an account, by name; an earlier run may have left them.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    def commands(self, locale: str) -> Sequence[Command]:
        """The commands a person can type, described in their language."""
        ...

    async def models(self, address: Address, sender: str) -> ModelChoice:
        """The model that answers a person in a direct chat, and those `/model` would take there.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how a connection is doing; `detail` is one plain sentence without secrets."""
        ...

    def dropped(self, channel: str, reason: str) -> None:
        """Count an update that is nothing for the engine; `reason` is one word.

        It becomes the name of a metric: a word of the channel's own, never one somebody wrote.
        """
        ...

    def owning(self, channel: str, account: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Be the only program that listens for an account, where many nodes run.

        Entering waits for as long as another node does. The event is set when it is lost: what
        listens must end then, and enter again.
        """
        ...

    async def broadcast(self, channel: str, body: str, *, stored: bool = True) -> None:
        """Have this channel's `heard` called with `body` on every node, this one first.

        What other nodes miss is not repeated. On its way to them `body` lies in the database for
        minutes; if it is not `stored` it does not, and more than some 7 000 bytes reach none of
        them. Never raises.
        """
        ...

    def reach(self, address: Address, words: str) -> None:
        """Tell a person who is away, as they asked for, that this was written to them.

        For a channel of our own, which has nobody else to do that. Returns at once, never raises.
        """
        ...

    async def put_file(self, address: Address, media: Media, part: int, data: bytes) -> bool:
        """Keep one part of a file, by its `ref`, on disk; False when there is no room for it.

        For a channel without a platform that keeps files. It is whole once its parts come to its
        `size`; the same part again changes nothing. It belongs to its address alone, and is gone
        once its message is answered, or after a day.

        Raises:
            StorageError: it could not be stored.
        """
        ...

    async def files(self, address: Address) -> Mapping[str, Media]:
        """The complete files of an address, by ref.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    async def file(self, address: Address, ref: str) -> bytes | None:
        """The bytes of a file; None when it is not there.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    async def drop_file(self, address: Address, ref: str) -> None:
        """Keep a file no longer.

        Raises:
            StorageError: it could not be stored.
        """
        ...


Level = Literal["ok", "warning", "error"]
Repair = Literal["", "modes", "lock", "index", "restore", "move", "register"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found out about the set-up: what, how serious, and how to mend it.

    `text` and `fix` are plain words without secrets, in English. What belongs to the program itself
    is made with `of` instead, and its words come from the catalogues.

    Attributes:
        level: "error" means that it cannot work like this, "warning" that something does not.
        text: what it is; empty where the catalogues have it.
        fix: what to do, in one or two sentences or as a command.
        account: whose account of a channel it is about.
        id: what programs know it by, such as "storage.damaged"; its place in the catalogues.
        values: what is filled in there.
        repair: which repair of `confidant doctor --fix` mends it; empty for none.
    """

    level: Level
    text: str = ""
    fix: str = ""
    account: str = DEFAULT_ACCOUNT
    id: str = ""
    values: Mapping[str, str | int | float] = field(default_factory=dict[str, str | int | float])
    repair: Repair = ""

    @classmethod
    def of(
        cls,
        level: Level,
        id: str,  # noqa: A002 - the field's name
        account: str = DEFAULT_ACCOUNT,
        repair: Repair = "",
        **values: str | int | float,
    ) -> Self:
        """One that the catalogues have words for."""
        return cls(level, account=account, id=id, values=values, repair=repair)


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying a secret before it is stored.

    Attributes:
        outcome: "known": the platform says whose it is. "signed": a server took a call signed with
            it. "server": the server is the right one; the secret itself could not be tried.
            "unsigned": the same, and where it could be tried it was not taken, which may have
            other reasons. "untried": there is nobody to ask about it.
            "refused": the platform does not take it. "malformed": it cannot be one.
            "unreachable", "slow", "busy", "moved" (it leads elsewhere), "strange" (what answers is
            something else), "closed" (maintenance) and "lacking" (it takes no bots): of what was
            asked, why it did not tell.
        name: what the platform calls the bot, such as "@heron_bot", or the server; one line.
    """

    outcome: Literal[
        "known", "signed", "server", "unsigned", "untried",
        "refused", "malformed", "unreachable", "slow", "busy", "moved", "strange", "closed",
        "lacking",
    ]  # fmt: skip
    name: str = ""

    @property
    def may_be_kept(self) -> bool:
        """True when nothing says that it is wrong."""
        return self.outcome in {"known", "signed", "server", "unsigned", "untried"}


class Channel(ABC):
    """A place where people talk to the bot.

    A channel defines `name`, `capabilities`, `start`, `render`, `send` and `stop`. Everything below
    `stop` is for platforms that can do more, and does nothing unless a channel has its own; what
    `Capabilities` has a field for is called only where that is declared.

    Attributes:
        name: the entry point's name, such as "telegram".
        capabilities: what this channel can do; fixed for its lifetime.
    """

    name: str
    capabilities: Capabilities

    @abstractmethod
    async def start(self, engine: Engine) -> None:
        """Begin receiving, in tasks of its own, and return without waiting for the network.

        A platform that is unreachable is retried inside and told through `Engine.report`.
        """

    @abstractmethod
    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """The messages a text becomes here, in order.

        It is pure: after a restart it is asked again and goes on where it was. A long text is
        rendered in a thread.

        Raises:
            SendRefused: nothing of it can be shown.
        """

    @abstractmethod
    async def send(self, piece: Piece) -> str:
        """Send one piece, which is one message, and return the platform's message id.

        Raises:
            SendLater: wait this long, then offer the same piece again.
            SendTransient: it may work later.
            SendRefused: it never will.
            ChatMoved: the chat has another id now.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, release connections."""

    async def typing(self, address: Address) -> None:
        """Show for about five seconds that a reply is being written; never raises."""

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show the reply so far; an empty text takes the draft away. Never raises.

        A reply that is written anew after a restart has the same `draft_id`.
        """

    async def activity(self, address: Address, activity: Activity) -> None:
        """Show whoever watches now what goes on beside replies; never raises."""

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a `Media`, if they are no more than `most`.

        Raises:
            SendLater: the platform asks to wait.
            SendTransient: it may work later.
            SendRefused: it never will; it is too large, gone, or not for us.
        """
        raise SendRefused("no files can be fetched here")

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message; an empty one takes it away. Never raises."""

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands, by language tag; the key "" is the default."""

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may change how the bot behaves in this room; False when unknown."""
        return False

    async def examine(self) -> Sequence[Finding]:
        """Findings about the set-up, for `confidant doctor`; never raises.

        It is called on a channel that was not started, also while another process runs one, and
        changes nothing on the platform.
        """
        return ()

    async def register(self) -> None:
        """Tell the platform again where to call, and the commands of `publish_commands`.

        It is called on a channel that was not started, for `confidant doctor --fix`, where
        `examine` returned a finding whose `repair` is "register".

        Raises:
            ChannelError: the platform did not take it; the message says why, without secrets.
        """

    def invitation(self, account: str) -> str:
        """The link by which people come to an account's bot, or take it along to where they are.

        Empty where the platform has none, and until it said who the bot is.
        """
        return ""

    async def tried(self, option: str) -> Trial:
        """Try a secret of the section, such as that of "token", as far as the platform allows.

        It is called on a channel that was not started, changes nothing on the platform, and never
        raises.
        """
        return Trial("untried")

    async def heard(self, body: str) -> None:
        """Take what `Engine.broadcast` was called with on any node; never raises."""

    async def forgotten(self, is_about: Callable[[Address], bool]) -> None:
        """Show the history again where `is_about` an address: some was forgotten. Never raises."""

    def routes(self) -> Iterable[Any]:
        """Route definitions of aiohttp, mounted before the server starts (`Capabilities.pages`).

        They are for the owner alone, but for those that are `shared` (`bot.channel.http`).
        """
        return ()

    async def finished(self) -> None:
        """Wait until the person at this process's terminal left and was answered.

        Raises:
            ChannelError: it is no terminal.
        """
        raise ChannelError(NO_TERMINAL)

    async def attach(self, url: str, token: str) -> None:
        """Join the page of a bot that runs already, from a terminal, until the person leaves.

        Raises:
            ChannelError: it cannot be joined; the message says why.
        """
        raise ChannelError(NO_TERMINAL)
