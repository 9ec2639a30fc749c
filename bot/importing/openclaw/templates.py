"""What OpenClaw itself puts into a new workspace: nobody said it, so it is not brought.

These are the digests (`Piece.digest`) of what stands in its templates of USER.md, SOUL.md and
IDENTITY.md, as 2026.9.6 makes them. What somebody changed has another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bot.importing.marking import Piece

_DIGESTS: Final = frozenset(
    [
        "0e0255175cc4d3a4fc2fbd22",
        "25abd0dac5abc33a3d9ebf97",
        "27e1459587d70c4ab4b4b14d",
        "2eb806809b3d8807c001ba60",
        "2eda210d0991c155ed99d7fa",
        "2f009d1f241f675f66ea95f1",
        "34727a291054e6a030b6c13f",
        "39391c89363f535391da4ecc",
        "3dfe715f9381c9dbea377981",
        "4b44a71ba1ddac960e965f09",
        "4f99809e6e94056c709fff91",
        "588c9a76eb541213b2611dd4",
        "5951aaa74e052196c73c344d",
        "5eacc1d5e5bfff6f1987f60e",
        "6d17173e428e24103ff6187c",
        "6decff2c687e62d03106dafa",
        "6ead923b190f44c50347edfa",
        "708204965c5c1cb2695a4374",
        "7357d11844d0aaa90d601efe",
        "7c705489cfadf0cdc2f973c6",
        "802e830602c7d8f0352cbd0b",
        "83f1af490c4d4f5badef0eeb",
        "859f73c1a11d813e3e59a6c6",
        "93bd096bd09dbe5a7e3c4d6b",
        "98419dfdae51e5f2395a4279",
        "9b18cc0b6a1e14e35bcb97f9",
        "a16f0b1316674f1c6b79a275",
        "a5bf6d69d02cd6ce0271fc64",
        "ae9e6aa7e8e65804587bcf39",
        "b08a6bbd16fd2cf8b2367105",
        "b31c940c7d0a886ca22bbed4",
        "b4b1ec5144f75b86bfc02f4c",
        "b4c277da0f3a271a26811526",
        "b9951ad8bf494e7b3068d6c7",
        "ca53f53dce62eed1da4a9ceb",
        "ce4546daa5b3301c16a293c3",
        "d9cd9f372135c0b8afdb2303",
        "dc5686b16c6b119e38fd94dc",
        "e5c340603e617554488471f9",
        "e601aafe451dfc21a779f9fb",
        "f1552baddddcd4b90490c098",
        "f4fd0e718b8254b82414978b",
        "f8cf6628b1d84102574c230c",
    ]
)


def written(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of a note without those that its template had."""
    return [piece for piece in pieces if piece.digest not in _DIGESTS]


def is_untouched(pieces: Iterable[Piece]) -> bool:
    """True for a note that says nothing but what its template says."""
    return all(piece.is_heading for piece in written(pieces))
