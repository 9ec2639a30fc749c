"""Logins of the page: people, links, browsers and programs. Functions over one transaction.

A page person has a name, which is their account in the web channel and is never given to anybody
else. A login is a browser that was let in. Of what is secret, the key of a link and the cookie of
a login, there are only digests here, as of the key of a program.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bot.channel import PAGE_OWNER
from bot.clock import DAY_MS
from bot.identity import ORIGIN, MessageOrigin, Seat
from bot.storage import Transaction, marks
from bot.storage.records import Form, Records

LINK_MS = 10 * 60_000  # how long a link is good that somebody asked for in a chat …
INVITATION_MS = DAY_MS  # … and one that the owner passes on to somebody
LOGIN_MS = 30 * DAY_MS
SEEN_MS = 5 * 60_000  # how exactly it is kept when a browser was last seen
MAX_PEOPLE = 2_000
MAX_LINKS = 1_000
MAX_LOGINS = 20  # of one person; the one that was not seen for longest makes room
MAX_KEYS = 20  # of one person, for programs
MAX_KEY_NAME = 60  # characters

Invited = Literal["made", "too_many", "not_let_in"]
MayTalk = Callable[[MessageOrigin], bool]  # True when whoever writes from there gets an answer

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_KEY = re.compile(r"[0-9a-f]{64}")


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


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key with which a program talks to the bot as a page person, until they revoke it.

    With `is_apart` each conversation of the program is one of its own; else all are one.
    """

    id: str
    person: str
    name: str
    is_apart: bool
    made_at: int
    used_at: int


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook to which a program reports events for a page person, signed with its `secret`.

    `template` says how an event is told; empty is all of it.
    """

    id: str
    person: str
    name: str
    secret: str
    template: str
    made_at: int
    used_at: int = 0


PEOPLE: Final = Records("page_people", PagePerson, seat=Form("channel sender"), origin=ORIGIN)
LINKS: Final = Records("page_links", LoginLink, "digest", origin=ORIGIN)
LOGINS: Final = Records("page_logins", Login, "digest", origin=ORIGIN)
KEYS: Final = Records("api_keys", ApiKey, "digest")
HOOKS: Final = Records("hooks", Hook)


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
    return PEOPLE.get(tx, name)


def person_from(tx: Transaction, seat: Seat) -> PagePerson | None:
    """The page person that somebody at a seat became with /web."""
    return PEOPLE.first(tx, "channel = ? AND sender = ?", *seat, order="made_at")


def people(tx: Transaction) -> list[PagePerson]:
    """Everybody who was ever let in, by name."""
    return PEOPLE.where(tx, order="name")


def add(tx: Transaction, name: str, now: int, origin: MessageOrigin | None, seat: Seat) -> bool:
    """Let somebody in, for the first time or again; False when there are too many already.

    Without an origin (and an empty seat) they keep the one they had.
    """
    known = person(tx, name)
    if known is None and PEOPLE.count(tx, "TRUE") >= MAX_PEOPLE:
        return False
    known = known or PagePerson(name, seat, origin, "", now, 0)
    if origin is None:
        seat, origin = known.seat, known.origin
    PEOPLE.put(tx, replace(known, seat=seat, origin=origin, out_at=0))
    return True


def take_out(tx: Transaction, name: str, now: int) -> bool:
    """Let somebody in no more: their logins and password are gone; False when they were not in."""
    rows = tx.execute(
        "UPDATE page_people SET out_at = ?, password = '' WHERE name = ? AND out_at = 0 "
        "RETURNING name",
        (now, name),
    )
    tx.execute("DELETE FROM page_links WHERE person = ?", (name,))
    tx.execute("DELETE FROM api_keys WHERE person = ?", (name,))
    tx.execute("DELETE FROM hooks WHERE person = ?", (name,))
    end(tx, name)
    return bool(rows)


def set_password(tx: Transaction, name: str, hashed: str) -> None:
    """Let somebody log in with a password, or with an empty hash not any more."""
    tx.execute("UPDATE page_people SET password = ? WHERE name = ?", (hashed, name))


# --- links ----------------------------------------------------------------------------------------


def offer(tx: Transaction, key: str, made: LoginLink) -> None:
    """Keep a link; the one its asker had before is no good any more."""
    _drop_links(tx, made.made_at)
    LINKS.put(tx, made, _digest(key))
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
    """The offer of a link, while it is good."""
    return _good(LINKS.where(tx, "digest = ?", _digest(key)), now)


def use(tx: Transaction, key: str, now: int) -> LoginLink | None:
    """Use a link up; None when it is no good, or was used before."""
    return _good(LINKS.delete(tx, "digest = ?", _digest(key)), now)


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
    LOGINS.put(tx, Login(id_, name, origin, browser, now, now), _digest(cookie))
    return id_


def login(tx: Transaction, cookie: str, now: int) -> Login | None:
    """The login that a cookie is of."""
    found = LOGINS.get(tx, _digest(cookie))
    return found if found is not None and _holds(found, now) else None


def logins(tx: Transaction, name: str, now: int) -> list[Login]:
    """The logins of a person, the one last seen first."""
    found = LOGINS.where(tx, "person = ?", name, order="seen_at DESC, made_at DESC, id")
    return [each for each in found if _holds(each, now)]


def among(tx: Transaction, ids: Collection[str], now: int) -> list[Login]:
    """Those of these logins that still hold."""
    found = LOGINS.where(tx, f"id IN ({marks(ids)})", *ids)
    return [each for each in found if _holds(each, now)]


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
        for digest, held in tx.execute(f"SELECT digest, origin FROM {table} WHERE origin <> ''"):
            if ORIGIN.read((held,)).seat == seat:
                tx.execute(f"DELETE FROM {table} WHERE digest = ?", (digest,))
    tx.publish("books")


# --- programs -------------------------------------------------------------------------------------


def make_key(
    tx: Transaction, secret: str, person: str, name: str, now: int, *, is_apart: bool
) -> bool:
    """Let a program talk as somebody; False when they have too many already."""
    if KEYS.count(tx, "person = ?", person) >= MAX_KEYS:
        return False
    made = ApiKey(secrets.token_hex(4), person, name, is_apart, now, 0)
    KEYS.put(tx, made, _digest(secret))
    return True


def api_key(tx: Transaction, secret: str) -> ApiKey | None:
    """The key that a program sent; None for what is none, or was revoked."""
    return KEYS.get(tx, _digest(secret))


def api_keys(tx: Transaction, person: str) -> list[ApiKey]:
    """The keys of somebody's programs, the newest first."""
    return KEYS.where(tx, "person = ?", person, order="made_at DESC, id")


