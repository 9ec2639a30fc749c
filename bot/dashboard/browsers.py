"""Browsers that were let in: whose a cookie is, links that give one, and ending what was begun.

What is kept is in `bot.sessions.page_logins`. A login that came by a link from a chat holds as long
as whoever asked for it there may talk to the bot and is the same person here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog
from cachetools import TTLCache

from bot.channel import DEFAULT_ACCOUNT, PAGE_OWNER, Address
from bot.channel.http import Visitor
from bot.clock import Clock
from bot.coordination import Event
from bot.dashboard.pages import CHANNEL, origin_of
from bot.errors import StorageError
from bot.identity import ConversationResolver, Link, MessageOrigin, Seat
from bot.sessions import links, page_logins
from bot.sessions.page_logins import ApiKey, Hook, Invited, Login, LoginLink, PagePerson
from bot.storage import Database, Transaction

KEY_MARK = "confidant-"  # what the key of a program begins with: people know what it is of
HOOK_MARK = "whsec_"  # what the secret of a webhook begins with; the rest is in base64
SIGNED_MS = 300_000  # how old a signature may be that says when it was made
LOOK_SECONDS = 15.0  # between looks whether open connections are still somebody's who is let in
LATELY_SECONDS = 10.0  # for which the files of a page need no other look whose a cookie is …
MOST_LATELY = 1_000  # … of so many cookies

_MAKERS: Final = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("FxiOS", "Firefox"))
_ENGINES: Final = (("Chrome", "Chrome"), ("CriOS", "Chrome"), ("Safari", "Safari"))
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)

Program = TypeVar("Program", ApiKey, Hook)

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entered:
    """Somebody who came in by a link, and the chat that asked for it, if any."""

    person: str
    origin: MessageOrigin | None


class OpenSockets:
    """The connections that stay open, by the login they came with, so that they end with it."""

    def __init__(self) -> None:
        self._open: dict[str, set[asyncio.Transport]] = {}

    @contextmanager
    def holding(self, login: str, transport: asyncio.Transport | None) -> Generator[None]:
        """A connection is open; one without a login is nobody's to end."""
        if not login or transport is None:
            yield
            return
        held = self._open.setdefault(login, set())
        held.add(transport)
        try:
            yield
        finally:
            held.discard(transport)
            if not held and self._open.get(login) is held:
                del self._open[login]

    def ids(self) -> set[str]:
        """The logins that have some."""
        return set(self._open)

    def close(self, login: str) -> None:
        """End all connections of a login, at once."""
        for transport in self._open.pop(login, ()):
            transport.abort()


