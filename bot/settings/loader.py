"""Putting the sources together: later ones override, every mistake is collected, then told."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, SecretStr, ValidationError

from bot.channel import ChannelConfig, ChannelPlugin, DirectChannelConfig
from bot.config import Config, NamedAgentConfig, StorageConfig
from bot.errors import ConfigError
from bot.settings import checks
from bot.settings.checks import (
    MAX_DEPTH,
    Mistakes,
    Problem,
    from_validation,
    nearest,
    table_name,
    unusable,
    word,
)
from bot.settings.fields import (
    ENV_DELIMITER,
    ENV_PREFIX,
    Key,
    Option,
    Shape,
    child,
    config_model,
    env_name,
    has_tools,
    installed_channels,
    lookup,
    model_kinds,
    options_of,
    plain_names,
    shape_at,
    tables,
)
from bot.settings.sources import (
    FILE_PREFIX,
    TomlFile,
    Variable,
    decode,
    find,
    from_dotenv,
    from_environ,
    read_text,
    secret_in,
    shown,
)

ENV_FILE = ".env"
DATABASE = "database"  # what the origin of a value begins with that nodes share
NOTHING: Mapping[Key, str] = {}
STORAGE_DIR: Key = ("storage", "dir")
DEFAULT_STORAGE = StorageConfig().dir
FOLDERS: frozenset[Key] = frozenset({STORAGE_DIR, ("memory", "workspace"), ("backup", "folder")})


def is_folder(key: Key) -> bool:
    """True for an option that names a folder, relative to the file it stands in."""
    return key in FOLDERS or (key[:2] == ("memory", "folders") and key[-1] == "path")


_FILE_SUFFIX = "_FILE"  # of a variable that names the file a secret is in
_MAX_ROUNDS = 20  # of taking out what is wrong and looking again
_MAX_REPORTED = 50


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was read and checked.

    `origins` names the source of every value that is not a default, by its place; `warnings` are
    lines for the person; `file` is the TOML file, if there was one. `kept` is the `.env` of the
    storage folder, there or not: where the page writes what is changed in it.
    """

    config: Config
    plugins: Mapping[str, ChannelPlugin]
    origins: Mapping[Key, str]
    warnings: tuple[str, ...] = ()
    file: Path | None = None
    kept: Path | None = None
    sources: Sources | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a configuration, read at the start and again when something changes."""

    config_file: Path | None
    environ: Mapping[str, str]
    cwd: Path
    plugins: Mapping[str, ChannelPlugin]

    def load(self, kept: str | None = None, shared: Mapping[Key, str] = NOTHING) -> Loaded:
        """Read and check the configuration; see `load`.

        Args:
            kept: what the `.env` of the storage folder says, instead of what it says now.
            shared: what the database says that nodes share; it counts more than files.

        Raises:
            ConfigError: its message has one line for every mistake.
        """
        model = config_model(self.plugins)
        names = plain_names(self.plugins, model)
        path = find(self.config_file, self.environ, self.cwd)
        file = TomlFile(path, self.cwd) if path is not None else None
        # Beside the configuration file, then in `cwd`, then in the storage folder; each once.
        folders = [self.cwd] if path is None else [path.parent, self.cwd]
        files = {each.resolve(): each / ENV_FILE for each in folders}.values()
        texts = {each: _read(each, self.cwd) for each in files}
        reading = self._taken(model, names, file, texts, shared)
        folder = self._storage(reading)
        if folder is not None:
            own = folder / ENV_FILE
            texts = {p: t for p, t in texts.items() if p.resolve() != own.resolve()}
            texts[own] = _read(own, self.cwd) if kept is None else kept
            reading = self._taken(model, names, file, texts, shared)
            if self._storage(reading) != folder:
                said = "the storage folder cannot be named in its own .env"
                reading.problems.append(Problem(STORAGE_DIR, said))
        config = reading.check()
        origins = {key: reading.origin(key) for key in reading.values}
        told = [
            *reading.warnings,
            *checks.warnings(config),
            *(checks.unknown_tools(config) if has_tools() else ()),
            *checks.missing(config, self.plugins, origins),
        ]
        warnings = tuple(map(reading.told, told))
        place = folder / ENV_FILE if folder is not None else None
        return Loaded(config, self.plugins, origins, warnings, path, place, self)

    def place(self, name: str) -> Key:
        """The option that a variable sets; empty for none."""
        model = config_model(self.plugins)
        return _Reading(model, plain_names(self.plugins, model), None).place(name)[0]

    def _taken(
        self,
        model: type[Config],
        names: Mapping[str, Key],
        file: TomlFile | None,
        texts: Mapping[Path, str],
        shared: Mapping[Key, str],
    ) -> _Reading:
        reading = _Reading(model, names, file, self.cwd)
        for path, text in texts.items():
            variables, bad_lines = from_dotenv(text, shown(path, self.cwd))
            reading.problems += bad_lines
            reading.take(variables, self.cwd / path.parent)
        reading.take(
            [
                Variable(name, value, f"{DATABASE}: {name}")
                for key, value in shared.items()
                for name in (env_name(key),)
            ],
            self.cwd,
        )
        reading.take(from_environ(self.environ), self.cwd)
        return reading

    def _storage(self, reading: _Reading) -> Path | None:
        """The storage folder; None where it is below a home folder that nobody knows."""
        named = reading.values.get(STORAGE_DIR, DEFAULT_STORAGE)
        folder = Path(named) if isinstance(named, str) and "\0" not in named else DEFAULT_STORAGE
        if folder.parts[:1] == ("~",):
            home = self.environ.get("HOME") or self.environ.get("USERPROFILE")
            return Path(home, *folder.parts[1:]) if home else None
        try:
            return self.cwd / folder.expanduser()
        except RuntimeError:  # told by the checks
            return None


def _read(path: Path, cwd: Path) -> str:
    name = shown(path, cwd)
    try:
        is_there = path.is_file()
    except OSError as error:  # such as a name that is too long, or a folder nobody may enter
        raise ConfigError(f"{name}: the file cannot be read: {error.strerror}") from error
    return read_text(path, name) if is_there else ""


def load(
    config_file: Path | None,
    environ: Mapping[str, str],
    cwd: Path,
    plugins: Mapping[str, ChannelPlugin] | None = None,
) -> Loaded:
    """Read and check the configuration: defaults < TOML file < `.env` files < environment.

    Args:
        config_file: the file to read; None looks for one in `cwd`, `cwd`/config and ~/.confidant.
        environ: the process's variables.
        cwd: where `.env` is looked for, and what relative names in `environ` begin at; those in a
            file begin at its own folder. The last `.env` is that of the storage folder.
        plugins: the channels there are; None finds the installed ones.

    Raises:
        ConfigError: its message has one line for every mistake: where, what, and what was meant.
    """
    found = installed_channels() if plugins is None else plugins
    return Sources(config_file, dict(environ), cwd, found).load()


class _Reading:
    """The values so far, where each came from, and what is wrong with them.

    A value is kept under its option's place, so a later source overrides just what it names.
    """

    def __init__(
        self,
        model: type[Config],
        plain: Mapping[str, Key],
        file: TomlFile | None,
        cwd: Path = Path(),
    ) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._model = model
        self._plain = plain
        self._file = file
        self.values: dict[Key, object] = {}
        self._set_by: dict[Key, str] = {}  # variables only; the rest is the file's
        if file is not None:
            self._put((), file.data, cwd / file.path.parent)

    # --- taking values ---------------------------------------------------------------------------

    def take(self, variables: Iterable[Variable], folder: Path) -> None:
        """Let variables override: plain names are weakest, then tables, then single options.

        Args:
            variables: those of one source; others than ours are passed over.
            folder: what relative names of folders and of secret files begin at.
        """
        names: dict[tuple[bool, Key], str] = {}
        for each in sorted(variables, key=_strength):
            key, is_file = self.place(each.name)
            spelled_out = _strength(each) > 0
            if not each.value.strip() or not (key or spelled_out):
                continue
            twin = names.setdefault((spelled_out, key), each.name)
            if not key:
                self.problems.append(Problem(key, _no_option(self._model, each.name), each.origin))
            elif twin != each.name:
                message = f"{word(twin)} sets the same option: keep one of them"
                self.problems.append(Problem(key, message, each.origin))
            elif is_file:
                self._put(key, f"{FILE_PREFIX}{each.value.strip()}", folder, each.origin)
            else:
                try:
                    value = decode(each.value, shape_at(self._model, key) or Shape("text"))
                except ValueError as error:
                    self.problems.append(Problem(key, str(error), each.origin))
                else:
                    self._put(key, value, folder, each.origin)

    def place(self, name: str) -> tuple[Key, bool]:
        """The place a variable sets (empty: none), and whether it names a file with the value."""
        stem = name[: -len(_FILE_SUFFIX)] if name.upper().endswith(_FILE_SUFFIX) else ""
        for each, is_file in ((name, False), (stem, True)):
            key = self._plain.get(each) or self._option(each)
            shape = shape_at(self._model, key)
            if key and (not is_file or (shape and shape.kind == "secret")):
                return key, is_file
        return (), False

    def _option(self, name: str) -> Key:
        """The place a variable's name spells; ADA is a free name that the file may write as Ada.

        A name whose case counts, and that the file does not have, is the one that is spelled.
        """
        shape: Shape | None = Shape("table", model=self._model)
        key: Key = ()
        if not name.upper().startswith(ENV_PREFIX):
            return key
        spelled = name[len(ENV_PREFIX) :].split(ENV_DELIMITER)
        parts = [part.lower() for part in spelled]
        if _is_for_rooms(self._model, tuple(parts)):
            return tuple(parts)
        for part, written in zip(parts, spelled, strict=True):
            if not part or shape is None or shape.kind == "list":
                return ()
            if shape.kind == "map":
                known = [str(each[len(key)]) for each in self._below(key) if each != key]
                new = written if shape.as_written else part
                part = next((each for each in known if each.lower() == part), new)  # noqa: PLW2901
            key, shape = (*key, part), child(shape, part)
        return key if shape is not None else ()

    def _below(self, key: Key) -> list[Key]:
        """The places of the values at a place or inside it."""
        return [each for each in self.values if each[: len(key)] == key]

    def _put(self, key: Key, value: object, folder: Path, where: str = "") -> None:
        """Set an option, or all options of a table one by one, so it adds to what is there."""
        shape = shape_at(self._model, key)
        if value == "" and shape is not None and shape.optional:
            return  # the way to write "not set" for an option whose default is nothing
        if _is_for_rooms(self._model, key):
            message = f'{table_name(key[:2])} has no rooms, so "{key[2]}" does nothing: remove it'
            self.warnings.append(Problem(key, message, where, named=True))
            return
        if isinstance(value, dict) and len(key) <= MAX_DEPTH:
            known = len(self.values)
            for name, inner in cast("dict[str, object]", value).items():
                self._put((*key, name), inner, folder, where)
            if not where and key and len(self.values) == known:
                self.values[key] = {}  # a table that stands there, with nothing in it
            return
        value = cast("object", value)
        wrong = list(unusable(value, key))
        for place, reason in wrong:
            self.problems.append(Problem(place, reason, where))
        if wrong:
            return
        if isinstance(value, str) and shape is not None and shape.kind == "secret":
            value = self._secret(key, value, folder, where)
        elif is_folder(key) and isinstance(value, str) and value and not value.startswith("~"):
            value = str(folder / value)  # so that it is the same one from wherever it is started
        self._set(key, value, where)

    def _set(self, key: Key, value: object, where: str) -> None:
        if where:
            for each in self._below(key):
                del self.values[each]
                self._set_by.pop(each, None)
            self._set_by[key] = where
        self.values[key] = value

    def _secret(self, key: Key, text: str, folder: Path, where: str) -> str:
        """A secret as it is written, or in the file it names."""
        if text.strip().startswith(FILE_PREFIX):
            try:
                return secret_in(text.strip().removeprefix(FILE_PREFIX), folder)
            except ValueError as error:
                self.problems.append(Problem(key, str(error), where))
        elif self._file is not None and not where:
            advice = f"a secret is better kept in {ENV_FILE} or in a file of its own"
            if self._file.readable_by_others():
                mend = f"chmod 600 {self._file.shown}"
                advice = f"other users of this machine can read this secret ({mend}); {advice}"
            self.warnings.append(Problem(key, advice, f"{self.origin(key)}: {_dotted(key)}"))
        return text

    # --- checking --------------------------------------------------------------------------------

    def check(self) -> Config:
        """The checked configuration.

        Raises:
            ConfigError: with a line for every mistake.
        """
        config = self._validated()
        if config is not None:
            found = checks.problems(config, model_kinds(), has_other_tools=has_tools())
            self.problems += [each for each in found if self._is_news(each)]
        if self.problems or config is None:
            raise Mistakes(self._report(), (each.key for each in self.problems))
        return config

    def _validated(self) -> Config | None:
        """Validate, leave out what is wrong, validate again: one mistake must not hide another."""
        wrong: set[Key] = set()
        for _ in range(_MAX_ROUNDS):
            data = _nested(self.values, wrong)
            try:
                # JSON's strict rules are TOML's: a list is a tuple, text a path, "1" no number.
                return self._model.model_validate_json(json.dumps(data), strict=True)
            except ValidationError as error:
                found = from_validation(self._model, data, error)
            self.problems += [each for each in found if self._is_news(each)]
            if len(self.problems) > _MAX_REPORTED:
                break
            wrong |= {_culprit(data, each.key) for each in found}
        return None

    def _is_news(self, problem: Problem) -> bool:
        """True if this is more than a consequence of a mistake that is known already."""
        return not any(_overlap(known.key, key) for known in self.problems for key in problem.needs)

    # --- telling ---------------------------------------------------------------------------------

    def told(self, problem: Problem) -> str:
        """One line: where, and what."""
        names_it = problem.named or problem.where or problem.key in self._set_by
        where = problem.where or self.origin(problem.key)
        parts = [where, "" if names_it else _dotted(problem.key), problem.message]
        return ": ".join(part for part in parts if part)

    def origin(self, key: Key) -> str:
        """The source of the value of a place: `NAME`, `.env:3: NAME`, `confidant.toml:12`."""
        return self._variable(key) or (self._file.origin(key) if self._file is not None else "")

    def _variable(self, key: Key) -> str:
        """The variable that set a place, or a table around it, or what is in a table of its own."""
        prefixes = (key[:length] for length in range(len(key), 0, -1))
        inside = (each for each in self._set_by if each[: len(key)] == key)
        places = (
            prefixes if self._file is not None and self._file.has(key) else [*prefixes, *inside]
        )
        return next((self._set_by[each] for each in places if each in self._set_by), "")

    def _report(self) -> str:
        """The file's own problems in the order of its lines, then the others as they were found."""

        def line(problem: Problem) -> float:
            if self._file is None or problem.where or self._variable(problem.key):
                return math.inf
            return self._file.line(problem.key) or math.inf

        lines = list(dict.fromkeys(map(self.told, sorted(self.problems, key=line))))
        if len(lines) > _MAX_REPORTED:
            lines[_MAX_REPORTED:] = [f"… and {len(lines) - _MAX_REPORTED} more"]
        return "\n".join(lines)


