"""The configuration's models: every option, its type, its default and one line about it.

`bot.settings` reads them from TOML, the environment and `.env`. Nothing here touches a file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

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


class AgentConfig(Section):
    """`[agent]`: who answers."""

    model: str = Field(
        default="claude-sonnet-5-5",
        min_length=1,
        description='The model that answers, as "<service>/<model>"; without a service it is one '
        'of [models.anthropic]. "offline" needs no key. Without a key the offline model answers '
        "whatever is set here.",
    )
    fallback: tuple[str, ...] = Field(
        default=(),
        description="Models that answer while the chosen one is overloaded, out of reach or not "
        "paid for, in this order.",
    )
    chores: str = Field(
        default="",
        description="The model that summarises, saves to memory and gives conversations their "
        "titles; empty is the conversation's own, and no titles.",
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
        default="", description='IANA name such as "Europe/Berlin"; empty is this machine\'s own.'
    )
    max_tokens: int = Field(default=8192, ge=256, description="Longest reply, in tokens.")
    max_steps: int = Field(default=16, ge=1, le=100, description="Most model calls in one turn.")
    turn_timeout: float = Field(
        default=TURN_SECONDS,
        gt=0,
        description="Longest turn, in seconds; the default grows for a slow model, up to an hour.",
    )


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
    """What a service is and where."""

    kind: str = Field(
        default="",
        description='What it speaks: "anthropic" (the Messages API), "openai" (chat completions, '
        "as OpenAI, Ollama, LM Studio, vLLM, llama.cpp, OpenRouter, Gemini, DeepSeek, Qwen do), or "
        "what an installed package adds. A table with the name of one need not say it.",
    )
    base_url: str = Field(
        default="", description="Where it is, if it is not its maker's: http://127.0.0.1:11434/v1."
    )
    api_key: SecretStr | None = Field(
        default=None,
        description="Better kept out of this file: set ANTHROPIC_API_KEY, OPENAI_API_KEY, or the "
        "variable of the option.",
    )
    window: int = Field(
        default=0,
        ge=0,
        description="The window of its models, in tokens, where the service tells none or a wrong "
        "one; 0 asks the service. [context.windows] says it for one model.",
    )
    lanes: int | None = Field(
        default=None,
        ge=0,
        description="Requests it answers at the same time; more wait here, people before chores. "
        "0 is any number; empty finds out whether a service of your own answers one at a time.",
    )


class ModelOptions(Section):
    """What can be said of all models of a service, and of one of them."""

    timeout: float = Field(
        default=SILENCE_SECONDS,
        gt=0,
        description="Longest silence of the service, in seconds; before the first word the default "
        "grows for a slow model.",
    )
    proxy: ProxyOption = Field(default=None, description=PROXY_HELP)
    thinking: Thinking = Field(
        default="",
        description='How much the model thinks before it answers: "off", "low", "medium" or '
        '"high"; empty leaves it to the model. /think chooses for one conversation.',
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="How freely it chooses words; empty is its own."
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="From how many of the likeliest words it chooses; empty is its own.",
    )
    headers: Mapping[HeaderName, SecretStr] = Field(
        default_factory=dict[str, SecretStr],
        description='Sent with each request, as { X-Team = "a" }; never those of the key.',
    )
    extra_body: Mapping[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Added to the body of each request, as { seed = 1 }; never the model, the "
        "messages, the tools or the longest reply.",
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
    """`[models.<name>]`: a service models come from, by any name; its are "<name>/<model>" then."""

    per_model: Mapping[str, ModelOptions] = Field(
        default_factory=dict[str, ModelOptions],
        description="What differs for one of its models, by the name the service has for it.",
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
    """What a model costs, in US dollars for a million tokens."""

    input: float = Field(default=0.0, ge=0, description="What is sent to it.")
    output: float = Field(default=0.0, ge=0, description="What it writes.")
    cache_read: float | None = Field(
        default=None, ge=0, description="What it reads from its cache; empty is as input."
    )
    cache_write: float | None = Field(
        default=None, ge=0, description="What it keeps in its cache; empty is as input."
    )


class PricesConfig(Section):
    """`[prices]`: what models cost, where the program does not know it or knows it wrong."""

    models: Mapping[str, PriceConfig] = Field(
        default_factory=dict[str, PriceConfig],
        description="Prices by the whole name of a model, in quotes; one whose table is empty "
        "costs nothing.",
    )


class CapsConfig(Section):
    """How much may be used in a day and in a month; 0 is no limit."""

    day_usd: float = Field(default=0.0, ge=0, description="US dollars a day; 0 is no limit.")
    day_tokens: int = Field(
        default=0, ge=0, description="Tokens of every kind a day; 0 is no limit."
    )
    month_usd: float = Field(default=0.0, ge=0, description="US dollars a month; 0 is no limit.")
    month_tokens: int = Field(
        default=0, ge=0, description="Tokens of every kind a month; 0 is no limit."
    )


class TogetherConfig(CapsConfig):
    """`[limits.in_all]`: what everybody may use together."""


class EachConfig(CapsConfig):
    """`[limits.each]`: what each person may use."""


class LimitsConfig(Section):
    """`[limits]`: how much may be used; commands and the offline model always work."""

    in_all: TogetherConfig = Field(default_factory=TogetherConfig)
    each: EachConfig = Field(default_factory=EachConfig)
    people: Mapping[str, CapsConfig] = Field(
        default_factory=dict[str, CapsConfig],
        description="What one person may use instead, by the same names as in session.timezones.",
    )
    exempt_owner: bool = Field(
        default=False, description="Whether the owner is answered whatever is used up."
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
        description='"followup": each message gets its own turn. "collect": what waits is '
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
    """When a conversation ends by itself."""

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
        default=(), description='Who owns the main memory, as "<channel>:<id>", e.g. "telegram:42".'
    )
    owner_name: Live[str] = Field(
        default="",
        max_length=LONGEST_NAME,
        description="What the owner is called: the page greets by it, and the model knows it in "
        "the owner's own direct chats, from the next conversation on, and nowhere else.",
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
    max_turns: int = Field(default=64, ge=1, le=10_000, description="Most turns at the same time.")

    @field_validator("owner_name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("a name is one line of text, without control characters")
        return name.strip()


class PruningConfig(Section):
    """`[context.pruning]`: old tool results are shortened in requests, never in the transcript."""

    enabled: bool = Field(default=True, description="Whether old tool results are shortened.")
    ttl_minutes: float = Field(
        default=5.0,
        ge=0,
        description="How long the model's service keeps a prompt cached: within that time nothing "
        "is shortened before the conversation is full.",
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
        description="Room that is kept free for the reply and what comes with it, in tokens; small "
        "windows keep a quarter.",
    )
    keep_recent_tokens: int = Field(
        default=20_000,
        ge=0,
        description="How much of the latest messages stays whole, in tokens; small windows less.",
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
        description='What counts tokens: "tiktoken" where its ranks stand in TIKTOKEN_CACHE_DIR, '
        '"estimate" without them; "auto" takes what is there. Nothing is downloaded.',
    )
    enable_memory_flush: Live[bool] = Field(
        default=True, description="Save what matters to memory before a conversation is compacted."
    )
    memory_flush_soft_tokens: Live[int] = Field(
        default=4_000, ge=0, description="How long before the compaction it is saved, in tokens."
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
        default=(70, 85), description="How full it is when that is said, in percent."
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
        description="Instead of a provider: the embedder of that name which another package "
        "brings (docs/writing-a-tool.md).",
    )
    model: str = Field(default="", description='The model\'s name; "openai" needs one.')
    base_url: str = Field(
        default="https://api.openai.com/v1", description='Where "openai" asks, up to /embeddings.'
    )
    api_key: SecretStr | None = Field(
        default=None, description="Better kept out of this file: set it in the environment."
    )
    timeout: float = Field(
        default=60.0, gt=0, description="Longest wait for one answer of the server, in seconds."
    )
    batch: int = Field(default=64, ge=1, le=2048, description="Most texts in one request.")


class FlushConfig(Section):
    """`[memory.flush]`: the operator's own wishes for what is saved, beside those in AGENTS.md."""

    prompt: str = Field(
        default="", description="Added to what the model is asked when a conversation is saved."
    )
    system_prompt: str = Field(
        default="",
        description="Added to the rules it saves by; counts more than the program's own, such as "
        '"Never write down health matters."',
    )