def program_seen(tx: Transaction, id_: str, now: int) -> None:
    """Note that the program of a key or of a webhook was there."""
    for table in ("api_keys", "hooks"):
        tx.execute(f"UPDATE {table} SET used_at = ? WHERE id = ?", (now, id_))


def revoke(tx: Transaction, person: str, id_: str) -> bool:
    """Let a program talk as somebody no more; False when it was not theirs."""
    return bool(KEYS.delete(tx, "person = ? AND id = ?", person, id_))


def add_hook(tx: Transaction, hook: Hook) -> bool:
    """Let a program report events to somebody; False when they have too many already."""
    if HOOKS.count(tx, "person = ?", hook.person) >= MAX_KEYS:
        return False
    HOOKS.put(tx, hook)
    return True


def hooks(tx: Transaction, person: str) -> list[Hook]:
    """Somebody's webhooks, the newest first."""
    return HOOKS.where(tx, "person = ?", person, order="made_at DESC, id")


def delete_hook(tx: Transaction, person: str, id_: str) -> bool:
    """Take no more events of a program; False when it was not theirs."""
    return bool(HOOKS.delete(tx, "person = ? AND id = ?", person, id_))


# --- beside the work ------------------------------------------------------------------------------


def prune(tx: Transaction, now: int) -> None:
    """Drop what does not hold any more."""
    _drop_links(tx, now)
    tx.execute("DELETE FROM page_logins WHERE abs(? - made_at) >= ?", (now, LOGIN_MS))


def drop_all(tx: Transaction) -> None:
    """Let nobody in by what an older database says: it may have been ended since."""
    tx.execute("DELETE FROM page_links")
    tx.execute("DELETE FROM page_logins")
    tx.execute("DELETE FROM api_keys")
    tx.execute("DELETE FROM hooks")
    tx.execute("UPDATE page_people SET password = ''")


def _drop_links(tx: Transaction, now: int) -> None:
    tx.execute("DELETE FROM page_links WHERE abs(? - made_at) >= valid_ms", (now,))


def _holds(login: Login, now: int) -> bool:
    return abs(now - login.made_at) < LOGIN_MS


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _good(found: Sequence[LoginLink], now: int) -> LoginLink | None:
    return next((each for each in found if abs(now - each.made_at) < each.valid_ms), None)
