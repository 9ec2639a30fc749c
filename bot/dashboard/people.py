"""`/people`, for the owner: who asks to be let in, who may talk, whose accounts belong together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

import structlog
from aiohttp import web

from bot.core import Core
from bot.dashboard.pages import (
    Pages,
    Visit,
    address,
    in_menu,
    matching,
    part_of,
    route,
    see,
)
from bot.delivery.outbox import Letter
from bot.identity import Seat, routing
from bot.sessions import pairing
from bot.settings.fields import Key
from bot.storage import Transaction
from bot.views import people as views
from bot.views.people import LetIn, people

PATH: Final = "/people"
FOUND_BY: Final = ("label", "id", "place", "code")

Act = Callable[[Transaction, Seat, int], object]
"""Done for an account at a time; gives nothing when there is nothing to do."""

ACTS: Final[Mapping[str, tuple[str, Act]]] = {
    "block": ("blocked", views.block),
    "again": ("again", views.let_in_again),
    "unblock": ("may_ask", lambda tx, seat, _now: views.unblock(tx, seat)),
    "revoke": ("ended", lambda tx, seat, _now: views.revoke(tx, seat)),
    "part": ("parted", views.end_link),
}

log = structlog.get_logger(__name__)


@in_menu("/people", is_owners=True)
class PeoplePages(Pages):
    """Names, ids and times of people; never a word of what they said."""

    def __init__(
        self,
        core: Core,
        *,
        origins: Callable[[], Mapping[Key, str]],
        read_books: Callable[[], Awaitable[None]],
        post: Callable[[Iterable[Letter]], None],
    ) -> None:
        """`origins` gives where the configuration's values stand.

        `read_books` lets what was changed count at once, `post` sends what somebody is told.
        """
        self._core = core
        self._origins = origins
        self._read_books = read_books
        self._post = post

    async def waiting(self) -> int:
        """The number of people who ask to be let in."""
        now = self._core.clock()
        return len(await self._core.database.read(lambda tx: pairing.pending(tx, now)))

    @route("GET", PATH)
    async def _page(self, visit: Visit) -> web.Response:
        now, session = visit.now, self._core.resolver.policy.config.session
        everybody = await self._core.database.read(lambda tx: people(tx, session, now))
        wanted = visit.query("q").strip()
        parts = {
            name: part_of(matching(getattr(everybody, name), wanted, *FOUND_BY), visit.query(name))
            for name in ("asking", "admitted", "linked", "blocked")
        }
        return visit.page(
            "people.html",
            wanted=wanted,
            is_long=bool(wanted) or any(part.parts > 1 for part in parts.values()),
            minutes=pairing.VALID_MS // 60_000,
            at=partial(address, PATH, wanted),
            owner_name=session.owner_name,
            owners=[name for name in routing.names_of(session, routing.OWNER) if ":" in name],
            identities=session.identity_links,
            where=self._where,
            parts=parts,
        )

    def _where(self, *names: str) -> str:
        """The source of an option of `[session]`, such as "confidant.toml:7"; empty if unknown."""
        key = ("session", *names)
        places = (source for each, source in self._origins().items() if each[: len(key)] == key)
        return next(places, "")

    # --- what is done -----------------------------------------------------------------------------

    @route("POST", f"{PATH}/approve")
    async def _approve(self, visit: Visit) -> web.Response:
        form, now = await visit.form(), visit.now
        channel, code, me = form.get("channel", ""), form.get("code", ""), "me" in form
        session = self._core.resolver.policy.config.session
        done = await self._core.database.write(
            lambda tx: views.approve(tx, session, channel, code, now, me=me)
        )
        return await self._done(done, "let_in_me" if me else "let_in", channel)

    @route("POST", *(f"{PATH}/{act}" for act in ACTS))
    async def _act(self, visit: Visit) -> web.Response:
        told, act = ACTS[visit.request.path.removeprefix(f"{PATH}/")]
        form, now = await visit.form(), visit.now
        seat = (form.get("channel", ""), form.get("sender", ""))
        if told == "blocked" and self._core.resolver.now.person_of(seat).is_owner:
            return _back("own")
        done = await self._core.database.write(lambda tx: act(tx, seat, now))
        return await self._done(done or "gone", told, seat[0])

    async def _done(self, done: object, told: str, channel: str) -> web.Response:
        """Apply the change on this node; the transaction tells the others."""
        if isinstance(done, str):
            return _back(done)
        letter = done.letter if isinstance(done, LetIn) else done
        if isinstance(letter, Letter):
            self._post([letter])
        await self._read_books()
        log.info("people.changed", done=told, channel=channel)
        return _back(told)


def _back(told: str) -> web.Response:
    return see(f"{PATH}?told={told}")
