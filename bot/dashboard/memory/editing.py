"""Changing notes in the page: as a whole, by an entry, and back to what they said before.

What is in the way is kept first. Nothing is written over that was not shown: when a note was
changed meanwhile, the text that was sent is set aside beside it.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

import structlog
from aiohttp import web

from bot.dashboard.memory.browsing import FILE, FILES, OF_ALL, Spot, link_to, size_in_words
from bot.dashboard.pages import Handler, Pages, Visit, route, see, whole
from bot.errors import NotVisible, StorageError, ToolError
from bot.identity.view import MemoryView
from bot.memory import entries, exchange, layout, markdown, versions
from bot.memory.entries import Remembered
from bot.memory.exchange import ExchangeError
from bot.memory.markdown import Provenance
from bot.memory.memory import SHARED_VIEW, Memory
from bot.memory.note_store import MAX_WRITE, Watch
from bot.memory.notes import NoteChanged, day_note
from bot.memory.versions import ForgottenMeanwhile, Kind
from bot.storage import Database

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


@dataclass(frozen=True, slots=True)
class Editing:
    """The notes a visitor changes: their own, or as the owner (`of_all`) the shared ones."""

    visit: Visit
    of_all: bool

    @classmethod
    def from_visit(cls, visit: Visit) -> Editing:
        """The choice of the address; the routes of shared notes are the owner's alone."""
        return cls(visit, visit.request.path.startswith(f"{OF_ALL}/"))

    @property
    def at(self) -> str:
        """The beginning of the forms' addresses."""
        return OF_ALL if self.of_all else FILES

    @property
    def view(self) -> MemoryView:
        """The view through which they are changed."""
        return SHARED_VIEW if self.of_all else self.visit.view

    @property
    def by(self) -> Provenance | None:
        """The source of a new entry; None in shared notes, which are nobody's own words."""
        return None if self.of_all else "owner"


def _edits(method: str, name: str) -> Callable[[Handler], Handler]:
    """Let the method below answer for one's own notes, and for the owner for those of everyone."""

    def declare(handler: Handler) -> Handler:
        own = route(method, f"{FILES}/{name}", shared=True)
        return own(route(method, f"{OF_ALL}/{name}")(handler))

    return declare


