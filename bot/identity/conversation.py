"""`resolve`: everything about a message's who and where, worked out once into one value.

`ConversationResolver` knows by which configuration and books that is done now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
import tzlocal

from bot.channel import Address, ChannelConfig, Inbound, InChat, ScopeConfig
from bot.config import MAIN_AGENT, Config, SessionConfig
from bot.i18n import language_of
from bot.identity import access, routing
from bot.identity.access import (
    AccessDecision,
    Parsed,
    ToolRights,
    addressed,
    command_of,
    parse,
    rights_of,
)
from bot.identity.routing import MANY, Activation, Books, ChatRef, Link, MessageOrigin, Place, Seat
from bot.identity.view import MemoryView, Subject, agent_for, may_bind, permits, view_for


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: whose it is, where it takes place, and what is allowed there.

    `place` has the session key, `address` is where an answer goes, and `is_direct` says that nobody
    else reads it. `seat` is the one the sender counts as, `person` their canonical identity, also
    in a room. `settings` are those of the account and the room, `rights` say which tools they may
    use there. `is_paired` says that a pairing code of theirs was approved, `is_answered` that the
    model may answer there at all, `is_addressed` that it was said to the bot, and `command` what
    command it is. It was made from `origin` by `snapshot`, and holds as long as that one counts.
    """

    origin: MessageOrigin
    place: Place
    address: Address
    is_direct: bool
    seat: Seat
    person: str
    is_owner: bool
    view: MemoryView
    rights: ToolRights
    language: str
    zone: ZoneInfo
    settings: ChannelConfig
    activation: Activation
    verdict: AccessDecision
    is_paired: bool
    is_answered: bool
    is_addressed: bool
    command: Parsed | None
    snapshot: PolicySnapshot = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        """The session key."""
        return self.place.key

    @property
    def is_admitted(self) -> bool:
        """True when whoever speaks may talk to the bot."""
        verdict = self.verdict
        return verdict is AccessDecision.ALLOW or (
            verdict is AccessDecision.PAIR and self.is_paired
        )

    @property
    def is_served(self) -> bool:
        """True when the model may answer whoever speaks, and what they set for later may be said.

        Asked again, of a `renewed` one, whenever something is written, done or sent for them.
        """
        return self.is_admitted and self.is_answered

    @property
    def config(self) -> Config:
        """The configuration it was resolved by: its agent's."""
        return self.snapshot.policy.of_agent(self.view.agent)

    @property
    def agent(self) -> str:
        """The name of the agent that answers."""
        return self.view.agent

    @property
    def memories(self) -> tuple[str, ...]:
        """The agents whose memories of the person there may be, that of this conversation first.

        Of those that share one it is `[agent]`; others are those that may answer them somewhere.
        """
        policy = self.snapshot.policy
        names = self.snapshot.names_of(self.person)
        seats = [name for name in names if ":" in name]
        own = {
            name: each for name, each in policy.config.agents.named.items() if each.memory == "own"
        }
        theirs = (
            name
            for name, each in own.items()
            if any(may_bind(rule, seats, names) for rule in each.bind)
        )
        first = self.agent if self.agent in own else MAIN_AGENT
        return tuple(dict.fromkeys((first, MAIN_AGENT, *theirs)))

    @property
    def is_configured(self) -> bool:
        """True when the configuration says whose account it is."""
        return routing.person_of(self.config.session, self.origin.seat).is_configured

    @property
    def joined(self) -> tuple[Link, ...]:
        """The accounts that were joined to the person's with /link."""
        return self.snapshot.joined.get(self.person, ())

    def sender_after(self, before: MessageOrigin, person: str) -> str:
        """The writer of its session once this was said: one account, or `MANY`.

        With `dm_scope = "main"` several people may share a direct conversation; what one of them
        said is nobody else's to keep. `before` is who wrote until now and where the session began,
        and `person` whose it was then. Several accounts of one person stand as the one that wrote
        first, since an id says nothing without the channel it is of.
        """
        here, known = self.origin, before.sender
        if not self.is_direct:
            return here.sender
        if known == MANY or not here.sender:
            return MANY
        is_here = here.channel == before.channel
        if is_here and known in {"", here.sender}:
            return here.sender
        earlier = self.snapshot.person_of(before.seat).identity if known else person
        if earlier != self.person:
            return MANY
        return here.sender if is_here else known


