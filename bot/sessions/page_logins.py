"""Who is let in to the page, by which link, with which browsers: functions over one transaction.

A page person has a name, which is their account in the web channel and is never given to anybody
else. A login is a browser that was let in. Of what is secret, the key of a link and the cookie of
a login, there are only digests here.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from bot.channel import PAGE_OWNER
from bot.clock import DAY_MS
from bot.identity import MessageOrigin, Seat
from bot.storage import Row, Transaction, upsert

LINK_MS = 10 * 60_000  # how long a link is good that somebody asked for in a chat …
INVITATION_MS = DAY_MS  # … and one that the owner passes on to somebody
LOGIN_MS = 30 * DAY_MS
SEEN_MS = 5 * 60_000  # how exactly it is kept when a browser was last seen
MAX_PEOPLE = 2_000
MAX_LINKS = 1_000
MAX_LOGINS = 20  # of one person; the one that was not seen for longest makes room

Invited = Literal["made", "too_many", "not_let_in"]
MayTalk = Callable[[MessageOrigin], bool]  # True when whoever writes from there gets an answer

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_KEY = re.compile(r"[0-9a-f]{64}")
_PERSON = "name, channel, sender, origin, password, made_at, out_at"
_LOGIN = "id, person, origin, browser, made_at, seen_at"
_LINK = "asker, person, origin, language, made_at, valid_ms"


@dataclass(frozen=True, slots=True)
class PagePerson:
    """Somebody who may open the page; times are ms since the epoch.

    `seat` is the one they came from with /web, or empty; `password` is a hash of one, or empty.
    """

    name: str
    seat: Seat
    origin: MessageOrigin | None
    password: str
    made_at: int
    out_at: int

    @property
    def is_out(self) -> bool:
        """True when the owner took them out."""
        return self.out_at > 0


@dataclass(frozen=True, slots=True)
class Login:
    """A browser that was let in; `origin` is the chat that its link was asked for in, if any."""

    id: str
    person: str
    origin: MessageOrigin | None
    browser: str
    made_at: int
    seen_at: int


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A link that was made: `asker` has but one at a time.

    `person` is a page person's name, or empty for whoever asks from `origin` for the first time.
    """

    asker: str
    person: str
    origin: MessageOrigin | None
    language: str
    made_at: int
    valid_ms: int


def new_key() -> str:
    """A secret of 256 bits, for a link or a cookie; no character of it means anything elsewhere."""
    return secrets.token_hex(32)


def is_key(text: str) -> bool:
    """True for what is spelled like the key of a link."""
    return _KEY.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """True for what a page person can be called; the owner's name is taken."""
    return _NAME.fullmatch(text) is not None and text != PAGE_OWNER


# --- people ---------------------------------------------------------------------------------------


def person(tx: Transaction, name: str) -> PagePerson | None:
    """The page person of this name."""
    rows = tx.execute(f"SELECT {_PERSON} FROM page_people WHERE name = ?", (name,))
    return _person(rows[0]) if rows else None


def person_from(tx: Transaction, seat: Seat) -> PagePerson | None:
    """The page person that somebody at a seat became with /web."""
    rows = tx.execute(
        f"SELECT {_PERSON} FROM page_people WHERE channel = ? AND sender = ? ORDER BY made_at",
        seat,
    )
    return _person(rows[0]) if rows else None


def people(tx: Transaction) -> list[PagePerson]:
    """Everybody who was ever let in, by name."""
    return [_person(row) for row in tx.execute(f"SELECT {_PERSON} FROM page_people ORDER BY name")]


