"""The configuration's models: every option, its type, its default and one line about it.

`bot.settings` reads them from TOML, the environment and `.env`. Nothing here touches a file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from bot.channel import (
    PROXY_HELP,
    ChannelConfig,
    ChatType,
    ProxyOption,
    Rule,
    ScopeConfig,
    Section,
    ToolRule,
    reveal,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AsWritten:
    """Marks free names whose case counts: a variable that sets one spells it as it is."""


@dataclass(frozen=True, slots=True)
class LiveMark:
    """Marks an option that takes effect as soon as it changes; on a table, all its options.

    Others take effect at the next start. A shared one changes on all nodes of a database. Services,
    channels and the page's token are not shared: each node has its own addresses and secrets.
    """

    is_shared: bool = True


Live = Annotated[T, LiveMark()]
LiveHere = Annotated[T, LiveMark(is_shared=False)]

McpName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
FolderName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AsWritten()]

# Time limits in seconds that grow for a slow model, unless another number is configured.
TURN_SECONDS, SILENCE_SECONDS, FLUSH_SECONDS, SUMMARY_SECONDS = 600.0, 120.0, 30.0, 180.0
LONGEST_NAME = 80  # characters of what somebody is called
SHORTEST_TOKEN = 16  # characters; fewer can be guessed by trying


def is_loopback(host: str) -> bool:
    """True if a host name or address can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


MAIN_AGENT = "main"  # the agent that `[agent]` describes


class AgentConfig(Section):
    """`[agent]`: who answers."""

    model: str = Field(
        default="claude-sonnet-5-5",
        min_length=1,
        description='The model that answers, as "<service>/<model>"; without a service it '
        'belongs to [models.anthropic]. "offline" needs no key and also answers while the '
        "service has none.",
    )
    fallback: tuple[str, ...] = Field(
        default=(),
        description="Models that answer, in this order, while the chosen one is overloaded, "
        "unreachable or out of credit.",
    )
    chores: str = Field(
        default="",
        description="The model for summaries, saving to memory and titles of conversations; "
        "empty uses the conversation's model, without titles.",
    )
    choices: tuple[str, ...] = Field(
        default=(),
        description='Models that /model offers, such as "local/*"; empty offers all. The owner '
        "may choose any in a direct chat.",
    )
    name: str = Field(default="Confidant", min_length=1, description="What the bot calls itself.")
    language: Literal["auto", "en", "zh"] = Field(
        default="auto",
        description='"en", "zh", or "auto": the language each person\'s app reports.',
    )
    timezone: str = Field(
        default="", description='IANA name such as "Europe/Berlin"; empty uses this machine\'s.'
    )
    max_tokens: int = Field(default=8192, ge=256, description="Longest reply, in tokens.")
    max_steps: int = Field(default=16, ge=1, le=100, description="Maximum model calls in one turn.")
    turn_timeout: float = Field(
        default=TURN_SECONDS,
        gt=0,
        description="Longest turn, in seconds; the default grows for a slow model, up to an hour.",
    )


class BindRule(Rule):
    """`[[agents.<name>.bind]]`: where an agent answers; a chat stands for its threads too."""

    # Class variables are no options: a match means that the agent answers.
    action: ClassVar[Literal["allow"]] = "allow"  # pyright: ignore[reportIncompatibleVariableOverride]
    key_prefix: ClassVar[str] = ""  # pyright: ignore[reportIncompatibleVariableOverride]

    thread: str = Field(default="", description="Thread or topic id.")
    person: str = Field(
        default="", description='Who, in any channel: a name of identity_links, or "telegram:42".'
    )

    @model_validator(mode="after")
    def _is_for_everybody_in_a_room(self) -> BindRule:
        if (self.sender or self.person) and self.chat_type not in {"", "direct"}:
            raise ValueError(
                "in a room one agent answers everybody: leave out sender and person, or set "
                'chat_type = "direct"'
            )
        return self


class NamedAgentConfig(AgentConfig):
    """`[agents.<name>]`: another agent; what it does not set is as in `[agent]`."""

    timezone: ClassVar[str] = ""  # pyright: ignore[reportIncompatibleVariableOverride]
    tools: tuple[str, ...] = Field(
        default=(),
        description='The only tools it may use, such as ["memory_*", "web_search"]; empty is all '
        "that [tools] gives.",
    )
    bind: tuple[BindRule, ...] = Field(
        default=(),
        description="Where it answers. The first rule that matches decides, agents in the order of "
        "the file; everywhere else [agent] answers. A sender or person means direct chats.",
    )


