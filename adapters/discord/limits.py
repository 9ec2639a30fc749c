"""What is known of Discord's rate limits; asking costs nothing and never waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapters.discord.sdk import Route

MAX_BUCKETS = 1024  # remembered; those whose time is over go first


@dataclass(slots=True)
class _Bucket:
    remaining: int
    until: float  # when it is full again


class Limits:
    """The buckets of one bot, as Discord's answers tell of them.

    Routes that share a bucket name one hash; each channel, server and webhook has its own.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hashes: dict[str, str] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._all_until = 0.0

    def wait(self, route: Route) -> float:
        """Seconds until a call may be made."""
        now = self._clock()
        bucket = self._buckets.get(self._key(route))
        own = bucket.until if bucket is not None and bucket.remaining <= 0 else 0.0
        return max(0.0, own - now, self._all_until - now)

    def take(self, route: Route) -> None:
        """A call is made."""
        bucket = self._buckets.get(self._key(route))
        if bucket is not None and bucket.until > self._clock():
            bucket.remaining -= 1

    def learn(self, route: Route, headers: Mapping[str, str]) -> None:
        """An answer came."""
        name = headers.get("X-RateLimit-Bucket", "")
        if name:
            self._hashes[route.key] = name
        try:
            remaining = int(headers["X-RateLimit-Remaining"])
            after = float(headers["X-RateLimit-Reset-After"])
        except (KeyError, ValueError):
            return
        self._keep(route, _Bucket(remaining, self._clock() + after))

    def refused(self, route: Route, seconds: float, *, everywhere: bool) -> None:
        """Discord asked to wait."""
        until = self._clock() + seconds
        if everywhere:
            self._all_until = max(self._all_until, until)
        else:
            self._keep(route, _Bucket(0, until))

    def _key(self, route: Route) -> str:
        return f"{self._hashes.get(route.key, route.key)}:{route.major_parameters}"

    def _keep(self, route: Route, bucket: _Bucket) -> None:
        if len(self._buckets) >= MAX_BUCKETS:
            now = self._clock()
            self._buckets = {k: b for k, b in self._buckets.items() if b.until > now}
        self._buckets[self._key(route)] = bucket