def _is_for_rooms(whole: type[Config], key: Key) -> bool:
    """True for an option for rooms, of a channel that has none."""
    name = "".join(map(str, key[2:3]))
    section = shape_at(whole, key[:2])
    model = section.model if section is not None else None
    if model is None or not issubclass(model, DirectChannelConfig):
        return False
    return name in ChannelConfig.model_fields.keys() - model.model_fields.keys()


def _no_option(model: type[Config], name: str) -> str:
    """The sentence for a variable that sets nothing."""
    names = [env_name(option.key) for _, _, each in tables(model) for option in each]
    meant = nearest(name, names)
    return "no option has this name" + (f"; did you mean {meant}?" if meant else "")


def _nested(values: Mapping[Key, object], without: Collection[Key]) -> dict[str, object]:
    """The values in their tables, without those at some places."""
    whole: dict[str, object] = {}
    for key in sorted(values, key=len):
        if any(key[: len(each)] == each for each in without):
            continue
        table = whole
        for name in key[:-1]:
            inner = table.setdefault(str(name), {})
            # Where a value stands instead of a table, that is what is told.
            table = cast("dict[str, object]", inner) if isinstance(inner, dict) else {}
        table[str(key[-1])] = values[key]
    return whole


def _strength(variable: Variable) -> int:
    """Plain names are weakest (and others' variables count as such), then tables, then options."""
    ours = variable.name.upper().startswith(ENV_PREFIX)
    return 1 + variable.name.count(ENV_DELIMITER) if ours else 0


