"""A `.env` file changed line by line: what is set takes a line's place, all others stay.

Nothing can be written that would become a line of its own: a value is one line of plain text, and
what was made is read back before anything trusts it.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from dotenv.parser import Binding, parse_stream

from bot.errors import ConfigError

LONGEST_VALUE = 4_096  # characters; keys, addresses and lists of names are far shorter
_BARE = re.compile(r"[A-Za-z0-9_./:@,+*-]+")  # what needs no quotes, here and in a shell
_MODE = 0o600


def values(text: str) -> dict[str, str]:
    """What a `.env` file sets, by name; the last line of a name counts."""
    return {b.key: b.value for b in _bindings(text) if b.key is not None and b.value is not None}


def line_of(name: str, value: str) -> str:
    """A line that sets a name.

    Raises:
        ValueError: the value is no single line of text that can be seen.
    """
    if len(value) > LONGEST_VALUE:
        raise ValueError(f"this is too long: {LONGEST_VALUE} characters are the most")
    if not value.isprintable():
        raise ValueError("this must be one line of text, without control characters")
    if _BARE.fullmatch(value):
        return f"{name}={value}\n"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{escaped}'\n"


def edited(
    text: str,
    changes: Mapping[str, str | None],
    same: Callable[[str], object] = lambda name: name,
) -> str:
    """The text with these names set, or without their lines where the value is None.

    Args:
        text: the file as it is.
        changes: new values by name.
        same: what a name stands for; lines of other names that stand for the same go as well.

    Raises:
        ValueError: a value cannot be written, or the file has lines that nobody can read.
    """
    lines = {name: line_of(name, value) for name, value in changes.items() if value is not None}
    by_meaning = {same(name): name for name in changes}
    kept: list[str] = []
    wanted = {name: value for name, value in changes.items() if value is not None}
    for binding in _bindings(text):
        raw, key = binding.original.string, binding.key
        name = None if key is None or key in changes else by_meaning.get(same(key) or key)
        name = key if key in changes else name
        if name is not None:
            kept += raw[: len(raw) - len(raw.lstrip())], lines.pop(name, "")
            continue
        kept.append(raw)
        if key is not None and binding.value is not None:
            wanted[key] = binding.value
    whole = "".join(kept)
    if whole and not whole.endswith("\n") and lines:
        whole += "\n"
    whole += "".join(lines.values())
    if values(whole) != wanted or any(b.error for b in _bindings(whole)):
        raise ValueError("the file has lines that are not NAME=value: mend them first")
    return whole


def write(path: Path, text: str) -> None:
    """Put a private file in the place of another one, whole or not at all.

    Raises:
        ConfigError: it cannot be written; the message says why, and never what.
    """
    path = path.resolve()  # a link stays a link
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, _MODE), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{path} cannot be written: {reason}") from error


def _bindings(text: str) -> list[Binding]:
    return list(parse_stream(io.StringIO(text)))
