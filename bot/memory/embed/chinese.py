"""Chinese characters in a text, and from when on another embedder serves it better."""

from __future__ import annotations

import re
from typing import Final

HAN: Final = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
MUCH: Final = 0.2  # of a text's characters; Chinese takes fewer than English

_RUNS = re.compile(HAN)


def han_runs(text: str) -> list[str]:
    """The runs of Chinese characters in a text."""
    return _RUNS.findall(text)


def share(text: str) -> float:
    """How much of a text, from 0 to 1, is Chinese characters."""
    return sum(map(len, han_runs(text))) / max(1, len(text))