class Browsers:
    """Lets browsers in, knows them again, and ends that."""

    def __init__(self, database: Database, resolver: ConversationResolver, clock: Clock) -> None:
        self._database = database
        self._resolver = resolver
        self._clock = clock
        self.sockets = OpenSockets()
        self._lately: TTLCache[str, Visitor] = TTLCache(
            MOST_LATELY, LATELY_SECONDS, timer=time.monotonic
        )
        self._looks = 0

    async def find(self, cookie: str) -> Visitor | None:
        """The visitor a cookie belongs to.

        Raises:
            StorageError: nobody can tell now.
        """
        if not cookie:
            return None
        now, looks = self._clock(), self._looks
        found = await self._database.read(lambda tx: page_logins.login(tx, cookie, now))
        if found is None or not self._holds(found):
            return None
        if abs(now - found.seen_at) >= page_logins.SEEN_MS:
            with suppress(StorageError):  # nobody is kept out for that
                await self._database.write(lambda tx: page_logins.seen(tx, found.id, now))
        visitor = Visitor(found.person, found.id)
        if looks == self._looks:  # else it may have ended since
            self._lately[cookie] = visitor
        return visitor

    def found_lately(self, cookie: str) -> Visitor | None:
        """The visitor a cookie belonged to a moment ago, if no login ended since; for files."""
        return self._lately.get(cookie)

    async def begin(
        self, person: str, cookie: str, agent: str, origin: MessageOrigin | None = None
    ) -> None:
        """Know a browser by its cookie from now on; `agent` is what it calls itself."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            page_logins.begin(tx, cookie, person, now, browser=browser_of(agent), origin=origin)

        await self._database.write(work)
        await self.look()  # the oldest may have made room
        log.info("page.login", is_owner=person == PAGE_OWNER)

    # --- programs ---------------------------------------------------------------------------------

    async def make_key(self, person: str, name: str, *, is_apart: bool) -> str:
        """A secret with which a program talks as somebody; empty when they have too many."""
        now, secret = self._clock(), f"{KEY_MARK}{page_logins.new_key()}"
        is_made = await self._database.write(
            lambda tx: page_logins.make_key(tx, secret, person, name, now, is_apart=is_apart)
        )
        log.info("page.key_made", is_made=is_made)
        return secret if is_made else ""

    async def keys(self, person: str) -> Sequence[ApiKey]:
        """The keys of somebody's programs, the newest first."""
        return await self._database.read(lambda tx: page_logins.api_keys(tx, person))

    async def revoke(self, person: str, key: str) -> None:
        """Let a program talk as somebody no more, from its next request on."""
        gone = await self._database.write(lambda tx: page_logins.revoke(tx, person, key))
        log.info("page.key_revoked", was_there=gone)

    async def of_program(self, secret: str) -> Visitor | None:
        """The person that a program talks as.

        Raises:
            StorageError: nobody can tell now.
        """
        if not secret.startswith(KEY_MARK):
            return None
        found = await self._theirs(lambda tx: page_logins.api_key(tx, secret))
        if found is None:
            return None
        return Visitor(found.person, "", found.id, found.name, found.is_apart)

    async def add_hook(self, person: str, name: str, template: str) -> str:
        """A secret that a program signs events with; empty when somebody has too many."""
        secret = f"{HOOK_MARK}{b64encode(secrets.token_bytes(24)).decode()}"
        made = Hook(secrets.token_hex(8), person, name, secret, template, self._clock())
        is_made = await self._database.write(lambda tx: page_logins.add_hook(tx, made))
        log.info("page.hook_made", is_made=is_made)
        return secret if is_made else ""

    async def hooks(self, person: str) -> Sequence[Hook]:
        """Somebody's webhooks, the newest first."""
        return await self._database.read(lambda tx: page_logins.hooks(tx, person))

    async def delete_hook(self, person: str, hook: str) -> None:
        """Take no more events of a program."""
        gone = await self._database.write(lambda tx: page_logins.delete_hook(tx, person, hook))
        log.info("page.hook_deleted", was_there=gone)

    async def of_hook(self, id_: str, headers: Mapping[str, str], body: bytes) -> Visitor | None:
        """The person an event is for; None if its signature is wrong.

        Raises:
            StorageError: nobody can tell now.
        """
        found = await self._database.read(lambda tx: page_logins.HOOKS.get(tx, id_))
        if found is None or not is_signed(found.secret, headers, body, self._clock()):
            return None
        if await self._theirs(lambda _: found) is None:
            return None
        return Visitor(found.person, "", found.id, found.name, template=found.template)

    async def _theirs(self, read: Callable[[Transaction], Program | None]) -> Program | None:
        """A program, if its person may come in; it was there then."""
        now = self._clock()

        def work(tx: Transaction) -> tuple[Program, MessageOrigin | None] | None:
            found = read(tx)
            if found is None or found.person == PAGE_OWNER:
                return found and (found, None)
            known = page_logins.person(tx, found.person)
            return (found, known.origin) if known is not None and not known.is_out else None

        found = await self._database.read(work)
        if found is None or not self._may_come(found[0].person, found[1]):
            return None
        program = found[0]
        if abs(now - program.used_at) >= page_logins.SEEN_MS:
            with suppress(StorageError):  # nobody is kept out for that
                await self._database.write(lambda tx: page_logins.program_seen(tx, program.id, now))
        return program

    # --- links ------------------------------------------------------------------------------------

    async def offered(self, key: str) -> LoginLink | None:
        """The login a link offers, while it is valid; looking does not use it up."""
        if not page_logins.is_key(key):
            return None
        now = self._clock()
        found = await self._database.read(lambda tx: page_logins.offered(tx, key, now))
        return found if found is not None and self._is_welcome(found) else None

    async def enter(self, key: str) -> Entered | None:
        """Use a link up; None when it is no good, or was used before."""
        if not page_logins.is_key(key):
            return None
        now = self._clock()

        def work(tx: Transaction) -> Entered | None:
            found = page_logins.use(tx, key, now)
            if found is None or not self._is_welcome(found):
                return None
            return self._let_in(tx, found, now)

        entered = await self._database.write(work)
        if entered is not None and entered.origin is not None:
            joined = await self._database.read(links.everything)
            self._resolver.linked(tuple(joined))
        return entered

    def _let_in(self, tx: Transaction, link: LoginLink, now: int) -> Entered | None:
        if link.person == PAGE_OWNER:
            return Entered(PAGE_OWNER, link.origin)
        if link.origin is None:
            known = page_logins.person(tx, link.person)
            if known is None or known.is_out or not self._may_come(known.name, known.origin):
                return None
            return Entered(known.name, known.origin)
        asked = self._resolver.of(link.origin)
        found = page_logins.person_from(tx, asked.seat)
        if found is not None and found.is_out:
            return None
        name = found.name if found is not None else self._free_name(tx, link.origin)
        if not page_logins.add(tx, name, now, link.origin, asked.seat):
            return None
        seat: Seat = (CHANNEL, name)
        if self._resolver.of(origin_of(name)).person != asked.person:
            address = Address(CHANNEL, DEFAULT_ACCOUNT, name)
            links.join(tx, Link(seat, asked.seat, address, link.language), now)
        return Entered(name, link.origin)

    def _free_name(self, tx: Transaction, origin: MessageOrigin) -> str:
        """A name that nobody has or had, and that the configuration does not speak of."""
        stem = re.sub(r"[^a-z0-9]+", "-", origin.channel.lower()).strip("-")[:20] or "guest"
        while True:
            name = f"{stem}-{secrets.token_hex(4)}"
            is_configured = self._resolver.of(origin_of(name)).is_configured
            if not is_configured and page_logins.person(tx, name) is None:
                return name

    def _is_welcome(self, link: LoginLink) -> bool:
        if link.origin is None:
            return self._may_come(link.person, None)
        asked = self._resolver.of(link.origin)
        return asked.is_admitted and (link.person != PAGE_OWNER or asked.is_owner)

    def _holds(self, login: Login) -> bool:
        return self._may_come(login.person, login.origin)

    def _may_come(self, name: str, origin: MessageOrigin | None) -> bool:
        """True while whoever came from there may talk to the bot, and is this person here.

        Who was invited, from nowhere, may as long as no account of theirs is blocked.
        """
        if origin is None:
            here, blocked = self._resolver.of(origin_of(name)), self._resolver.now.books.blocked
            seats = {here.seat, *(link.seat for link in here.joined)}
            return name == PAGE_OWNER or seats.isdisjoint(blocked)
        asked = self._resolver.of(origin)
        if not asked.is_admitted:
            return False
        if name == PAGE_OWNER:
            return asked.is_owner
        return asked.person == self._resolver.of(origin_of(name)).person

    # --- what there is, and ending it -------------------------------------------------------------

    async def of(self, person: str) -> Sequence[Login]:
        """The logins of a person, the one last seen first."""
        now = self._clock()
        found = await self._database.read(lambda tx: page_logins.logins(tx, person, now))
        return [login for login in found if self._holds(login)]

    async def end(self, person: str, login: str = "", *, besides: str = "") -> int:
        """End one login of a person, or all besides one; their connections end at once."""
        count = await self._database.write(
            lambda tx: page_logins.end(tx, person, login, besides=besides)
        )
        await self.look()
        log.info("page.logins_ended", count=count)
        return count

    async def person(self, name: str) -> PagePerson | None:
        """The page person of this name, if they may come in."""
        found = await self._database.read(lambda tx: page_logins.person(tx, name))
        if found is None or found.is_out or not self._may_come(name, found.origin):
            return None
        return found

    async def set_password(self, name: str, hashed: str, *, besides: str) -> None:
        """Let somebody log in with a password; all logins besides one end."""

        def work(tx: Transaction) -> None:
            page_logins.set_password(tx, name, hashed)
            page_logins.end(tx, name, besides=besides)

        await self._database.write(work)
        await self.look()
        log.info("page.password_set", is_set=bool(hashed))

    # --- for the owner ----------------------------------------------------------------------------

    async def people(self) -> Sequence[tuple[PagePerson, Sequence[Login]]]:
        """Everybody who was ever let in, with their logins."""
        now = self._clock()
        return await self._database.read(
            lambda tx: [
                (each, page_logins.logins(tx, each.name, now)) for each in page_logins.people(tx)
            ]
        )

    async def invite(self, name: str, key: str, language: str) -> Invited:
        """Make a link for somebody, who is let in by it; see `page_logins.invite`."""
        now = self._clock()

        if not self._may_come(name, None):
            return "not_let_in"

        def may_talk(origin: MessageOrigin) -> bool:
            return self._resolver.of(origin).is_admitted

        def work(tx: Transaction) -> Invited:
            return page_logins.invite(tx, name, key, now, language=language, may_talk=may_talk)

        made = await self._database.write(work)
        log.info("page.invited", is_made=made == "made")
        return made

    async def take_out(self, name: str) -> None:
        """Let somebody in no more; whatever they have open ends at once."""
        now = self._clock()
        gone = await self._database.write(lambda tx: page_logins.take_out(tx, name, now))
        await self.look()
        log.info("page.taken_out", was_in=gone)

    # --- connections ------------------------------------------------------------------------------

    async def heard(self, _event: Event) -> None:
        """Another node, or the command line, may have ended something."""
        await self.look()

    async def relook(self) -> None:
        """The same as `look` where nothing may fail: it is looked again soon."""
        try:
            await self.look()
        except StorageError as error:
            log.warning("page.not_looked", error=type(error).__name__)

    async def look(self) -> None:
        """End the connections of logins that do not hold any more, also by their age.

        Raises:
            StorageError: nobody can tell now.
        """
        self._looks += 1
        self._lately.clear()
        ids = self.sockets.ids()
        if not ids:
            return
        now = self._clock()
        found = await self._database.read(lambda tx: page_logins.among(tx, ids, now))
        for gone in ids - {login.id for login in found if self._holds(login)}:
            self.sockets.close(gone)


