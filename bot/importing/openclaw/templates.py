"""What OpenClaw itself puts into a new workspace: nobody said it, so it is not brought.

`template_digests.txt` has the digests (`Piece.digest`) of what stands in its templates of USER.md,
SOUL.md and IDENTITY.md, as 2026.9.6 makes them. What somebody changed has another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from bot.importing.marking import Piece

_DIGESTS = frozenset(
    resources.files("bot.importing.openclaw")
    .joinpath("template_digests.txt")
    .read_text("ascii")
    .split()
)


def written(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of a note without those that its template had."""
    return [piece for piece in pieces if piece.digest not in _DIGESTS]


def is_untouched(pieces: Iterable[Piece]) -> bool:
    """True for a note that says nothing but what its template says."""
    return all(piece.is_heading for piece in written(pieces))