def resolve(
    snapshot: PolicySnapshot,
    origin: MessageOrigin,
    inbound: Inbound | None = None,
    agent: str = "",
) -> Conversation:
    """The conversation that belongs to an origin. Pure: the same values give the same one.

    With the message they are of, also what it asks for. With an `agent`, the conversation that
    whoever speaks would have there with that one.
    """
    policy, books = snapshot.policy, snapshot.books
    section = policy.section(origin)
    direct = origin.chat_type == "direct"
    # Who it is: the account itself is let in or not, what is theirs belongs to whom it counts as.
    own_seat = origin.seat
    person = snapshot.person_of(own_seat)
    # An account that was joined by /link gains nothing: whom the configuration names is let in.
    is_named = person.is_owner
    if person.seat != own_seat:
        is_named = routing.person_of(section.session, own_seat).is_owner
    # Where it is: a room is the one that had its first id.
    first = origin.chat if direct else books.first(origin.chat_ref)
    home = origin if first == origin.chat else replace(origin, chat=first)
    # The configuration may still know a room by the id it had first.
    known = origin if origin.chat in section.config.groups else home
    # What an account said before it was linked is kept under its own name.
    links = snapshot.joined.get(person.identity, ())
    joined = (routing.named(seat) for link in links for seat in (link.root, link.seat))
    people = tuple(dict.fromkeys((*person.identities, *joined)))
    subject = Subject(
        channel=origin.channel,
        account=origin.account,
        chat_type=origin.chat_type,
        chat=first,
        sender=origin.sender,
        key="",
        also=() if direct else books.others(home.chat_ref),
        thread=origin.thread,
    )
    agent = agent or policy.agent_for(subject, origin.parent, people)
    config = policy.of_agent(agent)
    key = routing.session_key(section.session, home, person, agent)
    subject = replace(subject, key=key)
    # What is allowed, and what it asks for.
    settings = section.config if direct else section.room(known)
    activation: Activation = "" if direct else books.chosen.get(routing.room_of(key), "")
    room = (home.channel, home.account, home.parent or home.chat)
    verdict = access.decide(
        section.config, known, is_owner=is_named, is_let_in=room in books.admitted
    )
    if own_seat in books.blocked and not is_named:  # whatever else would let them in
        verdict = AccessDecision.DENY
    parsed = parse(inbound.text) if inbound is not None else None
    is_addressed = direct
    if inbound is not None and not direct and verdict is AccessDecision.ALLOW:
        # Other bots have commands too ("/weather", "/help@another"): they need a mention.
        is_own = parsed is not None and parsed.name in policy.commands and not parsed.to
        wish = activation if parsed is None else "mention"
        name = config.agent.name
        is_addressed = addressed(settings, inbound, wish, name, is_command=is_own)
    language = settings.language or config.agent.language
    at = (origin.channel, origin.account, origin.chat, origin.thread)
    return Conversation(
        origin=origin,
        place=Place(
            key, person.identity if direct else "", *at, origin.chat_type, sender=origin.sender
        ),
        address=Address(*at),
        is_direct=direct,
        seat=person.seat,
        person=person.identity,
        is_owner=person.is_owner,
        view=view_for(
            section.scope,
            subject,
            people=people,
            is_owner=person.is_owner,
            folders=config.memory.folders,
            agent=agent,
            agents=config.agents.sharing(agent),
        ),
        rights=rights_of(
            config.tools.rules,
            subject,
            people,
            is_owner=person.is_owner,
            only=policy.tools_of(agent),
        ),
        language=language_of(origin.locale if language == "auto" else language),
        # A room has no time zone of its own, whoever speaks in it: it lives where the program does.
        zone=snapshot.zone_of(person.identity) if direct else policy.zone,
        settings=settings,
        activation=activation,
        verdict=verdict,
        is_paired=verdict is AccessDecision.PAIR
        and (origin.channel, origin.account, origin.sender) in books.paired,
        is_answered=permits(config.send_policy, subject),
        is_addressed=is_addressed,
        command=command_of(inbound, parsed) if inbound is not None and parsed is not None else None,
        snapshot=snapshot,
    )


