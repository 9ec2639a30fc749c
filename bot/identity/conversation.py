"""`resolve`: everything about a message's who and where, worked out once into one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

from bot.channel import Address, ChannelConfig, Inbound
from bot.i18n import language_of
from bot.identity import access, routing
from bot.identity.access import Verdict
from bot.identity.books import Books
from bot.identity.message import Parsed, addressed, command_of, parse
from bot.identity.policy import Policy
from bot.identity.values import MANY, Activation, Facts, Link, Place, Seat
from bot.scope import MemoryView, Subject, permits, view_for


@dataclass(frozen=True, slots=True)
class Generation:
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
    def of(cls, policy: Policy, books: Books, version: int = 1) -> Generation:
        """A generation of a configuration and books."""
        session = policy.config.session
        links = [each for each in books.links if not routing.is_configured(session, each.seat)]
        joined: dict[str, tuple[Link, ...]] = {}
        for link in links:
            person = routing.person_of(session, *link.root)
            joined[person] = (*joined.get(person, ()), link)
        return cls(policy, books, version, {each.seat: each.root for each in links}, joined)

    def person_of(self, seat: Seat) -> str:
        """The canonical identity of whoever writes from a seat."""
        return routing.person_of(self.policy.config.session, *self.roots.get(seat, seat))


@dataclass(frozen=True, slots=True)
class Conversation:
    """Whose conversation something belongs to, where it takes place, and what is allowed there.

    `place` has the session key. `seat` is the one the sender counts as, `person` their canonical
    identity, also in a room. `settings` are those of the account and the room. `is_paired` says
    that a pairing code of theirs was approved, `is_answered` that the model may answer there
    at all, `is_addressed` that it was said to the bot, and `command` what command it is. It was
    made from `facts` by `generation`, and holds as long as that one counts.
    """

    facts: Facts
    place: Place
    seat: Seat
    person: str
    is_owner: bool
    view: MemoryView
    language: str
    zone: ZoneInfo
    settings: ChannelConfig
    activation: Activation
    verdict: Verdict
    is_paired: bool
    is_answered: bool
    is_addressed: bool
    command: Parsed | None
    generation: Generation = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        """The session key."""
        return self.place.key

    @property
    def address(self) -> Address:
        """Where an answer goes."""
        return self.facts.address

    @property
    def is_direct(self) -> bool:
        """True when nobody else reads it."""
        return self.facts.chat_type == "direct"

    @property
    def is_admitted(self) -> bool:
        """True when whoever speaks may talk to the bot."""
        verdict = self.verdict
        return verdict is Verdict.ALLOW or (verdict is Verdict.PAIR and self.is_paired)

    @property
    def is_configured(self) -> bool:
        """True when the configuration says whose account it is."""
        return routing.is_configured(self.generation.policy.config.session, self.facts.seat)

    @property
    def joined(self) -> tuple[Link, ...]:
        """The accounts that were joined to the person's with /link."""
        return self.generation.joined.get(self.person, ())

    def renewed(self, generation: Generation) -> Conversation:
        """The same as another generation sees it; what it says stays what it was."""
        if generation is self.generation:
            return self
        found = resolve(generation, self.facts)
        return replace(found, command=self.command, is_addressed=self.is_addressed)

    def sender_after(self, before: str) -> str:
        """Who writes in its session once this was said: one sender, or `MANY`.

        With `dm_scope = "main"` several people may share a direct conversation; what one of them
        said is nobody else's to keep. `before` is who wrote until now.
        """
        sender = self.facts.sender
        if not self.is_direct or before in {"", sender}:
            return sender
        if before == MANY or self.generation.person_of((self.facts.channel, before)) != self.person:
            return MANY
        return sender


def resolve(generation: Generation, facts: Facts, inbound: Inbound | None = None) -> Conversation:
    """The conversation that facts belong to. Pure: the same values give the same one.

    With the message they are of, also what it asks for.
    """
    policy, books = generation.policy, generation.books
    section = policy.section(facts)
    direct = facts.chat_type == "direct"
    seat = generation.roots.get(facts.seat, facts.seat)
    first = facts.chat if direct else books.first(facts.spot)
    home = facts if first == facts.chat else replace(facts, chat=first)
    # The configuration may still know a room by the id it had first.
    known = facts if facts.chat in section.config.groups else home
    settings = section.settings(known)
    place = routing.place_of(section.session, home, seat)
    if home is not facts:
        place = replace(place, chat=facts.chat)
    person = place.person or routing.person_of(section.session, *seat)
    activation: Activation = "" if direct else books.chosen.get(place.key, "")
    subject = Subject(
        channel=facts.channel,
        account=facts.account,
        chat_type=facts.chat_type,
        chat=first,
        sender=facts.sender,
        key=place.key,
        also=() if direct else books.others(home.spot),
    )
    # An account that was joined by /link gains nothing: whom the configuration names is let in.
    named = routing.is_owner(section.session, *facts.seat)
    verdict = access.decide(section.config, known, is_owner=named)
    who = (facts.channel, facts.account, facts.sender)
    parsed = parse(inbound.text) if inbound is not None else None
    is_addressed = direct
    if inbound is not None and not direct and verdict is Verdict.ALLOW:
        # Other bots have commands too ("/weather", "/help@another"): they need a mention.
        is_own = parsed is not None and parsed.name in policy.commands and not parsed.to
        wish = activation if parsed is None else "mention"
        name = policy.config.agent.name
        is_addressed = addressed(settings, inbound, wish, name, is_command=is_own)
    language = settings.language or policy.config.agent.language
    is_owner = person == routing.OWNER
    return Conversation(
        facts=facts,
        place=place,
        seat=seat,
        person=person,
        is_owner=is_owner,
        view=view_for(
            section.scope,
            subject,
            people=_identities(generation, seat, person),
            is_owner=is_owner,
        ),
        language=language_of(facts.locale if language == "auto" else language),
        # A room has no time zone of its own, whoever speaks in it: it lives where the program does.
        zone=policy.zone_of(person) if direct else policy.zone,
        settings=settings,
        activation=activation,
        verdict=verdict,
        is_paired=verdict is Verdict.PAIR and who in books.paired,
        is_answered=permits(policy.config.send_policy, subject),
        is_addressed=is_addressed,
        command=command_of(inbound, parsed) if inbound is not None else None,
        generation=generation,
    )


def _identities(generation: Generation, seat: Seat, person: str) -> tuple[str, ...]:
    """Every identity somebody's conversations may be kept under, the canonical one first."""
    own = routing.identities_of(generation.policy.config.session, *seat)
    # What an account said before it was linked is kept under its own name.
    links = generation.joined.get(person, ())
    names = (routing.named(each) for link in links for each in (link.root, link.seat))
    return tuple(dict.fromkeys((*own, *names)))