def _dotted(key: Key) -> str:
    return ".".join(word(part) for part in key if isinstance(part, str))


def _culprit(data: object, key: Key) -> Key:
    """The smallest thing to leave out for an error to go: an option, or a whole table."""
    length = next((n for n, part in enumerate(key) if isinstance(part, int)), len(key))
    while length and lookup(data, key[:length]) is None:
        length -= 1
    return key[:length]


def _overlap(one: Key, other: Key) -> bool:
    """True if one of two places is the other, or inside it."""
    shared = min(len(one), len(other))
    return bool(shared) and one[:shared] == other[:shared]


# The configuration in effect and its schema, as `confidant config` prints them.

MASK = "•••"


def json_schema(model: type[Config]) -> dict[str, Any]:
    """The configuration file's JSON schema, for editors that complete and check TOML by one."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(),
        "title": "Confidant's configuration",
    }


def show(loaded: Loaded) -> str:
    """The configuration in effect as TOML: secrets masked, each value with where it comes from."""
    blocks: list[str] = []
    for key, table, options in tables_in_effect(loaded.config):
        lines = [_line(loaded, option, getattr(table, option.key[-1])) for option in options]
        if lines:
            blocks.append("\n".join([table_name(key), *lines, ""]))
    return "\n".join(blocks)


def tables_in_effect(config: Config) -> Iterator[tuple[tuple[str, ...], BaseModel, list[Option]]]:
    """Every table in effect with its options, those under names of somebody's own too."""
    for key, _, options in tables(type(config)):
        table: BaseModel = attrgetter(".".join(key))(config)
        yield key, table, options
        for name, extra in (table.model_extra or {}).items():
            if isinstance(extra, BaseModel):
                own = options_of(type(extra), (*key, name))
                if isinstance(extra, NamedAgentConfig):  # the rest is as in `[agent]`
                    own = [each for each in own if each.key[-1] in extra.model_fields_set]
                yield (*key, name), extra, own


def _line(loaded: Loaded, option: Option, value: object) -> str:
    name = option.key[-1]
    if value is None:
        return f"# {name} is not set"
    origins = loaded.origins.items()
    found = [source for place, source in origins if place[: len(option.key)] == option.key]
    return f"{name} = {toml_value(value)}  # {', '.join(dict.fromkeys(found)) or 'default'}"


def toml_value(value: object) -> str:
    """A value as TOML on one line; tables are inline, without what is at its default."""
    if isinstance(value, SecretStr):
        return toml_value(MASK)
    if isinstance(value, BaseModel):
        names = [name for name in type(value).model_fields if _differs(value, name)]
        value = {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        inner = ", ".join(f"{toml_key(name)} = {toml_value(each)}" for name, each in pairs)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, cast('list[object]', value)))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _differs(table: BaseModel, name: str) -> bool:
    field = type(table).model_fields[name]
    return field.is_required() or getattr(table, name) != field.get_default(
        call_default_factory=True
    )


def toml_key(name: str) -> str:
    """A name as a TOML key, quoted where it has to be."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _quoted(name)
