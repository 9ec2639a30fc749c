"""Proof of being allowed in: the token, and the cookie a browser gets for it."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable

COOKIE = "confidant_session"
COOKIE_SECONDS = 30 * 24 * 3600
MAX_FAILURES = 5  # wrong tokens one address may try …
FAILURE_WINDOW = 60.0  # … in this many seconds
REMEMBERED_ADDRESSES = 1024  # so a flood from many addresses cannot fill the memory


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
    """Counts wrong tokens per address, so guessing is slow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds this address must wait before it may try again; 0 when it may."""
        recent = self._recent(address)
        if len(recent) < MAX_FAILURES:
            return 0.0
        return recent[0] + FAILURE_WINDOW - self._clock()

    def add(self, address: str) -> None:
        """Remember one wrong token."""
        recent = self._recent(address)
        recent.append(self._clock())
        self._seen[address] = recent
        self._seen.move_to_end(address)
        while len(self._seen) > REMEMBERED_ADDRESSES:
            self._seen.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        oldest = self._clock() - FAILURE_WINDOW
        return [at for at in self._seen.get(address, []) if at > oldest]
