"""A channel's section of the configuration, and how a channel is found."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from bot.channel.contract import DEFAULT_ACCOUNT, Channel
from bot.net import proxy

AccountId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


PROXY_HELP = (
    'The proxy it is reached through: "host:port", "http://user:password@host:port" or '
    '"socks5://host:port"; "none" for none. Empty asks HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and '
    "NO_PROXY, and leaves local addresses alone."
)


def _is_proxy(written: SecretStr) -> SecretStr:
    """Refuse what is no proxy; a ValueError that does not repeat it."""
    if written.get_secret_value().strip():
        proxy.parse(written.get_secret_value())
    return written


ProxyOption = Annotated[SecretStr | None, AfterValidator(lambda it: it and _is_proxy(it))]
"""A proxy as it is written; a secret, as it may hold a password."""


class Section(BaseModel):
    """A table of the configuration file: frozen, and nothing unknown in it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


class Rule(Section):
    """One rule. Every field that is given must match; a rule with no field matches everything."""

    action: Literal["allow", "deny"] = Field(description="What a match means.")
    channel: str = Field(default="", description="Channel name.")
    account: str = Field(default="", description="Account id of the channel.")
    chat_type: Literal["", "direct", "group", "channel", "thread"] = Field(
        default="", description="Kind of chat."
    )
    chat: str = Field(default="", description="Chat id.")
    sender: str = Field(default="", description="The person's id in that channel.")
    key_prefix: str = Field(default="", description="Beginning of the session key.")


class ToolRule(Rule):
    """`[[tools.rules]]`: who may use which tools where."""

    tools: tuple[str, ...] = Field(
        default=("*",),
        min_length=1,
        description='Names of tools; "*" in one stands for anything, as in "web_*".',
    )
    person: str = Field(
        default="", description='Who, in any channel: a name of identity_links, or "telegram:42".'
    )
    ask: bool | None = Field(
        default=None,
        description="Whether the person is asked before each call; left out, before those of tools "
        "that say they change something.",
    )


DmPolicy = Literal["pairing", "allowlist", "open", "disabled"]
GroupPolicy = Literal["allowlist", "open", "disabled"]
RecallMode = Literal["", "every_turn", "start", "off"]


class ScopeRule(Rule):
    """`[[scope.rules]]`: who sees memory, and how often it is searched for them."""

    recall: RecallMode = Field(
        default="",
        description="[memory] recall for those that this rule lets in; empty keeps it.",
    )


class ScopeConfig(Section):
    """`[scope]`: may a session see memory and past conversations?"""

    default: Literal["allow", "deny"] = Field(
        default="deny", description="When no rule matches. Private files stay private either way."
    )
    rules: tuple[ScopeRule, ...] = Field(
        default=(ScopeRule(action="allow", chat_type="direct"),),
        description="Checked in order; the first that matches decides.",
    )


class ChannelScope(Section):
    """`[channels.<name>.scope]`: what this channel's chats may see."""

    default: Literal["", "allow", "deny"] = Field(
        default="",
        description="When no rule here matches; empty asks [scope], anything else ignores it.",
    )
    rules: tuple[ScopeRule, ...] = Field(default=(), description="Checked before those of [scope].")

    def within(self, general: ScopeConfig) -> ScopeConfig:
        """The rules that apply in this channel."""
        if self.default:
            return ScopeConfig(default=self.default, rules=self.rules)
        return ScopeConfig(default=general.default, rules=(*self.rules, *general.rules))


class InChat(Protocol):
    """A place that the configuration of a room is found by.

    `parent` is the chat a thread hangs below and `server` the place all of them belong to.
    """

    @property
    def chat_type(self) -> str:
        """The kind of chat."""
        ...

    @property
    def chat(self) -> str:
        """Its id."""
        ...

    @property
    def parent(self) -> str:
        """The id of the chat it hangs below, or empty."""
        ...

    @property
    def server(self) -> str:
        """The id of its server, or empty."""
        ...


