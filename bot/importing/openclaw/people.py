"""People that OpenClaw let in, and those let in here because of that."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import orjson

from bot.channel import DEFAULT_ACCOUNT
from bot.identity import MessageOrigin, PolicySnapshot, routing
from bot.importing.openclaw import transcripts
from bot.importing.openclaw.home import Home
from bot.importing.storing import Owner, brought, note
from bot.importing.values import Skipped, items, mapping, words
from bot.sessions import pairing
from bot.storage import Transaction

# What it did by itself, in which nobody was talked with.
_WORK: Final = frozenset({"cron", "hook", "subagent", "acp", "heartbeat", "dreaming", "node"})
_DIRECT: Final = frozenset({"direct", "dm"})
_ROOMS: Final = frozenset({"group", "channel", "room"})
_HERE: Final = frozenset({"webchat", "web", "tui", "cli", "dashboard"})  # the owner's own places
_OTHER_NAMES: Final = {"nextcloud-talk": "nextcloud_talk", "nextcloudtalk": "nextcloud_talk"}


@dataclass(frozen=True, slots=True)
class Key:
    """A session key taken apart: a peer of a channel, a room, work, or the main session.

    `kind` is the chat type of a room, "group" or "channel".
    """

    channel: str = ""
    account: str = DEFAULT_ACCOUNT
    peer: str = ""
    room: str = ""
    kind: str = "group"
    thread: str = ""
    is_work: bool = False
    is_unclear: bool = False


def parse(key: str) -> Key:
    """Take a key apart."""
    parts = key.strip().lower().split(":")
    if parts[0] == "agent" and len(parts) > 2:
        parts = parts[2:]
    elif parts != ["main"] and parts[0] not in _WORK:
        return Key(is_unclear=True)  # of a time when keys named no channel
    if parts[0] in _WORK:
        return Key(is_work=True)
    if parts[0] in _DIRECT:
        return Key(is_unclear=True)  # an id, but not on which platform
    for at, part in enumerate(parts[1:3], start=1):
        if part in _DIRECT | _ROOMS and len(parts) > at + 1:
            return _chat(parts, at)
    return Key()


def _chat(parts: list[str], at: int) -> Key:
    """A key that names a chat of a channel, its kind at a place of it."""
    channel = channel_of(parts[0])
    account = parts[1] if at == 2 else DEFAULT_ACCOUNT
    rest, thread = parts[at + 1 :], ""
    for name in ("topic", "thread"):
        if name in rest[1:]:
            where = rest.index(name, 1)
            rest, thread = rest[:where], ":".join(rest[where + 1 :])
    id_ = ":".join(rest)
    if parts[at] in _DIRECT:
        return Key() if channel in _HERE else Key(channel, account, peer=id_)
    kind = "channel" if parts[at] == "channel" else "group"
    return Key(channel, account, room=id_, kind=kind, thread=thread)


def channel_of(name: str) -> str:
    """The name of a channel here."""
    return _OTHER_NAMES.get(name.lower(), name.lower())


def owner_of(key: Key, snapshot: PolicySnapshot) -> Owner | None:
    """The owner of a session; None if it is nobody's."""
    if key.is_work or key.is_unclear:
        return None
    if key.peer:
        return Owner(snapshot.person_of((key.channel, key.peer)).identity)
    if key.room:
        origin = MessageOrigin(key.channel, key.account, key.room, key.kind, "", key.thread)
        session = snapshot.policy.config.session
        person = routing.person_of(session, (key.channel, ""))
        return Owner(room=routing.session_key(session, origin, person))
    return Owner(routing.OWNER)


MAX_FILE = 4_000_000  # bytes
_FILE = re.compile(r"(?P<channel>[a-z0-9-]+?)(?:-(?P<account>[\w.-]+))?-allowFrom\.json")
_TABLE = "channel_pairing_allow_entries"
_KEY = "import.openclaw.people"  # in `meta`: who was let in by an import
_CHANNELS = frozenset({"telegram", "discord", "nextcloud_talk"})


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """Somebody who was let in: the channel and account they wrote to, and their id there."""

    channel: str
    account: str
    sender: str


