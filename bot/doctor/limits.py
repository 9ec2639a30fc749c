"""How many files and connections the program may have open at a time."""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bot.channel import Finding
from bot.doctor.setup import Setup
from bot.storage import files

TOO_FEW: Final = 256  # database, notes, channels and a few browsers
FEW: Final = 1_024

_SOFT = re.compile(r"^Max open files\s+(\d+|unlimited)", re.MULTILINE)


async def check(setup: Setup) -> Sequence[Finding]:
    """The limit of the program that runs, or of whoever asks and would start it."""
    process = 0
    if not setup.is_shared:
        try:
            held = files.holder(setup.config.storage.folder)
        except OSError:  # said of the storage
            held = files.Holder(is_running=False)
        process = held.process if held.is_running else 0
    limit = _of_process(process) if process else None
    if limit is None:
        limit = _or_endless(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    level = "error" if limit < TOO_FEW else "warning" if limit < FEW else "ok"
    return [Finding.of(level, f"limits.{'enough' if level == 'ok' else 'few'}", count=limit)]


def _of_process(process: int) -> int | None:
    """The limit of a running process; None where the system does not say."""
    try:
        found = _SOFT.search(Path(f"/proc/{process}/limits").read_text("ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    if found is None:
        return None
    return _or_endless(resource.RLIM_INFINITY if found[1] == "unlimited" else int(found[1]))


def _or_endless(limit: int) -> int:
    return 1 << 31 if limit == resource.RLIM_INFINITY else limit
