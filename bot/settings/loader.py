"""Putting the sources together: later ones override, every mistake is collected, then told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ValidationError

from bot.channel import ChannelPlugin
from bot.config import Config
from bot.errors import ConfigError
from bot.settings import checks, problems, variables
from bot.settings.fields import Key, child, lookup, shape_at, shape_of
from bot.settings.plugins import config_model, installed_channels, plain_names
from bot.settings.problems import Problem, word
from bot.settings.secret import FILE_PREFIX
from bot.settings.tomlfile import TomlFile, find, shown
from bot.settings.variables import Layer

ENV_FILE = ".env"

_MAX_DEPTH = 12  # of nested tables and lists; the deepest option is at 6
_MAX_ROUNDS = 20  # of taking out what is wrong and looking again
_MAX_REPORTED = 50

_Data = dict[str, object]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was read and checked.

    `origins` names the source of every value that is not a default, by its place; `warnings` are
    lines for the person; `file` is the TOML file, if there was one.
    """

    config: Config
    plugins: Mapping[str, ChannelPlugin]
    origins: Mapping[Key, str]
    warnings: tuple[str, ...] = ()
    file: Path | None = None


def load(
    config_file: Path | None,
    environ: Mapping[str, str],
    cwd: Path,
    plugins: Mapping[str, ChannelPlugin] | None = None,
) -> Loaded:
    """Read and check the configuration: defaults < TOML file < `.env` < environment.

    Args:
        config_file: the file to read; None looks for one in `cwd`, `cwd`/config and ~/.confidant.
        environ: the process's variables.
        cwd: the folder relative names and `.env` are looked up in.
        plugins: the channels there are; None finds the installed ones.

    Raises:
        ConfigError: its message has one line for every mistake: where, what, and what was meant.
    """
    found = installed_channels() if plugins is None else plugins
    model = config_model(found)
    path = find(config_file, environ, cwd)
    file = TomlFile(path, cwd) if path is not None else None
    reading = _Reading(model, file)
    if file is not None:
        reading.take_file(file)
    plain = plain_names(found, model)
    for env_file in _env_files(path, cwd):
        found_there, bad_lines = variables.from_dotenv(env_file, shown(env_file, cwd))
        reading.problems += bad_lines
        reading.take(variables.read(model, found_there, plain, env_file.parent))
    reading.take(variables.read(model, variables.from_environ(environ), plain, cwd))
    config = reading.check()
    origins = reading.origins()
    told = [
        *reading.secrets_in_file(),
        *checks.warnings(config),
        *checks.missing(config, found, origins),
    ]
    return Loaded(
        config=config,
        plugins=found,
        origins=origins,
        warnings=tuple(reading.told(each) for each in told),
        file=path,
    )


def _env_files(config: Path | None, cwd: Path) -> list[Path]:
    """The `.env` files to read, weakest first: beside the configuration file, then in `cwd`."""
    folders = [config.parent, cwd] if config is not None else [cwd]
    paths = {folder.resolve(): folder / ENV_FILE for folder in folders}
    return [path for path in paths.values() if path.is_file()]


