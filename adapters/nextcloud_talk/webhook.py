"""The webhook: Talk calls us, once for each message, and 200 means stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from aiohttp import web
from cachetools import TTLCache

from adapters.nextcloud_talk import normal_url
from adapters.nextcloud_talk.account import Account
from adapters.nextcloud_talk.api import verify, well_formed
from bot.channel import reveal
from bot.channel.kit.json_access import parse_json
from bot.channel.kit.supervisor import Stopped
from bot.channel.kit.webhook import MAX_BODY, WebhookServer
from bot.errors import StorageError

MAX_BACKEND = 2048  # characters of a server's address
RANDOM_HEADER = "X-Nextcloud-Talk-Random"
SIGNATURE_HEADER = "X-Nextcloud-Talk-Signature"
BACKEND_HEADER = "X-Nextcloud-Talk-Backend"
SEEN = 3600.0  # seconds a random value is known; the engine knows messages for much longer
MAX_SEEN = 50_000  # values; only calls with a good signature get one in
READ_TIMEOUT = 5.0  # seconds for the body of a call; Talk gives up then too

_log = structlog.get_logger()


class TalkWebhook(WebhookServer):
    """The webhook of all accounts.

    The secret that fits says whose a call is; the server it names has to be that account's.
    """

    def __init__(self, accounts: Sequence[Account], host: str, port: int) -> None:
        self._paths: dict[str, list[Account]] = {}
        for account in accounts:
            self._paths.setdefault(account.seat.webhook_path, []).append(account)
        # The random values that were used: a signed call counts once.
        self._seen: TTLCache[str, None] = TTLCache(MAX_SEEN, SEEN, timer=time.monotonic)
        supervisors = [account.supervisor for account in accounts]
        routes = dict.fromkeys(self._paths, self._answer)
        super().__init__(supervisors, host, port, routes, body_timeout=READ_TIMEOUT)

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            call = await _read(request)
        except Refused as refused:
            return self._refuse(refused)
        account = _signer(self._paths.get(request.path, ()), call)
        if account is None:
            return self._refuse(Refused(401, "bad_signature"))
        if normal_url(call.backend) != account.seat.base_url:
            account.drop("backend")
            account.wrong_backend(call.backend)
            return web.Response(status=401)
        if call.random in self._seen:
            account.drop("replayed")
            return web.Response(status=409)
        self._seen[call.random] = None
        return await self._take(account, call)

    async def _take(self, account: Account, call: Call) -> web.Response:
        try:
            payload = parse_json(call.body)
        except ValueError:
            account.drop("malformed")
            return web.Response(status=400)
        try:
            understood = await account.take(payload)
        except StorageError:
            self._seen.pop(call.random, None)  # it may be brought again
            return web.Response(status=500)
        except Stopped:
            return web.Response(status=503)  # it is found the next time
        except Exception:  # noqa: BLE001  # a fault of ours must not silence the next call
            self._seen.pop(call.random, None)
            account.drop("fault")
            _log.exception("nextcloud_talk.fault", account=account.name)
            return web.Response(status=500)
        account.supervisor.well("receiving")
        return web.Response(status=200 if understood else 400)

    def _refuse(self, refused: Refused) -> web.Response:
        """Answer a call that proves nothing."""
        self.refusals.add(refused.reason)
        return web.Response(status=refused.status)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it came: nothing of it is proved yet."""

    random: str
    signature: str
    backend: str
    body: bytes = field(repr=False)


class Refused(Exception):
    """A call is not worth looking at any further."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


async def _read(request: web.Request) -> Call:
    """The call in a request.

    Raises:
        Refused: nobody can have signed it, or it is too large.
    """
    random = request.headers.get(RANDOM_HEADER, "")
    signature = request.headers.get(SIGNATURE_HEADER, "")
    backend = request.headers.get(BACKEND_HEADER, "")
    # What nobody can have signed is not worth reading.
    if not well_formed(random, signature) or not 0 < len(backend) <= MAX_BACKEND:
        raise Refused(400, "unsigned")
    if (request.content_length or 0) > MAX_BODY:
        raise Refused(413, "too_large")
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refused(413, "too_large") from None
    except (web.RequestPayloadError, ConnectionError):
        raise Refused(400, "broken") from None
    return Call(random, signature, backend, body)


def _signer(accounts: Sequence[Account], call: Call) -> Account | None:
    """The account whose secret made the signature; every one is tried, whichever it is."""
    found: Account | None = None
    for account in accounts:
        if verify(reveal(account.seat.secret), call.random, call.body, call.signature):
            found = account
    return found
