"""Progress of long work: a bar on a terminal, now and then a line elsewhere.

    with progress("Restoring", total=size, unit="bytes", quiet=quiet) as bar:
        work(advance=bar.advance)

It goes to standard error, so that the output of a command can be piped. Nothing is shown before the
first step, so a question may be asked until then, and the bar disappears at the end: the command
reports the result itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TextIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

PAINT_SECONDS = 0.1  # between two updates of a bar
LINE_SECONDS = 10.0  # between two lines where there is no terminal
BYTES = "bytes"


class Progress:
    """Progress of one thing; any thread may report it."""

    _shown: Progress | None = None  # a terminal has room for one

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        console: _Console,
        clock: Callable[[], float],
    ) -> None:
        self._what = what
        amounts = [DownloadColumn()] if unit == BYTES else [MofNCompleteColumn(), TextColumn(unit)]
        self._facts = (TaskProgressColumn(), *amounts, TimeRemainingColumn(compact=True))
        self._bars = Bars(
            *(TextColumn("{task.description}"), BarColumn(30), *self._facts),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=clock,
        )
        self._task = self._bars.add_task(what, total=total)
        self._console = console
        self._clock = clock
        self._at = clock()  # when it was shown last
        self._lock = threading.RLock()

    def advance(self, more: int = 1) -> None:
        """Add to what is done."""
        self._bars.advance(self._task, more)
        self._show()

    def at(self, done: int, total: int | None = None) -> None:
        """Set what is done, and the total if it is known now."""
        self._bars.update(self._task, completed=done, total=total)
        self._show()

    def say(self, line: str) -> None:
        """Print a line to standard output above the bar, quiet or not."""
        self.end()
        typer.echo(line)

    def end(self) -> None:
        """Hide the bar until the next step."""
        with self._lock, suppress(OSError, ValueError):  # whoever looked is gone; the work is not
            if self._bars.live.is_started:
                self._bars.stop()

    def _show(self) -> None:
        now = self._clock()
        with self._lock, suppress(OSError, ValueError):
            if self._console.paints:
                is_new = not self._bars.live.is_started
                if is_new:
                    if Progress._shown is not None:
                        Progress._shown.end()
                    Progress._shown = self
                    self._bars.start()
                if is_new or now - self._at >= PAINT_SECONDS:
                    self._at = now
                    self._bars.refresh()
            elif now - self._at >= LINE_SECONDS and not self._console.quiet:
                self._at = now
                (task,) = self._bars.tasks
                facts = " ".join(str(each.render(task)).strip() for each in self._facts)
                self._console.file.write(f"{self._what}: {facts}\n")
                self._console.file.flush()


class _Console(Console):
    """A console that survives a broken pipe."""

    @property
    def paints(self) -> bool:
        """True if lines can be overwritten."""
        return self.is_terminal and not self.is_dumb_terminal and not self.quiet

    def on_broken_pipe(self) -> None:
        """Continue: nobody is watching any more."""


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
    """Show the progress of work, on the event loop or in threads.

    Args:
        what: the work, such as "Restoring".
        total: the amount of work; None if it is not known yet (`Progress.at` may set it).
        unit: of the amount; `BYTES` are shown as kB and MB.
        quiet: show nothing.
        stream: standard error when None.
        clock: seconds.
    """
    console = _Console(file=stream, stderr=True, quiet=quiet)
    shown = Progress(what, total, unit, console, clock)
    try:
        yield shown
    finally:
        shown.end()