class _Reading:
    """The values so far, where each came from, and what is wrong with them."""

    def __init__(self, model: type[Config], file: TomlFile | None) -> None:
        self.model = model
        self.file = file
        self.data: _Data = {}
        self.problems: list[Problem] = []
        self._set_by: dict[Key, str] = {}  # variables only; the rest is the file's

    # --- taking values ---------------------------------------------------------------------------

    def take_file(self, file: TomlFile) -> None:
        """Begin with a file's values: without those no JSON has, with secrets read."""
        self.data = cast("_Data", self._plain(file.data, ()))
        for key in list(_secrets(self.model, self.data)):
            value = lookup(self.data, key)
            if isinstance(value, str) and value.strip().startswith(FILE_PREFIX):
                try:
                    _put(self.data, key, variables.secret(value, file.path.parent))
                except ValueError as error:
                    self._refuse(key, str(error))

    def take(self, layer: Layer) -> None:
        """Let a layer of variables override."""
        self.problems += layer.problems
        for each in layer.assignments:
            value = self._plain(each.value, each.key, each.origin)
            if value is _DROPPED:
                continue
            key = _as_written(self.model, self.data, each.key)
            if _put(self.data, key, value):
                for below in [known for known in self._set_by if known[: len(key)] == key]:
                    del self._set_by[below]
                self._set_by[key] = each.origin

    def _plain(self, value: object, key: Key, where: str = "") -> object:
        """A copy without what TOML and variables can hold and no option takes; each is told."""
        reason = _unusable(value) or ("this is nested too deeply" if len(key) > _MAX_DEPTH else "")
        if reason:
            self.problems.append(Problem(key, reason, where))
            return _DROPPED
        shape = shape_at(self.model, key)
        if value == "" and shape is not None and shape.optional:
            return _DROPPED  # the way to write "not set" for an option whose default is nothing
        if isinstance(value, dict):
            items = cast("dict[str, object]", value).items()
            copied = {name: self._plain(inner, (*key, name), where) for name, inner in items}
            return {name: inner for name, inner in copied.items() if inner is not _DROPPED}
        if isinstance(value, list):
            listed = enumerate(cast("list[object]", value))
            kept = [self._plain(inner, (*key, index), where) for index, inner in listed]
            return [inner for inner in kept if inner is not _DROPPED]
        return value

    def _refuse(self, key: Key, message: str) -> None:
        self.problems.append(Problem(key, message))
        _remove(self.data, key)

    # --- checking --------------------------------------------------------------------------------

    def check(self) -> Config:
        """The checked configuration.

        Raises:
            ConfigError: with a line for every mistake.
        """
        config = self._validated()
        if config is not None:
            self.problems += [each for each in checks.problems(config) if self._is_news(each)]
        if self.problems or config is None:
            raise ConfigError(self._report())
        return config

    def _validated(self) -> Config | None:
        """Validate, take out what is wrong, validate again: one mistake must not hide another."""
        for _ in range(_MAX_ROUNDS):
            try:
                # JSON's strict rules are TOML's: a list is a tuple, text a path, "1" no number.
                return self.model.model_validate_json(json.dumps(self.data), strict=True)
            except ValidationError as error:
                found = problems.from_validation(self.model, self.data, error)
                self.problems += [each for each in found if self._is_news(each)]
                wrong = {_culprit(self.data, each) for each in _places(error)}
                for key in wrong:
                    _remove(self.data, key)
        return None

    def _is_news(self, problem: Problem) -> bool:
        """Whether this is more than a consequence of a mistake that is known already."""
        return not any(_overlap(known.key, key) for known in self.problems for key in problem.needs)

    # --- telling ---------------------------------------------------------------------------------

    def told(self, problem: Problem) -> str:
        """One line: where, and what."""
        where = problem.where or self._origin(problem.key)
        names_it = problem.named or where == problem.where or problem.key in self._set_by
        parts = [where, "" if names_it else _dotted(problem.key)]
        return ": ".join(part for part in (*parts, problem.message) if part)

    def _origin(self, key: Key) -> str:
        for length in range(len(key), 0, -1):
            if key[:length] in self._set_by:
                return self._set_by[key[:length]]
        return self.file.origin(key) if self.file is not None else ""

    def origins(self) -> dict[Key, str]:
        """The source of every value that was set."""
        return {key: self._origin(key) for key in _leaves(self.data, ())}

    def secrets_in_file(self) -> Iterator[Problem]:
        """A warning for every secret that is written out in the configuration file."""
        if self.file is None:
            return
        for key in _secrets(self.model, self.file.data):
            value = lookup(self.file.data, key)
            if not isinstance(value, str) or not value or value.strip().startswith(FILE_PREFIX):
                continue
            advice = f"a secret is better kept in {ENV_FILE} or in a file of its own"
            if self.file.readable_by_others():
                mend = f"chmod 600 {self.file.shown}"
                advice = f"other users of this machine can read this secret ({mend}); {advice}"
            yield Problem(key, advice, f"{self.file.origin(key)}: {_dotted(key)}")

    def _report(self) -> str:
        order = {id(each): self._sort_key(each) for each in self.problems}
        ordered = sorted(self.problems, key=lambda each: order[id(each)])
        lines = list(dict.fromkeys(self.told(each) for each in ordered))
        if len(lines) > _MAX_REPORTED:
            more = len(lines) - _MAX_REPORTED
            lines[_MAX_REPORTED:] = [f"… and {more} more"]
        return "\n".join(lines)

    def _sort_key(self, problem: Problem) -> tuple[bool, int]:
        """The file's own problems in the order of its lines, then the others as they were found."""
        place = self.told(problem).removeprefix(self.file.shown if self.file else "\0")
        number = place[1:].partition(":")[0] if place.startswith(":") else ""
        return (not number.isdecimal(), int(number) if number.isdecimal() else 0)


