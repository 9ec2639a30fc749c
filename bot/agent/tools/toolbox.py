"""The tools of a turn, and running one so that whatever happens the model gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from bot.agent.models import ToolSpec
from bot.agent.tools import Tool, ToolContext
from bot.agent.tools.artifacts import ResultGuard
from bot.errors import NotVisible, ToolError
from bot.facts import Facts, Refused
from bot.messages import ToolResult, ToolUse

TIMEOUT = 30.0  # seconds

log = structlog.get_logger(__name__)


class Toolbox:
    """Tools by name, always in the same order, so that prompts keep their bytes.

    What they answer passes the guard, if there is one, before anything else sees it.
    """

    def __init__(
        self, tools: Iterable[Tool], *, guard: ResultGuard | None = None, timeout: float = TIMEOUT
    ) -> None:
        ordered = sorted(tools, key=lambda tool: tool.spec.name)
        self._tools = {tool.spec.name: tool for tool in ordered}
        if len(self._tools) != len(ordered):
            raise ValueError("two tools have the same name")
        self._specs = tuple(tool.spec for tool in ordered)
        self._guard = guard
        self._timeout = timeout

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them."""
        return self._specs

    async def run(self, use: ToolUse, context: ToolContext) -> ToolResult:
        """Run what a model asks for; whatever happens, it gets an answer."""
        foreign = context.memory.foreign
        before = len(foreign)
        answer, words = await self._answer(use, context)
        return ToolResult(
            use.id,
            words,
            is_error=isinstance(answer, Refused),
            origin="tool" if len(foreign) > before else "memory",
            facts=None if isinstance(answer, str) else answer,
        )

    async def _answer(self, use: ToolUse, context: ToolContext) -> tuple[str | Facts, str]:
        """What a tool answers, and the words of it that the conversation takes."""
        tool = self._tools.get(use.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return _refused(f"there is no tool by that name; the tools are: {known}.")
        try:
            async with asyncio.timeout(self._timeout):
                answer = await tool.run(use.input, context)
                words = str(answer)
                if not tool.spec.tells_origins:
                    context.memory.foreign.append(words)
                if self._guard is not None:
                    words = await self._guard.check(use.name, words, context)
                return answer, words
        except ToolError as error:
            log.info("tool.refused", tool=use.name, error=type(error).__name__)
            if not tool.spec.tells_origins:
                context.memory.foreign.append(str(error))
            return _refused(str(error), hidden=isinstance(error, NotVisible))
        except TimeoutError:
            log.warning("tool.timeout", tool=use.name, seconds=self._timeout)
            return _refused("the tool did not answer in time; it may still have done its work.")
        except Exception as error:  # noqa: BLE001 - a broken tool must not end the turn
            # Only the kind: an exception's own words may hold what a person said.
            log.error("tool.failed", tool=use.name, error=type(error).__name__)  # noqa: TRY400
            return _refused("the tool failed.")


def _refused(reason: str, *, hidden: bool = False) -> tuple[Refused, str]:
    refused = Refused(reason, hidden)
    return refused, str(refused)
