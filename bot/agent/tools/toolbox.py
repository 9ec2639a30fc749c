"""The tools of a turn, and running one so that whatever happens the model gets an answer."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any, Final, Literal, cast

import orjson
import structlog
from cachetools import LRUCache
from pydantic import Field

from bot import plugins
from bot.agent import tools
from bot.agent.models import ToolSpec
from bot.agent.tools import DecidedCall, Parameters, Tool, ToolContext, Words
from bot.agent.tools.mcp.servers import MAX_NAME, schema_of
from bot.context import tokens
from bot.errors import NotVisible, StorageError, ToolError
from bot.identity.access import Permission, ToolRights, permission
from bot.identity.view import MemoryView
from bot.messages import Asked, Quoted, Refused, ToolResult, ToolUse, ToolValue
from bot.metrics import Metrics
from bot.sessions.artifacts import ArtifactStore

# Results too long for a conversation: cut, kept whole, and read on with `artifact_get`.

SHARE = 0.3  # of the window that one result may take
LEAST, MOST = 2_000, 400_000  # characters that are never, and always, too long
CHARACTERS_PER_TOKEN = 4
HEAD_SHARE, TAIL_SHARE = 0.7, 0.2  # of the characters that are left


async def fitted(
    text: str, tool: str, context: ToolContext, artifacts: ArtifactStore
) -> tuple[str, str]:
    """A result as the conversation takes it, and the artifact that holds all of it if it was cut.

    Raises:
        StorageError: it is too long, and all of it could not be kept.
    """
    limit = limit_of(text, context.window)
    if len(text) <= limit:
        return text, ""
    kept = await artifacts.keep(context.session_id, tool, text)
    return shortened(text, limit, kept), kept


def limit_of(text: str, window: int) -> int:
    """The number of characters of a text that may stay, for a window of so many tokens. Pure.

    It is a share of the window at four characters a token; of a script with more tokens to the
    character, fewer may stay.
    """
    limit = max(LEAST, min(int(window * CHARACTERS_PER_TOKEN * SHARE), MOST))
    if len(text) <= LEAST or text.isascii():
        return limit
    weight = tokens.estimate(text) / len(text)  # tokens a character
    return min(limit, max(LEAST // 2, int(window * SHARE / weight)))


def shortened(text: str, limit: int, artifact: str) -> str:
    """The head and the tail of a text, and where to read on between them. Pure."""
    head, tail = text[: int(limit * HEAD_SHARE)], text[len(text) - int(limit * TAIL_SHARE) :]
    note = (
        f"[… {len(text) - len(head) - len(tail)} of {len(text)} characters are left out here; "
        f'artifact_get {{"id": "{artifact}", "from": {len(head)}}} shows them …]'
    )
    return f"{head}\n{note}\n{tail}"


# --- artifact_get --------------------------------------------------------------------------------

MAX_CHARACTERS = 12_000  # of one answer
MAX_ID = 100
WINDOW_SHARE = 8  # one answer takes at most this part (one eighth) of the window


class ReadOn(Parameters):
    """A part of a result."""

    id: Words = Field(max_length=MAX_ID, description="The id, such as a-0123456789ab.")
    first: int = Field(
        0, alias="from", ge=0, description="The first character to show; 0 if left out."
    )


class ArtifactGet:
    """Shows whole results of the person's own conversations."""

    spec = ReadOn.spec(
        "artifact_get",
        "Read on in a tool result that was cut, by the id that stands where it was cut. At most "
        f"{MAX_CHARACTERS} characters at a time; it says when there is more.",
        built_in=True,
        repeatable=True,
    )

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Read a part.

        Raises:
            ToolError: wrong arguments, or there is no such result here.
        """
        asked = ReadOn.from_arguments(arguments)
        text = await self._artifacts.read(context.view, context.session_id, asked.id)
        if text is None:
            raise NotVisible
        first, last = asked.first, max(0, len(text) - 1)
        if first > last:
            raise ToolError(f"'from' must be a whole number from 0 to {last}")
        most = max(500, min(MAX_CHARACTERS, context.window // WINDOW_SHARE))
        part = text[first : first + most]
        left = len(text) - first - len(part)
        return f"{part}\n[{left} more from character {first + len(part)}]" if left else part


TIMEOUT = 30.0  # seconds
MAX_LISTS = 64  # lists of tools that are kept at hand: people with the same rights share one
SHORT = "short"  # what marks the lists of short prompts
SHORT_TOOLS = 320  # tokens of all tools of a short prompt
MARK = 16  # hexadecimal digits that tell the lists of a session apart

NOT_GIVEN: Final = (
    "this tool may not be used here: whoever runs the bot has given it to others, or to other "
    "places. Do without it, and say so if the person asked for it."
)

Asking = Literal["may", "must not", "did"]  # the person be asked, or they have answered

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools that a model is offered; `json` is the same bytes for the same tools.

    `mark` tells lists apart. That of the built-in tools alone has none.
    """

    specs: tuple[ToolSpec, ...]
    json: str
    mark: str


