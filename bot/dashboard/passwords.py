"""Passwords of page people: hashed with argon2, beside the event loop, a few at a time."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 12, 256  # characters
AT_ONCE = 2  # each takes MEMORY meanwhile
MEMORY = 19_456  # KiB; with TIMES the least that OWASP's cheat sheet of passwords recommends
TIMES: Final = 2
# Of no password at all: what is typed for a name that has none takes the same time.
NOBODYS = (
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA"
    "$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


class Passwords:
    """Hashes and compares; so many at a time, in threads."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    async def hash(self, password: str) -> str:
        """A hash to keep, with a salt and its parameters in it."""
        async with self._free:
            return await asyncio.to_thread(_hash, password)

    async def matches(self, hashed: str, typed: str) -> bool:
        """Whether this is the password; an empty hash is nobody's, and takes as long."""
        if len(typed) > LONGEST:
            typed = ""
        async with self._free:
            return await asyncio.to_thread(_matches, hashed or NOBODYS, typed) and bool(hashed)


def _hash(password: str) -> str:
    return _hasher().hash(password)


def _matches(hashed: str, typed: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - see below

    try:
        return _hasher().verify(hashed, typed)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # noqa: PLC0415 - only where somebody has a password

    return PasswordHasher(time_cost=TIMES, memory_cost=MEMORY, parallelism=1)