class MemoryEditor(Pages):
    """The visitor's own notes, which each changes for themselves; or those of everyone."""

    def __init__(self, memory: Memory, database: Database) -> None:
        self._memory = memory
        self._database = database

    # --- a note as a whole ------------------------------------------------------------------------

    @_edits("GET", "edit")
    async def _form(self, visit: Visit) -> web.Response:
        editing = Editing.from_visit(visit)
        held = await self._held(editing.view, visit.query("path"))
        return _drawn_form(editing, held, held.text)

    @_edits("POST", "edit")
    async def _edit(self, visit: Visit) -> web.Response:
        return await self._change(Editing.from_visit(visit), await _sent(visit), "edit")

    async def _change(self, editing: Editing, sent: Sent, kind: Kind) -> web.Response:
        """Write what was sent; or say why not, and show it again, so that nothing of it is lost."""
        try:
            exchange.checked(sent.path, sent.text.encode("utf-8", "replace"))
            async with self._memory.notes.watching(editing.view) as watch:
                held = await self._held(editing.view, sent.path)
                if held.base != sent.base:
                    raise NoteChanged
                kept, after = await self._write(editing, held, sent, kind, watch)
        except NotVisible:
            raise
        except (ExchangeError, ToolError) as error:
            return await self._refused(editing, sent, error)
        log.info("memory.edited", by="page", kind=kind)
        return _to_file(editing.visit, sent.path, kept, after)

    async def _write(
        self, editing: Editing, held: Held, sent: Sent, kind: Kind, watch: Watch
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
                kept = await self._keep(editing, held.path, held.text, kind, held.since)
            old, new = held.text.encode(), after.encode("utf-8", "replace")
            await self._memory.notes.put(editing.view, held.path, old, new, watch=watch)
        return kept, after

    async def _refused(self, editing: Editing, sent: Sent, error: Exception) -> web.Response:
        """Say why a note was not written; if it was changed meanwhile, both texts are kept."""
        held = await self._held(editing.view, sent.path)
        if not isinstance(error, NoteChanged):
            return _drawn_form(editing, held, sent.text, *_problem(error))
        try:
            await self._keep(editing, sent.path, sent.text, "aside", sent.since)
        except ForgottenMeanwhile as forgotten:
            return _drawn_form(editing, held, sent.text, *_problem(forgotten))
        log.info("memory.set_aside")
        differences = await compared(held.text, sent.text)
        return _drawn_form(editing, held, sent.text, "conflict", compared=differences)

    # --- an entry ---------------------------------------------------------------------------------

    @_edits("POST", "add")
    async def _add(self, visit: Visit) -> web.Response:
        editing, sent = Editing.from_visit(visit), await _sent(visit)
        words, now = _entry_words(sent), visit.at(visit.now)
        today, notes, view = day_note(now), self._memory.notes, editing.view
        path = sent.path or today
        async with notes.watching(view) as watch:
            held = await self._held(view, path)
            kept = 0
            if held.text:
                kept = await self._keep(editing, path, held.text, "add", held.since)
            place = (
                await notes.remember(view, words, now, editing.by, watch=watch)
                if path == today
                else await notes.add(view, path, words, now.date(), editing.by, watch=watch)
            )
        after = await self._held(view, path)
        log.info("memory.edited", by="page", kind="add")
        if sent.spot is not None:
            return _to_list(visit, sent.spot, path, kept, after.text)
        return _to_file(visit, path, kept, after.text, place.line)

    @_edits("GET", "entry")
    async def _entry(self, visit: Visit) -> web.Response:
        """Show an entry of the list to be changed."""
        editing = Editing.from_visit(visit)
        spot = Spot.read(visit.request.query, of_all=editing.of_all)
        held = await self._held(editing.view, visit.query("path"))
        found = await asyncio.to_thread(_entry_of, held.text, visit.query("claim"))
        if found is None:
            return see(visit.own(spot.link("not_struck")))
        base = base_of(found.claim.text)
        sent = Sent(held.path, found.words, base, 0, found.claim.digest, spot)
        return _drawn_entry(editing, sent)

    @_edits("POST", "entry")
    async def _change_entry(self, visit: Visit) -> web.Response:
        """Put what was sent in the place of an entry, as said today by whoever sends it."""
        editing = Editing.from_visit(visit)
        sent = await _sent(visit, of_all=editing.of_all)
        words, spot = _entry_words(sent), sent.spot or Spot(of_all=editing.of_all)
        try:
            async with self._memory.notes.watching(editing.view) as watch:
                held = await self._held(editing.view, sent.path)
                lines = held.text.replace("\r\n", "\n").split("\n")
                found = await asyncio.to_thread(_entry_of, held.text, sent.claim, sent.base)
                if found is None:
                    raise NoteChanged  # noqa: TRY301 - answered below, like one from put
                if found.is_entry:
                    said = f"{markdown.clock(found.claim.text)} {words}".strip()
                    words = markdown.fact(said, visit.today, editing.by).rstrip("\n")
                lines[found.claim.first - 1 : found.claim.last] = words.split("\n")
                new = replace(sent, text="\n".join(lines))
                kept, after = await self._write(editing, held, new, "edit", watch)
        except NotVisible:
            raise
        except NoteChanged:
            return _drawn_entry(editing, sent, "entry_conflict")
        except (ExchangeError, ToolError) as error:
            return _drawn_entry(editing, sent, *_problem(error))
        log.info("memory.edited", by="page", kind="entry")
        return _to_list(visit, spot, sent.path, kept, after)

    # --- earlier versions -------------------------------------------------------------------------

    @_edits("GET", "history")
    async def _history(self, visit: Visit) -> web.Response:
        editing, path = Editing.from_visit(visit), visit.query("path")
        chosen, space = visit.number("version"), editing.view.space
        held = await self._held(editing.view, path)
        listed = await self._database.read(lambda tx: versions.listed(tx, space, path))
        then = await self._database.read(lambda tx: versions.text_of(tx, space, path, chosen))
        if chosen and then is None:
            raise web.HTTPNotFound
        return visit.page(
            "memory_history.html",
            held=held,
            at=editing.at,
            link=partial(link_to, visit),
            most=versions.MOST,
            chosen=chosen,
            differences=None if then is None else await compared(held.text, then),
            versions=listed,
            size=size_in_words,
        )

    @_edits("POST", "back")
    async def _back(self, visit: Visit) -> web.Response:
        editing, sent = Editing.from_visit(visit), await _sent(visit)
        chosen, space = whole(sent.text, -1, ROW_DIGITS), editing.view.space
        if chosen < 0:
            raise web.HTTPBadRequest
        then = await self._database.read(lambda tx: versions.text_of(tx, space, sent.path, chosen))
        if then is None:
            raise web.HTTPNotFound
        return await self._change(editing, replace(sent, text=then), "back")

    @route("POST", f"{OF_ALL}/remove")
    async def _remove(self, visit: Visit) -> web.Response:
        """Remove a note as it was shown; its last text is among the earlier versions."""
        editing, sent = Editing.from_visit(visit), await _sent(visit)
        try:
            async with self._memory.notes.watching(editing.view) as watch:
                held = await self._held(editing.view, sent.path)
                if held.base != sent.base or not held.text:
                    raise NoteChanged  # noqa: TRY301 - answered below, like one from put
                await self._keep(editing, held.path, held.text, "remove", held.since)
                await self._memory.notes.remove(
                    editing.view, held.path, held.text.encode(), watch=watch
                )
        except NoteChanged:
            held = await self._held(editing.view, sent.path)
            return _drawn_form(editing, held, held.text, "not_removed")
        log.info("memory.removed", by="page")
        return see(visit.own(f"{editing.at}/history?{urlencode({'path': sent.path})}"))

    # --- what all of them do ----------------------------------------------------------------------

    async def _held(self, view: MemoryView, path: str) -> Held:
        """A note that may be changed; empty when it is not there yet.

        Raises:
            NotVisible: no note by that name can be in this view.
            ToolError: it cannot be read.
            ExchangeError: it is none that could be written back.
        """
        layout.resolve(view, path, writing=True)
        since = await self._database.read(lambda tx: versions.number(tx, view.space))
        data = await self._memory.files.data(view, path, MAX_WRITE + 1)
        return Held(path, exchange.checked(path, data), since)

    async def _keep(self, editing: Editing, path: str, said: str, kind: Kind, since: int) -> int:
        """Keep a text of a note.

        Raises:
            ForgottenMeanwhile: something was forgotten since it was shown.
            ToolError: the database does not take it.
        """
        space, now = editing.view.space, editing.visit.now
        try:
            return await self._database.write(
                lambda tx: versions.keep(tx, space, path, said, kind=kind, now=now, since=since)
            )
        except StorageError as error:
            raise ToolError(
                "the database did not take what stood there, so nothing was changed"
            ) from error


def _problem(error: Exception) -> tuple[str, str]:
    """The key of what was in the way of a change, and its reason where it has one of its own."""
    if isinstance(error, ForgottenMeanwhile):
        return "forgotten_meanwhile", ""
    return "refused", str(error)


def _drawn_form(
    editing: Editing,
    held: Held,
    said: str,
    problem: str = "",
    reason: str = "",
    *,
    compared: Sequence[tuple[str, str]] | None = None,
) -> web.Response:
    return editing.visit.page(
        "memory_edit.html",
        409 if problem else 200,
        held=held,
        said=said.replace("\r\n", "\n"),
        problem=problem,
        reason=reason,
        differences=compared,
        link=partial(link_to, editing.visit),
        most=MAX_WRITE // 1000,
        at=editing.at,
        of_all=editing.of_all,
    )


def _drawn_entry(editing: Editing, sent: Sent, problem: str = "", reason: str = "") -> web.Response:
    return editing.visit.page(
        "memory_entry.html",
        409 if problem else 200,
        file=sent.path,
        claim=sent.claim,
        base=sent.base,
        said=sent.text,
        spot=sent.spot or Spot(of_all=editing.of_all),
        problem=problem,
        reason=reason,
        most=MOST_ENTRY,
        at=editing.at,
        of_all=editing.of_all,
    )


def base_of(said: str) -> str:
    """The digest of a text."""
    return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).hexdigest()


