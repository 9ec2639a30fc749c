"""Tools the model may use: each one a `Tool`, all of them reading through `MemoryView`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from bot.agent.models import ToolSpec
from bot.scope import MemoryView


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Who a tool works for. `now` carries the person's time zone."""

    view: MemoryView
    session_id: str
    now: datetime


class Tool(Protocol):
    """Something a model can ask for."""

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it; the same bytes every time."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext, /) -> str:
        """Do it and answer in text for the model.

        Raises:
            ToolError: wrong arguments, or it could not be done; the model is told the message.
        """
        ...
