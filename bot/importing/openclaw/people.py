"""Who was let in by OpenClaw, and who is let in here because of that."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import orjson

from bot.channel import DEFAULT_ACCOUNT
from bot.importing.openclaw import transcripts
from bot.importing.openclaw.home import Home
from bot.importing.openclaw.keys import channel_of
from bot.importing.values import Skipped, items, mapping, words
from bot.sessions import pairing
from bot.storage import Transaction, upsert

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
    known = _brought(tx) | {(p.channel, p.account, p.sender) for p in pairing.approved(tx)}
    return [
        seat
        for seat in seats
        if astuple(seat) not in known and not pairing.is_blocked(tx, (seat.channel, seat.sender))
    ]


def admit(tx: Transaction, seats: Sequence[Seat], now: int) -> None:
    """Let people in, as an approved code would, and note that it was done."""
    for seat in seats:
        _admit(tx, seat, now)
    known = sorted(_brought(tx) | {astuple(seat) for seat in seats})
    row = {"key": _KEY, "value": orjson.dumps(known).decode(), "updated_at": now}
    upsert(tx, "meta", ("key",), row)


def _brought(tx: Transaction) -> set[tuple[str, ...]]:
    rows = tx.execute("SELECT value FROM meta WHERE key = ?", (_KEY,))
    return {tuple(each) for each in orjson.loads(rows[0][0])} if rows else set()


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