class AgingConfig(Section):
    """`[memory.aging]`: how fast what nobody said themselves fades; what people said never does."""

    agent: float = Field(
        default=180.0,
        ge=0,
        le=100_000,
        description="Days in which what the model concluded loses half of its strength, unless it "
        "was confirmed or used; 0 is never.",
    )
    imported: float = Field(
        default=365.0, ge=0, le=100_000, description="The same for what was imported."
    )
    untrusted: float = Field(
        default=90.0,
        ge=0,
        le=100_000,
        description="The same for what came from elsewhere; nothing confirms it.",
    )
    search_share: float = Field(
        default=0.1,
        ge=0,
        le=0.5,
        description="Most that a passage loses of its score in a search for having faded; 0 is "
        "nothing.",
    )


class NightConfig(Section):
    """`[memory.night]`: notes are kept in order at night; whose they are is told in the morning."""

    mode: Literal["rules", "model", "off"] = Field(
        default="model",
        description='"rules" puts together entries in the same words and strikes out an older '
        "home, employer, age, phone number or e-mail address; nothing is deleted, and /undo night "
        'takes it back. "model" also asks the model of [agent] chores what else says the same or '
        'is over, if there is one. "off" leaves notes alone.',
    )
    hour: int = Field(
        default=3, ge=0, le=23, description="The hour, where the person is, from which it is done."
    )
    tell_hour: int = Field(
        default=8, ge=0, le=23, description="The hour from which they are told what was changed."
    )
    most: int = Field(default=10, ge=1, le=50, description="Most changes of a night, for each.")


