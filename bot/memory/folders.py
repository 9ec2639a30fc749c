"""The folder of the workspace: what a new one begins with. What a person wrote is not touched."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import structlog

from bot.memory.layout import BOOTSTRAP, MEMORY_FILE
from bot.storage import files

log = structlog.get_logger(__name__)


def source() -> Traversable:
    """Where the templates are: inside the installed package, or in the repository's `config`."""
    packaged = resources.files("bot.memory").joinpath("workspace")
    if packaged.is_dir():
        return packaged
    return Path(__file__).parents[2] / "config" / "workspace"


def templates() -> dict[str, str]:
    """What a new workspace begins with: texts by name, in the order of the names."""
    found = sorted(source().iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found if file.name in BOOTSTRAP}


def prepare(workspace: Path) -> int:
    """Copy the templates into a workspace that has none of these files yet; how many were copied.

    A workspace with any of them is somebody's own: what is missing there was left out on purpose.
    A `memory.md` without a MEMORY.md becomes that.
    """
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(workspace)
        if any((workspace / name).exists() for name in BOOTSTRAP):
            return 0
        copied = 0
        for name, text in templates().items():
            # "x": should another process be quicker, its file stays.
            with open(workspace / name, "x", encoding="utf-8", opener=files.opener) as file:
                file.write(text)
            copied += 1
    except OSError as error:
        log.warning("workspace.not_prepared", error=type(error).__name__)
        return 0
    log.info("workspace.prepared", files=copied)
    return copied


def _adopt(workspace: Path) -> None:
    """Let a `memory.md`, as an OpenClaw workspace may have it, be MEMORY.md; a link is left."""
    names = {path.name for path in workspace.iterdir() if path.is_file() and not path.is_symlink()}
    older = sorted(name for name in names if name.lower() == MEMORY_FILE.lower())
    if older and MEMORY_FILE not in names:
        (workspace / older[0]).rename(workspace / MEMORY_FILE)
        log.warning("workspace.older_memory", name=older[0])
