"""Changes of settings while the program runs: checked as a whole, kept in a `.env`, undoable.

A change is checked as at the start before a byte is written. The previous values are kept beside
the file, as private as the file itself, so that each change can be undone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson
import structlog
from pydantic import BaseModel

from bot.channel import ChannelPlugin, Trial
from bot.clock import Clock, system_clock
from bot.config import OFFLINE, Config, Settings
from bot.errors import ConfigError, StorageError
from bot.settings.checks import Mistakes
from bot.settings.fields import Key, env_name, is_shared, mark_of, shape_at
from bot.settings.loader import DATABASE, Loaded, Sources
from bot.settings.sources import (
    FILE_PREFIX,
    dotenv_line,
    dotenv_values,
    edited_dotenv,
    read_text,
    shown,
    write_dotenv,
)
from bot.storage import Database, Transaction, records

# Changes, and the settings that all nodes on one database share: options without secrets, as they
# were typed, with the previous values of each change. Pure.

MOST_KEPT = 50  # changes that can be taken back
CHANGED_SINCE = "This was changed again since, so it cannot be taken back."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """One option of a change: what its variable was before and is after; None is not set."""

    key: tuple[str, ...]
    before: str | None
    after: str | None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """Some options that were changed together, at `at` (ms since the epoch).

    `takes_back` is the change that it undid, if it did; `is_for_good` when it cannot be undone.
    """

    id: str
    at: int
    steps: tuple[Step, ...]
    takes_back: str = ""
    is_for_good: bool = False


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """The settings changed for all nodes: values by option, and the changes, the newest first."""

    values: Mapping[Key, str] = field(default_factory=dict[Key, str])
    changes: tuple[SettingsChange, ...] = ()

    def step(self, key: tuple[str, ...], after: str | None) -> Step:
        """The step that sets an option to this."""
        return Step(key, self.values.get(key), after)

    def changed(self, change: SettingsChange) -> SharedSettings:
        """The same after a change."""
        values = dict(self.values)
        for step in change.steps:
            values.pop(step.key, None)
            if step.after is not None:
                values[step.key] = step.after
        return SharedSettings(values, (change, *self.changes)[:MOST_KEPT])

    def may_take_back(self, change: SettingsChange) -> bool:
        """True while what a change set is still what counts."""
        return all(self.values.get(step.key) == step.after for step in change.steps)

    def to_json(self) -> str:
        """As the database keeps it."""
        values = {".".join(map(str, key)): value for key, value in self.values.items()}
        return orjson.dumps({"values": values, "changes": [*map(asdict, self.changes)]}).decode()

    @classmethod
    def from_json(cls, text: str | None) -> SharedSettings:
        """Reads what the database has; nothing of what is not to be shared, or cannot be read."""
        if text is None:
            return cls()
        try:
            data: dict[str, Any] = orjson.loads(text)
            said: dict[str, str] = data["values"]
            changes = tuple(change_from(each) for each in data["changes"])
            values = {tuple(name.split(".")): str(value) for name, value in said.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("settings.shared_unreadable", error=type(error).__name__)
            return cls()
        return cls({key: value for key, value in values.items() if _may_be_shared(key)}, changes)


def _may_be_shared(key: Key) -> bool:
    shape = shape_at(Config, key) if is_shared(key) else None
    return shape is not None and shape.kind not in {"secret", "table", "map"}


def change_from(data: dict[str, Any]) -> SettingsChange:
    """A change as it was kept."""
    steps = tuple(
        Step(tuple(step["key"]), step["before"], step["after"], is_secret=step["is_secret"])
        for step in data["steps"]
    )
    taken = data["takes_back"]
    return SettingsChange(data["id"], data["at"], steps, taken, is_for_good=data["is_for_good"])


MODEL: Key = ("agent", "model")
CHANGES = "settings-changes.jsonl"  # beside the `.env`
KEPT_UNDER = "settings"  # in the table of small facts
TRIAL_SECONDS = 30.0  # for all that a channel asks about a secret
# A token of the page that was replaced is one that somebody else may know: it never comes back.
FORGOTTEN: frozenset[Key] = frozenset({("dashboard", "token")})


Table = TypeVar("Table", bound=BaseModel)
Apply = Callable[[Config], Awaitable[None]]  # puts one into effect


class Overruled(Mistakes):
    """Something that counts more sets this option; `origin` says what and where."""

    def __init__(self, key: Key, origin: str) -> None:
        message = f"{'.'.join(map(str, key))} is set by {origin}, which counts more."
        super().__init__(message, (key,))
        self.origin = origin


class ServedSettings:
    """The configuration in effect, and the one way to change it while the program runs.

    Changes come one after the other, each in effect when it returns. Where nodes share a database,
    options without secrets are changed there, for all of them; secrets, and what belongs to them,
    are this node's. Files are read and written in threads.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded | None,
        plugins: Mapping[str, ChannelPlugin],
        apply: Apply,
        *,
        database: Database | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """`loaded` is None in a program that was not started from files.

        `database` is the one that other nodes share, if any do.
        """
        self.plugins = plugins
        self.found = settings.now if loaded is None else loaded.config  # as the files have it now
        self.origins: Mapping[Key, str] = loaded.origins if loaded is not None else {}
        self.refused: frozenset[Key] = frozenset()  # of the shared ones, what cannot be used here
        self._settings = settings
        self._sources: Sources | None = loaded.sources if loaded is not None else None
        self._path: Path | None = loaded.kept if loaded is not None else None
        self._apply = apply
        self._database = database
        self._clock = clock
        self._shared = SharedSettings()
        self._places: dict[str, Key] = {}  # of variables, by name: it takes a while to find one
        self._one_by_one = asyncio.Lock()

    @property
    def is_shared(self) -> bool:
        """True where other nodes work on the same database."""
        return self._database is not None

    @property
    def config(self) -> Config:
        """The configuration in effect."""
        return self._settings.now

    @property
    def shown_path(self) -> str:
        """The name of the file that changes are written to, as messages name it; empty for none."""
        if self._path is None or self._sources is None:
            return ""
        return shown(self._path, self._sources.cwd)

    async def tried(self, wanted: Mapping[Key, str | None]) -> Loaded:
        """Try the configuration with these options, as text, or without those of None.

        Raises:
            Overruled: an option would not be what was wanted.
            ConfigError: it has mistakes; the message has one line for each.
        """
        return (await asyncio.to_thread(self._edited, wanted))[1]

    async def try_secret(self, key: Key, value: str) -> Trial:
        """Try a channel's secret as it would be used; "untried" where nobody can be asked.

        Raises:
            ConfigError: it cannot be used at all.
        """
        loaded = await self.tried({key: value})
        name = str(key[1])
        plugin = self.plugins.get(name) if key[0] == "channels" else None
        if plugin is None or not plugin.ready(section := loaded.config.channels.get(name)):
            return Trial("untried")
        channel = await asyncio.to_thread(plugin.create, section)  # it imports an SDK
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                trial = await channel.tried(str(key[-1]))
        except TimeoutError:
            trial = Trial("slow")
        log.info("settings.secret_tried", option=".".join(map(str, key)), outcome=trial.outcome)
        return trial

    async def change(self, wanted: Mapping[Key, str | None]) -> None:
        """Keep these options, and put them into effect: on all nodes, where none is a node's own.

        Raises:
            ConfigError: they cannot be used, or not be written. Nothing was changed.
            StorageError: the database did not take it. Nothing was changed.
        """
        if not wanted:
            return
        # A request that is broken off must not leave one thing that is kept while another counts.
        if self._is_for_all(wanted):
            await asyncio.shield(self._changed_for_all(wanted))
        else:
            await asyncio.shield(self._changed_here(lambda: self._write(wanted)))

    async def take_back(self, change_id: str) -> None:
        """Set everything as it was before a change, wherever that one counts.

        Raises:
            ConfigError: there is no such change, or something of it was changed again since.
            StorageError: the database did not take it. Nothing was changed.
        """
        found = next((each for each in self._shared.changes if each.id == change_id), None)
        if found is None:
            await asyncio.shield(self._changed_here(lambda: self._write_back(change_id)))
        else:
            before: dict[Key, str | None] = {step.key: step.before for step in found.steps}
            await asyncio.shield(self._changed_for_all(before, takes_back=found))

    async def hear(self) -> None:
        """Put into effect what another node may have changed for all."""
        async with self._one_by_one:
            await self._apply_shared()

    async def begin(self) -> Config | None:
        """The configuration at the start, with what was changed for all nodes; None if alone."""
        loaded = await self._read_shared()
        return None if loaded is None else loaded.config

    async def changes(self) -> list[tuple[SettingsChange, bool]]:
        """The last changes, the newest first, each with whether it can be undone."""

        def look() -> list[tuple[SettingsChange, bool]]:
            found = [*self._shared.changes, *self._own_changes()]
            newest_first = sorted(found, key=lambda each: -each.at)
            return [(each, self._may_take_back(each)) for each in newest_first]

        return await asyncio.to_thread(look)

    async def ours(self) -> frozenset[Key]:
        """The options that are set where they are changed here: in the file, or for all nodes."""
        return frozenset(await asyncio.to_thread(self._texts)) | self._shared.values.keys()

    # --- for all nodes ----------------------------------------------------------------------------

    def _is_for_all(self, wanted: Mapping[Key, str | None]) -> bool:
        if self._database is None or not all(map(is_shared, wanted)):
            return False
        # What is taken out may stand in this node's file, from before.
        return any(value is not None or key in self._shared.values for key, value in wanted.items())

    async def _changed_for_all(
        self, wanted: Mapping[Key, str | None], takes_back: SettingsChange | None = None
    ) -> None:
        async with self._one_by_one:
            if self._database is None:
                return
            await self._read_shared()
            await asyncio.to_thread(self._try_shared, wanted)
            id_, now = secrets.token_hex(8), self._clock()

            def work(tx: Transaction) -> bool:
                found = SharedSettings.from_json(records.text_of(tx, KEPT_UNDER))
                if takes_back is not None and not found.may_take_back(takes_back):
                    return False
                steps = tuple(
                    found.step(tuple(map(str, key)), value) for key, value in wanted.items()
                )
                undone = takes_back.id if takes_back is not None else ""
                after = found.changed(SettingsChange(id_, now, steps, undone))
                records.keep(tx, KEPT_UNDER, after.to_json(), now)
                tx.publish("settings")
                return True

            if not await self._database.write(work):
                raise ConfigError(CHANGED_SINCE)
            log.info(
                "settings.changed_for_all",
                options=_names(wanted),
                taken_back=takes_back is not None,
            )
            await self._apply_shared()

    async def _apply_shared(self) -> None:
        loaded = await self._read_shared()
        if loaded is not None:
            await self._apply(loaded.config)

    async def _read_shared(self) -> Loaded | None:
        """The configuration with what the database has for all nodes; None if alone, or no files.

        What cannot be used here, such as a model of a service that this node does not have, is left
        out, and `refused` from then on.
        """
        if self._database is None:
            return None
        text = await self._database.read(lambda tx: records.text_of(tx, KEPT_UNDER))
        self._shared = SharedSettings.from_json(text)
        if self._sources is None:
            return None
        loaded, self.refused = await asyncio.to_thread(_usable, self._sources, self._shared.values)
        self.origins, self.found = loaded.origins, loaded.config
        if self.refused:
            log.warning("settings.shared_refused", options=_names(self.refused))
        return loaded

    def _try_shared(self, wanted: Mapping[Key, str | None]) -> None:
        """Raise ConfigError where these options, for all nodes, could not be used here."""
        sources, _ = self._changeable()
        for key, value in wanted.items():
            _check(key, value)
        values = {**self._usable_shared(), **wanted}
        loaded = sources.load(shared={k: v for k, v in values.items() if v is not None})
        _must_count(wanted, loaded, f"{DATABASE}:")
        if MODEL in wanted and not _has_service(loaded.config):
            said = "agent.model: its service is not set up here, so it cannot answer"
            raise Mistakes(said, (MODEL,))

    def _usable_shared(self) -> Mapping[Key, str]:
        return {key: v for key, v in self._shared.values.items() if key not in self.refused}

    # --- for this node ----------------------------------------------------------------------------

    async def _changed_here(self, change: Callable[[], Loaded]) -> None:
        async with self._one_by_one:
            loaded = await asyncio.to_thread(change)
            # What could not be used here before may be now, such as a model with its key.
            try:
                loaded = await self._read_shared() or loaded
            except StorageError as error:  # the file is written: it must count
                log.warning("settings.shared_not_read", error=type(error).__name__)
            await self._apply(loaded.config)

    def _write(self, wanted: Mapping[Key, str | None], takes_back: str = "") -> Loaded:
        """Keep these options in the file, and the way back beside it."""
        text, loaded = self._edited(wanted)
        before = self._texts()
        _, path = self._changeable()
        write_dotenv(path, text)
        steps = tuple(
            self._step(key, before.get(key), value)
            for key, value in wanted.items()
            if before.get(key) != value
        )
        is_for_good = any(key in FORGOTTEN for key in wanted)
        made = SettingsChange(
            secrets.token_hex(8), self._clock(), steps, takes_back, is_for_good=is_for_good
        )
        self._remember(made, path.with_name(CHANGES))
        self.origins, self.found = loaded.origins, loaded.config
        log.info("settings.changed", options=_names(wanted), taken_back=bool(takes_back))
        return loaded

    def _write_back(self, change_id: str) -> Loaded:
        found = next((each for each in self._own_changes() if each.id == change_id), None)
        if found is None or not self._may_take_back(found):
            raise ConfigError(CHANGED_SINCE)
        return self._write({step.key: step.before for step in found.steps}, takes_back=found.id)

    def _edited(self, wanted: Mapping[Key, str | None]) -> tuple[str, Loaded]:
        """The file with these options, and the configuration that it comes to."""
        sources, path = self._changeable()
        for key, value in wanted.items():
            _check(key, value)
        names = {env_name(key): value for key, value in wanted.items()}
        try:
            text = edited_dotenv(self._text(), names, self._place)
        except ValueError as error:
            raise ConfigError(f"{shown(path, sources.cwd)}: {error}") from error
        loaded = sources.load(text, self._usable_shared())
        _must_count(wanted, loaded, f"{shown(path, sources.cwd)}:")
        return text, loaded

    def _changeable(self) -> tuple[Sources, Path]:
        if self._sources is None or self._path is None:
            raise ConfigError("This program was not started from files, so nothing can be changed.")
        return self._sources, self._path

    def _text(self) -> str:
        _, path = self._changeable()
        return read_text(path, str(path)) if path.is_file() else ""

    def _texts(self) -> dict[Key, str]:
        """The values in the file, by option."""
        if self._sources is None:
            return {}
        found = dotenv_values(self._text()).items()
        return {key: value for name, value in found if (key := self._place(name)) and value}

    def _place(self, name: str) -> Key:
        """The option that a variable sets; empty for none."""
        if name not in self._places and self._sources is not None:
            self._places[name] = self._sources.place(name)
        return self._places.get(name, ())

    def _step(self, key: Key, before: str | None, after: str | None) -> Step:
        shape = shape_at(type(self.config), key)
        is_secret = shape is not None and shape.kind == "secret"
        if key in FORGOTTEN:
            before = after = None
        return Step(tuple(map(str, key)), before, after, is_secret)

    def _may_take_back(self, change: SettingsChange) -> bool:
        """True while what a change set is still in effect where it is kept."""
        if change in self._shared.changes:
            return self._shared.may_take_back(change)
        now = self._texts()
        return not change.is_for_good and all(now.get(s.key) == s.after for s in change.steps)

    def _own_changes(self) -> list[SettingsChange]:
        """The changes in the file, the newest first."""
        if self._path is None:
            return []
        file = self._path.with_name(CHANGES)
        try:
            lines = file.read_bytes().splitlines() if file.is_file() else []
            return [change_from(orjson.loads(line)) for line in reversed(lines)]
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("settings.changes_unreadable", error=type(error).__name__)
            return []

    def _remember(self, made: SettingsChange, file: Path) -> None:
        """Keep what was there before; a disk that has no room for it costs the way back only."""
        kept = [made, *self._own_changes()][:MOST_KEPT]
        try:
            lines = (f"{orjson.dumps(asdict(each)).decode()}\n" for each in reversed(kept))
            write_dotenv(file, "".join(lines))
        except ConfigError:
            log.warning("settings.change_not_remembered")


