"""Which generation of the configuration and the books counts now."""

from __future__ import annotations

from dataclasses import replace

from bot.channel import Inbound
from bot.identity.books import Books
from bot.identity.conversation import Conversation, Generation, resolve
from bot.identity.policy import Policy
from bot.identity.values import Activation, Facts, Link, Spot


class Directory:
    """Resolves conversations by what counts now; every change makes another generation."""

    def __init__(self, policy: Policy, books: Books | None = None) -> None:
        self.now = Generation.of(policy, books or Books())

    @property
    def policy(self) -> Policy:
        """The configuration that counts now."""
        return self.now.policy

    def resolve(self, inbound: Inbound) -> Conversation:
        """The conversation of a message."""
        return resolve(self.now, Facts.of(inbound), inbound)

    def of(self, facts: Facts) -> Conversation:
        """The conversation of something with no message at hand."""
        return resolve(self.now, facts)

    def renewed(self, conversation: Conversation) -> Conversation:
        """A conversation by what counts now: the same one if nothing has changed since."""
        return conversation.renewed(self.now)

    # --- what changes -----------------------------------------------------------------------------

    def configure(self, policy: Policy) -> None:
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

    def moved(self, spot: Spot, first: str) -> None:
        """A chat is the one that was called `first`."""
        self._begin(self.policy, self.now.books.with_moved(spot, first))

    def _begin(self, policy: Policy, books: Books) -> None:
        self.now = Generation.of(policy, books, self.now.version + 1)
