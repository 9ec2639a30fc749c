"""`MemoryView`: the capability every reader of memory holds, built by one pure function."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

from bot.channel import ScopeConfig
from bot.scope import rules

MAIN_SPACE = "main"
SHARED_SPACE = "shared"
PRIVATE = "#private"  # the partition of a space's MEMORY.md and USER.md
TALK = "talk:"  # the partition of what was said in a room, or by a person in direct chats
_UNSAFE = re.compile(r"[^a-z0-9_.-]+")
_LIKE_DIGEST = re.compile(r"-[0-9a-f]{10}$")


@dataclass(frozen=True, slots=True)
class MemoryView:
    """What one session may read and where it writes.

    `space` is the folder of Markdown it owns ("main", "people/<id>", "rooms/<channel>-<id>"), or
    empty when the session may see none. `keys` are the session keys whose conversations it may
    search, `people` the identities whose direct conversations it may search. `private` is true in
    direct chats only: it is what lets MEMORY.md and USER.md load.
    """

    space: str
    keys: tuple[str, ...]
    private: bool
    people: tuple[str, ...] = ()

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces it may read: its own, and what the operator gives to everyone."""
        return (self.space, SHARED_SPACE) if self.space else ()

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the memory index it may search."""
        if not self.space:
            return ()
        private = (f"{self.space}{PRIVATE}",) if self.private else ()
        talk = (*(f"{TALK}{key}" for key in self.keys), *(f"{TALK}{who}" for who in self.people))
        return (*self.spaces, *private, *talk)


def view_for(
    config: ScopeConfig, subject: rules.Subject, *, people: tuple[str, ...], is_owner: bool
) -> MemoryView:
    """The view of a session. Pure: the same session and configuration give the same view.

    `people` are the identities of whoever speaks, the canonical one first ("ada", then each
    "telegram:42" it links).
    """
    direct = subject.chat_type == "direct"
    if not rules.allows(config, subject):
        return MemoryView(space="", keys=(), private=False)
    if not direct:
        return MemoryView(f"rooms/{folder_name(_room(subject))}", (subject.key,), private=False)
    space = MAIN_SPACE if is_owner else f"people/{folder_name(people[0])}"
    return MemoryView(space=space, keys=(subject.key,), private=True, people=people)


def _room(subject: rules.Subject) -> str:
    """What a room is called; servers that give the same id (by other accounts) never share it."""
    if subject.is_default:
        return f"{subject.channel}-{subject.chat}"
    # No id of the default account's can look like that: there is a "-" after the channel.
    return f"{subject.channel}/{quote(subject.account, safe='')}/{subject.chat}"


def folder_name(identity: str) -> str:
    """A folder name for an id: two different ids never share one.

    Ids that are already safe (lower-case letters, digits, `_`, `-`, `.` inside) stay readable;
    others keep a readable part and get a digest of the exact id.
    """
    lowered = identity.lower()
    safe = _UNSAFE.sub("-", lowered).strip("-.")[:48]
    if safe and safe == identity and not _LIKE_DIGEST.search(safe):
        return safe
    digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
    return f"{safe or 'id'}-{digest}"
