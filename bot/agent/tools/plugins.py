"""Tools that other packages bring, by the entry point `confidant.tools`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import structlog

from bot.agent.models import ToolSpec
from bot.agent.tools import Tool, ToolContext
from bot.agent.tools.mcp.listing import MAX_NAME, schema_of
from bot.settings.plugins import TOOLS_GROUP
from bot.tool_results import ToolValue

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolPlugin:
    """What the entry point of a package names; `create` makes its tools when the program starts."""

    create: Callable[[], Sequence[Tool]]


class PluginTool:
    """A tool of another package: for whom it is, the rules say, and never the tool itself."""

    def __init__(self, tool: Tool) -> None:
        self.spec: ToolSpec = replace(tool.spec, built_in=False)
        self._tool = tool

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str | ToolValue:
        """Run it.

        Raises:
            ToolError: it says so.
        """
        return await self._tool.run(arguments, context)


class ToolPlugins:
    """The tools of all packages, once they are loaded."""

    def __init__(self) -> None:
        self._tools: tuple[Tool, ...] = ()

    def tools(self) -> tuple[Tool, ...]:
        """What they bring."""
        return self._tools

    async def load(self) -> None:
        """Load them beside what runs; a package that cannot be loaded keeps nobody from talking."""
        tools, problems = await asyncio.to_thread(installed)
        self._tools = tools
        for package, problem in problems:
            log.error("tools.plugin_failed", package=package, problem=problem)


def installed() -> tuple[tuple[Tool, ...], list[tuple[str, str]]]:
    """The tools of all installed packages, and the packages that are broken, each with why."""
    found: dict[str, Tool] = {}
    problems: list[tuple[str, str]] = []
    for entry in sorted(entry_points(group=TOOLS_GROUP), key=lambda each: each.name):
        package = entry.dist.name if entry.dist is not None else entry.value
        try:
            tools = {tool.spec.name: tool for tool in _tools_of(entry)}
        except Exception as error:  # noqa: BLE001 - whatever a package does when it is imported
            problems.append((package, f"{type(error).__name__}: {error}"))
            continue
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
