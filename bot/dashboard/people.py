"""`/people`, for the owner: who asks to be let in, who may talk, whose accounts belong together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from aiohttp import web

from bot import admitting
from bot.admitting import LetIn
from bot.channel import DEFAULT_ACCOUNT
from bot.clock import Clock, to_the_minute
from bot.dashboard import pages
from bot.dashboard.pages import Visits, address, part_of, sent
from bot.delivery.outbox import Letter
from bot.identity import ConversationResolver, Link, Seat, routing
from bot.identity.policy import PolicySnapshot
from bot.sessions import links, pairing
from bot.sessions.pairing import Block, Pairing
from bot.settings.fields import Key
from bot.storage import Database, Transaction
from bot.unicode import harmless

LONGEST_NAME: Final = 80  # characters of a name or an id that are shown
PATH: Final = "/people"

# What the page may be told to say above itself, after something was done.
TOLD: Final = frozenset(
    {"let_in", "let_in_me", "blocked", "again", "may_ask", "ended", "parted"}
    | {"gone", "configured", "own"}
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Somebody:
    """An account as the page shows it: `channel` with its account, `since` in words."""

    channel: str
    sender: str
    name: str
    place: str
    since: str
    code: str = ""
    is_own: bool = False
    is_configured: bool = False
    root: str = ""

    @property
    def id(self) -> str:
        """The sender's id as it may be shown; `sender` is what forms send."""
        return shortened(self.sender)


@dataclass(frozen=True, slots=True)
class Found:
    """What the tables say of people at one time."""

    waiting: Sequence[Pairing]
    approved: Sequence[Pairing]
    blocked: Sequence[Block]
    joined: Sequence[Link]


