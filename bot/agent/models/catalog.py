"""Keeps a service's facts about its models for a week: sizes, names and capabilities.

Nobody waits for the network here longer than a person would: a size that is not known yet is
fetched in the background while none is told, and an old one serves while it is renewed.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

import structlog
from pydantic import NonNegativeInt, TypeAdapter

from bot.agent.models import UNKNOWN_WINDOW, Usage, Window
from bot.agent.models.capabilities import WEEK, Capabilities, Facts, LearnedLimit, known
from bot.clock import Clock, system_clock

RETRY_AFTER = 600.0  # seconds before a fetch that failed is tried again
NAMES_TIMEOUT = 3.0  # seconds that `/model` waits for a list it has never seen

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Record:
    """An answer of the service and its time (ms); a size of 0 is one that it did not tell."""

    at: int = 0
    max_input_tokens: NonNegativeInt = 0
    max_output_tokens: NonNegativeInt = 0
    names: tuple[str, ...] | None = None


_RECORD: Final = TypeAdapter(_Record)
_FACTS: Final = TypeAdapter(dict[str, LearnedLimit])
_NOTHING = _Record()

T = TypeVar("T")


class TextStore(Protocol):
    """Somewhere small texts survive a restart."""

    async def get(self, key: str) -> str | None:
        """The text, or None."""
        ...

    async def set(self, key: str, text: str) -> None:
        """Keep a text, replacing the one before."""
        ...


class Catalog:
    """Sizes, names and capabilities of one endpoint's models. Nothing here raises.

    `fetch_window` asks the service for a model's sizes, 0 being one it does not tell;
    `fetch_names` asks for the names of all models. With other `options` of their requests it is
    found out anew what they take.
    """

    def __init__(
        self,
        fetch_window: Callable[[str], Awaitable[Window]],
        fetch_names: Callable[[], Awaitable[Sequence[str]]],
        store: TextStore,
        *,
        endpoint: str,
        known_names: tuple[str, ...] = (),
        options: str = "",
        clock: Clock = system_clock,
    ) -> None:
        self._fetch_window = fetch_window
        self._fetch_names = fetch_names
        self._store = store
        self._endpoint = endpoint
        self._known_names = known_names
        self._options = f":{zlib.crc32(options.encode()):x}" if options else ""
        self._clock = clock
        self._learned: dict[str, Facts] = {}  # by model
        self._records: dict[str, _Record] = {}  # by what they tell: "names", "window:<model>"
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, float] = {}  # monotonic times of the last failures
        self._closed = False

    async def window(self, model: str) -> Window:
        """The sizes of a model: what is known, 0 for a window that is not, perhaps not yet."""

        async def fetch() -> _Record:
            window = await self._fetch_window(model)
            return _Record(0, window.max_input_tokens, window.max_output_tokens)

        record = await self._look_up(f"window:{model}", fetch)
        able = await self.able(model, Capabilities())
        windows = (n for n in (record.max_input_tokens, able.window) if n)
        return Window(
            min(windows, default=UNKNOWN_WINDOW.max_input_tokens),
            able.longest(record.max_output_tokens or UNKNOWN_WINDOW.max_output_tokens),
        )

    async def able(self, model: str, usual: Capabilities) -> Capabilities:
        """The capabilities of a model, by what its service refused before."""
        if model not in self._learned:
            self._learned.setdefault(model, await self._stored(model))
        return known(usual, self._learned[model], self._clock())

    async def learn(self, model: str, facts: Mapping[str, LearnedLimit]) -> None:
        """Keep what was learned of a model, also for the next start and for other processes."""
        if facts:
            learned = {**await self._stored(model), **self._learned.get(model, {}), **facts}
            await self._keep(model, learned)

    async def doubt(self, model: str, usage: Usage) -> None:
        """Forget a limit that a reply went beyond."""
        learned = self._learned.get(model, {})
        used = {"output_limit": usage.output_tokens, "context_full": usage.context_tokens}
        left = {c: each for c, each in learned.items() if used.get(c, 0) <= each.number}
        if len(left) < len(learned):
            await self._keep(model, left)

    async def forget(self, model: str) -> None:
        """Find out anew what a model takes."""
        if self._learned.get(model) or await self._stored(model):
            await self._keep(model, {})

    async def _stored(self, model: str) -> Facts:
        return await self._read(f"learned:{model}{self._options}", _FACTS) or {}

    async def _keep(self, model: str, facts: Facts) -> None:
        self._learned[model] = facts
        try:
            text = _FACTS.dump_json(dict(facts), exclude_defaults=True).decode()
            await self._store.set(self._key(f"learned:{model}{self._options}"), text)
        except Exception as error:  # noqa: BLE001 - then this process alone knows it
            log.warning("model.catalog_not_kept", error=type(error).__name__)

    async def _read(self, what: str, kind: TypeAdapter[T]) -> T | None:
        """A stored record, perhaps from before the last start."""
        try:
            text = await self._store.get(self._key(what))
            return kind.validate_json(text) if text else None
        except Exception as error:  # noqa: BLE001 - a turn must not fail for what can be asked again
            log.warning("model.catalog_unreadable", error=type(error).__name__)
            return None

    def known_output(self, model: str) -> int:
        """The longest reply of a model; 0 when the service has not said it."""
        return self._records.get(f"window:{model}", _NOTHING).max_output_tokens

    async def names(self) -> tuple[str, ...]:
        """The models' names; the first time, this waits a moment for the service."""

        async def fetch() -> _Record:
            return _Record(names=tuple(await self._fetch_names()))

        record = await self._look_up("names", fetch)
        fetching = self._fetches.get("names")
        if record.names is None and fetching is not None:
            await asyncio.wait({fetching}, timeout=NAMES_TIMEOUT)
            record = self._records.get("names", _NOTHING)
        return self._known_names if record.names is None else record.names

    async def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    async def _look_up(self, what: str, fetch: Callable[[], Awaitable[_Record]]) -> _Record:
        """The known record; an old one is fetched again in the background, once at a time."""
        if what not in self._records and (stored := await self._read(what, _RECORD)):
            self._records.setdefault(what, stored)
        record = self._records.get(what, _NOTHING)
        # A clock that was set back makes a record from the future: that is old too.
        is_old = not 0 <= self._clock() - record.at <= WEEK
        failed = self._failed.get(what)
        may_try = failed is None or time.monotonic() - failed >= RETRY_AFTER
        if is_old and may_try and not self._closed and what not in self._fetches:
            self._fetches[what] = asyncio.create_task(self._fetch(what, fetch))
        return record

    async def _fetch(self, what: str, fetch: Callable[[], Awaitable[_Record]]) -> None:
        try:
            record = replace(await fetch(), at=self._clock())
            self._records[what] = record
            self._failed.pop(what, None)
            kept = _RECORD.dump_json(record, exclude_defaults=True)
            await self._store.set(self._key(what), kept.decode())
        except Exception as error:  # noqa: BLE001 - nobody waits for it, whatever it was
            self._failed[what] = time.monotonic()
            log.info("model.catalog_unavailable", error=type(error).__name__)
        finally:
            del self._fetches[what]

    def _key(self, what: str) -> str:
        return f"models:{self._endpoint}:{what}"
