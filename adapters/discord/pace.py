"""How long to wait, and between what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; tests make them short."""

    first: float = 2.0  # after the first failure, doubled after each further one
    longest: float = 30.0
    # After a refused token or intent, which only a person can mend. Discord resets the token of a
    # bot that identifies itself 1000 times a day.
    rejected: float = 120.0
    identify: float = 5.0  # from the beginning of one session to the next; Discord's own rule
    settle: float = 5.0  # for the servers to be described after a connect
    draft_first: float = 1.0  # before a reply shows while it is being written
    draft: float = 1.3  # between two edits of one message; Discord takes about 5 in 5 s
    unanswered: float = 14 * 60.0  # until a "thinking…" that nobody answers is taken away