class FolderConfig(Section):
    """`[memory.folders.<name>]`: a folder of documents that is searched, and never written."""

    path: Path = Field(
        default=Path(), description="Where it is: an Obsidian vault, a folder of PDFs."
    )
    who: tuple[str, ...] = Field(
        default=("owner",),
        min_length=1,
        description='Who it is for beside the owner\'s direct chats: "everyone" who sees memory, '
        'people ("ada" of identity_links, or "telegram:42") in theirs, rooms ("telegram:-100").',
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
        description="Most characters of memory that a new conversation begins with, and that are "
        "recalled for a later message; 0 is none.",
    )
    recall: Literal["every_turn", "start", "off"] = Field(
        default="every_turn",
        description="When memory is searched for the model, unasked: before each reply, before a "
        "conversation's first reply, or never. A rule of [scope] may say otherwise.",
    )
    recall_timeout: Live[float] = Field(
        default=4.0,
        gt=0,
        le=60,
        description="Seconds that looking into memory may hold up a reply; what is not found by "
        "then is left out.",
    )
    citations: Live[Literal["auto", "on", "off"]] = Field(
        default="auto",
        description='Name the file and lines that memory stands in: "auto" does in direct chats.',
    )
    flush: Live[FlushConfig] = Field(default_factory=FlushConfig)
    embedder: EmbedderConfig = Field(default_factory=EmbedderConfig)
    aging: Live[AgingConfig] = Field(default_factory=AgingConfig)
    night: Live[NightConfig] = Field(default_factory=NightConfig)
    max_results: Live[int] = Field(
        default=6,
        ge=1,
        le=50,
        description="Most results of one search; of a list, twice as many short ones.",
    )
    min_score: Live[float] = Field(
        default=0.02, ge=0, le=1, description="Results that score less are left out."
    )
    text_weight: float = Field(
        default=0.5, ge=0, le=1, description="What the words of a note count; 0 turns them off."
    )
    vector_weight: float = Field(
        default=0.5, ge=0, le=1, description="What its meaning counts; 0 turns vectors off."
    )
    candidate_multiplier: Live[int] = Field(
        default=4, ge=1, le=50, description="Candidates of each kind, for every result wanted."
    )
    half_life_days: Live[float] = Field(
        default=30.0, ge=0, description="How fast dated notes lose their head start; 0 is never."
    )
    mmr_lambda: Live[float] = Field(
        default=0.7, ge=0, le=1, description="1 ranks by score alone, less avoids repetition."
    )
    search_timeout: Live[float] = Field(
        default=4.0, gt=0, description="Longest search, in seconds; then it answers with less."
    )
    sync_minutes: float = Field(
        default=5.0, gt=0, description="How often notes are looked through, beside the watching."
    )
    retention_days: Live[int] = Field(
        default=90,
        ge=0,
        description="How long what was said is found by its meaning; by its words it always is.",
    )
    watch: bool = Field(
        default=True, description="Index a note as soon as it is edited, by any program."
    )
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
        description='How often, such as "30m" or "2h", at least ten minutes; empty is never. What '
        "their HEARTBEAT.md asks for is done with their rights and limits; they hear of it only "
        "when there is something to say.",
    )
    hours: str = Field(
        default="8-22",
        pattern=r"^([01]?[0-9]|2[0-4])-([01]?[0-9]|2[0-4])$",
        description="Between which hours, where the person is.",
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
        description="Any rule that denies wins, whatever the order; then any that allows.",
    )


