"""The files a new workspace begins with. What a person has written is never touched."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import structlog

from bot.memory import moving
from bot.memory.layout import BOOTSTRAP
from bot.storage import private

log = structlog.get_logger(__name__)


def source() -> Traversable:
    """Where the templates are: inside the installed package, or in the repository's `config`."""
    packaged = resources.files("bot.memory").joinpath("workspace")
    if packaged.is_dir():
        return packaged
    return Path(__file__).parents[2] / "config" / "workspace"


def prepare(workspace: Path) -> int:
    """Copy the templates into a workspace that has none of these files yet; how many were copied.

    A workspace with any of them is somebody's own: what is missing there was left out on purpose.
    The `memory.md` of an older one becomes MEMORY.md.
    """
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        if done := moving.adopt(workspace):
            log.warning("workspace.older_memory", done=done)
        if any((workspace / name).exists() for name in BOOTSTRAP):
            return 0
        copied = 0
        for template in sorted(source().iterdir(), key=lambda file: file.name):
            if template.name not in BOOTSTRAP:
                continue
            # "x": should another process be quicker, its file stays.
            path = workspace / template.name
            with open(path, "x", encoding="utf-8", opener=private.opener) as file:
                file.write(template.read_text("utf-8"))
            copied += 1
    except OSError as error:
        log.warning("workspace.not_prepared", error=type(error).__name__)
        return 0
    log.info("workspace.prepared", files=copied)
    return copied
