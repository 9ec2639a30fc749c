"""The contract between the engine and its channels.

A channel turns what its platform delivers into `Inbound` values and awaits `Engine.receive` for
each; once that returns the message is on disk and may be acknowledged to the platform. The engine
calls `Channel.send` for every piece of text that goes out. Anything more a platform can do is an
ability: a small Protocol of its own, plus a field of `Capabilities` that declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

ChatType = Literal["direct", "group", "channel", "thread"]
LengthUnit = Literal["chars", "utf16"]
OutboundKind = Literal["reply", "notice", "receipt"]

DEFAULT_ACCOUNT = "default"


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


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The message this one answers, as far as the platform tells."""

    message_id: str
    sender_name: str = ""
    text: str = ""
    quote: str = ""  # the part the person selected, when they quoted only a part
    from_bot: bool = False


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message from a platform, in the engine's own words.

    `(channel, account, chat, thread, message_id)` identifies it: a second copy is dropped. All ids
    are the platform's stable ids as text, never display names. `sent_at` is in milliseconds since
    the epoch. `locale` is the person's language tag as the platform reports it, or empty.
    `edit_of` is the id of the message this one replaces, or empty.
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

    @property
    def address(self) -> Address:
        """Where a reply to this message goes."""
        return Address(self.channel, self.account, self.chat, self.thread)


# --- what goes out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outbound:
    """One piece of text to send, already cut to the channel's `max_length`.

    `text` is Markdown (CommonMark). `id` is stable across retries, so a platform that takes
    idempotency keys gets one; a reply's is also that of its line in the history. `reply_to` is the
    message id to answer, on a first piece only.
    """

    id: str
    address: Address
    text: str
    kind: OutboundKind = "reply"
    reply_to: str = ""
    at: int = 0  # when it was written, ms since the epoch


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a channel can do; the engine asks before it relies on anything."""

    max_length: int = 4000  # of one message, in `length_unit`
    length_unit: LengthUnit = "chars"
    typing: bool = False
    drafts: bool = False
    command_menu: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command as a channel shows it in menus and completion."""

    name: str  # without the slash
    description: str
    usage: str = ""  # e.g. "[model]"


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One line of a conversation as a person saw it, for channels that redraw their history.

    The `id` of a person's line is the message id it came with, that of the bot's the
    `Outbound.id` it was sent with.
    """

    id: str
    role: Literal["user", "bot", "divider"]
    text: str  # Markdown for "bot", plain text for "user"
    at: int  # ms since the epoch


class Health(StrEnum):
    """How a channel is doing, for /readyz and `/status`."""

    STARTING = "starting"
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


class Engine(Protocol):
    """What a channel may ask of the engine."""

    async def receive(self, inbound: Inbound) -> None:
        """Store a message; when this returns it is on disk and may be acknowledged.

        Raises:
            StorageError: it could not be stored: do not acknowledge, offer it again later.
        """
        ...

    async def history(self, address: Address, limit: int) -> Sequence[HistoryItem]:
        """The newest `limit` lines of this address's conversations, oldest first."""
        ...

    def commands(self, locale: str) -> Sequence[Command]:
        """The commands a person can type, described in their language."""
        ...

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how a connection is doing; `detail` is one plain sentence without secrets."""
        ...


class Channel(Protocol):
    """A place where people talk to the bot."""

    @property
    def name(self) -> str:
        """The entry point's name, such as "telegram"."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this channel can do; fixed for its lifetime."""
        ...

    async def start(self, engine: Engine) -> None:
        """Begin receiving, in tasks of its own, and return without waiting for the network.

        A platform that is unreachable is retried inside and told through `Engine.report`.
        """
        ...

    async def send(self, outbound: Outbound) -> str:
        """Send one piece and return the platform's message id.

        Raises:
            SendLater: wait this long, then offer the same piece again.
            SendTransient: it may work later.
            SendRefused: it never will.
            ChatMoved: the chat has another id now.
        """
        ...

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, release connections."""
        ...


# --- abilities -----------------------------------------------------------------------------------


@runtime_checkable
class Typing(Protocol):
    """A channel that can show that a reply is being written (`Capabilities.typing`)."""

    async def typing(self, address: Address) -> None:
        """Show it once, for about five seconds. Failures are not errors: never raises."""
        ...


@runtime_checkable
class Drafts(Protocol):
    """A channel that can show a reply while it is being written (`Capabilities.drafts`)."""

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show the text so far; an empty text takes the draft away. Never raises."""
        ...


@runtime_checkable
class CommandMenu(Protocol):
    """A channel whose platform keeps a menu of commands (`Capabilities.command_menu`)."""

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands, by language tag; the key "" is the default."""
        ...


@runtime_checkable
class Interactive(Protocol):
    """A channel of one person at this process's own terminal."""

    async def finished(self) -> None:
        """Wait until the person left and everything they said was answered."""
        ...

    async def attach(self, url: str, token: str) -> None:
        """Join the page of a bot that runs already, until the person leaves.

        Raises:
            ChannelError: it cannot be joined; the message says why.
        """
        ...