class Toolbox:
    """Tools by name, always in the same order, so that prompts keep their bytes.

    What is too long in their answers for a conversation is kept whole in `artifacts`, if given.
    Beside its own it has those of `more`, which may be others from one call to the next; a name
    that is taken stays whose it is, and the tool that would have it too is `left_out`.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        more: Callable[[], tuple[Tool, ...]] = tuple,
        artifacts: ArtifactStore | None = None,
        metrics: Metrics | None = None,
        timeout: float = TIMEOUT,
        hooks: plugins.Hooks | None = None,
    ) -> None:
        self._hooks = hooks or plugins.Hooks()
        self._own = tuple(tools)
        if len({tool.spec.name for tool in self._own}) != len(self._own):
            raise ValueError("two tools have the same name")
        self._more = more
        self._known: tuple[Tool, ...] = ()  # those of others, as they were last
        self._tools = _by_name(self._own)
        self._left_out: tuple[str, ...] = ()
        self._artifacts = artifacts
        self._metrics = metrics
        self._timeout = timeout
        self._lists: LRUCache[tuple[tuple[ToolRights, ...], bool, bool], ToolList] = LRUCache(
            MAX_LISTS
        )

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools there are now."""
        return tuple(tool.spec for tool in self._now().values())

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of those that are not there because another tool has the name."""
        self._now()
        return self._left_out

    def _now(self) -> Mapping[str, Tool]:
        found = self._more()
        if found != self._known:
            every = (*self._own, *found)
            self._known, self._tools = found, _by_name(every)
            self._left_out = tuple(
                tool.spec.name for tool in every if self._tools[tool.spec.name] is not tool
            )
            self._lists.clear()
        return self._tools

    def offered(
        self, rights: tuple[ToolRights, ...], view: MemoryView, *, short: bool = False
    ) -> ToolList:
        """The tools that everybody who is answered may use; for a `short` prompt, few of them.

        Where there is no memory to see, none of those that read it or write to it.
        """
        tools = self._now()  # first, as it drops the lists of tools that are gone
        has_memory = bool(view.space)
        found = self._lists.get((rights, has_memory, short))
        if found is None:
            every = (tool.spec for tool in tools.values())
            specs = [spec for spec in every if has_memory or not spec.of_memory]
            given = [spec for spec in specs if _permission(rights, spec).is_given]
            built_in = [spec for spec in specs if spec.built_in]
            if short:
                given, built_in = _few(given), _few(built_in)
            found = _listed(given, built_in, SHORT if short else "")
            self._lists[rights, has_memory, short] = found
        return found

    async def run(self, use: ToolUse, context: ToolContext, *, may_ask: bool = True) -> ToolResult:
        """Run what a model asks for; whatever happens, it gets an answer.

        A call that needs the person's word is not run: the answer's value is `Asked` then, and
        whoever gets that asks them. Without `may_ask` somebody is asked about another one already.
        """
        return await self._marked(use, context, "may" if may_ask else "must not")

    async def carry_out(self, call: DecidedCall, context: ToolContext) -> ToolResult:
        """Run a call that the person was asked about, if they allowed it."""
        if call.verdict != "allowed":
            self._count(call.use.name if call.use.name in self._tools else "unknown", call.verdict)
            return _refused(call.use, tools.UNDONE[call.verdict])
        return await self._marked(call.use, replace(context, rights=call.rights), "did")

    async def _marked(self, use: ToolUse, context: ToolContext, ask: Asking) -> ToolResult:
        foreign = context.memory.foreign
        before = len(foreign)
        result = self._garbled(use) if use.garbled else await self._result(use, context, ask)
        return replace(result, origin="tool" if len(foreign) > before else "memory")

    def _garbled(self, use: ToolUse) -> ToolResult:
        self._count(use.name if use.name in self._tools else "unknown", "garbled")
        return _refused(use, "the arguments are no JSON object; nothing was done. Call again.")

    async def _result(self, use: ToolUse, context: ToolContext, ask: Asking) -> ToolResult:
        tool = self._now().get(use.name)
        if tool is None:
            self._count("unknown", "unknown")
            offered = self.offered(context.rights, context.view)
            known = ", ".join(spec.name for spec in offered.specs) or "none"
            return _refused(use, f"there is no tool by that name; the tools are: {known}.")
        # A list may be older than the rights, and a model may ask for what is in none.
        found = _permission(context.rights, tool.spec)
        if not found.is_given:
            log.info("tool.not_given", tool=use.name)
            self._count(use.name, "not_given")
            return _refused(use, NOT_GIVEN)
        if found.asks and ask != "did":
            return await self._asked(tool, use, context, ask)
        if ask != "did" and not tool.spec.repeatable and context.start is not None:
            try:
                await context.start(use)
            except StorageError as error:
                log.warning("tool.not_noted", tool=use.name, error=type(error).__name__)
                self._count(use.name, "failed")
                return _refused(use, "it could not be noted that this begins; nothing was done.")
        return await self._ran(tool, use, context)

    async def _ran(self, tool: Tool, use: ToolUse, context: ToolContext) -> ToolResult:
        seconds = self._timeout if tool.spec.timeout is None else tool.spec.timeout
        try:
            async with asyncio.timeout(seconds):
                answer = await tool.run(use.input, context)
                words, kept = str(answer), ""
                if isinstance(answer, str | Quoted):  # what else it is, the program reads
                    words = await self._hooks.before_store(use.name, words)
                    answer = answer if words == str(answer) else words
                if not tool.spec.tells_origins:
                    context.memory.foreign.append(words)
                    context.memory.shown.append(words)
                if self._artifacts is not None:
                    words, kept = await fitted(words, use.name, context, self._artifacts)
        except ToolError as error:
            log.info("tool.refused", tool=use.name, error=type(error).__name__)
            self._count(use.name, "refused")
            if not tool.spec.tells_origins:
                context.memory.foreign.append(str(error))
            return _refused(use, str(error), hidden=isinstance(error, NotVisible))
        except TimeoutError:
            log.warning("tool.timeout", tool=use.name, seconds=seconds)
            self._count(use.name, "timeout")
            return _refused(
                use, "the tool did not answer in time; it may still have done its work."
            )
        except Exception as error:  # noqa: BLE001 - a broken tool must not end the turn
            # Only the kind: an exception's own words may hold what a person said.
            log.error("tool.failed", tool=use.name, error=type(error).__name__)  # noqa: TRY400
            self._count(use.name, "failed")
            return _refused(use, "the tool failed.")
        value = None if isinstance(answer, str) else answer
        is_error = isinstance(answer, Refused)
        self._count(use.name, "refused" if is_error else "done")
        return ToolResult(use.id, words, is_error=is_error, value=value, kept=kept)

    async def _asked(
        self, tool: Tool, use: ToolUse, context: ToolContext, ask: Asking
    ) -> ToolResult:
        """The answer to a call that waits for the person's word, or may not even be asked about."""
        why, check = "", getattr(tool, "check", None)
        if context.target is None:
            why = tools.NOBODY_THERE
        elif ask == "must not":
            why = tools.ONE_AT_A_TIME
        elif len(tools.shown_call(use.input)) > tools.MAX_SHOWN:
            why = tools.TOO_LONG
        elif check is not None:
            try:
                await check(use.input, context)
            except (ToolError, StorageError) as error:
                why = str(error)
        if why:
            self._count(use.name, "refused")
            return _refused(use, why)
        self._count(use.name, "asked")
        value = Asked(use.name)
        return ToolResult(use.id, str(value), value=value)

    def _count(self, tool: str, result: str) -> None:
        if self._metrics is not None:
            self._metrics.tool_calls.labels(tool, result).inc()


