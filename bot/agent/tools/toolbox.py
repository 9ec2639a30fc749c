"""The tools of a turn, and running one so that whatever happens the model gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from bot.agent.models import ToolSpec
from bot.agent.tools import Tool, ToolContext
from bot.agent.tools.guard import ResultGuard
from bot.errors import ToolError

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

    async def run(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> tuple[str, bool]:
        """Run a tool; returns the text for the model and whether it tells of an error."""
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return f"There is no tool by that name. The tools are: {known}.", True
        try:
            async with asyncio.timeout(self._timeout):
                answer = await tool.run(arguments, context)
                if not tool.spec.tells_origins:
                    context.memory.foreign.append(answer)
                if self._guard is not None:
                    answer = await self._guard.check(name, answer, context)
                return answer, False
        except ToolError as error:
            log.info("tool.refused", tool=name, error=type(error).__name__)
            if not tool.spec.tells_origins:
                context.memory.foreign.append(str(error))
            return f"Error: {error}", True
        except TimeoutError:
            log.warning("tool.timeout", tool=name, seconds=self._timeout)
            return "Error: the tool did not answer in time; it may still have done its work.", True
        except Exception as error:  # noqa: BLE001 - a broken tool must not end the turn
            # Only the kind: an exception's own words may hold what a person said.
            log.error("tool.failed", tool=name, error=type(error).__name__)  # noqa: TRY400
            return "Error: the tool failed.", True
