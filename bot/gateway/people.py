"""What the configuration, and what people chose, says about whoever wrote a message."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

from bot.channel import ChannelConfig, Inbound
from bot.config import Config, SessionConfig
from bot.gateway import access, routing
from bot.gateway.access import Verdict
from bot.gateway.links import LinkBook
from bot.gateway.rooms import RoomBook
from bot.gateway.routing import Seat
from bot.i18n import language_of
from bot.scope import MemoryView, Subject, permits, view_for
from bot.sessions.store import MANY, Place, Session


@dataclass(slots=True)
class _Sections:
    """The configuration of accounts and rooms, each put together once."""

    accounts: dict[tuple[str, str], ChannelConfig] = field(
        default_factory=dict[tuple[str, str], ChannelConfig]
    )
    rooms: dict[tuple[str, str, str], ChannelConfig] = field(
        default_factory=dict[tuple[str, str, str], ChannelConfig]
    )
    sessions: dict[str, SessionConfig] = field(default_factory=dict[str, SessionConfig])


@dataclass(frozen=True, slots=True)
class People:
    """The answers; `zone` is the time zone of whoever the configuration names no other for."""

    config: Config
    zone: ZoneInfo
    rooms: RoomBook = field(default_factory=RoomBook)
    links: LinkBook = field(default_factory=LinkBook)
    _sections: _Sections = field(default_factory=_Sections, repr=False, compare=False)

    # --- its configuration ------------------------------------------------------------------------

    def account(self, inbound: Inbound) -> ChannelConfig:
        """The configuration of the account a message came in by."""
        name = (inbound.channel, inbound.account)
        found = self._sections.accounts.get(name)
        if found is None:
            try:
                found = self.config.channels.get(inbound.channel).account(inbound.account)
            except KeyError:  # a conversation of a channel that is not installed any more
                found = ChannelConfig()
            self._sections.accounts[name] = found
        return found

    def channel(self, inbound: Inbound) -> ChannelConfig:
        """The configuration where a message was said: the account's, in a room with the room's."""
        section = self.account(inbound)
        if inbound.chat_type == "direct" or not section.groups:
            return section
        known = self.known(inbound)
        listed = next((n for n in (known.chat, known.parent, "*") if n in section.groups), "")
        name = (inbound.channel, inbound.account, listed)
        found = self._sections.rooms.get(name)
        if found is None:
            found = self._sections.rooms[name] = section.room(known)
        return found

    def known(self, inbound: Inbound) -> Inbound:
        """A message of a chat that has moved as the configuration may still know the chat."""
        first = self.rooms.first(_spot(inbound))
        if first == inbound.chat or inbound.chat in self.account(inbound).groups:
            return inbound
        return replace(inbound, chat=first)

    def verdict(self, inbound: Inbound) -> Verdict:
        """Whether a message may become a turn; an account that was joined by /link gains nothing.

        In the owner's place stands only whom the configuration names.
        """
        is_owner = routing.is_owner(self.config.session, inbound.channel, inbound.sender)
        return access.decide(self.account(inbound), self.known(inbound), is_owner=is_owner)

    def permits(self, inbound: Inbound) -> bool:
        """Whether the model may answer there at all."""
        policy = self.config.send_policy
        if not policy.rules:  # most have none, and every message asks
            return policy.default == "allow"
        return permits(policy, self._subject(inbound))

    # --- who it is --------------------------------------------------------------------------------

    def seat(self, inbound: Inbound) -> Seat:
        """The seat whoever wrote a message counts as."""
        return self.links.root(routing.seat_of(inbound))

    def place(self, inbound: Inbound) -> Place:
        """The conversation a message belongs to."""
        session = self._session(inbound)
        if inbound.chat_type == "direct":
            return routing.place_of(session, inbound, self.seat(inbound))
        first = self.rooms.first(_spot(inbound))
        place = routing.place_of(session, replace(inbound, chat=first))
        return place if first == inbound.chat else replace(place, chat=inbound.chat)

    def key(self, inbound: Inbound) -> str:
        """The session key of a message."""
        return self.place(inbound).key

    def sender_in(self, session: Session, inbound: Inbound) -> str:
        """Who writes in a session, once this message is in it: one sender, or many.

        With `dm_scope = "main"` several people may share a direct conversation; what one of them
        said is nobody else's to keep.
        """
        before = session.sender
        if inbound.chat_type != "direct" or before in {"", inbound.sender}:
            return inbound.sender
        if before == MANY or self.person(replace(inbound, sender=before)) != self.person(inbound):
            return MANY
        return inbound.sender

    def is_owner(self, inbound: Inbound) -> bool:
        """Whether a message comes from the owner."""
        return routing.is_owner(self.config.session, *self.seat(inbound))

    def person(self, inbound: Inbound) -> str:
        """The canonical identity of whoever wrote it."""
        return routing.person_of(self.config.session, *self.seat(inbound))

    def identities(self, inbound: Inbound) -> tuple[str, ...]:
        """Every identity somebody's conversations may be kept under, the canonical one first."""
        own = routing.identities_of(self.config.session, *self.seat(inbound))
        joined = self.links.of(own[0])
        # What an account said before it was linked is kept under its own name.
        names = (routing.named(seat) for link in joined for seat in (link.root, link.seat))
        return tuple(dict.fromkeys((*own, *names)))

    # --- how to speak to them ---------------------------------------------------------------------

    def zone_of(self, who: Inbound | str) -> ZoneInfo:
        """The time zone of whoever wrote a message, or of a canonical identity.

        A room has none of its own, whoever speaks in it: it lives where the program does.
        """
        zones = self.config.session.timezones
        if not zones or (isinstance(who, Inbound) and who.chat_type != "direct"):
            return self.zone
        person = who if isinstance(who, str) else self.person(who)
        names = routing.names_of(self.config.session, person)
        return next((ZoneInfo(zones[name]) for name in names if name in zones), self.zone)

    @property
    def zones(self) -> frozenset[ZoneInfo]:
        """Every time zone anybody may live in."""
        return frozenset((self.zone, *map(ZoneInfo, self.config.session.timezones.values())))

    def language(self, inbound: Inbound) -> str:
        """The language to speak: the configured one, or that of the person's app."""
        configured = self.channel(inbound).language or self.config.agent.language
        return language_of(inbound.locale if configured == "auto" else configured)

    # --- what they may see ------------------------------------------------------------------------

    def view(self, inbound: Inbound) -> MemoryView:
        """What the conversation of a message may see."""
        return view_for(
            self.channel(inbound).scope.within(self.config.scope),
            self._subject(inbound),
            people=self.identities(inbound),
            is_owner=self.is_owner(inbound),
        )

    def _subject(self, inbound: Inbound) -> Subject:
        first, also = inbound.chat, ()
        if inbound.chat_type != "direct":
            first = self.rooms.first(_spot(inbound))
            also = self.rooms.ids((inbound.channel, inbound.account, first))[1:]
        return Subject(
            channel=inbound.channel,
            account=inbound.account,
            chat_type=inbound.chat_type,
            chat=first,
            sender=inbound.sender,
            key=self.key(inbound),
            also=also,
        )

    def _session(self, inbound: Inbound) -> SessionConfig:
        """`[session]`, with the channel's own idea of direct chats."""
        session, dm_scope = self.config.session, self.account(inbound).dm_scope
        if not dm_scope or dm_scope == session.dm_scope:
            return session
        found = self._sections.sessions.get(dm_scope)
        if found is None:
            found = session.model_copy(update={"dm_scope": dm_scope})
            self._sections.sessions[dm_scope] = found
        return found


def _spot(inbound: Inbound) -> tuple[str, str, str]:
    return (inbound.channel, inbound.account, inbound.chat)