def add(tx: Transaction, name: str, now: int, origin: MessageOrigin | None, seat: Seat) -> bool:
    """Let somebody in, for the first time or again; False when there are too many already.

    Without an origin (and an empty seat) they keep the one they had.
    """
    known = person(tx, name)
    if known is None and tx.execute("SELECT count(*) FROM page_people")[0][0] >= MAX_PEOPLE:
        return False
    if known is not None and origin is None:
        seat, origin = known.seat, known.origin
    row = {
        "name": name,
        "channel": seat[0],
        "sender": seat[1],
        "origin": _packed(origin),
        "password": known.password if known is not None else "",
        "made_at": known.made_at if known is not None else now,
        "out_at": 0,
    }
    upsert(tx, "page_people", ("name",), row)
    return True


def take_out(tx: Transaction, name: str, now: int) -> bool:
    """Let somebody in no more: their logins and password are gone; False when they were not in."""
    rows = tx.execute(
        "UPDATE page_people SET out_at = ?, password = '' WHERE name = ? AND out_at = 0 "
        "RETURNING name",
        (now, name),
    )
    tx.execute("DELETE FROM page_links WHERE person = ?", (name,))
    end(tx, name)
    return bool(rows)


def set_password(tx: Transaction, name: str, hashed: str) -> None:
    """Let somebody log in with a password, or with an empty hash not any more."""
    tx.execute("UPDATE page_people SET password = ? WHERE name = ?", (hashed, name))


# --- links ----------------------------------------------------------------------------------------


def offer(tx: Transaction, key: str, made: LoginLink) -> None:
    """Keep a link; the one its asker had before is no good any more."""
    _drop_links(tx, made.made_at)
    row = {
        "asker": made.asker,
        "digest": _digest(key),
        "person": made.person,
        "origin": _packed(made.origin),
        "language": made.language,
        "made_at": made.made_at,
        "valid_ms": made.valid_ms,
    }
    upsert(tx, "page_links", ("asker",), row)
    tx.execute(
        "DELETE FROM page_links WHERE asker NOT IN "
        "(SELECT asker FROM page_links ORDER BY made_at DESC, asker LIMIT ?)",
        (MAX_LINKS,),
    )


def invite(
    tx: Transaction, name: str, key: str, now: int, *, language: str, may_talk: MayTalk
) -> Invited:
    """Let the owner make a link for a name.

    There is none where there are "too_many" people already, and none for whoever came from a chat
    in which they may not talk to the bot any more ("not_let_in"): it would lead nowhere.
    """
    known = person(tx, name)
    if known is not None and known.origin is not None and not may_talk(known.origin):
        return "not_let_in"
    if name != PAGE_OWNER and not add(tx, name, now, None, ("", "")):
        return "too_many"
    valid = LINK_MS if name == PAGE_OWNER else INVITATION_MS
    offer(tx, key, LoginLink(f"page:{name}", name, None, language, now, valid))
    return "made"


def offered(tx: Transaction, key: str, now: int) -> LoginLink | None:
    """What a link is for, while it is good."""
    rows = tx.execute(f"SELECT {_LINK} FROM page_links WHERE digest = ?", (_digest(key),))
    return _link(rows[0], now) if rows else None


def use(tx: Transaction, key: str, now: int) -> LoginLink | None:
    """Use a link up; None when it is no good, or was used before."""
    rows = tx.execute(f"DELETE FROM page_links WHERE digest = ? RETURNING {_LINK}", (_digest(key),))
    return _link(rows[0], now) if rows else None


# --- logins ---------------------------------------------------------------------------------------


def begin(
    tx: Transaction,
    cookie: str,
    name: str,
    now: int,
    *,
    browser: str = "",
    origin: MessageOrigin | None = None,
) -> str:
    """Let a browser in by this cookie; the id of its login."""
    old = [each.id for each in logins(tx, name, now)[MAX_LOGINS - 1 :]]
    for each in old:
        end(tx, name, each)
    id_ = secrets.token_hex(8)
    row = {
        "digest": _digest(cookie),
        "id": id_,
        "person": name,
        "origin": _packed(origin),
        "browser": browser,
        "made_at": now,
        "seen_at": now,
    }
    upsert(tx, "page_logins", ("digest",), row)
    return id_


