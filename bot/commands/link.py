"""`/link` and `/unlink`: one person with several accounts.

A code shows that both accounts are the same person's: it is asked for with one and typed with the
other. Whoever may talk to the bot is decided elsewhere, and a link changes nothing about it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cachetools import LRUCache

from bot import codes
from bot.commands.base import Answer, Apply, Call, saying
from bot.i18n import text
from bot.identity import Link, Seat
from bot.sessions import links, store
from bot.sessions.links import Offer
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

MAX_TRIES = 5  # codes somebody may get wrong
TRIES_SECONDS = 600.0  # within this time
MAX_TRIED = 10_000  # people whose tries are remembered
ALL = frozenset({"all", "全部"})


class LinkCommands:
    """`/link [CODE]`, `/unlink [NUMBER|all]`."""

    def __init__(self) -> None:
        self._tries: LRUCache[Seat, list[float]] = LRUCache(MAX_TRIED)

    async def link(self, call: Call) -> Apply:
        """Ask for a code, or type the one that another account was given."""
        if not call.is_direct:
            return saying(text(call.language, "link.direct_only"))
        if not call.rest:
            return self._offered(call)
        if call.conversation.is_configured:
            return saying(text(call.language, "link.configured"))
        tries = self._tries_of(call.conversation.origin.seat)
        if len(tries) >= MAX_TRIES:
            return saying(text(call.language, "link.wrong"))
        tries.append(time.monotonic())
        return lambda unit, _session: _typed(unit, call)

    async def unlink(self, call: Call) -> Apply:
        """Let an account be somebody of its own again: this one, or one of the list."""
        if not call.is_direct:
            return saying(text(call.language, "link.direct_only"))
        joined = call.conversation.joined
        gone = _chosen(call, joined)
        if not joined:
            return saying(text(call.language, "link.none"))
        if not gone:
            lines = [text(call.language, "link.which"), *_listed(call, joined)]
            return saying("\n".join(lines))

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            for seat in gone:
                parted = links.part(unit.tx, seat)
                if parted is not None and seat != call.conversation.origin.seat:
                    words = text(parted.language, "link.ended_here")
                    unit.say(parted.address, words, "notice", language=parted.language)
            words = text(call.language, "link.ended", count=len(gone))
            return Answer(words, links=tuple(links.everything(unit.tx)))

        return apply

    def _offered(self, call: Call) -> Apply:
        made = Offer(
            person=call.person,
            code=codes.new_code(),
            root=call.conversation.seat,
            address=call.inbound.address,
            key=call.place.key,
            language=call.language,
        )
        joined = call.conversation.joined

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            links.offer(unit.tx, made, call.now)
            minutes = links.VALID_MS // 60_000
            lines = [text(call.language, "link.code", code=made.code, minutes=minutes)]
            if joined:
                lines += ["", text(call.language, "link.list"), *_listed(call, joined)]
            return Answer("\n".join(lines))

        return apply

    def _tries_of(self, seat: Seat) -> list[float]:
        """When somebody typed codes of late, wrong or right."""
        now = time.monotonic()
        tries = [at for at in self._tries.get(seat, []) if now - at < TRIES_SECONDS]
        self._tries[seat] = tries
        return tries


def _typed(unit: UnitOfWork, call: Call) -> Answer:
    inbound = call.inbound
    found = links.claim(unit.tx, call.rest, call.person, call.now)
    if found is None:
        return Answer(text(call.language, "link.wrong"))
    seat = call.conversation.origin.seat
    links.join(unit.tx, Link(seat, found.root, inbound.address, call.language), call.now)
    session = store.current(unit.tx, found.key)
    unit.say(
        found.address,
        text(found.language, "link.joined_there", channel=inbound.channel),
        "notice",
        language=found.language,
        noted_in=session.id if session is not None else "",
    )
    words = text(call.language, "link.joined", channel=found.address.channel)
    return Answer(words, links=tuple(links.everything(unit.tx)))


def _chosen(call: Call, joined: Sequence[Link]) -> list[Seat]:
    """The accounts that are to go; none when that is not said clearly."""
    seats = [link.seat for link in joined]
    here = call.conversation.origin.seat
    wish = call.rest.strip().lower()
    if wish in ALL:
        return seats
    if wish.isdecimal() and len(wish) <= 3 and 1 <= int(wish) <= len(seats):
        return [seats[int(wish) - 1]]
    if wish:
        return []
    if here in seats:
        return [here]
    return seats if len(seats) == 1 else []


def _listed(call: Call, joined: Sequence[Link]) -> list[str]:
    here = call.conversation.origin.seat
    return [
        f"{number}. `{channel}:{sender}`"
        f"{text(call.language, 'link.here') if (channel, sender) == here else ''}"
        for number, (channel, sender) in enumerate((link.seat for link in joined), start=1)
    ]