class AgentsConfig(Section):
    """`[agents]`: more agents beside `[agent]`, each with a persona, a model and rooms of its own.

    Their files (SOUL.md, IDENTITY.md, AGENTS.md, TOOLS.md) stand in `agents/<name>/` of the
    workspace; a file that is not there is that of the workspace itself.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, NamedAgentConfig] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def named(self) -> Mapping[str, NamedAgentConfig]:
        """The tables by name, in the order of the file."""
        return self.__pydantic_extra__


Thinking = Literal["", "off", "low", "medium", "high"]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]

# What a request has of the program's own: its key, its form, and what is said in it.
_OWN_HEADERS = frozenset(
    {
        *("authorization", "x-api-key", "proxy-authorization", "host", "connection", "accept"),
        *("content-type", "content-length", "content-encoding", "transfer-encoding"),
    }
)
_OWN_FIELDS = frozenset(
    {
        *("model", "messages", "system", "prompt", "input", "stream", "tools", "tool_choice"),
        *("functions", "function_call", "max_tokens", "max_completion_tokens", "api_key", "key"),
    }
)


class Service(Section):
    """A service: its protocol, address and key."""

    kind: str = Field(
        default="",
        description='Its protocol: "anthropic" (the Messages API), "openai" (chat completions: '
        "OpenAI, Ollama, LM Studio, vLLM, llama.cpp, OpenRouter, Gemini, DeepSeek, Qwen), or one "
        "that an installed package adds. Not needed if the table has that name.",
    )
    base_url: str = Field(
        default="",
        description="Its address, unless it is the vendor's own: http://127.0.0.1:11434/v1.",
    )
    api_key: SecretStr | None = Field(
        default=None,
        description="Better kept out of this file: set ANTHROPIC_API_KEY, OPENAI_API_KEY, or the "
        "option's variable.",
    )
    window: int = Field(
        default=0,
        ge=0,
        description="Context window of its models, in tokens, if the service reports none or a "
        "wrong one; 0 asks the service. [context.windows] sets it for one model.",
    )
    lanes: int | None = Field(
        default=None,
        ge=0,
        description="Requests it answers at the same time; others wait here, people before "
        "chores. 0 is unlimited; empty detects whether a service of your own answers one at a "
        "time.",
    )


class ModelOptions(Section):
    """Options for all models of a service, or for one of them."""

    timeout: float = Field(
        default=SILENCE_SECONDS,
        gt=0,
        description="Longest silence of the service, in seconds, before the first word or "
        "between two; before the first, the default grows for a slow model.",
    )
    proxy: ProxyOption = Field(default=None, description=PROXY_HELP)
    thinking: Thinking = Field(
        default="",
        description='How much the model thinks before it answers: "off", "low", "medium" or '
        '"high"; empty leaves it to the model. /think sets it for one conversation.',
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description="Sampling temperature; empty uses the service's default.",
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Nucleus sampling; empty uses the service's default.",
    )
    headers: Mapping[HeaderName, SecretStr] = Field(
        default_factory=dict[str, SecretStr],
        description='Headers sent with each request, as { X-Team = "a" }; not those of the key.',
    )
    extra_body: Mapping[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Fields added to the body of each request, as { seed = 1 }; not the model, "
        "messages, tools or reply length.",
    )

    @field_validator("headers")
    @classmethod
    def _are_not_ours(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            if name.lower() in _OWN_HEADERS:
                raise ValueError(
                    f"{name} is set by the program; the key is api_key, the proxy is proxy"
                )
            if not value.get_secret_value().isprintable():
                raise ValueError(f"{name} has characters that no header may have")
        return headers

    @field_validator("extra_body")
    @classmethod
    def _is_not_ours(cls, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if taken := sorted(name for name in body if name.lower() in _OWN_FIELDS):
            raise ValueError(
                f"{taken[0]} is set by the program; [agent] has options for the model and the "
                "longest reply"
            )
        return body


class ServiceConfig(ModelOptions, Service):
    """`[models.<name>]`: a service, by any name; its models are called "<name>/<model>"."""

    per_model: Mapping[str, ModelOptions] = Field(
        default_factory=dict[str, ModelOptions],
        description="Options for one of its models, by the service's name for it.",
    )

    def of_model(self, model: str) -> ServiceConfig:
        """The options with those of one model in their place; headers and fields are added."""
        own = self.per_model.get(model)
        if own is None:
            return self
        changed = {name: getattr(own, name) for name in own.model_fields_set}
        changed["headers"] = {**self.headers, **own.headers}
        changed["extra_body"] = {**self.extra_body, **own.extra_body}
        return self.model_copy(update=changed)

    @property
    def is_set_up(self) -> bool:
        """True when there is somebody to ask: a key, or an address that may need none."""
        return self.api_key is not None or bool(self.base_url)


ANTHROPIC, OPENAI = "anthropic", "openai"  # the kinds there are without another package
OFFLINE = "offline"  # the model that needs no service


class ModelsConfig(Section):
    """`[models]`: where replies come from; tables of other names stand for other services."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ServiceConfig] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    anthropic: ServiceConfig = Field(default_factory=ServiceConfig)
    openai: ServiceConfig = Field(default_factory=ServiceConfig)

    @property
    def services(self) -> Mapping[str, ServiceConfig]:
        """The tables by name, those that are not set up too."""
        return {ANTHROPIC: self.anthropic, OPENAI: self.openai, **self.__pydantic_extra__}

    def is_set_up(self, name: str) -> bool:
        """True when a service can be asked; a kind of another package says itself what it needs."""
        service = self.services.get(name)
        if service is None:
            return False
        return service.is_set_up or self.kind_of(name) not in {ANTHROPIC, OPENAI}

    def kind_of(self, name: str) -> str:
        """The kind of a service: its name if the table does not say."""
        return self.services[name].kind or name

    def locate(self, model: str) -> tuple[str, str]:
        """The service a model's name belongs to, known or not, and the model's name there.

        "ollama/qwen3" is qwen3 of [models.ollama]. A name without a service is the anthropic
        table's, and so is "Qwen/Qwen3-8B" where that table has an address of its own.
        """
        if model == OFFLINE:
            return OFFLINE, OFFLINE
        service, slash, name = model.partition("/")
        is_bare = not slash or (service not in self.services and bool(self.anthropic.base_url))
        return (ANTHROPIC, model) if is_bare else (service, name)


