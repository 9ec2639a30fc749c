"""Taking notes out into a folder, and putting back what was edited there, for whoever runs the bot.

These are the owner's notes, the bot's own files, and what is shared with everyone: what one may
edit by hand where notes are files. A copy remembers what it was made of, so that nothing which
changed meanwhile is written over.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from bot.errors import ConfidantError, NotVisible, ToolError
from bot.identity.view import AGENTS, MAIN_SPACE, SHARED_SPACE, MemoryView, agents_space
from bot.invocation import confidant
from bot.memory import layout
from bot.memory.note_store import MAX_WRITE, NoteStore, NotesUnreachable, reason
from bot.storage import files

MADE_OF = ".confidant-notes.json"  # in a copy: the digest of each note as it was taken out
OWN_FILES = tuple(name for name in layout.BOOTSTRAP if name != layout.ROOM_FILE)

_OWNER = MemoryView(MAIN_SPACE, (), private=True)


class ExchangeError(ConfidantError):
    """The notes could not be exchanged with a folder."""


class ChangedMeanwhile(ExchangeError):
    """The note was changed since it was read; nothing was written."""


@dataclass(frozen=True, slots=True)
class Change:
    """A note to be written: what it was when it was taken out, and what it shall be."""

    path: str
    before: str
    after: str

    def diff(self) -> str:
        """The change as people read it."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.path}",
            f"b/{self.path}",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of a folder, and what of it cannot be written, with the reason."""

    changes: tuple[Change, ...]
    refused: tuple[tuple[str, str], ...]


def target_of(path: str, view: MemoryView = _OWNER) -> str:
    """The note that a name means for whoever runs the bot, or in another view.

    It is its path below the workspace.

    Raises:
        NotVisible: none.
    """
    first, _, rest = path.partition("/")
    if view == _OWNER and first == AGENTS:
        return _agents_target(*rest.partition("/")[::2])
    parts = tuple(path.split("/"))
    if view == _OWNER and path in OWN_FILES:
        return path
    target = layout.resolve(view, path, writing=parts[0] != SHARED_SPACE)
    if parts[0] == SHARED_SPACE and len(parts) < 2:
        raise NotVisible
    return target


def _agents_target(agent: str, path: str) -> str:
    """The file of an agent that a name means: its own, or the owner's in its memory.

    Raises:
        NotVisible: none.
    """
    if path in OWN_FILES and layout.is_plain(agent):
        return f"{AGENTS}/{agent}/{path}"
    if path.partition("/")[0] == SHARED_SPACE:
        raise NotVisible
    own = MemoryView(agents_space(agent, MAIN_SPACE), (), private=True)
    return layout.resolve(own, path, writing=True)


def text_of(store: NoteStore, path: str, view: MemoryView = _OWNER) -> str | None:
    """The text of a note; None when there is none by that name.

    Raises:
        NotVisible: there can be none.
        ExchangeError: it cannot be read, or is none that could be written back.
    """
    target = target_of(path, view)
    try:
        data, _ = store.read(target, MAX_WRITE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ExchangeError(f"{path} cannot be read: {reason(error)}.") from error
    return checked(path, data)


def write(store: NoteStore, change: Change, view: MemoryView = _OWNER) -> None:
    """Write a change, if the note is still what the change was made of.

    Raises:
        ChangedMeanwhile: it is not.
        ExchangeError: it cannot be written.
    """
    target, after = target_of(change.path, view), change.after.encode()

    def put(data: bytes) -> bytes:
        if data not in {change.before.encode(), after}:
            raise ChangedMeanwhile(f"{change.path} was changed meanwhile.")
        return after

    try:
        store.rewrite(target, put)
    except OSError as error:
        raise ExchangeError(f"{change.path} was not written: {reason(error)}.") from error
    except ToolError as error:
        raise ExchangeError(f"{change.path} was not written: {error}.") from error


def pull(store: NoteStore, folder: Path) -> int:
    """Copy the notes into a folder that is empty, or not there yet; how many there are.

    Raises:
        ExchangeError: it is not empty or cannot be used, or a note cannot be read.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ExchangeError(f"{folder} is not empty. Name a new folder: nothing was written.")
        taken: dict[str, str] = {}
        for path in names(store):
            if (text := text_of(store, path)) is None:  # it went away just now
                continue
            file = folder / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(file, "x", encoding="utf-8", newline="", opener=files.opener) as copy:
                copy.write(text)
            taken[path] = _digest(text)
        _remember(folder, taken)
    except NotesUnreachable as error:
        raise ExchangeError(f"The notes cannot be read: {reason(error)}.") from error
    except OSError as error:
        raise ExchangeError(f"{folder} cannot be used: {reason(error)}.") from error
    return len(taken)