# --- configuration and discovery -----------------------------------------------------------------


class Rule(BaseModel):
    """One rule. Every field that is given must match; a rule with no field matches everything."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    action: Literal["allow", "deny"] = Field(description="What a match means.")
    channel: str = Field(default="", description="Channel name.")
    account: str = Field(default="", description="Account id of the channel.")
    chat_type: Literal["", "direct", "group", "channel", "thread"] = Field(
        default="", description="Kind of chat."
    )
    chat: str = Field(default="", description="Chat id.")
    sender: str = Field(default="", description="The person's id in that channel.")
    key_prefix: str = Field(default="", description="Beginning of the session key.")


class ScopeConfig(BaseModel):
    """`[scope]`: may a session see memory and past conversations?"""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    default: Literal["allow", "deny"] = Field(
        default="deny", description="When no rule matches. Private files stay private either way."
    )
    rules: tuple[Rule, ...] = Field(
        default=(Rule(action="allow", chat_type="direct"),),
        description="Checked in order; the first that matches decides.",
    )


class ChannelScope(BaseModel):
    """`[channels.<name>.scope]`: what this channel's chats may see."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    default: Literal["", "allow", "deny"] = Field(
        default="",
        description="When no rule here matches; empty asks [scope], anything else ignores it.",
    )
    rules: tuple[Rule, ...] = Field(default=(), description="Checked before those of [scope].")

    def within(self, general: ScopeConfig) -> ScopeConfig:
        """The rules that apply in this channel."""
        if self.default:
            return ScopeConfig(default=self.default, rules=self.rules)
        return ScopeConfig(default=general.default, rules=(*self.rules, *general.rules))


class ChannelConfig(BaseModel):
    """What every channel's section of the configuration has; a channel adds its own fields."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    enabled: bool = Field(default=True, description="Whether this channel runs.")
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = Field(
        default="pairing",
        description="Who may talk in direct chats: people with an approved pairing code, the "
        'allow_from list, everyone ("open", needs "*" in allow_from), or nobody.',
    )
    allow_from: tuple[str, ...] = Field(
        default=(),
        description='Ids of people who may always talk; "*" is everyone, with dm_policy "open".',
    )
    scope: ChannelScope = Field(
        default_factory=ChannelScope, description="What this channel's chats may see."
    )

    def account(self, account: str) -> ChannelConfig:
        """The configuration of one account: its own fields, and this section's for the rest.

        An account the section does not list is the section itself.
        """
        accounts: dict[str, Any] = getattr(self, "accounts", {})
        override = accounts.get(account)
        if not isinstance(override, BaseModel):
            return self
        return self.model_copy(update={n: getattr(override, n) for n in override.model_fields_set})

    @model_validator(mode="after")
    def _open_is_meant(self) -> Self:
        """Opening the bot to everyone takes two words, so that a slip of one never does."""
        accounts: Mapping[str, Any] = getattr(self, "accounts", {})
        _check_open(self, (), self.model_fields_set)
        for name, override in accounts.items():
            own = override.model_fields_set if isinstance(override, BaseModel) else set[str]()
            if own & set(_OPENING):
                _check_open(self.account(name), ("accounts", name), own)
        return self


_OPENING = ("dm_policy", "allow_from")


def _check_open(section: ChannelConfig, path: tuple[str, ...], own: set[str]) -> None:
    """Refuse "open" without "*"; `path` and `needs` tell `bot.settings` which lines it is about."""
    if section.dm_policy != "open" or "*" in section.allow_from:
        return
    name = "dm_policy" if "dm_policy" in own else "allow_from"
    raise PydanticCustomError(
        "dm_policy_open",
        'dm_policy = "open" lets everyone talk to the bot, so it needs "*" in allow_from',
        {
            "path": (*path, name),
            "needs": [(*each, option) for each in ((), path) for option in _OPENING],
        },
    )


@dataclass(frozen=True, slots=True)
class ChannelPlugin:
    """What the entry point of a channel (group `confidant.channels`) names.

    Importing it must be cheap: `create` imports the SDK. `config` has a default for every field.
    `ready` says whether a configuration has what the channel needs to run (a token, say); one that
    has not stays off without being an error. `env` gives plain environment variables, each with the
    option of the channel's section that it sets: `{"TELEGRAM_BOT_TOKEN": ("token",)}`.
    """

    name: str
    config: type[ChannelConfig]
    create: Callable[[Any], Channel]
    ready: Callable[[Any], bool] = lambda _config: True
    env: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@runtime_checkable
class HttpRoutes(Protocol):
    """A channel that serves pages on the dashboard's address, behind its token."""

    def routes(self) -> Iterable[Any]:
        """Route definitions of aiohttp, mounted before the server starts."""
        ...


def reveal(secret: SecretStr | None) -> str:
    """The text of an optional secret, or empty."""
    return secret.get_secret_value() if secret is not None else ""
