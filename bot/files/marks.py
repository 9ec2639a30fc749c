"""Where the pages, slides or sheets of a document begin, for its readers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A page, slide or sheet begins: its number, of how many, and what it is called."""

    unit: str
    number: int
    of: int
    name: str = ""

    def __str__(self) -> str:
        """A line of its own, as the model reads it."""
        name = " ".join(self.name.split()).replace("[", "(").replace("]", ")")
        return f"[{self.unit} {self.number} of {self.of}{f': {name}' if name else ''}]\n"
