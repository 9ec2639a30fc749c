"""Tables as monospaced text: pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

MAX_COLUMN = 40  # cells wider than this do not widen their column


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned lines with a rule under the first.

    Columns are padded to their widest cell, counting East Asian wide characters as two.
    """
    widths = [0] * max((len(row) for row in rows), default=0)
    for row in rows:
        for index, cell in enumerate(row):
            widths[index] = max(widths[index], min(width(cell), MAX_COLUMN))
    lines = [_line(row, widths) for row in rows]
    if len(lines) > 1:
        lines.insert(1, "-+-".join("-" * column for column in widths))
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell + " " * (column - width(cell)) for cell, column in zip(row, widths, strict=False))
    return " | ".join(cells).rstrip()


def width(text: str) -> int:
    """How many columns a text takes in a monospaced font."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
