"""The values of the fake Discord, and what its messages, servers and interactions look like."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EPOCH = 1_420_070_400_000
TOKEN = "MTAw.FakeTokenForTestsOnly.0123456789abcdefghijklmnopq"
BOT_ID = "100"
APPLICATION_ID = "900"
GUILD_ID = "500"
TEXT_CHANNEL, FORUM = "501", "502"
POSTED_IN = frozenset({15, 16})  # kinds of channels that hold posts, and no messages
OUR_ROLE = "510"
ADMIN_ROLE = "511"
MAX_CONTENT = 2000
ACK_SECONDS = 3.0
TOKEN_SECONDS = 15 * 60.0

Json = dict[str, Any]
_counter = itertools.count(1)


def snowflake(at: float | None = None) -> str:
    """A new id, made now or at a time (seconds since the epoch)."""
    moment = int((time.time() if at is None else at) * 1000)
    return str(((moment - EPOCH) << 22) + next(_counter) % (1 << 22))


class ApiError(Exception):
    """An answer that is no success."""

    def __init__(
        self, status: int, code: int, message: str, headers: Mapping[str, str] | None = None, **more
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Json = {"code": code, "message": message, **more}
        self.headers = dict(headers or {})


@dataclass
class Fault:
    """What goes wrong with the next calls whose "METHOD /path" contains `match`."""

    match: str = ""
    status: int = 500
    code: int = 0
    message: str = "Internal Server Error"
    retry_after: float | None = None
    everywhere: bool = False  # a global limit
    body: bytes | None = None  # answer with exactly these bytes
    drop: bool = False  # cut the connection
    after: bool = False  # do the work first: only the answer is lost
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came in."""

    at: float  # time.monotonic()
    method: str
    path: str
    body: Any
    query: Mapping[str, str]
    token: str


@dataclass
class Session:
    """A gateway session: what was dispatched stays, to be replayed."""

    id: str
    token: str
    intents: int
    sequence: int = 0
    events: list[Json] = field(default_factory=list)
    socket: Any = None  # the connection it is on, if any


@dataclass
class Shown:
    """An interaction as the person sees it."""

    id: str
    token: str
    channel: str
    made: float
    callback: Json | None = None
    original: Json | None = None
    followups: list[Json] = field(default_factory=list)
    deleted: bool = False
    event: Json = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Whether only the person sees the answer."""
        return bool(((self.callback or {}).get("data") or {}).get("flags", 0) & 64)


def user(number: str, **extra: Any) -> Json:
    return {
        "id": number,
        "username": f"user{number}",
        "global_name": f"User {number}",
        "discriminator": "0",
        "avatar": None,
        **extra,
    }


def bot_user() -> Json:
    return user(BOT_ID, username="Confidant", global_name=None, bot=True)


def guild() -> Json:
    """A server with a text channel, a forum, a thread in each, and the bot's own role."""
    everyone = {"id": GUILD_ID, "name": "@everyone", "permissions": "1024"}
    ours = {"id": OUR_ROLE, "name": "Confidant", "permissions": "0", "tags": {"bot_id": BOT_ID}}
    admin = {"id": ADMIN_ROLE, "name": "Admins", "permissions": "32"}
    return {
        "id": GUILD_ID,
        "name": "Test server",
        "owner_id": "8",
        "joined_at": "2020-01-01T00:00:00.000000+00:00",
        "roles": [everyone, ours, admin],
        "channels": [
            {"id": "503", "type": 4, "name": "Category"},
            {"id": TEXT_CHANNEL, "type": 0, "name": "general", "parent_id": "503"},
            {"id": FORUM, "type": 15, "name": "ideas", "parent_id": "503"},
        ],
        "threads": [
            {"id": "601", "type": 11, "name": "a thread", "parent_id": TEXT_CHANNEL},
            {"id": "602", "type": 11, "name": "a post", "parent_id": FORUM},
        ],
        "members": [],
        "emojis": [],
        "stickers": [],
        "unavailable": False,
    }


def message(channel: str, author: Json, text: str, at: float | None = None, **extra: Any) -> Json:
    """A message as Discord describes it."""
    number = extra.pop("id", None) or snowflake(at)
    moment = ((int(number) >> 22) + EPOCH) / 1000
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + ".000000+00:00"
    return {
        "id": number,
        "channel_id": channel,
        "author": author,
        "content": text,
        "timestamp": stamp,
        "edited_timestamp": None,
        "tts": False,
        "mention_everyone": False,
        "mentions": [],
        "mention_roles": [],
        "attachments": [],
        "embeds": [],
        "components": [],
        "pinned": False,
        "type": 0,
        "flags": 0,
        **extra,
    }