def login(tx: Transaction, cookie: str, now: int) -> Login | None:
    """The login that a cookie is of."""
    rows = tx.execute(f"SELECT {_LOGIN} FROM page_logins WHERE digest = ?", (_digest(cookie),))
    found = _login(rows[0]) if rows else None
    return found if found is not None and _holds(found, now) else None


def logins(tx: Transaction, name: str, now: int) -> list[Login]:
    """The logins of a person, the one last seen first."""
    rows = tx.execute(
        f"SELECT {_LOGIN} FROM page_logins WHERE person = ? "
        "ORDER BY seen_at DESC, made_at DESC, id",
        (name,),
    )
    return [found for row in rows if _holds(found := _login(row), now)]


def among(tx: Transaction, ids: Collection[str], now: int) -> list[Login]:
    """Those of these logins that still hold."""
    marks = ",".join("?" * len(ids))
    rows = tx.execute(f"SELECT {_LOGIN} FROM page_logins WHERE id IN ({marks})", tuple(ids))
    return [found for row in rows if _holds(found := _login(row), now)]


def seen(tx: Transaction, id_: str, now: int) -> None:
    """Note that a browser was there."""
    tx.execute("UPDATE page_logins SET seen_at = ? WHERE id = ?", (now, id_))


def end(tx: Transaction, name: str, id_: str = "", *, besides: str = "") -> int:
    """End one login of a person, or all `besides` one; how many there were.

    The other nodes are told.
    """
    rows = tx.execute(
        "DELETE FROM page_logins WHERE person = ? AND (id = ? OR ? = '') AND id <> ? RETURNING id",
        (name, id_, id_, besides),
    )
    tx.publish("books")
    return len(rows)


def end_from(tx: Transaction, seat: Seat) -> None:
    """End every login, and every link, that was asked for from a seat.

    The other nodes are told.
    """
    for table in ("page_links", "page_logins"):
        rows = tx.execute(f"SELECT digest, origin FROM {table} WHERE origin <> ''")
        for digest, packed in rows:
            origin = _unpacked(packed)
            if origin is not None and origin.seat == seat:
                tx.execute(f"DELETE FROM {table} WHERE digest = ?", (digest,))
    tx.publish("books")


# --- beside the work ------------------------------------------------------------------------------


def prune(tx: Transaction, now: int) -> None:
    """Drop what does not hold any more."""
    _drop_links(tx, now)
    tx.execute("DELETE FROM page_logins WHERE abs(? - made_at) >= ?", (now, LOGIN_MS))


def drop_all(tx: Transaction) -> None:
    """Let nobody in by what an older database says: it may have been ended since."""
    tx.execute("DELETE FROM page_links")
    tx.execute("DELETE FROM page_logins")
    tx.execute("UPDATE page_people SET password = ''")


def _drop_links(tx: Transaction, now: int) -> None:
    tx.execute("DELETE FROM page_links WHERE abs(? - made_at) >= valid_ms", (now,))


def _holds(login: Login, now: int) -> bool:
    return abs(now - login.made_at) < LOGIN_MS


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _packed(origin: MessageOrigin | None) -> str:
    return orjson.dumps(asdict(origin)).decode() if origin is not None else ""


def _unpacked(origin: str) -> MessageOrigin | None:
    return MessageOrigin(**orjson.loads(origin)) if origin else None


def _person(row: Row) -> PagePerson:
    name, channel, sender, origin, *rest = row
    return PagePerson(name, (channel, sender), _unpacked(origin), *rest)


def _login(row: Row) -> Login:
    id_, name, origin, *rest = row
    return Login(id_, name, _unpacked(origin), *rest)


def _link(row: Row, now: int) -> LoginLink | None:
    asker, name, origin, language, made_at, valid = row
    if abs(now - made_at) >= valid:
        return None
    return LoginLink(asker, name, _unpacked(origin), language, made_at, valid)