def _by_name(tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """The tools in order; of two with a name it is the first one's."""
    named: dict[str, Tool] = {}
    for tool in tools:
        named.setdefault(tool.spec.name, tool)
    return dict(sorted(named.items()))


def _permission(rights: Iterable[ToolRights], spec: ToolSpec) -> Permission:
    return permission(rights, spec.name, built_in=spec.built_in, changes=spec.changes)


def _few(specs: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The tools of a short prompt: built-in ones in few words, others as far as there is room."""
    every = list(specs)
    found = {spec.name: spec.short for spec in every if spec.short is not None}
    room = SHORT_TOOLS - sum(tokens.estimate(_json([spec])) for spec in found.values())
    for spec in every:
        room -= 0 if spec.built_in else tokens.estimate(_json([spec]))
        if not spec.built_in and room >= 0:
            found[spec.name] = spec
    return [found[spec.name] for spec in every if spec.name in found]


def _json(specs: Iterable[ToolSpec]) -> str:
    plain = [
        {"name": spec.name, "description": spec.description, "schema": dict(spec.schema)}
        for spec in specs
    ]
    return orjson.dumps(plain).decode()


def _listed(specs: Sequence[ToolSpec], built_in: Sequence[ToolSpec], kind: str) -> ToolList:
    json = _json(specs)
    is_usual = list(specs) == list(built_in)
    mark = "" if is_usual else hashlib.sha256(json.encode()).hexdigest()[:MARK]
    return ToolList(tuple(specs), json, "-".join(filter(None, (kind, mark))))


def _refused(use: ToolUse, reason: str, *, hidden: bool = False) -> ToolResult:
    refused = Refused(reason, hidden)
    return ToolResult(use.id, str(refused), is_error=True, value=refused)


# Tools that other packages bring, by the entry point `confidant.tools`.

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")


@dataclass(frozen=True, slots=True)
class ToolPlugin:
    """The target of a package's entry point; `create` makes its tools when the program starts."""

    create: Callable[[], Sequence[Tool]]


class PluginTool:
    """A tool of another package: for whom it is, the rules say, and never the tool itself."""

    def __init__(self, tool: Tool) -> None:
        self.spec: ToolSpec = replace(tool.spec, built_in=False)
        self._tool = tool
        self._running: set[asyncio.Future[str | ToolValue]] = set()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str | ToolValue:
        """Run it.

        Raises:
            ToolError: it says so.
        """
        task = asyncio.ensure_future(self._tool.run(arguments, context))
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()  # which it may take no notice of; nobody waits for it
            raise

    def _ended(self, task: asyncio.Future[str | ToolValue]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # told where it was waited for


@dataclass(slots=True)
class ToolPlugins:
    """The tools of all packages, once they are loaded."""

    tools: tuple[Tool, ...] = ()

    async def load(self) -> None:
        """Load them beside what runs; a package that cannot be loaded keeps nobody from talking."""
        self.tools, problems = await asyncio.to_thread(installed)
        for package, problem in problems:
            log.error("tools.plugin_failed", package=package, problem=problem)


def installed() -> tuple[tuple[Tool, ...], list[tuple[str, str]]]:
    """The tools of all installed packages, and the packages that are broken, each with why."""
    packages, problems = plugins.load_all(plugins.TOOLS, lambda entry: list(_tools_of(entry)))
    found: dict[str, Tool] = {}
    for package, brought in packages.items():
        tools = {tool.spec.name: tool for tool in brought}
        taken = ", ".join(sorted(found.keys() & tools.keys()))
        if taken:
            problems.append((package, f"another package has a tool {taken}"))
        found = {**tools, **found}
    return tuple(found.values()), problems


def _tools_of(entry: EntryPoint) -> Iterator[Tool]:
    plugin: object = entry.load()
    if not isinstance(plugin, ToolPlugin):
        raise TypeError(f"{entry.value} is no ToolPlugin")
    for tool in plugin.create():
        spec = cast("object", tool.spec)
        if not isinstance(spec, ToolSpec) or not _NAME.fullmatch(spec.name):
            raise TypeError("a tool needs a ToolSpec, with a name of letters, digits, _ and -")
        if schema_of(spec.schema) is None:
            raise TypeError(f"the schema of {spec.name} is none of an object")
        yield PluginTool(tool)
