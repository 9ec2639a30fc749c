"""How old each entry of a note is, what bore it out, and whether it has faded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.commands.aging import told_of
from bot.memory import claims
from bot.memory.claims import Aging

MOST_QUOTE = 80  # characters of an entry in the name of its button


@dataclass(frozen=True, slots=True)
class Age:
    """What is told of an entry; `claim` is empty for one that has no button."""

    told: Sequence[str]
    is_faded: bool
    claim: str = ""
    words: str = ""


def of_note(
    language: str, path: str, text: str, first: int, aging: Aging, *, space: str, changes: bool
) -> dict[int, Age]:
    """The ages of the entries in a part of a note that begins at line `first`, by their lines.

    Where the visitor `changes` the note, those that can be confirmed have a button until they are.
    """
    found: dict[int, Age] = {}
    for claim in claims.of_note(path, text):
        told = told_of(language, claim, aging, space)
        if not told:
            continue
        age = Age(told, not claim.is_over and aging.is_faded(claim, space))
        if changes and claim.can_be_confirmed and claim.confirmed != aging.today:
            words = " ".join(claim.text.split())[:MOST_QUOTE]
            age = replace(age, claim=claim.digest, words=words)
        found[claim.first + first - 1] = age
    return found
