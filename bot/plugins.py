"""Plugins of installed packages, found by their entry points, and run with a deadline.

A package is loaded, and each of its functions called, in a thread of its own: one that hangs or
raises is named in the log and in reports, and everything goes on without it. Functions get values.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from typing import Final, TypeVar

import structlog

from bot.errors import ConfigError

T = TypeVar("T")

CHANNELS, MODELS, TOOLS = "confidant.channels", "confidant.models", "confidant.tools"
HOOKS, EMBEDDERS, SEARCH = "confidant.hooks", "confidant.embedders", "confidant.search"
LOAD_SECONDS = 60.0  # that loading one package may take
SECONDS = 2.0  # that a hook or a search may take
AT_ONCE = 4  # calls of one package; more are refused, as those may hang
MOST_TOLD = 64  # events on their way to hooks
MOST_TEXT = 100_000  # characters that a hook may make of a result
MOST_FOUND = 10  # passages of one search, of so many characters each
MOST_PASSAGE = 2_000

_failing: Final = dict[str, str]()  # packages by entry point, and why their last call failed

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result, before it is stored and shown to the model."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A conversation that is over; `by` says why ("daily", "idle", "left"). Times are in ms."""

    session: str
    person: str
    channel: str
    chat_type: str
    turns: int
    started_at: int
    by: str


@dataclass(frozen=True, slots=True)
class Saved:
    """Something that was written into a note of a space ("main", "people/ada"), on disk now."""

    space: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class HookPlugin:
    """Functions of a package that hear of events; `before_store` may answer with another text."""

    before_store: Callable[[Result], str | None] | None = None
    ended: Callable[[Ended], object] | None = None
    saved: Callable[[Saved], object] | None = None


@dataclass(frozen=True, slots=True)
class EmbedderPlugin:
    """Makes a vector of each text; the vectors of another `model` are made anew."""

    model: str
    embed: Callable[[Sequence[str]], Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that was found, and where it stands."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchPlugin:
    """Finds passages for a query, at most so many, the best first."""

    find: Callable[[str, int], Iterable[Passage]]


class PluginFailed(Exception):
    """A package's function hung or raised; its words say which, without anybody's text."""


def entries(group: str) -> list[EntryPoint]:
    """The entry points of a group in the order of their names; nothing is loaded."""
    return sorted(entry_points(group=group), key=lambda each: each.name)


def source_of(what: str, entry: EntryPoint) -> str:
    """Names an entry point and its package, for whoever has to fix it."""
    package = entry.dist.name if entry.dist is not None else "unknown package"
    return f'the {what} "{entry.name}" ({package}, {entry.value})'


def loaded(told: str, entry: EntryPoint) -> object:
    """Loads the target of an entry point.

    Raises:
        ConfigError: its package, called `told`, cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:  # whatever a package does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{told} cannot be loaded: {reason}") from error


def load_all(
    group: str, load: Callable[[EntryPoint], T]
) -> tuple[dict[str, T], list[tuple[str, str]]]:
    """All plugins of a group, by name; and the broken ones, each with the reason."""
    found: dict[str, T] = {}
    problems: list[tuple[str, str]] = []
    for entry in entries(group):
        package = entry.dist.name if entry.dist is not None else entry.value
        try:
            found[entry.name] = in_thread(lambda entry=entry: load(entry)).result(LOAD_SECONDS)
        except TimeoutError:
            problems.append((package, f"it did not load within {LOAD_SECONDS:g} s"))
        except Exception as error:  # noqa: BLE001 - whatever a package does when it is imported
            problems.append((package, f"{type(error).__name__}: {error}"))
    return found, problems


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Does something in a thread of its own, in which it may go on for ever."""
    future: Future[T] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(type(error).__name__))

    threading.Thread(target=run, name="plugin", daemon=True).start()
    return future


def failing() -> Mapping[str, str]:
    """The packages whose last call failed, by entry point, and why."""
    return dict(_failing)