class ConversationResolver:
    """Resolves conversations by what counts now; every change makes another snapshot."""

    def __init__(self, policy: Policy, books: Books | None = None) -> None:
        self.now = PolicySnapshot.of(policy, books or Books())
        self._hear: list[Callable[[], None]] = []

    def on_change(self, hear: Callable[[], None]) -> None:
        """Call `hear` whenever others may be served than before."""
        self._hear.append(hear)

    @property
    def policy(self) -> Policy:
        """The configuration that counts now."""
        return self.now.policy

    def resolve(self, inbound: Inbound) -> Conversation:
        """The conversation of a message."""
        return resolve(self.now, MessageOrigin.of(inbound), inbound)

    def of(self, origin: MessageOrigin, agent: str = "") -> Conversation:
        """The conversation of something with no message at hand; with a certain `agent`, if any."""
        return resolve(self.now, origin, agent=agent)

    def renewed(self, conversation: Conversation) -> Conversation:
        """A conversation by what counts now: the same one if nothing has changed since."""
        if conversation.snapshot is self.now:
            return conversation
        found = self.of(conversation.origin)  # what it says stays what it was
        return replace(found, command=conversation.command, is_addressed=conversation.is_addressed)

    # --- what changes -----------------------------------------------------------------------------

    def adopt(self, policy: Policy) -> None:
        """Another configuration counts from now on."""
        self._begin(policy, self.now.books)

    def read(self, books: Books) -> None:
        """These are the books as the database has them."""
        if books != self.now.books:
            self._begin(self.policy, books)

    def linked(self, found: tuple[Link, ...]) -> None:
        """These are all the links there are."""
        self._begin(self.policy, replace(self.now.books, links=found))

    def admitted(self, channel: str, account: str, sender: str) -> None:
        """Somebody was let in by pairing."""
        paired = self.now.books.paired | {(channel, account, sender)}
        self._begin(self.policy, replace(self.now.books, paired=paired))

    def activated(self, key: str, activation: Activation) -> None:
        """Something was chosen for a room."""
        self._begin(self.policy, self.now.books.activated(key, activation))

    def zoned(self, found: Mapping[str, ZoneInfo]) -> None:
        """These are all the time zones people chose."""
        self._begin(self.policy, replace(self.now.books, zones=found))

    def told_zone(self, person: str, zone: ZoneInfo) -> None:
        """Somebody's browser is in this time zone."""
        told = {**self.now.books.told, person: zone}
        self._begin(self.policy, replace(self.now.books, told=told))

    def moved(self, chat_ref: ChatRef, first: str) -> None:
        """A chat is the one that was called `first`."""
        self._begin(self.policy, self.now.books.with_moved(chat_ref, first))

    def is_served(self, conversation: Conversation) -> bool:
        """True when whoever speaks in a conversation is served by what counts now."""
        return self.renewed(conversation).is_served

    def serves(self, person: str, origin: MessageOrigin) -> bool:
        """True when somebody is served now, wherever they wrote last in a conversation.

        `origin` is that of what was said last there, perhaps by another one.
        """
        names = (name.partition(":") for name in self.now.names_of(person))
        sender = next((id_ for channel, _, id_ in names if channel == origin.channel and id_), "")
        if not sender and origin.sender == MANY:
            return True
        found = self.of(replace(origin, sender=sender or origin.sender))
        # In a room that is not listed nobody is answered; what was set there before is still said.
        is_left = found.is_direct or found.verdict is AccessDecision.DENY
        return found.is_served if is_left else found.is_answered

    def _begin(self, policy: Policy, books: Books) -> None:
        before = self.now
        self.now = PolicySnapshot.of(policy, books, before.version + 1)
        is_same = (policy is before.policy) and all(
            getattr(books, each) == getattr(before.books, each)
            for each in ("links", "paired", "blocked", "admitted")
        )
        if not is_same:
            for hear in self._hear:
                hear()


# The configuration, prepared for frequent lookups, and the books, at one moment.


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """The configuration of one account.

    `scope` and `session` are `[scope]` and `[session]` with what the account says itself.
    """

    config: ChannelConfig
    scope: ScopeConfig
    session: SessionConfig
    _rooms: dict[tuple[tuple[str, Any], ...], ChannelConfig] = field(
        default_factory=dict[tuple[tuple[str, Any], ...], ChannelConfig], repr=False, compare=False
    )

    def room(self, where: InChat) -> ChannelConfig:
        """The settings of a room: its own before those of the account."""
        own = self.config.listed(where)
        if own is None:
            return self.config
        # Rooms that say the same share one: there may be many of them, and each message asks.
        said = tuple((name, getattr(own, name)) for name in sorted(own.model_fields_set))
        found = self._rooms.get(said)
        if found is None:
            found = self._rooms[said] = self.config.room(where)
        return found


