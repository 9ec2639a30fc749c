"""What every request of a session begins with: made once, then the same bytes to its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import orjson
from cachetools import LRUCache

from bot.agent.limits import ModelLimits
from bot.agent.models import ToolSpec
from bot.agent.session_cache import CachedSession
from bot.agent.tools.toolbox import SHORT, ToolList
from bot.agent.turn import TOKENS
from bot.config import Settings
from bot.context import prompt
from bot.identity.view import MemoryView, is_owners_own
from bot.memory.files import SpaceFiles
from bot.memory.uses import Uses
from bot.sessions import compactions
from bot.sessions.compactions import Snapshot
from bot.storage import Transaction

SHARED = 128  # texts that several sessions may have in common
SHORT_PERSONA = 380  # tokens of the files in a short prompt, of which all is 900 at most
PERSONA_SHARE = 3  # the files take at most this part (one third) of what the model is shown
MEMORY_SHARE = 0.7  # of `max_injected_chars` is for lasting facts; the rest is left for recall


class Prefixes:
    """Makes the prefix of a session, view and list of tools once, and gives the same ever after.

    Where other tools may be used from some message on (the rules were changed, or somebody else
    speaks in a room), that begins with a prefix of its own: a list never changes under a session.
    """

    def __init__(self, settings: Settings, files: SpaceFiles, uses: Uses) -> None:
        self._settings = settings
        self._files = files
        self._uses = uses
        self._shared: LRUCache[str, str] = LRUCache(SHARED)

    async def of(
        self,
        live: CachedSession,
        view: MemoryView,
        language: str,
        tools: ToolList,
        limit: int,
    ) -> Snapshot:
        """The prefix for a session as one view sees it; `limit` is the window in tokens.

        With the tools of a short prompt all of it is short.
        """
        name = f"{name_of(view)}+{tools.mark}" if tools.mark else name_of(view)
        live.begins[name_of(view)] = name
        if name in live.snapshots:
            return live.snapshots[name]
        config = self._settings.now
        cap = min(prompt.PERSONA_FILE_CAP, int(config.memory.max_injected_chars * MEMORY_SHARE))
        files = [
            replace(file, cap=cap) if file.remembered else file
            for file in await self._files.bootstrap(view, await self._uses.aging(view.spaces))
        ]
        short = tools.mark.startswith(SHORT)
        most = SHORT_PERSONA if short else limit // PERSONA_SHARE
        # Files that people write may be long.
        shown = await asyncio.to_thread(prompt.assemble_persona, files, most, short=short)
        system = prompt.system_prompt(
            name=config.agent.name,
            language=language,
            tools=[tool.name for tool in tools.specs],
            owner=config.session.owner_name if is_owners_own(view) else "",
            cite=self.cites(view),
            silent=TOKENS[0] if live.session.chat_type != "direct" else "",
            persona=shown.text,
            short=short,
        )
        system = self._shared.setdefault(system, system)  # most sessions begin with the same words
        made = Snapshot(system, tools.json, shown.own, shown.remembered)
        live.snapshots[name] = made
        live.unsaved.append(name)
        return made

    def cites(self, view: MemoryView) -> bool:
        """True if answers name the files they rest on."""
        wanted = self._settings.now.memory.citations
        return wanted == "on" or (wanted == "auto" and view.private)


def name_of(view: MemoryView) -> str:
    """A name that tells the views of one session apart."""
    return f"{view.space}{'#private' if view.private else ''}"


def is_short(live: CachedSession, limits: ModelLimits) -> bool:
    """True for a session whose prompts are short: what it began with holds to its end."""
    if not live.snapshots:
        return limits.wants_short
    return any(name.partition("+")[2].startswith(SHORT) for name in live.snapshots)


def save(tx: Transaction, live: CachedSession, now: int) -> None:
    """Keep the prefixes that are new; part of the turn's transaction."""
    for name in live.unsaved:
        compactions.keep(tx, live.session.id, name, live.snapshots[name], now)


def tools_of(snapshot: Snapshot) -> tuple[ToolSpec, ...]:
    """The tools of a prefix."""
    return _read(snapshot.tools)


@lru_cache(SHARED)
def _read(tools: str) -> tuple[ToolSpec, ...]:
    raw = cast("list[dict[str, Any]]", orjson.loads(tools))
    return tuple(ToolSpec(item["name"], item["description"], item["schema"]) for item in raw)
