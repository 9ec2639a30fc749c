"""The configuration, prepared for frequent lookups, and the books, at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
import tzlocal

from bot.channel import ChannelConfig, InChat, ScopeConfig
from bot.config import Config, SessionConfig
from bot.identity import routing
from bot.identity.routing import Books, Link, MessageOrigin, Seat


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
    account for those the channel does not list.
    """

    config: Config
    zone: ZoneInfo
    commands: Collection[str]
    sections: Mapping[tuple[str, str], AccountSettings]

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
        return cls(config, zone, frozenset(commands), sections)

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
