"""The tools of a turn, and running one so that whatever happens the model gets an answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import orjson
import structlog
from cachetools import LRUCache

from bot.agent.models import ToolSpec
from bot.agent.tools import Tool, ToolContext, asking
from bot.agent.tools.artifacts import Artifacts, fitted
from bot.agent.tools.asking import DecidedCall
from bot.context import tokens
from bot.errors import NotVisible, ToolError
from bot.identity.access import Permission, ToolRights, permission
from bot.messages import ToolResult, ToolUse
from bot.metrics import Metrics
from bot.tool_results import Asked, Refused

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
        artifacts: Artifacts | None = None,
        metrics: Metrics | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
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
        self._lists: LRUCache[tuple[tuple[ToolRights, ...], bool], ToolList] = LRUCache(MAX_LISTS)

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

    def offered(self, rights: tuple[ToolRights, ...], *, short: bool = False) -> ToolList:
        """The tools that everybody who is answered may use; for a `short` prompt, few of them."""
        tools = self._now()  # first, as it drops the lists of tools that are gone
        found = self._lists.get((rights, short))
        if found is None:
            specs = [tool.spec for tool in tools.values()]
            given = [spec for spec in specs if _permission(rights, spec).is_given]
            built_in = [spec for spec in specs if spec.built_in]
            if short:
                given, built_in = _few(given), _few(built_in)
            found = self._lists[rights, short] = _listed(given, built_in, SHORT if short else "")
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
            return _refused(call.use, asking.UNDONE[call.verdict])
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
            known = ", ".join(spec.name for spec in self.offered(context.rights).specs) or "none"
            return _refused(use, f"there is no tool by that name; the tools are: {known}.")
        # A list may be older than the rights, and a model may ask for what is in none.
        found = _permission(context.rights, tool.spec)
        if not found.is_given:
            log.info("tool.not_given", tool=use.name)
            self._count(use.name, "not_given")
            return _refused(use, NOT_GIVEN)
        if found.asks and ask != "did":
            return self._asked(use, ask, may_answer=context.target is not None)
        return await self._ran(tool, use, context)

    async def _ran(self, tool: Tool, use: ToolUse, context: ToolContext) -> ToolResult:
        seconds = self._timeout if tool.spec.timeout is None else tool.spec.timeout
        try:
            async with asyncio.timeout(seconds):
                answer = await tool.run(use.input, context)
                words, kept = str(answer), ""
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

    def _asked(self, use: ToolUse, ask: Asking, *, may_answer: bool) -> ToolResult:
        """The answer to a call that waits for the person's word, or may not even be asked about."""
        why = ""
        if not may_answer:
            why = asking.NOBODY_THERE
        elif ask == "must not":
            why = asking.ONE_AT_A_TIME
        elif len(asking.shown(use.input)) > asking.MAX_SHOWN:
            why = asking.TOO_LONG
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