async def compared(now: str, then: str) -> Sequence[tuple[str, str]] | None:
    """The lines in which a text differs from the note, with "+", "-" or " "; None if too long.

    "+" is what the text has and the note has not.
    """
    sides = [side.split("\n") for side in (now, then)]
    if max(map(len, sides)) > COMPARED:
        return None

    def work() -> list[tuple[str, str]]:
        lines = difflib.unified_diff(sides[0], sides[1], lineterm="", n=BESIDE)
        return [(line[:1], line[1:]) for line in list(lines)[2:]]

    return await asyncio.to_thread(work)


async def _sent(visit: Visit, *, of_all: bool = False) -> Sent:
    form = await visit.form(MAX_WRITE)
    return Sent(
        form.get("path", ""),
        form.get("text", "").replace("\r\n", "\n"),
        form.get("base", ""),
        whole(form.get("since", ""), -1, ROW_DIGITS),
        form.get("claim", ""),
        Spot.read(form, of_all=of_all) if "order" in form else None,
    )


def _entry_words(sent: Sent) -> str:
    """The words of an entry that was sent.

    Raises:
        HTTPBadRequest: there are none, or too many.
    """
    words = sent.text.strip()
    if not words or len(words) > MOST_ENTRY:
        raise web.HTTPBadRequest
    return words


def _entry_of(text: str, claim: str, base: str = "") -> Remembered | None:
    """The entry of a note with this `Claim.digest`, and the words of a `base` if one is given."""
    lines = text.replace("\r\n", "\n")
    found = (each for each in entries.of_note("", lines) if each.claim.digest == claim)
    return next((each for each in found if base in {"", base_of(each.claim.text)}), None)


def _to_list(visit: Visit, spot: Spot, path: str, kept: int, said: str) -> web.Response:
    """Back to the list of entries, which offers to take the change back."""
    return see(visit.own(spot.link(path=path, kept=kept, base=base_of(said))))


def _to_file(visit: Visit, path: str, kept: int, said: str, line: int = 0) -> web.Response:
    """Back to the note, which offers to take the change back."""
    query = urlencode({"path": path, "kept": kept, "base": base_of(said)})
    return see(visit.own(f"{FILE}?{query}{f'#L{line}' if line else ''}"))