class Guest:
    """A package's functions, called in threads and given up after a while."""

    def __init__(self, name: str, seconds: float = SECONDS) -> None:
        self.name = name
        self._seconds = seconds
        self._running: set[Future[object]] = set()

    async def call(self, work: Callable[[], T]) -> T:
        """The answer of a function.

        Raises:
            PluginFailed: it hung or raised, or those before it still hang.
        """
        self._running = {each for each in self._running if not each.done()}
        why = ""
        if len(self._running) >= AT_ONCE:
            why = "earlier calls have not come back"
        else:
            future = in_thread(work)
            self._running.add(future)  # pyright: ignore[reportArgumentType]
            try:
                async with asyncio.timeout(self._seconds):
                    answer = await asyncio.wrap_future(future)
            except TimeoutError:
                why = f"no answer within {self._seconds:g} s"
            except Exception as error:  # noqa: BLE001 - whatever a package raises
                why = type(error).__name__
            else:
                _failing.pop(self.name, None)
                return answer
        if _failing.get(self.name) != why:
            log.warning("plugin.failed", plugin=self.name, why=why)
        _failing[self.name] = why
        raise PluginFailed(why)


class Hooks:
    """The hooks and searches of all packages, once they are loaded."""

    def __init__(self) -> None:
        self._hooks: list[tuple[Guest, HookPlugin]] = []
        self._searches: list[tuple[Guest, SearchPlugin]] = []
        self._telling: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Load them beside what runs; a package that cannot be loaded keeps nobody from talking."""
        self._hooks = await _guests(HOOKS, HookPlugin)
        self._searches = await _guests(SEARCH, SearchPlugin)

    async def before_store(self, tool: str, text: str) -> str:
        """A tool's result as the hooks want it stored; as it is, where one fails."""
        for guest, hook in self._hooks:
            if hook.before_store is not None:
                work: Callable[[], object] = partial(hook.before_store, Result(tool, text))
                with suppress(PluginFailed):
                    answer = await guest.call(work)
                    if isinstance(answer, str) and len(answer) <= MOST_TEXT:
                        text = answer
        return text

    def ended(self, event: Ended) -> None:
        """Tell the hooks that a conversation is over."""
        self._tell(lambda hook: hook.ended, event)

    def saved(self, event: Saved) -> None:
        """Tell the hooks that something was saved."""
        self._tell(lambda hook: hook.saved, event)

    async def find(self, query: str) -> list[tuple[str, Passage]]:
        """The findings of the searches of packages, each after its package's name."""
        found: list[tuple[str, Passage]] = []
        for guest, search in self._searches:
            with suppress(PluginFailed):
                for each in await guest.call(partial(_first, search, query)):
                    where = " ".join(each.where[:MOST_PASSAGE].split())
                    found.append((guest.name, Passage(where, each.text[:MOST_PASSAGE])))
        return found

    async def close(self) -> None:
        """Wait for nothing that is still being told."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _tell(self, pick: Callable[[HookPlugin], Callable[[T], object] | None], event: T) -> None:
        for guest, hook in self._hooks:
            if (hear := pick(hook)) is None:
                continue
            if len(self._telling) >= MOST_TOLD:
                log.warning("plugin.not_told", plugin=guest.name)
                continue
            task = asyncio.create_task(self._told(guest, hear, event))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _told(self, guest: Guest, hear: Callable[[T], object], event: T) -> None:
        with suppress(PluginFailed):  # it is named; nobody waits for it
            await guest.call(partial(hear, event))


def _first(search: SearchPlugin, query: str) -> list[Passage]:
    """The findings of one search; runs in a thread.

    Raises:
        TypeError: it is none of `Passage`.
    """
    found: list[object] = list(islice(search.find(query, MOST_FOUND), MOST_FOUND))
    passages = [each for each in found if isinstance(each, Passage)]
    if len(passages) < len(found):
        raise TypeError
    return passages


async def _guests(group: str, kind: type[T]) -> list[tuple[Guest, T]]:
    def load(entry: EntryPoint) -> T:
        plugin: object = entry.load()
        if not isinstance(plugin, kind):
            raise TypeError(f"{entry.value} is no {kind.__name__}")
        return plugin

    found, problems = await asyncio.to_thread(load_all, group, load)
    for package, problem in problems:
        log.error("plugin.not_loaded", package=package, problem=problem)
        _failing[package] = problem
    return [(Guest(name), plugin) for name, plugin in found.items()]