class WebConfig(Section):
    """`[tools.web]`: tools that ask the web; off unless they are set up."""

    fetch: bool = Field(default=False, description="Let the model read pages of the web.")
    internal_hosts: tuple[str, ...] = Field(
        default=(),
        description='Hosts of your own network that it may read as well, as "wiki.example" or '
        '"10.0.0.7:8080"; without them, public addresses only.',
    )
    search: Literal["off", "searxng", "brave", "tavily", "ddgs"] = Field(
        default="off",
        description='Who searches the web: "searxng" needs search_url, "brave" and "tavily" need '
        'search_key, "ddgs" asks public engines without either and needs a package.',
    )
    search_url: str = Field(
        default="",
        description='Where SearXNG is, such as "http://127.0.0.1:8888"; for Brave and Tavily only '
        "where it is not their own address.",
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
        description="Its environment, beside PATH and the like; nothing else of the bot's goes in.",
    )
    url: str = Field(default="", description="Address of a server that runs already.")
    headers: Mapping[str, SecretStr] = Field(
        default_factory=dict[str, SecretStr], description="Sent with each request to the url."
    )
    tools: tuple[str, ...] = Field(
        default=("*",), description="Which of its tools are there, by their names at the server."
    )
    timeout: float = Field(
        default=30.0,
        ge=1,
        le=3_600,
        description="Seconds that a call of its tools may take; the person waits as long.",
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
        description="The first rule that matches decides. Without one the built-in tools are "
        "for everybody, and all others for the owner's direct chats.",
    )
    web: WebConfig = Field(default_factory=WebConfig)
    mcp: Mapping[McpName, McpConfig] = Field(
        default_factory=dict[str, McpConfig], description="Servers of tools, by a short name."
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
        description="Below which path a reverse proxy shows the page, which it takes off, e.g. "
        '"/confidant"; empty is the top.',
    )
    token: LiveHere[SecretStr | None] = Field(
        default=None,
        description="Needed to open the page from anywhere but this machine; better set as "
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
        description="The same database as url, without the pooler (PgBouncer) that url goes "
        "through: each node has one connection that cannot be pooled.",
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
        description="Seconds after which a silent node is given up, where many share the url.",
    )
    keep_months: Live[int] = Field(
        default=0,
        ge=0,
        le=1200,
        description="Whole months, beside this one, for which what was said stays in the database "
        "behind url; older ones are dropped for good, notes never. 0 keeps everything.",
    )
    backup_hours: float = Field(
        default=24.0,
        ge=0,
        description="Hours between verified backups; 0: only when the log is full.",
    )
    backups_kept: int = Field(default=7, ge=1, le=1000, description="How many backups are kept.")

    @property
    def folder(self) -> Path:
        """The storage folder, with `~` resolved."""
        return self.dir.expanduser()


class BackupConfig(Section):
    """`[backup]`: everything in one file, elsewhere, by itself."""

    folder: Path | None = Field(
        default=None,
        description="Folder on another disk into which backups of everything are written; without "
        "one none are.",
    )
    every_hours: float = Field(
        default=24.0, gt=0, le=8760, description="Hours from one backup to the next."
    )
    kept: int = Field(default=7, ge=1, le=1000, description="How many of the newest are kept.")
    kept_weeks: int = Field(
        default=4, ge=0, le=1000, description="Weeks of which the newest backup is kept besides."
    )
    passphrase: SecretStr | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="What backups are sealed with; better set as CONFIDANT_BACKUP__PASSPHRASE, and "
        "kept where the disk is not.",
    )
    test_days: float = Field(
        default=7.0,
        ge=0,
        le=3650,
        description="Days between restores of the newest backup for a test; 0 makes none.",
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
        default="https://api.openai.com/v1", min_length=1, description="Where that service is."
    )
    api_key: SecretStr | None = Field(
        default=None, description="Its key; better set as CONFIDANT_SPEECH__API_KEY."
    )
    model: str = Field(
        default="whisper-1",
        min_length=1,
        description='The service\'s name of a model; with "local" the folder of a Whisper model in '
        "CTranslate2 form.",
    )
    language: str = Field(
        default="", description='What people speak, such as "de"; empty finds out each time.'
    )
    timeout: float = Field(
        default=60.0, gt=0, le=600, description="Longest wait for the service, in seconds."
    )
    reply: Literal["text", "voice"] = Field(
        default="text",
        description='"voice": whoever asks in a voice message gets the answer as one too, after '
        "its text, where the channel can; by base_url with /audio/speech.",
    )
    reply_model: str = Field(
        default="tts-1", min_length=1, description="That service's name of the model that speaks."
    )
    voice: str = Field(default="alloy", min_length=1, description="Its name of the voice.")

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
        default="info", description="Least serious event told."
    )
    format: LogForm = Field(
        default="auto",
        description='"plain" tells a person what they must know, "console" and "json" every '
        'event; "auto" is plain on a terminal and JSON elsewhere.',
    )


class Config(Section):
    """The whole configuration, checked and frozen."""

    agent: Live[AgentConfig] = Field(default_factory=AgentConfig)
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