class GroupConfig(Section):
    """`[channels.<name>.groups.<id>]`: one room; what it leaves out is as in the whole channel."""

    enabled: bool = Field(default=True, description="Whether the bot listens in this room.")
    allow_from: tuple[str, ...] = Field(
        default=("*",), description='Ids of people who may talk here; "*" is everyone in the room.'
    )
    require_mention: bool = Field(
        default=True, description="Whether it answers only what is said to it."
    )
    mention_patterns: tuple[str, ...] = Field(
        default=(), description="Regular expressions that count as a mention."
    )
    notices: Literal["", "auto", "on", "off"] = Field(
        default="", description="Say how full this room's conversation is."
    )
    language: Literal["", "auto", "en", "zh"] = Field(
        default="", description="Language of the bot's own words in this room."
    )
    streaming: bool = Field(default=True, description="Show replies while they are being written.")


class ChannelConfig(Section):
    """The base of every channel's section of the configuration; a channel adds its own fields."""

    enabled: bool = Field(default=True, description="Whether this channel runs.")
    dm_policy: DmPolicy = Field(
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
    group_policy: GroupPolicy = Field(
        default="allowlist",
        description="In which rooms it listens: those listed in groups, all it is added to, none.",
    )
    group_allow_from: tuple[str, ...] = Field(
        default=(),
        description="Ids of people who may talk to it in rooms that name nobody themselves; "
        '"*" is everyone there.',
    )
    require_mention: bool = Field(
        default=True, description="In rooms, whether it answers only what is said to it."
    )
    mention_patterns: tuple[str, ...] = Field(
        default=(),
        description="Regular expressions that count as a mention, in rooms; case does not matter.",
    )
    groups: Mapping[str, GroupConfig] = Field(
        default_factory=dict[str, GroupConfig], description='Rooms by id; "*" is every other one.'
    )
    dm_scope: Literal["", "main", "per-peer", "per-channel-peer", "per-account-channel-peer"] = (
        Field(
            default="", description="How direct chats become conversations; empty asks [session]."
        )
    )
    notices: Literal["", "auto", "on", "off"] = Field(
        default="", description="Say how full a conversation is; empty asks [context] notices."
    )
    language: Literal["", "auto", "en", "zh"] = Field(
        default="", description="Language of the bot's own words; empty asks [agent] language."
    )
    streaming: bool = Field(
        default=True,
        description="Show replies while they are being written, if it can.",
    )

    def account(self, account: str) -> Self:
        """The configuration of one account: its own fields, and this section's for the rest.

        An account the section does not list is the section itself.
        """
        accounts: dict[str, Any] = getattr(self, "accounts", {})
        override = accounts.get(account)
        if not isinstance(override, BaseModel):
            return self
        return self.model_copy(update={n: getattr(override, n) for n in override.model_fields_set})

    def secrets(self, option: str) -> dict[str, str]:
        """A secret of every account that has one; the section itself is account "default".

        No account has another one's: each would get the other's messages.
        """
        found = {DEFAULT_ACCOUNT: reveal(getattr(self, option))}
        accounts: Mapping[str, Any] = getattr(self, "accounts", {})
        for name, account in accounts.items():
            own = reveal(getattr(account, option))
            found[name] = own or (found[DEFAULT_ACCOUNT] if name == DEFAULT_ACCOUNT else "")
        return {name: secret.strip() for name, secret in found.items() if secret.strip()}

    def room(self, where: InChat) -> ChannelConfig:
        """The configuration of the room a message was said in; in direct chats this section's.

        A thread that is not listed itself is like the chat it hangs below.
        """
        if where.chat_type == "direct":
            return self
        override = self.listed(where)
        if override is None:
            return self
        names = override.model_fields_set & type(self).model_fields.keys()
        return self.model_copy(update={name: getattr(override, name) for name in names})

    def listed(self, where: InChat) -> GroupConfig | None:
        """The configuration of a message's room, or None when it is not listed."""
        for name in (where.chat, where.parent, "*"):
            if name and name in self.groups:
                return self.groups[name]
        return None

    @model_validator(mode="after")
    def _patterns_are_valid(self) -> Self:
        for section in (self, *self.groups.values()):
            check_patterns(section.mention_patterns)
        return self

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


class AccountSection(Section):
    """One more account of a channel; what it does not set is as in the channel's own section."""

    dm_policy: DmPolicy = Field(
        default="pairing", description="Who may talk to this bot in direct chats."
    )
    allow_from: tuple[str, ...] = Field(
        default=(), description="Ids of people who may always talk to this bot."
    )


class RoomAccountSection(AccountSection):
    """The same of a channel in which each account has rooms of its own."""

    group_policy: GroupPolicy = Field(
        default="allowlist", description="In which rooms this bot listens."
    )
    group_allow_from: tuple[str, ...] = Field(
        default=(), description="Ids of people who may talk to this bot in rooms."
    )
    groups: Mapping[str, GroupConfig] = Field(
        default_factory=dict[str, GroupConfig], description="Rooms of this bot by id."
    )


class DirectChannelConfig(ChannelConfig):
    """The base of the section of a channel without rooms: it has no options of rooms.

    Where a file sets one all the same, `bot.settings` warns and goes on without it.
    """

    # As class variables they are no options any more, and still what the engine may ask for.
    group_policy: ClassVar[Literal["disabled"]] = "disabled"  # pyright: ignore[reportIncompatibleVariableOverride]
    group_allow_from: ClassVar[tuple[str, ...]] = ()  # pyright: ignore[reportIncompatibleVariableOverride]
    require_mention: ClassVar[bool] = True  # pyright: ignore[reportIncompatibleVariableOverride]
    mention_patterns: ClassVar[tuple[str, ...]] = ()  # pyright: ignore[reportIncompatibleVariableOverride]
    groups: ClassVar[Mapping[str, GroupConfig]] = MappingProxyType({})  # pyright: ignore[reportIncompatibleVariableOverride]


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
    """The target of a channel's entry point (group `confidant.channels`).

    Importing it must be cheap: `create` imports the SDK. `config` has a default for every field.
    `ready` says whether a configuration has what the channel needs to run (a token, say); one that
    has not stays off without being an error, and `needs` says what to set then
    ("TELEGRAM_BOT_TOKEN"). `env` gives plain environment variables, each with the option of the
    channel's section that it sets: `{"TELEGRAM_BOT_TOKEN": ("token",)}`.
    """

    name: str
    config: type[ChannelConfig]
    create: Callable[[Any], Channel]
    ready: Callable[[Any], bool] = lambda _config: True
    env: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    needs: str = ""

    def off(self, section: ChannelConfig) -> Literal["", "off", "not_set_up"]:
        """Why the channel does not run with its section of the configuration; empty if it does."""
        if not section.enabled:
            return "off"
        return "" if self.ready(section) else "not_set_up"


def check_distinct(secrets: Mapping[str, str], what: str) -> None:
    """Refuse two accounts with one secret, given by account: each would get the other's messages.

    Raises:
        ValueError: the message names them.
    """
    taken: dict[str, str] = {}
    for name, secret in secrets.items():
        twin = taken.setdefault(secret, name)
        if twin != name:
            raise ValueError(f'accounts "{twin}" and "{name}" have the same {what}')


def check_patterns(patterns: Iterable[str]) -> None:
    """Refuse what is no regular expression, or will mean something else one day.

    Raises:
        ValueError: one of them is such; the message names it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, FutureWarning) as exc:
                raise ValueError(f"mention_patterns: {pattern!r} is no pattern: {exc}") from exc


def reveal(secret: SecretStr | None) -> str:
    """The text of an optional secret, or empty."""
    return secret.get_secret_value() if secret is not None else ""
