"""What goes back and forth between a channel and the engine, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

ChatType = Literal["direct", "group", "channel", "thread"]
LengthUnit = Literal["chars", "utf16"]
OutboundKind = Literal["reply", "notice", "receipt", "reminder"]
ForeignKind = Literal["forwarded", "poll", "place", "card", "preview", "event"]

DEFAULT_ACCOUNT = "default"
PAGE_OWNER = "owner"  # what whoever owns the bot is called in its page, as others are by name


# --- what comes in -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """Where messages of one chat go; sends to one address keep their order."""

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
        """What a reply refers to: where several people talk it says whom it answers."""
        return self.message_id if self.chat_type != "direct" else ""

    @property
    def asker(self) -> str:
        """Whose turn to be answered this is, where several people talk; else nobody's."""
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
