"""Tells a person's browsers that something was written to them, beside everything else.

What a push service is told: that there is a note, for which browser, sealed. A note that does not
get through is tried again a few times and then dropped: the message itself waits in the history.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
import orjson
import structlog
from yarl import URL

from bot import fencing
from bot.channel import Address
from bot.clock import Clock
from bot.config import Settings
from bot.errors import AddressRefused, PoolFull, StorageError
from bot.i18n import text
from bot.net.addresses import Guard
from bot.net.connection import CheckedResolver, Lookup, SystemLookup, connector, session, why
from bot.shares import NOTES, POSTS, Pool
from bot.speech.api import speakable
from bot.storage import Database, Transaction, scalars
from bot.storage.records import Records, text_of

if TYPE_CHECKING:
    from bot.push.encryption import Signature


# Where a person's browsers are told of messages: the addresses they gave, with their keys.

MOST_SUBSCRIPTIONS = 10  # browsers of one person; with another one the oldest is told no more


@dataclass(frozen=True, slots=True)
class Subscription:
    """One browser of one person; whoever asks it last has it.

    `login` is what the browser was let in by when it asked, `origin` the page it asked from.
    `words` says that it may be sent the first words of a message.
    """

    person: str
    login: str
    endpoint: str
    p256dh: str
    auth: str
    origin: str
    language: str
    words: bool = False

    @property
    def id(self) -> str:
        """Its id: a digest that does not reveal its address."""
        return hashlib.sha256(self.endpoint.encode()).hexdigest()


SUBSCRIPTIONS: Final = Records("push_subscriptions", Subscription, "id", "made_at")


def put_subscription(tx: Transaction, subscription: Subscription, now: int) -> None:
    """Tell a browser from now on; what was known of it before is replaced."""
    SUBSCRIPTIONS.put(tx, subscription, subscription.id, now)
    ids = "SELECT id FROM push_subscriptions WHERE person = ? ORDER BY made_at DESC, id"
    for old in scalars(tx, ids, subscription.person)[MOST_SUBSCRIPTIONS:]:
        drop_subscription(tx, old)


def drop_subscription(tx: Transaction, subscription: str, person: str = "") -> None:
    """Tell a browser no more, by its id; with `person` only if it is theirs."""
    theirs = " AND person = ?" if person else ""
    parameters = (subscription, person) if person else (subscription,)
    tx.execute(f"DELETE FROM push_subscriptions WHERE id = ?{theirs}", parameters)


def subscriptions_of(tx: Transaction, person: str) -> Sequence[Subscription]:
    """The browsers of a person."""
    return SUBSCRIPTIONS.where(tx, "person = ?", person, order="made_at, id")


RETRIES: Final = (2.0, 15.0, 60.0)  # seconds before each further try …
LONGEST_WAIT = 300.0  # … or as many as the service asks for, up to this
ANSWER_SECONDS = 15.0
CHANNEL = "web"
KEPT_SECONDS = 24 * 3600  # how long a service keeps a note for a browser that is off
WORDS = 120  # characters of a message in a note that has some
SECRET = "push/secret"  # noqa: S105 - where it is kept in `meta`
SUBJECT = "mailto:owner@localhost"  # for a page that has no address of its own on the web
GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})

# The ids of what a person's browsers are let in by now; "" when everybody here is.
FindLogins = Callable[[str], Awaitable[Collection[str]]]

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Guards the addresses that notes are sent to: a browser could name any.

    Public ones by https. The tests have a service of their own, and say where it is.
    """

    guard: Guard = field(default_factory=Guard)
    schemes: frozenset[str] = frozenset({"https"})

    def check(self, written: str) -> URL:
        """The address.

        Raises:
            AddressRefused: nothing is sent there.
        """
        url = self.guard.url(written)
        if url.scheme not in self.schemes:
            raise AddressRefused
        return url


PUBLIC = Endpoints()


