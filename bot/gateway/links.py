"""Accounts that people joined themselves, in memory: every message asks who somebody is."""

from __future__ import annotations

from collections.abc import Iterable

from bot.config import SessionConfig
from bot.gateway import routing
from bot.gateway.routing import Seat
from bot.sessions.links import Link


class LinkBook:
    """Which seat counts as which other one. What the configuration says of a seat comes first."""

    def __init__(self, config: SessionConfig | None = None) -> None:
        self._config = config or SessionConfig()
        self._links: dict[Seat, Link] = {}
        self._people: dict[str, tuple[Link, ...]] = {}

    def load(self, links: Iterable[Link]) -> None:
        """Take up what the database knows."""
        config = self._config
        # An account that was named in the configuration since then is whom that says.
        self._links = {
            link.seat: link for link in links if not routing.is_configured(config, link.seat)
        }
        people: dict[str, list[Link]] = {}
        for link in self._links.values():
            people.setdefault(routing.person_of(config, *link.root), []).append(link)
        self._people = {person: tuple(joined) for person, joined in people.items()}

    def root(self, seat: Seat) -> Seat:
        """The seat that one counts as: itself, unless it is linked."""
        link = self._links.get(seat)
        return link.root if link is not None else seat

    def link(self, seat: Seat) -> Link | None:
        """How a seat is linked, if it is."""
        return self._links.get(seat)

    def of(self, person: str) -> tuple[Link, ...]:
        """The seats that count as somebody's, by canonical identity."""
        return self._people.get(person, ())