class PriceConfig(Section):
    """Prices of a model, in US dollars per million tokens."""

    input: float = Field(default=0.0, ge=0, description="Input tokens.")
    output: float = Field(default=0.0, ge=0, description="Output tokens.")
    cache_read: float | None = Field(
        default=None, ge=0, description="Tokens read from the cache; empty is as input."
    )
    cache_write: float | None = Field(
        default=None, ge=0, description="Tokens written to the cache; empty is as input."
    )


class PricesConfig(Section):
    """`[prices]`: prices of models that the program does not know, or knows wrong."""

    models: Mapping[str, PriceConfig] = Field(
        default_factory=dict[str, PriceConfig],
        description="Prices by the full name of a model, in quotes; an empty table means free.",
    )


class CapsConfig(Section):
    """Limits per day and per month; 0 is no limit."""

    day_usd: float = Field(default=0.0, ge=0, description="US dollars a day; 0 is no limit.")
    day_tokens: int = Field(
        default=0, ge=0, description="Tokens of every kind a day; 0 is no limit."
    )
    month_usd: float = Field(default=0.0, ge=0, description="US dollars a month; 0 is no limit.")
    month_tokens: int = Field(
        default=0, ge=0, description="Tokens of every kind a month; 0 is no limit."
    )


class TogetherConfig(CapsConfig):
    """`[limits.in_all]`: limits for everybody together."""


class EachConfig(CapsConfig):
    """`[limits.each]`: limits for each person."""


class LimitsConfig(Section):
    """`[limits]`: usage limits; commands and the offline model always work."""

    in_all: TogetherConfig = Field(default_factory=TogetherConfig)
    each: EachConfig = Field(default_factory=EachConfig)
    people: Mapping[str, CapsConfig] = Field(
        default_factory=dict[str, CapsConfig],
        description="Limits for one person instead, by the same names as in session.timezones.",
    )
    exempt_owner: bool = Field(
        default=False, description="Answer the owner even if a limit is reached."
    )


class ChannelsConfig(Section):
    """`[channels]`: one table for each installed channel; `bot.settings` adds them."""

    def get(self, name: str) -> ChannelConfig:
        """The section of one channel.

        Raises:
            KeyError: no such channel is installed.
        """
        value = getattr(self, name, None)
        if not isinstance(value, ChannelConfig):
            raise KeyError(name)
        return value


class QueueConfig(Section):
    """`[session.queue]`: what happens to messages that arrive while a turn runs."""

    mode: Live[Literal["followup", "collect"]] = Field(
        default="followup",
        description='"followup": each message gets its own turn. "collect": waiting messages are '
        "answered together.",
    )
    debounce: Live[float] = Field(
        default=0.5, ge=0, le=60, description='In "collect", wait this long for more, in seconds.'
    )
    cap: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="More waiting messages than this are answered together.",
    )


class ResetPolicy(Section):
    """The rules by which a conversation ends."""

    mode: Literal["daily", "idle", "none"] = Field(
        default="daily", description='"daily" at at_hour, "idle" after idle_minutes, or "none".'
    )
    at_hour: int = Field(default=4, ge=0, le=23, description="Hour of the daily reset, local time.")
    idle_minutes: int = Field(
        default=0,
        ge=0,
        description="Minutes of silence that end a conversation, in either mode; 0 never.",
    )

    @model_validator(mode="after")
    def _idle_needs_minutes(self) -> ResetPolicy:
        if self.mode == "idle" and self.idle_minutes == 0:
            raise ValueError('mode = "idle" needs idle_minutes above 0')
        return self