class Later(Exception):
    """The service could not take a note now; `seconds` when it said how long to wait."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds


class Pusher:
    """Sends notes to the browsers of whoever is away, and never makes anyone wait."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: Settings,
        logins: FindLogins,
        *,
        endpoints: Endpoints = PUBLIC,
        lookup: Lookup | None = None,
    ) -> None:
        """`logins` finds who is still let in."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._logins = logins
        self.endpoints = endpoints
        self._own_lookup = SystemLookup() if lookup is None else None
        self._lookup: Lookup = lookup or self._own_lookup or SystemLookup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._notes, self._posts = Pool(NOTES), Pool(POSTS)
        self._signature: Signature | None = None

    def reach(self, address: Address, words: str) -> None:
        """Tell the browsers of whoever has this chat on the page; returns at once."""
        if address.channel != CHANNEL:
            return
        task = asyncio.create_task(self._tell(address.chat, words))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Send nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._own_lookup is not None:
            self._own_lookup.close()

    async def signature(self) -> Signature:
        """The bot's own key, made when it is first asked for; all nodes have the same.

        Raises:
            StorageError: it could not be kept.
        """
        from bot.push.encryption import Signature, new_secret  # noqa: PLC0415 - when needed

        if self._signature is None:
            made = new_secret()
            kept = await self._database.write(lambda tx: _kept(tx, made, self._clock()))
            self._signature = Signature(kept)
        return self._signature

    async def holds(self, subscription: Subscription) -> bool:
        """True while whoever subscribed is still let in by what they were then."""
        return subscription.login in await self._logins(subscription.person)

    async def _tell(self, person: str, words: str) -> None:
        fencing.put(None)  # it belongs to no turn and to no account
        try:
            async with self._notes.place(person):
                await self._tell_browsers(person, words)
        except PoolFull:  # theirs wait, or are tried again: the message itself is in the history
            log.warning("push.too_many")

    async def _tell_browsers(self, person: str, words: str) -> None:
        try:
            found = await self._database.read(lambda tx: subscriptions_of(tx, person))
            logins = await self._logins(person) if found else ()
            told = [each for each in found if each.login in logins]
        except StorageError as error:
            log.warning("push.not_read", error=type(error).__name__)
            return
        sent = await asyncio.gather(
            *(self._push(each, words) for each in told), return_exceptions=True
        )
        for error in sent:
            if isinstance(error, Exception):
                log.error("push.failed", error=type(error).__name__, exc_info=error)

    async def _push(self, subscription: Subscription, words: str) -> None:
        """Send a note to one browser, again when it does not get through."""
        for wait in (*RETRIES, None):
            try:
                async with self._posts.place(subscription.person):
                    status = await self._post(subscription, words)
            except AddressRefused:  # its host has another address by now
                log.warning("push.refused")
                return
            except (Later, aiohttp.ClientError, OSError, TimeoutError) as error:
                if wait is None:
                    log.warning("push.given_up", error=why(error))
                    return
                asked = error.seconds if isinstance(error, Later) else 0.0
                await asyncio.sleep(max(wait, min(asked, LONGEST_WAIT)))
                continue
            if status in GONE:
                await self._database.write(lambda tx: drop_subscription(tx, subscription.id))
            log.info("push.sent", status=int(status))
            return

    async def _post(self, subscription: Subscription, words: str) -> int:
        """Send it once; what the service says, when it will not say anything else.

        Raises:
            AddressRefused: nothing may be sent there.
            Later: the service may take it later; so it may after an error of the connection.
        """
        from bot.push import encryption  # noqa: PLC0415 - when needed

        url = self.endpoints.check(subscription.endpoint)
        keys = encryption.BrowserKeys.of(subscription.p256dh, subscription.auth)
        note = self._note(subscription, words)
        body = encryption.sealed(orjson.dumps(note), keys)
        signature = await self.signature()
        subject = subscription.origin if subscription.origin.startswith("https:") else SUBJECT
        headers = {
            "Authorization": signature.header(str(url.origin()), subject, self._clock() / 1000),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(KEPT_SECONDS),
            "Urgency": "high",
        }
        if not subscription.words:
            headers["Topic"] = "written"  # one takes the place of another that still waits
        resolver = CheckedResolver(self.endpoints.guard, self._lookup)
        async with (
            session(
                connector=connector(resolver), timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)
            ) as client,
            client.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            is_busy = answer.status == HTTPStatus.TOO_MANY_REQUESTS
            if is_busy or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise Later(_seconds(answer.headers.get("Retry-After", "")))
            return answer.status

    def _note(self, subscription: Subscription, words: str) -> dict[str, str]:
        language = subscription.language
        note = {
            "title": text(language, "push.written", bot=self._settings.now.agent.name[:WORDS]),
            "lang": language,
        }
        if subscription.words:
            said = " ".join(speakable(words[: 10 * WORDS], language).split())
            note["body"] = said if len(said) <= WORDS else f"{said[:WORDS].rstrip()}…"
        return note


def _kept(tx: Transaction, made: str, now: int) -> str:
    """The key that all nodes have: this one, if there is none yet."""
    tx.execute(
        "INSERT INTO meta(key, value, updated_at) VALUES(?, ?, ?) ON CONFLICT(key) DO NOTHING",
        (SECRET, made, now),
    )
    return text_of(tx, SECRET) or made


def _seconds(retry_after: str) -> float:
    """The seconds a service asks to wait; 0 for a date, which is not parsed."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else 0.0
