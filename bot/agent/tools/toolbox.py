"""The tools of a turn, and running one so that whatever happens the model gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import structlog

from bot.agent.models import ToolSpec
from bot.agent.tools import Tool, ToolContext
from bot.agent.tools.artifacts import Artifacts, fitted
from bot.errors import NotVisible, ToolError
from bot.messages import ToolResult, ToolUse
from bot.tool_results import Refused

TIMEOUT = 30.0  # seconds

log = structlog.get_logger(__name__)


class Toolbox:
    """Tools by name, always in the same order, so that prompts keep their bytes.

    What is too long in their answers for a conversation is kept whole in `artifacts`, if given.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        artifacts: Artifacts | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        ordered = sorted(tools, key=lambda tool: tool.spec.name)
        self._tools = {tool.spec.name: tool for tool in ordered}
        if len(self._tools) != len(ordered):
            raise ValueError("two tools have the same name")
        self.specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in ordered)
        self._artifacts = artifacts
        self._timeout = timeout

    async def run(self, use: ToolUse, context: ToolContext) -> ToolResult:
        """Run what a model asks for; whatever happens, it gets an answer."""
        foreign = context.memory.foreign
        before = len(foreign)
        result = await self._result(use, context)
        return replace(result, origin="tool" if len(foreign) > before else "memory")

    async def _result(self, use: ToolUse, context: ToolContext) -> ToolResult:
        tool = self._tools.get(use.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return _refused(use, f"there is no tool by that name; the tools are: {known}.")
        try:
            async with asyncio.timeout(self._timeout):
                answer = await tool.run(use.input, context)
                words, kept = str(answer), ""
                if not tool.spec.tells_origins:
                    context.memory.foreign.append(words)
                if self._artifacts is not None:
                    words, kept = await fitted(words, use.name, context, self._artifacts)
        except ToolError as error:
            log.info("tool.refused", tool=use.name, error=type(error).__name__)
            if not tool.spec.tells_origins:
                context.memory.foreign.append(str(error))
            return _refused(use, str(error), hidden=isinstance(error, NotVisible))
        except TimeoutError:
            log.warning("tool.timeout", tool=use.name, seconds=self._timeout)
            return _refused(
                use, "the tool did not answer in time; it may still have done its work."
            )
        except Exception as error:  # noqa: BLE001 - a broken tool must not end the turn
            # Only the kind: an exception's own words may hold what a person said.
            log.error("tool.failed", tool=use.name, error=type(error).__name__)  # noqa: TRY400
            return _refused(use, "the tool failed.")
        value = None if isinstance(answer, str) else answer
        is_error = isinstance(answer, Refused)
        return ToolResult(use.id, words, is_error=is_error, value=value, kept=kept)


def _refused(use: ToolUse, reason: str, *, hidden: bool = False) -> ToolResult:
    refused = Refused(reason, hidden)
    return ToolResult(use.id, str(refused), is_error=True, value=refused)