class PeoplePages:
    """Names, ids and times of people; never a word of what they said."""

    def __init__(
        self,
        *,
        database: Database,
        resolver: ConversationResolver,
        origins: Callable[[], Mapping[Key, str]],
        read_books: Callable[[], Awaitable[None]],
        post: Callable[[Iterable[Letter]], None],
        clock: Clock,
    ) -> None:
        """`origins` gives where the configuration's values stand.

        `read_books` lets what was changed count at once, `post` sends what somebody is told.
        """
        self._database = database
        self._resolver = resolver
        self._visits = Visits(resolver)
        self._origins = origins
        self._read_books = read_books
        self._post = post
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where it is, and what can be done there."""
        return [
            web.get(PATH, self._page),
            web.post(f"{PATH}/approve", self._approve),
            web.post(f"{PATH}/block", self._block),
            web.post(f"{PATH}/again", self._again),
            web.post(f"{PATH}/unblock", self._unblock),
            web.post(f"{PATH}/revoke", self._revoke),
            web.post(f"{PATH}/part", self._part),
        ]

    async def _page(self, request: web.Request) -> web.Response:
        now, query = self._clock(), request.query
        found = await self._database.read(lambda tx: _look(tx, now))
        zone, snapshot = self._visits.of(request).zone, self._resolver.now
        names = {each.seat: each.name for each in (*found.waiting, *found.approved)}

        def since(at: int) -> str:
            return to_the_minute(at, zone)

        everybody: dict[str, Sequence[Somebody]] = {
            "asking": [_asking(each, since, snapshot) for each in found.waiting],
            "admitted": [_admitted(each, since, snapshot) for each in found.approved],
            "linked": [_linked(each, names, snapshot) for each in found.joined],
            "blocked": [_blocked(each, since) for each in found.blocked],
        }
        wanted = query.get("q", "").strip()
        parts = {
            name: part_of(_like(wanted, rows), query.get(name, ""))
            for name, rows in everybody.items()
        }
        told = query.get("told", "")
        session = snapshot.policy.config.session
        return pages.page(
            request,
            "people.html",
            told=told if told in TOLD else "",
            wanted=wanted,
            is_long=bool(wanted) or any(part.parts > 1 for part in parts.values()),
            minutes=pairing.VALID_MS // 60_000,
            at=partial(address, PATH, wanted),
            owner_name=session.owner_name,
            owners=[name for name in routing.names_of(session, routing.OWNER) if ":" in name],
            identities=session.identity_links,
            where=self._where,
            asking=parts["asking"],
            admitted=parts["admitted"],
            linked=parts["linked"],
            blocked=parts["blocked"],
        )

    def _where(self, *names: str) -> str:
        """Where an option of `[session]` stands; empty when that is not known."""
        key = ("session", *names)
        places = (source for each, source in self._origins().items() if each[: len(key)] == key)
        return next(places, "")

    # --- what is done -----------------------------------------------------------------------------

    async def _approve(self, request: web.Request) -> web.Response:
        form, now = await sent(request), self._clock()
        channel, code, me = form.get("channel", ""), form.get("code", ""), "me" in form
        session = self._resolver.policy.config.session

        def work(tx: Transaction) -> LetIn | str:
            asks = pairing.holder(tx, channel, code, now)
            if me and asks is not None and routing.person_of(session, asks.seat).is_configured:
                return "configured"
            return admitting.approve(tx, channel, code, now, me=me) or "gone"

        return await self._let_in(await self._database.write(work), "let_in_me" if me else "let_in")

    async def _again(self, request: web.Request) -> web.Response:
        seat, now = _seat(await sent(request)), self._clock()
        done = await self._database.write(lambda tx: admitting.let_in_again(tx, seat, now))
        return await self._let_in(done or "gone", "again")

    async def _let_in(self, done: LetIn | str, told: str) -> web.Response:
        if isinstance(done, str):
            return _back(done)
        self._post([done.letter])
        return await self._counts(told, done.pairing.channel)

    async def _block(self, request: web.Request) -> web.Response:
        seat, now = _seat(await sent(request)), self._clock()
        if self._resolver.now.person_of(seat).is_owner:
            return _back("own")
        return await self._ended(seat, "blocked", lambda tx: admitting.block(tx, seat, now))

    async def _unblock(self, request: web.Request) -> web.Response:
        seat = _seat(await sent(request))
        return await self._ended(seat, "may_ask", lambda tx: admitting.unblock(tx, seat))

    async def _revoke(self, request: web.Request) -> web.Response:
        seat = _seat(await sent(request))
        return await self._ended(seat, "ended", lambda tx: admitting.revoke(tx, seat))

    async def _ended(
        self, seat: Seat, told: str, work: Callable[[Transaction], object]
    ) -> web.Response:
        if not await self._database.write(work):
            return _back("gone")
        return await self._counts(told, seat[0])

    async def _part(self, request: web.Request) -> web.Response:
        seat, now = _seat(await sent(request)), self._clock()
        letter = await self._database.write(lambda tx: admitting.end_link(tx, seat, now))
        if letter is None:
            return _back("gone")
        self._post([letter])
        return await self._counts("parted", seat[0])

    async def _counts(self, told: str, channel: str) -> web.Response:
        """What was done counts from now on, here; other nodes hear of it with the transaction."""
        await self._read_books()
        log.info("people.changed", done=told, channel=channel)
        return _back(told)


def _look(tx: Transaction, now: int) -> Found:
    return Found(
        pairing.pending(tx, now), pairing.approved(tx), pairing.blocked(tx), links.everything(tx)
    )


def _seat(form: Mapping[str, str]) -> Seat:
    return (form.get("channel", ""), form.get("sender", ""))


def _back(told: str) -> web.Response:
    return pages.see(f"{PATH}?told={told}")


# --- as it is shown -------------------------------------------------------------------------------


def _asking(found: Pairing, since: Callable[[int], str], snapshot: PolicySnapshot) -> Somebody:
    person = snapshot.person_of(found.seat)
    return Somebody(
        found.channel,
        found.sender,
        _name(found.name, found.seat),
        _place(found.channel, found.account),
        since(found.asked_at),
        code=found.code,
        is_own=person.is_owner,
        is_configured=person.is_configured,
    )


def _admitted(found: Pairing, since: Callable[[int], str], snapshot: PolicySnapshot) -> Somebody:
    return Somebody(
        found.channel,
        found.sender,
        _name(found.name, found.seat),
        _place(found.channel, found.account),
        since(found.approved_at or found.asked_at),
        is_own=snapshot.person_of(found.seat).is_owner,
    )


def _linked(found: Link, names: Mapping[Seat, str], snapshot: PolicySnapshot) -> Somebody:
    session = snapshot.policy.config.session
    root = routing.person_of(session, found.root)
    return Somebody(
        *found.seat,
        _name(names.get(found.seat, ""), found.seat),
        _place(found.address.channel, found.address.account),
        "",
        is_own=root.is_owner,
        is_configured=routing.person_of(session, found.seat).is_configured,
        root=_name(names.get(found.root, ""), found.root),
    )


def _blocked(found: Block, since: Callable[[int], str]) -> Somebody:
    return Somebody(
        found.channel,
        found.sender,
        _name(found.name, found.seat),
        _place(found.channel, found.account),
        since(found.blocked_at),
    )


def _name(name: str, seat: Seat) -> str:
    """What somebody calls themselves, or else their id."""
    return shortened(name) or shortened(routing.named(seat))


def _place(channel: str, account: str) -> str:
    return channel if account == DEFAULT_ACCOUNT else f"{channel} ({account})"


def shortened(words: str) -> str:
    """Somebody's name, or an id, as it may stand among other words."""
    found = " ".join(harmless(words).split())
    return found if len(found) <= LONGEST_NAME else f"{found[: LONGEST_NAME - 1]}…"


def _like(wanted: str, rows: Sequence[Somebody]) -> Sequence[Somebody]:
    """Those whose name, id, channel or code has what is looked for."""
    if not wanted:
        return rows
    part = wanted.casefold()
    return [
        each
        for each in rows
        if any(part in text.casefold() for text in (each.name, each.sender, each.place, each.code))
    ]
