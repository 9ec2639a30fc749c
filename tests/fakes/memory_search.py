"""A searcher over the workspace's real files: it finds every line that shares a word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.memory.search import Findings, Hit

PRIVATE = ("MEMORY.md", "USER.md")


@dataclass
class WordSearcher:
    """Words of three letters and more; `synonyms` join words that share none."""

    workspace: Path
    synonyms: dict[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    gate: asyncio.Event | None = None
    leaky: bool = False  # answer from every space, whatever was asked
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def search(
        self, query: str, partitions: Sequence[str], limit: int | None, /, **_when: Any
    ) -> Findings:
        self.asked.append((query, tuple(partitions)))
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.delay)
        words = {self.synonyms.get(word, word) for word in _words(query)}
        hits = [
            hit
            for path in sorted(self.workspace.rglob("*.md"))
            for hit in self._hits(path, words, partitions)
        ]
        return Findings(tuple(hits[:limit]), "words")

    def _hits(self, path: Path, words: set[str], partitions: Sequence[str]) -> list[Hit]:
        space, name = _place(path.relative_to(self.workspace))
        partition = f"{space}#private" if name in PRIVATE else space
        if partition not in partitions and not self.leaky:
            return []
        lines = path.read_text().split("\n")
        return [
            Hit(space, name, number, number, 0.9, line, "memory")
            for number, line in enumerate(lines, 1)
            if words & set(_words(line))
        ]


def _place(path: Path) -> tuple[str, str]:
    parts = path.parts
    if parts[0] in {"people", "rooms"}:
        return "/".join(parts[:2]), "/".join(parts[2:])
    if parts[0] == "shared":
        return "shared", "/".join(parts[1:])
    return "main", "/".join(parts)


def _words(text: str) -> list[str]:
    return [word for raw in text.lower().split() if len(word := raw.strip("?？.。,!'’“”")) > 2]