@dataclass(frozen=True, slots=True)
class Policy:
    """One configuration; `zone` is the time zone of whoever it names no other for.

    `commands` are the bot's own, by name. `sections` are by channel and account, with an empty
    account for those the channel does not list. `named` are the configurations of the agents in
    `[agents]`, by their names.
    """

    config: Config
    zone: ZoneInfo
    commands: Collection[str]
    sections: Mapping[tuple[str, str], AccountSettings]
    named: Mapping[str, Config]

    @classmethod
    def of(cls, config: Config, zone: ZoneInfo, commands: Collection[str] = ()) -> Policy:
        """Prepare a configuration."""
        sections = {("", ""): _section(config, ChannelConfig())}
        for channel in type(config.channels).model_fields:
            section = config.channels.get(channel)
            accounts: Mapping[str, Any] = getattr(section, "accounts", {})
            sections[channel, ""] = _section(config, section)
            for account in accounts:
                sections[channel, account] = _section(config, section.account(account))
        named = {name: config.of_agent(name) for name in config.agents.named}
        return cls(config, zone, frozenset(commands), sections, named)

    @property
    def agents(self) -> Mapping[str, Config]:
        """The configurations of all agents, by their names."""
        return {MAIN_AGENT: self.config, **self.named}

    def of_agent(self, name: str) -> Config:
        """The configuration by which an agent answers; one that is gone is that of `[agent]`."""
        return self.named.get(name, self.config)

    def agent_for(self, subject: Subject, parent: str, people: Collection[str]) -> str:
        """The name of the agent that answers; `parent` is the chat that a thread hangs below."""
        if not self.config.agents.named:
            return MAIN_AGENT
        also = (*subject.also, parent) if parent else subject.also
        return agent_for(self.config.agents, replace(subject, also=also), people)

    def tools_of(self, agent: str) -> tuple[str, ...]:
        """The names of the only tools that an agent may use; empty is all."""
        named = self.config.agents.named.get(agent)
        return named.tools if named is not None else ()

    def section(self, origin: MessageOrigin) -> AccountSettings:
        """The settings of the account something was said to."""
        sections = self.sections
        found = sections.get((origin.channel, origin.account)) or sections.get((origin.channel, ""))
        return found or sections["", ""]  # a conversation of a channel that is gone

    def zone_of(self, person: str) -> ZoneInfo | None:
        """The time zone that the configuration names for a canonical identity."""
        zones = self.config.session.timezones
        if not zones:
            return None
        names = routing.names_of(self.config.session, person)
        return next((ZoneInfo(zones[name]) for name in names if name in zones), None)


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """The configuration and the books that count at one time; a change of either makes another one.

    `roots` says which seat counts as which other one, `joined` which do so for a person. What the
    configuration says of a seat comes before a link.
    """

    policy: Policy
    books: Books
    version: int
    roots: Mapping[Seat, Seat]
    joined: Mapping[str, tuple[Link, ...]]

    @classmethod
    def of(cls, policy: Policy, books: Books, version: int = 1) -> PolicySnapshot:
        """A snapshot of a configuration and books."""
        session = policy.config.session
        links = [
            each for each in books.links if not routing.person_of(session, each.seat).is_configured
        ]
        joined: dict[str, tuple[Link, ...]] = {}
        for link in links:
            person = routing.person_of(session, link.root).identity
            joined[person] = (*joined.get(person, ()), link)
        return cls(policy, books, version, {each.seat: each.root for each in links}, joined)

    def person_of(self, seat: Seat) -> routing.Person:
        """The person at a seat, or at the one it counts as."""
        return routing.person_of(self.policy.config.session, self.roots.get(seat, seat))

    def names_of(self, person: str) -> tuple[str, ...]:
        """All names of a canonical identity: itself, and those that were joined to it."""
        links = self.joined.get(person, ())
        joined = (routing.named(seat) for link in links for seat in (link.root, link.seat))
        return (*routing.names_of(self.policy.config.session, person), *joined)

    def zone_of(self, person: str) -> ZoneInfo:
        """The time zone of a canonical identity; nobody's is the program's own.

        What the configuration says of somebody comes before what they chose, as with links.
        """
        configured, chosen = self.policy.zone_of(person), self.books.zones
        if configured is not None:
            return configured
        names = self.names_of(person) if chosen else ()
        return next((chosen[name] for name in names if name in chosen), self.usual_zone(person))

    def usual_zone(self, person: str) -> ZoneInfo:
        """The time zone of somebody who chose none: that of their browser, else the program's.

        A time zone that the configuration names for everybody comes before any browser's.
        """
        told = self.books.told
        if not told or self.policy.config.agent.timezone:
            return self.policy.zone
        return next(
            (told[name] for name in self.names_of(person) if name in told), self.policy.zone
        )

    @property
    def zones(self) -> frozenset[ZoneInfo]:
        """Every time zone anybody may live in."""
        configured = self.policy.config.session.timezones.values()
        books = (*self.books.zones.values(), *self.books.told.values())
        return frozenset((self.policy.zone, *map(ZoneInfo, configured), *books))


def _section(config: Config, section: ChannelConfig) -> AccountSettings:
    session = config.session
    if section.dm_scope and section.dm_scope != session.dm_scope:
        session = session.model_copy(update={"dm_scope": section.dm_scope})
    return AccountSettings(section, section.scope.within(config.scope), session)


log = structlog.get_logger(__name__)


def local_zone(config: Config) -> ZoneInfo:
    """The configured time zone, or this machine's own."""
    if config.agent.timezone:
        return ZoneInfo(config.agent.timezone)
    try:
        return tzlocal.get_localzone()
    except (ZoneInfoNotFoundError, ValueError):
        log.warning("clock.no_zone", used="UTC")
        return ZoneInfo("UTC")
