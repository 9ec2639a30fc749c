"""Changing notes in the page: as a whole, by an entry, and back to what they said before.

What is in the way is kept first. Nothing is written over that was not shown: when a note was
changed meanwhile, the text that was sent is set aside beside it.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

import structlog
from aiohttp import web

from bot.channel.http import shared
from bot.clock import moment
from bot.core import Core
from bot.dashboard import pages
from bot.dashboard.memory.browsing import (
    FILE,
    FILES,
    OF_ALL,
    Spot,
    link_to,
    number_of,
    size_in_words,
)
from bot.dashboard.pages import Visits, form_of
from bot.errors import NotVisible, StorageError, ToolError
from bot.identity import Conversation
from bot.memory import entries, exchange, layout, markdown, versions
from bot.memory.entries import Remembered
from bot.memory.exchange import ExchangeError
from bot.memory.markdown import Provenance
from bot.memory.memory import SHARED_VIEW, Memory
from bot.memory.note_store import MAX_WRITE, Watch
from bot.memory.notes import NoteChanged, day_note
from bot.memory.versions import ForgottenMeanwhile, Kind

MOST_ENTRY = 4_000  # characters of an entry
COMPARED = 2_000  # lines of each side of a comparison
ROW_DIGITS = 18  # of the number of a row
BESIDE = 3  # lines shown around what differs

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """A note as it is now: its text, what that is told by, and its space's number of forgettings.

    The number is that from before the text was read.
    """

    path: str
    text: str
    since: int

    @property
    def base(self) -> str:
        """Another one for another text."""
        return base_of(self.text)


@dataclass(frozen=True, slots=True)
class Sent:
    """A form that changes a note: what it was made of, and what the note shall say.

    `claim` names an entry (`Claim.digest`), and `spot` where the list of them goes on.
    """

    path: str
    text: str
    base: str
    since: int
    claim: str = ""
    spot: Spot | None = None


class MemoryEditor:
    """The visitor's own notes, which each changes for themselves; or those of everyone."""

    def __init__(self, core: Core, visits: Visits, memory: Memory, *, of_all: bool = False) -> None:
        """With `of_all` it is what is shared with everyone, and the owner alone changes it."""
        self._visits = visits
        self._memory = memory
        self._core = core
        self._of_all = of_all
        self._at = OF_ALL if of_all else FILES

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        routes = [
            web.get(f"{self._at}/edit", self._form),
            web.post(f"{self._at}/edit", self._edit),
            web.post(f"{self._at}/add", self._add),
            web.get(f"{self._at}/entry", self._entry),
            web.post(f"{self._at}/entry", self._change_entry),
            web.get(f"{self._at}/history", self._history),
            web.post(f"{self._at}/back", self._back),
        ]
        if self._of_all:
            return [*routes, web.post(f"{self._at}/remove", self._remove)]
        return shared(routes)

    def _who(self, request: web.Request) -> Conversation:
        """Who changes something, with the view they do it through."""
        who = self._visits.of(request)
        return replace(who, view=SHARED_VIEW) if self._of_all else who

    # --- a note as a whole ------------------------------------------------------------------------

    async def _form(self, request: web.Request) -> web.Response:
        who, path = self._who(request), request.query.get("path", "")
        held = await self._held(who, path)
        return self._drawn_form(request, held, held.text)

    async def _edit(self, request: web.Request) -> web.Response:
        return await self._change(request, await _sent(request), "edit")

    async def _change(self, request: web.Request, sent: Sent, kind: Kind) -> web.Response:
        """Write what was sent; or say why not, and show it again, so that nothing of it is lost."""
        who = self._who(request)
        try:
            exchange.checked(sent.path, sent.text.encode("utf-8", "replace"))
            async with self._memory.notes.watching(who.view) as watch:
                held = await self._held(who, sent.path)
                if held.base != sent.base:
                    return await self._aside(request, who, sent, held)
                kept, after = await self._write(who, held, sent, kind, watch)
        except NotVisible:
            raise
        except NoteChanged:
            return await self._aside(request, who, sent, await self._held(who, sent.path))
        except ForgottenMeanwhile:
            return await self._refused(request, who, sent, "forgotten_meanwhile")
        except (ExchangeError, ToolError) as error:
            return await self._refused(request, who, sent, "refused", str(error))
        log.info("memory.edited", by="page", kind=kind)
        return _to_file(sent.path, kept, after)

    async def _write(
        self, who: Conversation, held: Held, sent: Sent, kind: Kind, watch: Watch
    ) -> tuple[int, str]:
        """Keep what the note says, then put the new text in its place, with the same line ends.

        Returns:
            The number of what was kept, 0 when there was nothing, and what the note says now.
        """
        after, kept = sent.text.replace("\r\n", "\n"), 0
        if "\r\n" in held.text:
            after = after.replace("\n", "\r\n")
        if after != held.text:
            if held.text:
                kept = await self._keep(who, held.path, held.text, kind, held.since)
            old, new = held.text.encode(), after.encode("utf-8", "replace")
            await self._memory.notes.put(who.view, held.path, old, new, watch=watch)
        return kept, after

    async def _aside(
        self, request: web.Request, who: Conversation, sent: Sent, held: Held
    ) -> web.Response:
        """The note is another one by now: both texts are kept and shown."""
        try:
            await self._keep(who, sent.path, sent.text, "aside", sent.since)
        except ForgottenMeanwhile:
            return await self._refused(request, who, sent, "forgotten_meanwhile")
        log.info("memory.set_aside")
        differences = await compared(held.text, sent.text)
        return self._drawn_form(request, held, sent.text, "conflict", compared=differences)

    async def _refused(
        self, request: web.Request, who: Conversation, sent: Sent, why: str, reason: str = ""
    ) -> web.Response:
        held = await self._held(who, sent.path)
        return self._drawn_form(request, held, sent.text, why, reason=reason)

    # --- an entry ---------------------------------------------------------------------------------

    async def _add(self, request: web.Request) -> web.Response:
        who, sent = self._who(request), await _sent(request)
        words, now = sent.text.strip(), moment(self._core.clock(), who.zone)
        if not words or len(words) > MOST_ENTRY:
            return pages.refuse_status(request, 400)
        path, notes = sent.path or day_note(now), self._memory.notes
        # What everyone reads is nobody's own words.
        by: Provenance | None = None if self._of_all else "owner"
        async with notes.watching(who.view) as watch:
            held = await self._held(who, path)
            kept = 0
            if held.text:
                kept = await self._keep(who, path, held.text, "add", held.since)
            place = (
                await notes.remember(who.view, words, now, by, watch=watch)
                if path == day_note(now)
                else await notes.add(who.view, path, words, now.date(), by, watch=watch)
            )
        after = await self._held(who, path)
        log.info("memory.edited", by="page", kind="add")
        if sent.spot is not None:
            return _to_list(sent.spot, path, kept, after.text)
        return _to_file(path, kept, after.text, place.line)

    async def _entry(self, request: web.Request) -> web.Response:
        """Show an entry of the list to be changed."""
        query = request.query
        spot = Spot.read(query, of_all=self._of_all)
        held = await self._held(self._who(request), query.get("path", ""))
        found = await asyncio.to_thread(_entry_of, held.text, query.get("claim", ""))
        if found is None:
            return pages.see(spot.link("not-struck"))
        base = base_of(found.claim.text)
        sent = Sent(held.path, found.words, base, 0, found.claim.digest, spot)
        return self._drawn_entry(request, sent)

    async def _change_entry(self, request: web.Request) -> web.Response:
        """Put what was sent in the place of an entry, as said today by whoever sends it."""
        who, sent = self._who(request), await _sent(request, of_all=self._of_all)
        today = moment(self._core.clock(), who.zone).date()
        words, spot = sent.text.strip(), sent.spot or Spot(of_all=self._of_all)
        if not words or len(words) > MOST_ENTRY:
            return pages.refuse_status(request, 400)
        try:
            async with self._memory.notes.watching(who.view) as watch:
                held = await self._held(who, sent.path)
                lines = held.text.replace("\r\n", "\n").split("\n")
                found = await asyncio.to_thread(_entry_of, held.text, sent.claim, sent.base)
                if found is None:
                    return self._drawn_entry(request, sent, "memory_page.entry_conflict")
                if found.is_entry:
                    time = markdown.clock(found.claim.text)
                    by = None if self._of_all else "owner"
                    words = markdown.fact(f"{time} {words}".strip(), today, by).rstrip("\n")
                lines[found.claim.first - 1 : found.claim.last] = words.split("\n")
                new = replace(sent, text="\n".join(lines))
                kept, after = await self._write(who, held, new, "edit", watch)
        except NoteChanged:
            return self._drawn_entry(request, sent, "memory_page.entry_conflict")
        except ForgottenMeanwhile:
            return self._drawn_entry(request, sent, "memory_page.forgotten_meanwhile")
        except NotVisible:
            raise
        except (ExchangeError, ToolError) as error:
            return self._drawn_entry(request, sent, "memory_page.refused", reason=str(error))
        log.info("memory.edited", by="page", kind="entry")
        return _to_list(spot, sent.path, kept, after)

    def _drawn_entry(
        self, request: web.Request, sent: Sent, problem: str = "", reason: str = ""
    ) -> web.Response:
        return pages.page(
            request,
            "memory_entry.html",
            409 if problem else 200,
            file=sent.path,
            claim=sent.claim,
            base=sent.base,
            said=sent.text,
            spot=sent.spot or Spot(of_all=self._of_all),
            problem=problem,
            reason=reason,
            most=MOST_ENTRY,
            at=self._at,
            of_all=self._of_all,
        )

    # --- what it said before ----------------------------------------------------------------------

    async def _history(self, request: web.Request) -> web.Response:
        who, path = self._who(request), request.query.get("path", "")
        chosen = number_of(request, "version", 0)
        held = await self._held(who, path)
        space = who.view.space
        listed = await self._core.database.read(lambda tx: versions.listed(tx, space, path))
        then = await self._core.database.read(lambda tx: versions.text_of(tx, space, path, chosen))
        if chosen and then is None:
            return pages.refuse_status(request, 404)
        return pages.page(
            request,
            "memory_history.html",
            held=held,
            at=self._at,
            link=link_to,
            most=versions.MOST,
            chosen=chosen,
            differences=None if then is None else await compared(held.text, then),
            versions=listed,
            moment=partial(moment, zone=who.zone),
            size=size_in_words,
        )

    async def _back(self, request: web.Request) -> web.Response:
        who, sent = self._who(request), await _sent(request)
        chosen, space = pages.whole(sent.text, -1, ROW_DIGITS), who.view.space
        if chosen < 0:
            return pages.refuse_status(request, 400)
        then = await self._core.database.read(
            lambda tx: versions.text_of(tx, space, sent.path, chosen)
        )
        if then is None:
            return pages.refuse_status(request, 404)
        return await self._change(request, replace(sent, text=then), "back")

    # --- away with it -----------------------------------------------------------------------------

    async def _remove(self, request: web.Request) -> web.Response:
        """Remove a note as it was shown; its last text is among the earlier versions."""
        who, sent = self._who(request), await _sent(request)
        try:
            async with self._memory.notes.watching(who.view) as watch:
                held = await self._held(who, sent.path)
                if held.base != sent.base or not held.text:
                    raise NoteChanged  # noqa: TRY301 - answered below, like one from put
                await self._keep(who, held.path, held.text, "remove", held.since)
                await self._memory.notes.remove(
                    who.view, held.path, held.text.encode(), watch=watch
                )
        except NoteChanged:
            held = await self._held(who, sent.path)
            return self._drawn_form(request, held, held.text, "not_removed")
        log.info("memory.removed", by="page")
        return pages.see(f"{self._at}/history?{urlencode({'path': sent.path})}")

    # --- what all of them do ----------------------------------------------------------------------

    async def _held(self, who: Conversation, path: str) -> Held:
        """A note that may be changed; empty when it is not there yet.

        Raises:
            NotVisible: no note by that name can be in this view.
            ToolError: it cannot be read.
            ExchangeError: it is none that could be written back.
        """
        layout.resolve(who.view, path, writing=True)
        since = await self._core.database.read(lambda tx: versions.number(tx, who.view.space))
        data = await self._memory.files.data(who.view, path, MAX_WRITE + 1)
        return Held(path, exchange.checked(path, data), since)

    async def _keep(self, who: Conversation, path: str, said: str, kind: Kind, since: int) -> int:
        """Keep a text of a note.

        Raises:
            ForgottenMeanwhile: something was forgotten since it was shown.
            ToolError: the database does not take it.
        """
        space, now = who.view.space, self._core.clock()
        try:
            return await self._core.database.write(
                lambda tx: versions.keep(tx, space, path, said, kind=kind, now=now, since=since)
            )
        except StorageError as error:
            raise ToolError(
                "the database did not take what stood there, so nothing was changed"
            ) from error

    def _drawn_form(
        self,
        request: web.Request,
        held: Held,
        said: str,
        problem: str = "",
        *,
        reason: str = "",
        compared: Sequence[tuple[str, str]] | None = None,
    ) -> web.Response:
        return pages.page(
            request,
            "memory_edit.html",
            409 if problem else 200,
            held=held,
            said=said.replace("\r\n", "\n"),
            problem=f"memory_page.{problem}" if problem else "",
            reason=reason,
            differences=compared,
            link=link_to,
            most=MAX_WRITE // 1000,
            at=self._at,
            of_all=self._of_all,
        )


