"""What people chose and whom the operator let in, as the database has it: one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bot.identity.values import Activation, Link, Spot

MAX_CHOSEN = 20_000  # rooms with a choice of their own; an older one is as if it had not been made


@dataclass(frozen=True, slots=True)
class Books:
    """Loaded when the program starts; each change makes another value.

    `links` are the accounts joined with /link, `paired` who was let in by pairing (channel,
    account, sender), `chosen` when the bot answers in rooms, by session key, the newest last, and
    `moved` the first id of every chat that has another one now.
    """

    links: tuple[Link, ...] = ()
    paired: frozenset[tuple[str, str, str]] = frozenset()
    chosen: Mapping[str, Activation] = field(default_factory=dict[str, Activation])
    moved: Mapping[Spot, str] = field(default_factory=dict[Spot, str])

    def activated(self, key: str, activation: Activation) -> Books:
        """With what was chosen for a room."""
        chosen = {name: kept for name, kept in self.chosen.items() if name != key}
        chosen[key] = activation
        for oldest in [*chosen][: max(len(chosen) - MAX_CHOSEN, 0)]:
            del chosen[oldest]
        return replace(self, chosen=chosen)

    def with_moved(self, spot: Spot, first: str) -> Books:
        """With a chat that is the one that was called `first`."""
        moved = {known: home for known, home in self.moved.items() if known != spot}
        if spot[2] != first:
            moved[spot] = first
        return replace(self, moved=moved)

    def first(self, spot: Spot) -> str:
        """The id a chat had first: what its conversations and its memory are kept under."""
        return self.moved.get(spot, spot[2])

    def others(self, spot: Spot) -> tuple[str, ...]:
        """The other ids that a chat, by its first one, has or had."""
        if not self.moved:  # in most places none ever does
            return ()
        return tuple(
            chat
            for (channel, account, chat), home in self.moved.items()
            if (channel, account, home) == spot
        )
