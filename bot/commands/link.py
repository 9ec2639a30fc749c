"""`/link` and `/unlink`: one person with several accounts.

A code, requested with one account and typed with the other, shows that both belong to one person. A
link does not change who may talk to the bot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from cachetools import LRUCache

from bot.channel import PAGE_OWNER, Channel
from bot.commands.base import Apply, Call, CommandAnswer, command, saying
from bot.config import Settings
from bot.i18n import text
from bot.identity import Activation, Conversation, Link, Seat
from bot.identity.access import is_always
from bot.identity.routing import room_of
from bot.sessions import links, page_logins, pairing, rooms, store
from bot.sessions.links import LinkCode
from bot.sessions.page_logins import LoginLink
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

MAX_TRIES = 5  # wrong codes per person
TRIES_SECONDS = 600.0  # within this time
MAX_TRIED = 10_000  # people whose tries are remembered
ALL = frozenset({"all", "全部"})


class LinkCommands:
    """`/link [CODE]`, `/unlink [NUMBER|all]`."""

    def __init__(self) -> None:
        self._tries: LRUCache[Seat, list[float]] = LRUCache(MAX_TRIED)

    @command()
    async def link(self, call: Call) -> Apply:
        """Ask for a code, or type the one that another account was given."""
        if not call.is_direct:
            return saying(call.text("link.direct_only"))
        if not call.rest:
            return self._offered(call)
        if call.conversation.is_configured:
            return saying(call.text("link.configured"))
        seat, now = call.conversation.origin.seat, time.monotonic()
        tries = [at for at in self._tries.get(seat, ()) if now - at < TRIES_SECONDS]
        self._tries[seat] = tries
        if len(tries) >= MAX_TRIES:
            return saying(call.text("link.wrong"))
        tries.append(now)
        return lambda unit, _session: _typed(unit, call)

    @command()
    async def unlink(self, call: Call) -> Apply:
        """Unlink this account, or one of the list."""
        if not call.is_direct:
            return saying(call.text("link.direct_only"))
        joined = call.conversation.joined
        gone = _chosen(call, joined)
        if not joined:
            return saying(call.text("link.none"))
        if not gone:
            lines = [call.text("link.which"), *_listed(call, joined)]
            return saying("\n".join(lines))

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            for seat in gone:
                parted = links.part(unit.tx, seat)
                if parted is not None and seat != call.conversation.origin.seat:
                    words = text(parted.language, "link.ended_here")
                    unit.say(parted.address, words, "notice", language=parted.language)
            words = call.text("link.ended", count=len(gone))
            return CommandAnswer(words, links=tuple(links.everything(unit.tx)))

        return apply

    def _offered(self, call: Call) -> Apply:
        made = LinkCode(
            person=call.person,
            code=pairing.new_code(),
            root=call.conversation.seat,
            address=call.inbound.address,
            key=call.place.key,
            language=call.language,
        )
        joined = call.conversation.joined

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            links.offer(unit.tx, made, call.now)
            minutes = links.VALID_MS // 60_000
            lines = [call.text("link.code", code=made.code, minutes=minutes)]
            if joined:
                lines += ["", call.text("link.list"), *_listed(call, joined)]
            return CommandAnswer("\n".join(lines))

        return apply


def _typed(unit: UnitOfWork, call: Call) -> CommandAnswer:
    inbound = call.inbound
    found = links.claim(unit.tx, call.rest, call.person, call.now)
    if found is None:
        return CommandAnswer(call.text("link.wrong"))
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
    words = call.text("link.joined", channel=found.address.channel)
    return CommandAnswer(words, links=tuple(links.everything(unit.tx)))


def _chosen(call: Call, joined: Sequence[Link]) -> list[Seat]:
    """The accounts to unlink; none if that is not clear."""
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
        f"{call.text('link.here') if (channel, sender) == here else ''}"
        for number, (channel, sender) in enumerate((link.seat for link in joined), start=1)
    ]


_WISHES: dict[str, Activation] = {"mention": "mention", "always": "always"}

log = structlog.get_logger(__name__)


class RoomCommands:
    """`/activation`."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels

    @command()
    async def activation(self, call: Call) -> Apply:
        """Show when the bot answers in a room, or set it."""
        if call.is_direct:
            return saying(call.text("rooms.direct"))
        wish = _WISHES.get(call.rest.lower())
        if wish is None:
            here = call.conversation
            now = "always" if is_always(here.settings, here.activation) else "mention"
            return saying(call.text(f"rooms.now_{now}"))
        if not await may_manage(self._channels, call.conversation):
            return saying(call.text("rooms.not_admin"))
        key = room_of(call.place.key)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            rooms.activate(unit.tx, key, wish, call.now)
            return CommandAnswer(call.text(f"rooms.set_{wish}"), activation=wish)

        return apply


async def may_manage(channels: Mapping[str, Channel], conversation: Conversation) -> bool:
    """True if the sender may manage the room: its admins and the owner."""
    if conversation.is_owner:
        return True
    channel = channels.get(conversation.address.channel)
    if channel is None:
        return False
    try:
        return await channel.is_admin(conversation.address, conversation.origin.sender)
    except Exception as error:  # noqa: BLE001 - unknown means no
        log.warning("room.admin_unknown", channel=channel.name, error=type(error).__name__)
        return False


PAGE = "web"  # the channel that the page itself is


class WebCommands:
    """`/web`, for whoever may talk to the bot, in a direct chat."""

    def __init__(self, settings: Settings, port: Callable[[], int]) -> None:
        """`port` is the one the page really has, 0 where there is none."""
        self._settings = settings
        self._port = port

    @command()
    async def web(self, call: Call) -> Apply:
        """Make a login link that works once; the transcript keeps no link."""
        language, port, config = call.language, self._port(), self._settings.now.dashboard
        here = f"http://127.0.0.1:{port}"
        if not call.is_direct:
            return saying(text(language, "web.direct_only"))
        if not port:
            return saying(text(language, "web.no_page"))
        if not config.has_token:
            # Without one, whoever can open the page is its owner: there is nobody else to let in.
            key = "web.no_token_owner" if call.conversation.is_owner else "web.no_token"
            return saying(text(language, key, url=here))
        secret, public = page_logins.new_key(), config.public_url
        words = [
            text(language, "web.link", minutes=page_logins.LINK_MS // 60_000),
            f"{public or here}/enter?key={secret}",
        ]
        if not public:
            words.append(text(language, "web.here_only"))

        def apply(unit: UnitOfWork, _session: Session) -> CommandAnswer:
            known = page_logins.person_from(unit.tx, call.conversation.seat)
            if known is not None and known.is_out and not call.conversation.is_owner:
                return CommandAnswer(text(language, "web.out"))
            page_logins.offer(unit.tx, secret, _made(call))
            return CommandAnswer("\n\n".join(words), noted=text(language, "web.noted"))

        return apply


def _made(call: Call) -> LoginLink:
    """The link to the owner's page, to the sender's page, or to a new one."""
    origin, person = call.conversation.origin, ""
    if call.conversation.is_owner:
        person = PAGE_OWNER
    elif origin.channel == PAGE:
        person = origin.sender
    return LoginLink(
        asker=f"chat:{call.person}",
        person=person,
        origin=origin if origin.channel != PAGE else None,
        language=call.language,
        made_at=call.now,
        valid_ms=page_logins.LINK_MS,
    )
