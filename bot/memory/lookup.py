"""Searching memory for people: what fits, and why, without what the bot itself once replied.

A model is shown more than that and judges for itself; a person who looks for something wants to be
told when there is nothing, and not to be shown first that they asked for it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from bot.config import Settings
from bot.context import sentences
from bot.identity.view import MemoryView
from bot.memory import layout, listing, markdown
from bot.memory.memory import Memory
from bot.memory.search import Findings, Hit
from bot.sessions import search
from bot.sessions.entries import Entry
from bot.storage import Database

ASKED = 3  # times as many passages as are shown: some are left out


class Lookup:
    """What the chat's `/memory search` and the page go by."""

    def __init__(self, memory: Memory, database: Database, settings: Settings) -> None:
        self._memory = memory
        self._database = database
        self._settings = settings

    async def find(self, view: MemoryView, query: str, today: date) -> Findings:
        """Passages that a view may see and that fit, best first, each with why; questions last.

        `today` is the day it is for whoever asks.

        Raises:
            StorageError: the database cannot be read.
        """
        most = self._settings.now.memory.max_results
        found = await self._memory.index.search(query, view.partitions, most * ASKED, today=today)
        hits = [
            hit
            for hit in found.hits
            if hit.why.is_any and not markdown.says_nothing(hit.snippet) and _may_see(view, hit)
        ]
        ids = [hit.path for hit in hits if not is_note(hit)]
        said = await self._database.read(lambda tx: search.by_id(tx, ids))
        told = await asyncio.to_thread(_asking, said)
        fit = _once(hit for hit in hits if is_note(hit) or hit.path in told)
        fit.sort(key=lambda hit: told.get(hit.path, False))  # what only asks comes last
        shown = listing.fitting(fit, most) if found.many else fit[:most]
        return replace(found, hits=tuple(shown))


def _asking(said: Iterable[Entry]) -> dict[str, bool]:
    """What people said and what sums it up, by id: whether it only asks; runs in a thread."""
    return {
        each.id: each.kind == "message" and sentences.only_asks(each.text)
        for each in said
        if each.kind == "compaction" or (each.kind == "message" and each.role == "user")
    }


def _once(hits: Iterable[Hit]) -> list[Hit]:
    """Without what was said again in the same words."""
    kept: dict[object, Hit] = {}
    for hit in hits:
        words: object = id(hit) if is_note(hit) else (hit.space, markdown.normal(hit.snippet))
        kept.setdefault(words, hit)
    return list(kept.values())


def is_note(hit: Hit) -> bool:
    """Whether a passage stands in a note; else it was said."""
    return hit.path.endswith(layout.SUFFIX)


def _may_see(view: MemoryView, hit: Hit) -> bool:
    return not is_note(hit) or layout.may_see(view, hit.space, hit.path)