class ResetConfig(ResetPolicy):
    """`[session.reset]`: the default policy, and others by chat type and by channel."""

    by_type: Mapping[ChatType, ResetPolicy] = Field(
        default_factory=dict[ChatType, ResetPolicy], description="A policy for one chat type."
    )
    by_channel: Mapping[str, ResetPolicy] = Field(
        default_factory=dict[str, ResetPolicy],
        description="A policy for one channel; beats by_type.",
    )
    by_chat: Mapping[str, ResetPolicy] = Field(
        default_factory=dict[str, ResetPolicy],
        description='A policy for one chat, as "<channel>:<chat id>"; beats by_channel.',
    )


class SessionConfig(Section):
    """`[session]`: which messages belong to one conversation, and when a new one starts."""

    dm_scope: Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"] = Field(
        default="per-channel-peer",
        description='How direct chats become conversations; "main" puts everyone who may write '
        "into one, so use it only when that is you alone.",
    )
    owner: tuple[str, ...] = Field(
        default=(),
        description='Accounts of the owner of the main memory, as "<channel>:<id>", e.g. '
        '"telegram:42".',
    )
    owner_name: Live[str] = Field(
        default="",
        max_length=LONGEST_NAME,
        description="The owner's name, for the page and, in their own direct chats, the model.",
    )
    identity_links: dict[str, tuple[str, ...]] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description='People with several accounts: ada = ["telegram:42", "discord:77"].',
    )
    timezones: dict[str, str] = Field(
        default_factory=dict[str, str],
        description='Time zones of people who live elsewhere: ada = "Asia/Shanghai".',
    )
    reset: Live[ResetConfig] = Field(default_factory=ResetConfig)
    queue: QueueConfig = Field(default_factory=QueueConfig)
    max_turns: int = Field(
        default=64, ge=1, le=10_000, description="Maximum turns at the same time."
    )

    @field_validator("owner_name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("a name is one line of text, without control characters")
        return name.strip()


class PruningConfig(Section):
    """`[context.pruning]`: old tool results are shortened in requests, never in the transcript."""

    enabled: bool = Field(default=True, description="Shorten old tool results.")
    ttl_minutes: float = Field(
        default=5.0,
        ge=0,
        description="How long the service caches a prompt; within that time nothing is shortened "
        "until the conversation is full.",
    )
    keep_turns: int = Field(
        default=3, ge=1, le=100, description="The latest turns whose results stay whole."
    )
    allow: tuple[str, ...] = Field(
        default=("*",), description='Tools whose results may be shortened; "*" matches anything.'
    )
    deny: tuple[str, ...] = Field(
        default=(), description="Tools whose results are never shortened; beats allow."
    )


class CompactionConfig(Section):
    """`[context.compaction]`: a conversation that is full goes on from a summary."""

    reserve_tokens: int = Field(
        default=20_000,
        ge=0,
        description="Tokens kept free for the reply and tool calls; a quarter of a small window.",
    )
    keep_recent_tokens: int = Field(
        default=20_000,
        ge=0,
        description="Tokens of the latest messages that stay whole; fewer in small windows.",
    )
    keep_turns: int = Field(
        default=3, ge=1, le=100, description="The latest turns that always stay whole."
    )
    timeout: float = Field(
        default=SUMMARY_SECONDS,
        gt=0,
        description="Longest compaction, in seconds; the default grows for a slow model.",
    )


class ContextConfig(Section):
    """`[context]`: how much of a conversation the model sees, and what happens when it is full."""

    context_tokens: Live[int] = Field(
        default=120_000,
        ge=4_000,
        description="Use at most this much of the model's window, in tokens.",
    )
    windows: Live[Mapping[str, int]] = Field(
        default_factory=dict[str, int],
        description="Windows by model name, in tokens, where the model's service reports none or a "
        "wrong one.",
    )
    tokenizer: Literal["auto", "tiktoken", "estimate"] = Field(
        default="auto",
        description='How tokens are counted: "tiktoken" needs its ranks in TIKTOKEN_CACHE_DIR, '
        '"estimate" needs nothing; "auto" uses what is there. Nothing is downloaded.',
    )
    enable_memory_flush: Live[bool] = Field(
        default=True, description="Save what matters to memory before a conversation is compacted."
    )
    memory_flush_soft_tokens: Live[int] = Field(
        default=4_000, ge=0, description="How many tokens before the compaction it is saved."
    )
    memory_flush_timeout: Live[float] = Field(
        default=FLUSH_SECONDS,
        gt=0,
        description="Longest saving, in seconds; the default grows for a slow model.",
    )
    notices: Live[Literal["auto", "on", "off"]] = Field(
        default="auto",
        description='Say how full a conversation is: "auto" does in direct chats only.',
    )
    notice_percent: Live[tuple[int, ...]] = Field(
        default=(70, 85), description="The percentages at which that is said."
    )
    pruning: Live[PruningConfig] = Field(default_factory=PruningConfig)
    compaction: Live[CompactionConfig] = Field(default_factory=CompactionConfig)


class EmbedderConfig(Section):
    """`[memory.embedder]`: what turns notes into vectors, so that other words find them too."""

    provider: Literal["multilingual", "openai", "none"] = Field(
        default="multilingual",
        description='"multilingual" is built in and needs no key and no download; "openai" is any '
        'server with /v1/embeddings; "none" searches by words alone.',
    )
    plugin: str = Field(
        default="",
        description="Instead of a provider: the embedder of an installed package "
        "(docs/writing-a-tool.md).",
    )
    model: str = Field(default="", description='The model\'s name; "openai" needs one.')
    base_url: str = Field(
        default="https://api.openai.com/v1",
        description='The address of "openai", without /embeddings.',
    )
    api_key: SecretStr | None = Field(
        default=None, description="Better kept out of this file: set it in the environment."
    )
    timeout: float = Field(
        default=60.0, gt=0, description="Longest wait for one response, in seconds."
    )
    batch: int = Field(default=64, ge=1, le=2048, description="Maximum texts in one request.")


class FlushConfig(Section):
    """`[memory.flush]`: the operator's own wishes for what is saved, beside those in AGENTS.md."""

    prompt: str = Field(default="", description="Added to the request to save a conversation.")
    system_prompt: str = Field(
        default="",
        description="Added to the rules for saving, with priority over the built-in ones, such "
        'as "Never write down health matters."',
    )


class AgingConfig(Section):
    """`[memory.aging]`: how fast what nobody said themselves fades; what people said never does."""

    agent: float = Field(
        default=180.0,
        ge=0,
        le=100_000,
        description="Half-life, in days, of the model's conclusions, unless confirmed or used; 0 "
        "is never.",
    )
    imported: float = Field(
        default=365.0, ge=0, le=100_000, description="The same for imported entries."
    )
    untrusted: float = Field(
        default=90.0,
        ge=0,
        le=100_000,
        description="The same for untrusted entries, which cannot be confirmed.",
    )
    search_share: float = Field(
        default=0.1,
        ge=0,
        le=0.5,
        description="The most that fading lowers the score of a passage in a search; 0 is nothing.",
    )


class NightConfig(Section):
    """`[memory.night]`: notes are kept in order at night; whose they are is told in the morning."""

    mode: Literal["rules", "model", "off"] = Field(
        default="model",
        description='"rules" merges duplicates and strikes out an older home, employer, age, phone '
        'number or e-mail address; "model" also asks the model of [agent] chores; "off" leaves '
        "notes alone. Nothing is deleted, and /undo night undoes it.",
    )
    hour: int = Field(
        default=3,
        ge=0,
        le=23,
        description="The hour, in the person's time zone, from which it runs.",
    )
    tell_hour: int = Field(
        default=8, ge=0, le=23, description="The hour from which they are told about changes."
    )
    most: int = Field(
        default=10, ge=1, le=50, description="Maximum changes in one night, per person."
    )


class FolderConfig(Section):
    """`[memory.folders.<name>]`: a folder of documents that is searched, and never written."""

    path: Path = Field(
        default=Path(), description="The folder, such as an Obsidian vault or a folder of PDFs."
    )
    who: tuple[str, ...] = Field(
        default=("owner",),
        min_length=1,
        description='Who may search it besides the owner: "everyone", people ("ada" of '
        'identity_links, or "telegram:42"), rooms ("telegram:-100").',
    )

    @model_validator(mode="after")
    def _is_somewhere(self) -> FolderConfig:
        if self.path == Path():
            raise ValueError("set its path")
        return self


class MemoryConfig(Section):
    """`[memory]`: where the Markdown lives, and what of it a conversation begins with."""

    workspace: Path | None = Field(
        default=None, description="Folder of the notes; empty is `workspace` in the storage folder."
    )
    max_injected_chars: Live[int] = Field(
        default=20_000,
        ge=0,
        description="Maximum characters of memory at the start of a conversation, and recalled "
        "for a later message; 0 is none.",
    )
    recall: Literal["every_turn", "start", "off"] = Field(
        default="every_turn",
        description="When memory is searched automatically: before each reply, before the first "
        "reply of a conversation, or never. A rule of [scope] can override it.",
    )
    recall_timeout: Live[float] = Field(
        default=4.0,
        gt=0,
        le=60,
        description="Seconds that searching memory may delay a reply; later results are left out.",
    )
    citations: Live[Literal["auto", "on", "off"]] = Field(
        default="auto",
        description='Name the file and lines of a memory; "auto" does in direct chats.',
    )
    flush: Live[FlushConfig] = Field(default_factory=FlushConfig)
    embedder: EmbedderConfig = Field(default_factory=EmbedderConfig)
    aging: Live[AgingConfig] = Field(default_factory=AgingConfig)
    night: Live[NightConfig] = Field(default_factory=NightConfig)
    max_results: Live[int] = Field(
        default=6,
        ge=1,
        le=50,
        description="Maximum results of one search; twice as many short ones for lists.",
    )
    min_score: Live[float] = Field(
        default=0.02, ge=0, le=1, description="Results with a lower score are left out."
    )
    text_weight: float = Field(
        default=0.5, ge=0, le=1, description="Weight of words in a search; 0 turns them off."
    )
    vector_weight: float = Field(
        default=0.5, ge=0, le=1, description="Weight of meaning; 0 turns vectors off."
    )
    candidate_multiplier: Live[int] = Field(
        default=4, ge=1, le=50, description="Candidates of each kind per wanted result."
    )
    half_life_days: Live[float] = Field(
        default=30.0, ge=0, description="How fast dated notes lose their bonus; 0 is never."
    )
    mmr_lambda: Live[float] = Field(
        default=0.7, ge=0, le=1, description="1 ranks by score alone, less avoids repetition."
    )
    search_timeout: Live[float] = Field(
        default=4.0, gt=0, description="Longest search, in seconds; then it returns less."
    )
    sync_minutes: float = Field(
        default=5.0, gt=0, description="How often notes are checked for changes, besides watching."
    )
    retention_days: Live[int] = Field(
        default=90,
        ge=0,
        description="How long messages are found by meaning; by their words they always are.",
    )
    watch: bool = Field(default=True, description="Index a note as soon as any program edits it.")
    folders: Mapping[FolderName, FolderConfig] = Field(
        default_factory=dict[str, FolderConfig],
        description="Folders of Markdown, text, PDF and Word files to search, by a short name.",
    )

    @field_validator("folders")
    @classmethod
    def _are_no_notes(cls, folders: Mapping[str, FolderConfig]) -> Mapping[str, FolderConfig]:
        if taken := folders.keys() & {"memory", "people", "rooms", "shared"}:
            raise ValueError(f"notes stand in {min(taken)}/: give the folder another name")
        return folders


LEAST_MINUTES = 10  # between two heartbeats


class HeartbeatConfig(Section):
    """`[heartbeat]`: now and then the bot looks in on whoever has a HEARTBEAT.md."""

    every: str = Field(
        default="",
        pattern=r"^([1-9][0-9]{0,3}[mh])?$",
        description='How often, such as "30m" or "2h", at least ten minutes; empty is never.',
    )
    hours: str = Field(
        default="8-22",
        pattern=r"^([01]?[0-9]|2[0-4])-([01]?[0-9]|2[0-4])$",
        description="The hours between which it runs, in the person's time zone.",
    )

    @model_validator(mode="after")
    def _is_not_too_often(self) -> HeartbeatConfig:
        if 0 < self.minutes < LEAST_MINUTES:
            raise ValueError(f"every is at least {LEAST_MINUTES} minutes")
        return self

    @property
    def minutes(self) -> int:
        """The minutes from one time to the next; 0 is never."""
        return int(self.every[:-1] or 0) * (60 if self.every.endswith("h") else 1)

    @property
    def awake(self) -> tuple[int, int]:
        """The hours from and up to which somebody is looked in on."""
        begin, _, end = self.hours.partition("-")
        return int(begin), int(end)


class SendPolicyConfig(Section):
    """`[send_policy]`: where the model answers at all; commands are answered everywhere."""

    default: Literal["allow", "deny"] = Field(
        default="allow", description="When no rule matches: answer, or keep silent."
    )
    rules: tuple[Rule, ...] = Field(
        default=(),
        description="Any rule that denies wins, in whatever order; then any that allows.",
    )


class WebConfig(Section):
    """`[tools.web]`: tools that ask the web; off unless they are set up."""

    fetch: bool = Field(default=False, description="Let the model read web pages.")
    internal_hosts: tuple[str, ...] = Field(
        default=(),
        description='Hosts of your own network that it may also read, as "wiki.example" or '
        '"10.0.0.7:8080"; otherwise public addresses only.',
    )
    search: Literal["off", "searxng", "brave", "tavily", "ddgs"] = Field(
        default="off",
        description='The search service: "searxng" needs search_url, "brave" and "tavily" need '
        'search_key, "ddgs" uses public engines and needs a package.',
    )
    search_url: str = Field(
        default="",
        description='Address of SearXNG, such as "http://127.0.0.1:8888"; of Brave and Tavily '
        "only if it is not their own.",
    )
    search_key: SecretStr | None = Field(
        default=None,
        description="Better kept out of this file: set CONFIDANT_TOOLS__WEB__SEARCH_KEY.",
    )
    proxy: ProxyOption = Field(
        default=None,
        description=PROXY_HELP + " It is asked for addresses that were looked up and checked here, "
        "so that it opens nothing that could not be opened without it.",
    )


class McpConfig(Section):
    """`[tools.mcp.<name>]`: a server of tools; its tools are called `<name>_<tool>`."""

    command: str = Field(default="", description="Program to start, or:")
    args: tuple[str, ...] = Field(default=(), description="Its arguments.")
    env: Mapping[VariableName, SecretStr] = Field(
        default_factory=dict[str, SecretStr],
        description="Its environment, besides PATH and the like; nothing else of the bot's "
        "environment is passed on.",
    )
    url: str = Field(default="", description="Address of a running server.")
    headers: Mapping[str, SecretStr] = Field(
        default_factory=dict[str, SecretStr], description="Sent with each request to the url."
    )
    tools: tuple[str, ...] = Field(
        default=("*",), description="The tools to use, by the server's names; all by default."
    )
    timeout: float = Field(
        default=30.0,
        ge=1,
        le=3_600,
        description="Seconds that a call of a tool may take.",
    )

    @model_validator(mode="after")
    def _is_one_place(self) -> McpConfig:
        if bool(self.command) is bool(self.url):
            raise ValueError("set either command or url")
        return self


class ToolsConfig(Section):
    """`[tools]`: what the model may do beside talking, and for whom."""

    rules: tuple[ToolRule, ...] = Field(
        default=(),
        description="The first rule that matches decides. Without one, built-in tools are for "
        "everybody, all others for the owner's direct chats.",
    )
    web: WebConfig = Field(default_factory=WebConfig)
    mcp: Mapping[McpName, McpConfig] = Field(
        default_factory=dict[str, McpConfig], description="MCP servers, by a short name."
    )


class DashboardConfig(Section):
    """`[dashboard]`: the web page and the health endpoints."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on; any but this machine's own needs a token.",
    )
    port: int = Field(default=8420, ge=0, le=65535, description="Port; 0 takes any free one.")
    path: str = Field(
        default="",
        max_length=200,
        description="Path below which a reverse proxy serves the page, and which it strips, e.g. "
        '"/confidant".',
    )
    token: LiveHere[SecretStr | None] = Field(
        default=None,
        description="Required to open the page from other machines; better set as "
        "CONFIDANT_DASHBOARD__TOKEN. At least 16 characters.",
    )
    allowed_origins: tuple[str, ...] = Field(
        default=(),
        description="Origins of a reverse proxy that may open the page, e.g. "
        '"https://bot.example.org"; the first is the address in links to the page.',
    )

    @field_validator("token")
    @classmethod
    def _is_no_guess(cls, token: SecretStr | None) -> SecretStr | None:
        said = reveal(token)
        if said and len(said.strip()) < SHORTEST_TOKEN:
            raise ValueError(
                f"the page's token has fewer than {SHORTEST_TOKEN} characters and can be guessed: "
                "set CONFIDANT_DASHBOARD__TOKEN to what `openssl rand -hex 32` prints"
            )
        return token

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        parts = [part for part in path.strip().split("/") if part]
        if not all(re.fullmatch(r"[A-Za-z0-9._~-]+", part) for part in parts):
            raise ValueError('give a path such as "/confidant", of letters, digits and ._~-')
        if {".", ".."}.intersection(parts):
            raise ValueError("give a path without . and ..")
        return "".join(f"/{part}" for part in parts)

    @property
    def has_token(self) -> bool:
        """True where the page asks for a token."""
        return self.token is not None and bool(self.token.get_secret_value())

    @property
    def public_url(self) -> str:
        """The address at which others open the page, if the configuration says; else empty."""
        if self.allowed_origins:
            return self.allowed_origins[0].rstrip("/") + self.path
        if is_loopback(self.host) or self.host in {"0.0.0.0", "::"}:  # noqa: S104 - every address
            return ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


class StorageConfig(Section):
    """`[storage]`: where everything is kept."""

    dir: Path = Field(
        default=Path("~/.confidant"), description="Folder of the database and transcripts."
    )
    url: SecretStr | None = Field(
        default=None,
        description="A PostgreSQL that many nodes share, instead of the folder: postgresql://…",
    )
    direct_url: SecretStr | None = Field(
        default=None,
        description="The same database as url, but without the pooler (PgBouncer): each node has "
        "one connection that cannot be pooled.",
    )
    cluster: str = Field(
        default="",
        max_length=64,
        description="Name of the bot that the database behind url belongs to; others are refused.",
    )
    node_timeout: float = Field(
        default=8.0,
        ge=1,
        le=300,
        description="Seconds after which a silent node is considered gone.",
    )
    keep_months: Live[int] = Field(
        default=0,
        ge=0,
        le=1200,
        description="Months, besides the current one, for which conversations stay in the "
        "database behind url; older ones are deleted for good. 0 keeps everything.",
    )
    backup_hours: float = Field(
        default=24.0,
        ge=0,
        description="Hours between verified backups; 0: only when the log is full.",
    )
    backups_kept: int = Field(default=7, ge=1, le=1000, description="Number of backups kept.")

    @property
    def folder(self) -> Path:
        """The storage folder, with `~` resolved."""
        return self.dir.expanduser()


class BackupConfig(Section):
    """`[backup]`: everything in one file, elsewhere, by itself."""

    folder: Path | None = Field(
        default=None,
        description="Folder on another disk for full backups; without one none are made.",
    )
    every_hours: float = Field(default=24.0, gt=0, le=8760, description="Hours between backups.")
    kept: int = Field(default=7, ge=1, le=1000, description="Number of newest backups kept.")
    kept_weeks: int = Field(
        default=4, ge=0, le=1000, description="Weeks of which the newest backup is also kept."
    )
    passphrase: SecretStr | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Encrypts backups; better set as CONFIDANT_BACKUP__PASSPHRASE, and kept "
        "somewhere other than the disk.",
    )
    test_days: float = Field(
        default=7.0,
        ge=0,
        le=3650,
        description="Days between test restores of the newest backup; 0 makes none.",
    )

    @property
    def target(self) -> Path | None:
        """The folder, with `~` resolved."""
        return self.folder.expanduser() if self.folder is not None else None


class SpeechConfig(Section):
    """`[speech]`: who understands voice messages, and who says the answers to them."""

    kind: Literal["none", "openai", "local"] = Field(
        default="none",
        description='"openai": a service with /audio/transcriptions; "local": this machine, with '
        "confidant-bot[speech].",
    )
    base_url: str = Field(
        default="https://api.openai.com/v1", min_length=1, description="Address of the service."
    )
    api_key: SecretStr | None = Field(
        default=None, description="Its key; better set as CONFIDANT_SPEECH__API_KEY."
    )
    model: str = Field(
        default="whisper-1",
        min_length=1,
        description='The service\'s name for the model; with "local", the folder of a Whisper '
        "model in CTranslate2 format.",
    )
    language: str = Field(
        default="",
        description='The language people speak, such as "de"; empty detects it each time.',
    )
    timeout: float = Field(
        default=60.0, gt=0, le=600, description="Longest wait for the service, in seconds."
    )
    reply: Literal["text", "voice"] = Field(
        default="text",
        description='"voice": a voice message is also answered by voice, after the text, if the '
        "channel can; uses base_url with /audio/speech.",
    )
    reply_model: str = Field(
        default="tts-1", min_length=1, description="The service's name for the model that speaks."
    )
    voice: str = Field(
        default="alloy", min_length=1, description="The service's name for the voice."
    )

    @model_validator(mode="after")
    def _reply_needs_a_service(self) -> SpeechConfig:
        if self.reply == "voice" and self.kind == "none":
            raise ValueError('reply = "voice" needs a kind: it answers voice messages')
        if (
            self.reply == "voice"
            and self.kind == "local"
            and "base_url" not in self.model_fields_set
        ):
            raise ValueError('reply = "voice" needs base_url: this machine only listens')
        return self


LogForm = Literal["auto", "plain", "console", "json"]


class LogConfig(Section):
    """`[log]`: what is told on standard error, never with message text."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least serious events to log."
    )
    format: LogForm = Field(
        default="auto",
        description='"plain" shows a person only what matters, "console" and "json" every event; '
        '"auto" is plain on a terminal and JSON elsewhere.',
    )


