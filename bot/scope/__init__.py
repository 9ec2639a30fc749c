"""What a session may see: pure rules, and the `MemoryView` they build.

Everything that reads memory, notes or past conversations takes a `MemoryView`; there is no other
way in. The default is to see nothing, and only direct chats are let in.
"""

from bot.scope.rules import Subject, allows, permits
from bot.scope.view import MAIN_SPACE, SHARED_SPACE, TALK, MemoryView, view_for

__all__ = [
    "MAIN_SPACE",
    "SHARED_SPACE",
    "TALK",
    "MemoryView",
    "Subject",
    "allows",
    "permits",
    "view_for",
]