def browser_of(agent: str) -> str:
    """A browser's name and system, such as "Firefox · Linux"; empty if unknown."""
    made = _first(agent, _MAKERS) or _first(agent, _ENGINES)
    return " · ".join(filter(None, (made, _first(agent, _SYSTEMS))))


def _first(agent: str, known: Sequence[tuple[str, str]]) -> str:
    return next((name for mark, name in known if mark in agent), "")


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> bool:
    """True for an event that has the secret itself, or a signature made with it.

    GitHub's (`X-Hub-Signature-256`), which many have taken over, or that of Standard Webhooks,
    https://www.standardwebhooks.com, which says when it was made.
    """
    kind, _, token = headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), secret.encode()):
        return True
    github = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    sent = headers.get("X-Hub-Signature-256", "")
    if hmac.compare_digest(sent.encode(), github.encode()):
        return True
    id_, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not at.isascii() or not at.isdigit() or abs(now - int(at[:12]) * 1000) > SIGNED_MS:
        return False
    key = b64decode(secret.removeprefix(HOOK_MARK))
    made = hmac.digest(key, f"{id_}.{at}.".encode() + body, "sha256")
    wanted = f"v1,{b64encode(made).decode()}".encode()
    signatures = headers.get("webhook-signature", "").split(" ")[:10]
    return any(hmac.compare_digest(each.encode(), wanted) for each in signatures)