def _names(keys: Iterable[Key]) -> list[str]:
    """Options as the log names them."""
    return sorted(".".join(map(str, key)) for key in keys)


def adopted(running: Table, found: Table) -> Table:
    """The running configuration with another one's options, as far as they take effect at once."""
    update: dict[str, Any] = {}
    for name, option in type(running).model_fields.items():
        mine, theirs = getattr(running, name), getattr(found, name)
        if mark_of(option) is not None:
            update[name] = theirs
        elif isinstance(mine, BaseModel):
            update[name] = adopted(mine, theirs)
    return running.model_copy(update=update)


def _must_count(wanted: Mapping[Key, str | None], loaded: Loaded, source: str) -> None:
    """Raise Overruled for an option that is set by something else than this source."""
    for key, value in wanted.items():
        origin = loaded.origins.get(key, "")
        if value and not origin.startswith(source):
            raise Overruled(key, origin)


def _usable(sources: Sources, shared: Mapping[Key, str]) -> tuple[Loaded, frozenset[Key]]:
    """The configuration with the shared settings, and which of these cannot be used."""
    kept: dict[Key, str] = {}
    best = sources.load()
    whole = _tried(sources, shared)
    if whole is not None:
        return whole, frozenset()
    for key, value in shared.items():
        loaded = _tried(sources, {**kept, key: value})
        if loaded is not None:
            kept[key], best = value, loaded
    return best, frozenset(shared.keys() - kept.keys())


def _tried(sources: Sources, shared: Mapping[Key, str]) -> Loaded | None:
    """The configuration; None when it has mistakes, or names a model that nobody here can ask."""
    try:
        loaded = sources.load(shared=shared)
    except ConfigError:
        return None
    return loaded if MODEL not in shared or _has_service(loaded.config) else None


def _has_service(config: Config) -> bool:
    """True when there is somebody to ask for the model that answers."""
    service, _ = config.models.locate(config.agent.model)
    return service == OFFLINE or config.models.is_set_up(service)


def _check(key: Key, value: str | None) -> None:
    """Raise ConfigError for what could not be a line of a file either."""
    name = ".".join(map(str, key))
    if value is not None and value.strip().startswith(FILE_PREFIX):
        # It would be read, and sent to whatever address the option belongs to.
        raise Mistakes(f"{name}: the name of a file cannot be set here", (key,))
    try:
        dotenv_line(env_name(key), value or "")
    except ValueError as error:
        raise Mistakes(f"{name}: {error}", (key,)) from error