def let_in(home: Home) -> Iterator[Seat | Skipped]:
    """Everybody who was let in by pairing.

    Raises:
        ImportRefused: its database cannot be read.
    """
    found: dict[Seat, None] = {}
    for channel, account, entry in (*_rows(home.state), *_files(home.credentials)):
        here, id_ = channel_of(channel), _id(channel, entry)
        if here not in _CHANNELS:
            yield Skipped(f"{channel}:{entry}", "there is no such channel here yet")
        elif not id_ or id_ == "*":
            yield Skipped(f"{channel}:{entry}", "it is no id of a person")
        else:
            found[Seat(here, account or DEFAULT_ACCOUNT, id_)] = None
    yield from sorted(found)


def new(tx: Transaction, seats: Sequence[Seat]) -> list[Seat]:
    """Those who are not let in here, and of whom nobody decided otherwise since."""
    known = brought(tx, _KEY) | {(p.channel, p.account, p.sender) for p in pairing.approved(tx)}
    return [
        seat
        for seat in seats
        if astuple(seat) not in known and not pairing.is_blocked(tx, (seat.channel, seat.sender))
    ]


def admit(tx: Transaction, seats: Sequence[Seat], now: int) -> None:
    """Let people in, as an approved code would, and note that it was done."""
    for seat in seats:
        _admit(tx, seat, now)
    note(tx, _KEY, map(astuple, seats), now)


def _admit(tx: Transaction, seat: Seat, now: int) -> None:
    # In Telegram a person's direct chat has their id; elsewhere it is known when they write.
    chat = seat.sender if seat.channel == "telegram" else ""
    tx.execute(
        "INSERT INTO pairing(channel, account, sender, state, code, name, locale, chat, thread, "
        "asked_at, given, approved_at) VALUES (?, ?, ?, 'approved', '', '', '', ?, '', ?, 1, ?) "
        "ON CONFLICT(channel, account, sender) DO UPDATE SET state = 'approved', code = '', "
        "approved_at = excluded.approved_at",
        (seat.channel, seat.account, seat.sender, chat, now, now),
    )
    tx.publish("books")


def _id(channel: str, entry: str) -> str:
    """An id without the name of its channel, as some versions wrote it before."""
    bare = entry.strip()
    for name in (f"{channel}:", "tg:", "users/", "user:"):
        bare = bare.removeprefix(name)
    return bare


def _rows(state: Path | None) -> list[tuple[str, str, str]]:
    if state is None:
        return []
    with (
        tempfile.TemporaryDirectory(prefix="confidant-import-") as folder,
        transcripts.opened(state, Path(folder)) as database,
    ):
        if _TABLE not in transcripts.tables(database):
            return []
        rows = database.execute(f"SELECT channel_key, account_id, entry FROM {_TABLE}")
    return [(words(row[0]), words(row[1]), words(row[2])) for row in rows]


def _files(credentials: Path | None) -> Iterator[tuple[str, str, str]]:
    for path in sorted(credentials.iterdir()) if credentials is not None else ():
        matched = _FILE.fullmatch(path.name)
        if matched is None or path.is_symlink() or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                found: object = orjson.loads(file.read(MAX_FILE))
        except (OSError, orjson.JSONDecodeError):
            continue
        channel, account = _named(matched["channel"], matched["account"] or "")
        for entry in items(mapping(found).get("allowFrom")):
            yield channel, account, str(entry)


def _named(channel: str, account: str) -> tuple[str, str]:
    """A channel and an account by the name of a file; one channel has a hyphen in its own."""
    whole = f"{channel}-{account}" if account else channel
    if whole.startswith("nextcloud-talk"):
        return "nextcloud-talk", whole.removeprefix("nextcloud-talk").lstrip("-")
    return channel, account
