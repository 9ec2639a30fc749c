"""Who is meant by a name an operator types, and what is theirs."""

from __future__ import annotations

from dataclasses import dataclass

from bot.config import Config
from bot.errors import ConfidantError
from bot.gateway.admission import read_books
from bot.identity import Books, Policy, PolicySnapshot, routing
from bot.identity.policy import local_zone
from bot.identity.routing import Person
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.invocation import confidant
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
    snapshot = snapshot_of(tx, config)
    person = named(snapshot, typed)
    names = dict.fromkeys(
        (person.identity, *person.identities, *snapshot.names_of(person.identity))
    )
    return Whose(person.identity, belongings.of(tx, names), person.is_owner)


def snapshot_of(tx: Transaction | None, config: Config) -> PolicySnapshot:
    """What counts of people now: the configuration, and the books where there is a database."""
    books = Books() if tx is None else read_books(tx)
    return PolicySnapshot.of(Policy.of(config, local_zone(config)), books)


def named(snapshot: PolicySnapshot, typed: str) -> Person:
    """Who is meant: the owner, a linked name of the configuration, or "<channel>:<id>".

    Raises:
        ConfidantError: nobody can be called like that.
    """
    links = snapshot.policy.config.session.identity_links
    name = typed.strip()
    if name.lower() in OWNER_NAMES:
        return snapshot.person_of(routing.OWNER_SEAT)
    if links.get(name):
        return snapshot.person_of(_seat(links[name][0]))
    if ":" in name and all(_seat(name)):
        return snapshot.person_of(_seat(name))
    raise ConfidantError(
        f"Nobody is called {name!r}. Name an account as `{confidant('pairing list')}` shows it "
        "(such as telegram:42 or web:ada), a name of [session.identity_links], or owner."
    )


def _seat(name: str) -> tuple[str, str]:
    channel, _, id_ = name.partition(":")
    return channel, id_