def plan(store: NoteStore, folder: Path) -> Plan:
    """The changes that pushing a folder would make.

    Raises:
        ExchangeError: it is no copy that `pull` made, or a note cannot be read.
    """
    taken = _taken(folder)
    changes: list[Change] = []
    refused: list[tuple[str, str]] = []
    there: set[str] = set()
    for path, file in _files(folder):
        there.add(path)
        try:
            after = _edited(path, file)
            before = text_of(store, path)
            made_of = taken.get(path, "")
            if _digest(after) == made_of or after == (before or ""):
                continue
            if before is not None and _digest(before) != made_of:
                raise ChangedMeanwhile("it was changed meanwhile; pull it again, elsewhere")
            if before is None and made_of:
                raise ChangedMeanwhile("it was removed meanwhile")
            changes.append(Change(path, before or "", after))
        except NotVisible:
            refused.append((path, "no note can have this name"))
        except ExchangeError as error:
            refused.append((path, str(error)))
    gone = [(path, "it is not in the folder; push removes no note") for path in {*taken} - there]
    return Plan(tuple(changes), tuple(sorted((*refused, *gone))))


def push(store: NoteStore, folder: Path, change: Change) -> None:
    """Write one change of a folder, which remembers it.

    Raises:
        ExchangeError: it was not written; the folder stays as it is.
    """
    write(store, change)
    _remember(folder, {**_taken(folder), change.path: _digest(change.after)})


def names(store: NoteStore) -> Iterator[str]:
    """Every note that whoever runs the bot may take out.

    Raises:
        NotesUnreachable: the database does not answer.
    """
    depth = layout.MAX_DEPTH - 1
    within: tuple[tuple[tuple[str, ...], Callable[[str], bool], int], ...] = (
        ((), OWN_FILES.__contains__, 1),
        ((layout.NOTES_FOLDER,), layout.is_note, depth),
        ((SHARED_SPACE,), layout.is_note, depth),
    )
    for folders, wanted, most in (*within, ((AGENTS,), layout.is_note, depth)):
        try:
            found = [seen.path for seen in store.walk(folders, wanted, most)]
        except FileNotFoundError:  # a folder that nothing was put into yet
            continue
        for path in found:
            with suppress(NotVisible):  # of agents' memory only what is the owner's
                target_of(path)
                yield path


def checked(path: str, data: bytes) -> str:
    """Bytes as the text of a note.

    Raises:
        ExchangeError: they are none.
    """
    if len(data) > MAX_WRITE:
        raise ExchangeError(f"{path} is too long: a note has at most {MAX_WRITE // 1000} kB.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ExchangeError(f"{path} is not UTF-8, so it is no Markdown.") from error
    if "\0" in text:
        raise ExchangeError(f"{path} is binary, so it is no Markdown.")
    return text


def _edited(path: str, file: Path) -> str:
    if file.is_symlink() or not file.is_file():
        raise ExchangeError("it is no plain file")
    try:
        with file.open("rb") as opened:
            return checked(path, opened.read(MAX_WRITE + 1))
    except OSError as error:
        raise ExchangeError(f"it cannot be read: {reason(error)}") from error


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every visible file of a copy by the name of its note; links are not followed."""
    for parent, inner, found in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(found):
            if not name.startswith("."):
                file = Path(parent) / name
                yield file.relative_to(folder).as_posix(), file


def _taken(folder: Path) -> Mapping[str, str]:
    try:
        taken: object = orjson.loads((folder / MADE_OF).read_bytes())
    except (OSError, ValueError) as error:
        raise ExchangeError(
            f"{folder} is no copy of the notes. Make one with `{confidant('memory pull')}`."
        ) from error
    if not isinstance(taken, dict):
        raise ExchangeError(f"{folder / MADE_OF} is damaged. Pull the notes again, elsewhere.")
    known = cast("dict[object, object]", taken)
    return {str(path): str(digest) for path, digest in known.items()}


def _remember(folder: Path, taken: Mapping[str, str]) -> None:
    beside = folder / f"{MADE_OF}.tmp"
    beside.write_bytes(orjson.dumps(dict(taken), option=orjson.OPT_INDENT_2))
    beside.replace(folder / MADE_OF)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
