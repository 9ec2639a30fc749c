"""How far something is that takes long: a bar on a terminal, now and then a line elsewhere.

    with progress("Restoring", total=size, unit="bytes", quiet=quiet) as bar:
        work(advance=bar.advance)

All of it goes to standard error, so that what a command prints can be piped on. Nothing is shown
before the first step, so a question may be asked until then, and nothing is left of a bar at the
end: the command says itself what came of it. Rich has bars too, but takes a thread of its own and a
tenth of a second to load, and has nothing for where there is no terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TextIO

import typer

PAINT_SECONDS = 0.1  # between two looks of a bar
LINE_SECONDS = 10.0  # between two lines where there is no terminal
LEFT_AFTER = 2.0  # seconds of work after which is said how long the rest may take
BYTES = "bytes"

_WIDEST = 30  # columns of a bar alone
_NARROWEST = 5
_ERASE = "\r\x1b[K"


class Progress:
    """How far one thing is; any thread may say so."""

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        stream: TextIO | None,
        clock: Callable[[], float],
    ) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._stream = stream
        self._clock = clock
        self._done = 0
        self._began = self._shown = clock()
        self._is_bar = stream is not None and has_terminal(stream)
        self._painted = False
        self._lock = threading.Lock()

    def advance(self, more: int = 1) -> None:
        """So much more is done."""
        with self._lock:
            self._done += more
            self._show()

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done by now, of so much where that is known now."""
        with self._lock:
            self._done = done
            self._total = self._total if total is None else total
            self._show()

    def say(self, line: str) -> None:
        """Print a line to standard output above the bar, quiet or not."""
        with self._lock:
            self._erase()
            typer.echo(line)

    def end(self) -> None:
        """Take the bar away; nothing is shown any more."""
        with self._lock:
            self._erase()
            self._stream = None

    def _show(self) -> None:
        now = self._clock()
        if self._stream is None:
            return
        if self._is_bar:
            if not self._painted or now - self._shown >= PAINT_SECONDS:
                self._shown = now
                self._write(_ERASE + self._bar(now, _columns(self._stream)))
                self._painted = True
        elif now - self._shown >= LINE_SECONDS:
            self._shown = now
            self._write(f"{self._what}: {', '.join(self._facts(now))}\n")

    def _bar(self, now: float, columns: int) -> str:
        facts = "  ".join(self._facts(now))
        room = min(_WIDEST, columns - len(self._what) - len(facts) - 5)
        if room < _NARROWEST or not self._total:
            return f"{self._what}  {facts}"[: columns - 1]
        full = room * min(self._done, self._total) // self._total
        done, rest = _signs(self._stream)
        return f"{self._what}  {done * full}{rest * (room - full)}  {facts}"

    def _facts(self, now: float) -> list[str]:
        """How far it is, in words."""
        if not self._total:
            return [_amount(self._done, self._unit)]
        done = min(self._done, self._total)
        found = [f"{100 * done // self._total} %"]
        far = _amount(done, BYTES if self._unit == BYTES else "")
        found.append(f"{far} of {_amount(self._total, self._unit)}")
        taken = now - self._began
        if done and taken >= LEFT_AFTER:
            found.append(f"{_time(taken * (self._total - done) / done)} left")
        return found

    def _erase(self) -> None:
        if self._painted:
            self._write(_ERASE)
            self._painted = False

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):  # whoever looked is gone; the work is not
                self._stream.write(text)
                self._stream.flush()


@contextmanager
def progress(
    what: str,
    *,
    total: int | None = None,
    unit: str = "",
    quiet: bool = False,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Progress]:
    """Show how far something is while it is done, on the loop and in threads alike.

    Args:
        what: what is done, such as "Restoring".
        total: how much there is to do, None where that is not known (`Progress.at` may say it).
        unit: of what; `BYTES` are shown as kB and MB.
        quiet: show nothing: with --quiet, or where machines read.
        stream: standard error when None.
        clock: seconds.
    """
    shown = Progress(what, total, unit, None if quiet else stream or sys.stderr, clock)
    try:
        yield shown
    finally:
        shown.end()


def has_terminal(stream: TextIO) -> bool:
    """True where lines can be painted over."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") != "dumb"
    except ValueError:  # it is closed
        return False


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _signs(stream: TextIO | None) -> tuple[str, str]:
    """What is done and what is not, as the terminal can show it."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return ("█", "░") if encoding == "utf8" else ("#", ".")


def _amount(count: int, unit: str) -> str:
    if unit != BYTES:
        return f"{count:,} {unit}".rstrip()
    for size, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count} bytes"


def _time(seconds: float) -> str:
    """A time, roughly."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"
