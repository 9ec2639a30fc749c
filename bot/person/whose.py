"""Who is meant by a name an operator types, and what is theirs."""

from __future__ import annotations

from dataclasses import dataclass

from bot.config import Config
from bot.errors import ConfidantError
from bot.gateway.admission import read_books
from bot.identity import Policy, PolicySnapshot, routing
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.identity.zone import local_zone
from bot.sessions import belongings
from bot.sessions.belongings import Belongings
from bot.storage import Transaction

OWNER_NAMES = frozenset({routing.OWNER, "owner"})


@dataclass(frozen=True, slots=True)
class Whose:
    """Somebody, and what is theirs; `is_owner` is true for whoever owns the main memory."""

    identity: str
    theirs: Belongings
    is_owner: bool

    @property
    def views(self) -> tuple[MemoryView, ...]:
        """Views of their notes, and of nobody else's: a space is theirs for each of their names."""
        spaces = (*((MAIN_SPACE,) if self.is_owner else ()), *self.theirs.spaces)
        return tuple(MemoryView(space, (), private=True) for space in spaces)


def find(tx: Transaction, config: Config, typed: str) -> Whose:
    """Who is meant: the owner, a linked name of the configuration, or "<channel>:<id>".

    Raises:
        ConfidantError: nobody can be called like that.
    """
    snapshot = PolicySnapshot.of(Policy.of(config, local_zone(config)), read_books(tx))
    links = config.session.identity_links
    name = typed.strip()
    if name.lower() in OWNER_NAMES:
        person = snapshot.person_of(routing.OWNER_SEAT)
    elif links.get(name):
        person = snapshot.person_of(_seat(links[name][0]))
    elif ":" in name and all(_seat(name)):
        person = snapshot.person_of(_seat(name))
    else:
        raise ConfidantError(
            f"Nobody is called {name!r}. Name an account as `confidant pairing list` shows it "
            "(such as telegram:42 or web:ada), a name of [session.identity_links], or owner."
        )
    names = dict.fromkeys(
        (person.identity, *person.identities, *snapshot.names_of(person.identity))
    )
    return Whose(person.identity, belongings.of(tx, names), person.is_owner)


def _seat(name: str) -> tuple[str, str]:
    channel, _, id_ = name.partition(":")
    return channel, id_