def base_of(said: str) -> str:
    """What a text is told by."""
    return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).hexdigest()


async def compared(now: str, then: str) -> Sequence[tuple[str, str]] | None:
    """What is another line in a text than in the note, each with "+", "-" or " "; None if too long.

    "+" is what the text has and the note has not.
    """
    sides = [side.split("\n") for side in (now, then)]
    if max(map(len, sides)) > COMPARED:
        return None

    def work() -> list[tuple[str, str]]:
        lines = difflib.unified_diff(sides[0], sides[1], lineterm="", n=BESIDE)
        return [(line[:1], line[1:]) for line in list(lines)[2:]]

    return await asyncio.to_thread(work)


async def _sent(request: web.Request, *, of_all: bool = False) -> Sent:
    form = await form_of(request, MAX_WRITE)
    return Sent(
        form.get("path", ""),
        form.get("text", "").replace("\r\n", "\n"),
        form.get("base", ""),
        pages.whole(form.get("since", ""), -1, ROW_DIGITS),
        form.get("claim", ""),
        Spot.read(form, of_all=of_all) if "order" in form else None,
    )


def _entry_of(text: str, claim: str, base: str = "") -> Remembered | None:
    """The entry of a note with this `Claim.digest`, and the words of a `base` if one is given."""
    lines = text.replace("\r\n", "\n")
    found = (each for each in entries.of_note("", lines) if each.claim.digest == claim)
    return next((each for each in found if base in {"", base_of(each.claim.text)}), None)


def _to_list(spot: Spot, path: str, kept: int, said: str) -> web.Response:
    """Back to the list of entries, which offers to take the change back."""
    return pages.see(spot.link(path=path, kept=kept, base=base_of(said)))


def _to_file(path: str, kept: int, said: str, line: int = 0) -> web.Response:
    """Back to the note, which offers to take the change back."""
    query = urlencode({"path": path, "kept": kept, "base": base_of(said)})
    return pages.see(f"{FILE}?{query}{f'#L{line}' if line else ''}")
