"""`MemoryView`: the capability every reader of memory holds, built by one pure function."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from bot.config import ScopeConfig
from bot.scope import rules

MAIN_SPACE = "main"
_UNSAFE = re.compile(r"[^a-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class MemoryView:
    """What one session may read and where it writes.

    `space` is the folder of Markdown it owns ("main", "people/<id>", "rooms/<channel>-<id>"), or
    empty when the session may see none. `keys` are the session keys whose conversations it may
    search. `private` is true in direct chats only: it is what lets MEMORY.md and USER.md load.
    """

    space: str
    keys: tuple[str, ...]
    private: bool


def view_for(
    config: ScopeConfig, subject: rules.Subject, *, person: str, is_owner: bool
) -> MemoryView:
    """The view of a session. Pure: the same session and configuration give the same view.

    `person` is the canonical identity ("ada", or "telegram:42" when nothing links it).
    """
    direct = subject.chat_type == "direct"
    if not rules.allows(config, subject):
        return MemoryView(space="", keys=(), private=False)
    if not direct:
        room = f"rooms/{folder_name(f'{subject.channel}-{subject.chat}')}"
        return MemoryView(space=room, keys=(subject.key,), private=False)
    space = MAIN_SPACE if is_owner else f"people/{folder_name(person)}"
    return MemoryView(space=space, keys=(subject.key,), private=True)


def folder_name(identity: str) -> str:
    """A folder name for an id: two different ids never share one.

    Ids that are already safe (lower-case letters, digits, `_`, `-`, `.` inside) stay readable;
    others keep a readable part and get a digest of the exact id.
    """
    lowered = identity.lower()
    safe = _UNSAFE.sub("-", lowered).strip("-.")[:48]
    if safe and safe == identity:
        return safe
    digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
    return f"{safe or 'id'}-{digest}"