class Config(Section):
    """The whole configuration, checked and frozen."""

    agent: Live[AgentConfig] = Field(default_factory=AgentConfig)
    agents: Live[AgentsConfig] = Field(default_factory=AgentsConfig)
    models: LiveHere[ModelsConfig] = Field(default_factory=ModelsConfig)
    prices: PricesConfig = Field(default_factory=PricesConfig)
    limits: Live[LimitsConfig] = Field(default_factory=LimitsConfig)
    channels: LiveHere[ChannelsConfig] = Field(default_factory=ChannelsConfig)
    session: SessionConfig = Field(default_factory=SessionConfig)
    context: ContextConfig = Field(default_factory=ContextConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    heartbeat: Live[HeartbeatConfig] = Field(default_factory=HeartbeatConfig)
    scope: Live[ScopeConfig] = Field(default_factory=ScopeConfig)
    send_policy: SendPolicyConfig = Field(default_factory=SendPolicyConfig)
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    dashboard: DashboardConfig = Field(default_factory=DashboardConfig)
    storage: StorageConfig = Field(default_factory=StorageConfig)
    backup: BackupConfig = Field(default_factory=BackupConfig)
    speech: SpeechConfig = Field(default_factory=SpeechConfig)
    log: LogConfig = Field(default_factory=LogConfig)

    def of_agent(self, name: str) -> Config:
        """The configuration by which an agent answers: its own options over those of `[agent]`."""
        own = self.agents.named.get(name)
        if own is None:
            return self
        names = own.model_fields_set & AgentConfig.model_fields.keys()
        changed = {name: getattr(own, name) for name in names}
        return self.model_copy(update={"agent": self.agent.model_copy(update=changed)})

    @property
    def workspace(self) -> Path:
        """The folder of the notes."""
        return (self.memory.workspace or self.storage.folder / "workspace").expanduser()


@dataclass(slots=True)
class Settings:
    """The configuration in effect: services keep this object and read `now` where they use it.

    `now` is replaced while the program runs. Work that must not see a change midway reads it once,
    or uses the configuration of its conversation (`Conversation.config`).
    """

    now: Config