_DROPPED = object()


def _unusable(value: object) -> str:
    """Why no option takes this value, or empty."""
    if isinstance(value, date | time):  # datetimes are dates
        return "dates and times are not used here; if it is text, put it in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return "this must be a finite number"
    if isinstance(value, int) and value.bit_length() > 63:
        return "this number is too large"
    if isinstance(value, str):
        if "\0" in value:
            return "this text has a NUL character in it"
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return "this text is not valid UTF-8"
    return ""


def _secrets(model: type[BaseModel], data: object, key: Key = ()) -> Iterator[Key]:
    """The places of secrets in nested values."""
    shape = shape_at(model, key)
    if shape is None:
        return
    if shape.kind == "secret":
        yield key
    elif isinstance(data, dict) and len(key) < _MAX_DEPTH:
        for name, inner in cast("_Data", data).items():
            yield from _secrets(model, inner, (*key, name))


def _leaves(data: object, key: Key) -> Iterator[Key]:
    if isinstance(data, dict) and data:
        for name, inner in cast("_Data", data).items():
            yield from _leaves(inner, (*key, name))
    elif key:
        yield key


def _as_written(model: type[BaseModel], data: object, key: Key) -> Key:
    """A variable's place with the file's own spelling of free names: ADA may mean Ada there."""
    shape = shape_of(model)
    written: list[str | int] = []
    for name in key:
        if shape.kind == "map" and isinstance(data, dict):
            known = [each for each in cast("_Data", data) if each.lower() == str(name).lower()]
            name = known[0] if known else name  # noqa: PLW2901
        written.append(name)
        data = cast("_Data", data).get(str(name)) if isinstance(data, dict) else None
        shape = child(shape, name) or shape_of(str)
    return tuple(written)


def _put(data: _Data, key: Key, value: object) -> bool:
    """Set a value in nested tables; False where something that is no table is in the way."""
    for name in key[:-1]:
        inner = data.setdefault(str(name), {})
        if not isinstance(inner, dict):
            return False
        data = cast("_Data", inner)
    data[str(key[-1])] = value
    return True


def _dotted(key: Key) -> str:
    return ".".join(word(part) for part in key if isinstance(part, str))


def _places(error: ValidationError) -> list[Key]:
    """The places pydantic's errors are about."""
    found: list[Key] = []
    for each in error.errors(include_url=False, include_input=False):
        loc = tuple(part for part in each["loc"] if part != "[key]")
        found.append((*loc, *each.get("ctx", {}).get("path", ())))
    return found


def _culprit(data: _Data, key: Key) -> Key:
    """The smallest thing to take out for an error to go: an option, a list, or a whole table."""
    tables = next((n for n, part in enumerate(key) if isinstance(part, int)), len(key))
    while tables and lookup(data, key[:tables]) is None:
        tables -= 1
    return key[:tables]


def _remove(data: _Data, key: Key) -> None:
    """Take a value out of nested tables; the empty place is everything."""
    if not key:
        data.clear()
        return
    holder = lookup(data, key[:-1])
    if isinstance(holder, dict):
        cast("_Data", holder).pop(str(key[-1]), None)


def _overlap(one: Key, other: Key) -> bool:
    """Whether one of two places is the other, or inside it."""
    shared = min(len(one), len(other))
    return bool(shared) and one[:shared] == other[:shared]
