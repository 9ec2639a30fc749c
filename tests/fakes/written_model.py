"""The model that docs/writing-a-model.md shows, installed as a package of its own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "writing-a-model.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def install(folder: Path, code: str = "") -> None:
    """Put it into a folder, as an installer would; `code` takes the place of its own."""
    shown = dict(_BLOCK.findall(DOCUMENT.read_text("utf-8")))
    (folder / "confidant_echo.py").write_text(code or shown["python"], "utf-8")
    meta = folder / "confidant_echo-1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: confidant-echo\nVersion: 1\n")
    groups = tomllib.loads(shown["toml"])["project"]["entry-points"]
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (meta / "entry_points.txt").write_text("\n".join(lines))
