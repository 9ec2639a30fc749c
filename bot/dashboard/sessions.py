"""Proof of being allowed in: the token, and the cookie a browser gets for it."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bot.channel.http import network_of

COOKIE = "confidant_session"
COOKIE_SECONDS = 30 * 24 * 3600
FAILURE_WINDOW = 60.0  # seconds in which the free failures of a network come back
FIRST_DELAY, LONGEST_DELAY = 0.5, 4.0  # seconds
BUCKETS = 4096  # for each kind of network


@dataclass(frozen=True, slots=True)
class Network:
    """A kind of network: how many bits name one, and how many failures cost nothing there."""

    v4: int
    v6: int
    free: int


# Whoever has one address of IPv6 has a whole /64, and often a /48.
NETWORKS = (Network(32, 64, 5), Network(24, 48, 20), Network(16, 32, 80))


class Tokens:
    """Checks tokens and makes cookies that prove one was known, without containing it.

    A cookie is `<expiry>.<HMAC of the expiry under a key derived from the token>`: nothing is
    stored, a restart keeps people logged in, and a new token logs everyone out.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._digest = hashlib.sha256(token.encode()).digest()
        self._key = hmac.digest(token.encode(), b"confidant dashboard session v1", "sha256")
        self._clock = clock

    def accepts(self, candidate: str) -> bool:
        """Whether this is the token, in constant time."""
        digest = hashlib.sha256(candidate.encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(digest, self._digest)

    def issue(self) -> str:
        """A new cookie value."""
        expiry = str(int(self._clock()) + COOKIE_SECONDS)
        return f"{expiry}.{self._sign(expiry)}"

    def remembers(self, cookie: str) -> bool:
        """Whether a cookie was issued for this token and still holds."""
        expiry, _, signature = cookie.partition(".")
        expected = self._sign(expiry).encode()
        genuine = hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), expected)
        return genuine and int(expiry) > self._clock()

    def _sign(self, expiry: str) -> str:
        message = expiry.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


class Failures:
    """Counts wrong tokens by network, near and wide, so guessing is slow from wherever one does it.

    Each network has a bucket that empties within a minute, in a table of fixed size: there is
    nothing to push out, and no flood that makes one's own bucket be forgotten. Two networks may
    share a bucket; that makes one of them wait for the other's sake, and refuses nobody.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(16)  # nobody can choose whose bucket they share
        self._counts = [array("d", bytes(8 * BUCKETS)) for _ in NETWORKS]
        self._at = [array("d", bytes(8 * BUCKETS)) for _ in NETWORKS]

    def delay(self, address: str) -> float:
        """Seconds the next try from an address has to wait for its answer."""
        return max(
            delay_of(math.ceil(self._count(level, bucket)), network.free)
            for level, (network, bucket) in enumerate(self._buckets(address))
        )

    def add(self, address: str) -> None:
        """Remember one wrong token."""
        for level, (_, bucket) in enumerate(self._buckets(address)):
            self._counts[level][bucket] = self._count(level, bucket) + 1
            self._at[level][bucket] = self._clock()

    def _buckets(self, address: str) -> Iterator[tuple[Network, int]]:
        for network in NETWORKS:
            name = network_of(address, v4=network.v4, v6=network.v6).encode()
            digest = hashlib.blake2b(name, key=self._secret, digest_size=8).digest()
            yield network, int.from_bytes(digest) % BUCKETS

    def _count(self, level: int, bucket: int) -> float:
        gone = (self._clock() - self._at[level][bucket]) / FAILURE_WINDOW * NETWORKS[level].free
        return max(0.0, self._counts[level][bucket] - gone)


def delay_of(failures: float, free: int) -> float:
    """Seconds of waiting after so many failures: none for the first, then twice as many each time.

    "Each time" is as many failures again as are free.
    """
    if failures < free:
        return 0.0
    return min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(16.0, failures / free - 1))
