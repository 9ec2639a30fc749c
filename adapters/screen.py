"""Output on the terminal: Markdown that grows live on a screen, plain text in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, Protocol, TextIO

from bot.channel.kit.text import seen

PROMPT = "› "
DRAFTS_PER_SECOND = 10
WAITING = "…"
HINTS = {
    "en": "/help shows what it understands, /exit or Ctrl-D ends.",
    "zh": "/help 列出它能听懂的命令，/exit 或 Ctrl-D 结束。",
}

# Everything a text could command a terminal with; newline and tab stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def below(buttons: Iterable[tuple[str, str]], files: Iterable[tuple[str, int]]) -> str:
    """The files and buttons of a text, as a terminal can show them, or empty.

    Args:
        buttons: each a label and the command to type instead.
        files: each a name and its bytes.
    """
    choices = " · ".join(f"{label}: {command}" for label, command in buttons)
    names = [f"📎 {name} ({size_text(size)})" for name, size in files]
    return "".join(f"\n\n{line}" for line in (*names, f"▸ {choices}" if choices else "") if line)


def hint(locale: str) -> str:
    """A hint how to use the terminal, in the person's language."""
    return HINTS["zh" if locale.lower().startswith("zh") else "en"]


def size_text(size: int) -> str:
    """A number of bytes, short."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


class Display(Protocol):
    """The place where replies are shown."""

    def show(self, text: str, *, at_prompt: bool) -> None:
        """Print a whole text, below which the prompt stands again if it stood there before."""
        ...

    def draft(self, text: str) -> None:
        """Show a text that still grows, in place of the one before; empty takes it away."""
        ...

    def hint(self, text: str) -> None:
        """Show something that is no part of the conversation."""
        ...


def display_for(output: TextIO) -> Display:
    """The display that fits the output: a screen, or plain text."""
    return Screen(output) if output.isatty() else Plain(output)


def harmless(text: str) -> str:
    """A text that cannot move the cursor, recolour or reprogram the terminal."""
    return _CONTROL.sub("", text)


class Plain:
    """Whole texts only, as they are."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def show(self, text: str, *, at_prompt: bool) -> None:
        """Print a text."""
        self._output.write(harmless(text).rstrip("\n") + "\n")
        self._output.flush()

    def draft(self, text: str) -> None:
        """A pipe has no place for what may still change."""

    def hint(self, text: str) -> None:
        """A pipe holds the conversation and nothing else."""


class Screen:
    """Rendered Markdown, and drafts that grow in place."""

    def __init__(self, output: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs rich

        self._output = output
        self._rich = Console(file=output)
        self._live: Any = None

    def show(self, text: str, *, at_prompt: bool) -> None:
        """Print a text as Markdown."""
        from rich.markdown import Markdown  # noqa: PLC0415

        self.draft("")
        if at_prompt:
            self._output.write("\r\x1b[K")
        self._rich.print(Markdown(harmless(seen(text))))
        self._rich.print()
        if at_prompt:
            self._output.write(PROMPT + _typed_so_far())
        self._output.flush()

    def draft(self, text: str) -> None:
        """Show a growing text."""
        from rich.live import Live  # noqa: PLC0415
        from rich.markdown import Markdown  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        if not text:
            live, self._live = self._live, None
            if live is not None:
                live.stop()
            return
        if self._live is None:
            self._live = Live(
                console=self._rich,
                refresh_per_second=DRAFTS_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        whole = Text(text, style="dim") if text == WAITING else Markdown(harmless(seen(text)))
        self._live.update(_Tail(whole))

    def hint(self, text: str) -> None:
        """Print it dimly."""
        from rich.text import Text  # noqa: PLC0415

        self._rich.print(Text(text, style="dim"))


class _Tail:
    """The last lines of something, as many as the screen has: what is being written stays seen."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.segment import Segment  # noqa: PLC0415

        lines = console.render_lines(self._whole, options, pad=False)
        for line in lines[-max(1, console.height - 2) :]:
            yield from line
            yield Segment.line()


def _typed_so_far() -> str:
    readline: Any = sys.modules.get("readline")
    return "" if readline is None else str(readline.get_line_buffer())
