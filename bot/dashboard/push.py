"""`/api/push`: which browsers of a visitor are told of messages, and how.

The page asks the browser, and brings what it got here. Each visitor sees and changes their own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from importlib import resources
from typing import Final

import orjson
from aiohttp import web

from bot.channel import PAGE_OWNER
from bot.channel.http import Visitor, shared
from bot.channel.kit.json_access import child, mapping, text
from bot.dashboard import pages
from bot.dashboard.pages import ASSETS, NO_STORE, Pages, Visit, route
from bot.errors import AddressRefused
from bot.push import pusher
from bot.push.pusher import Pusher, Subscription
from bot.sessions.page_logins import Login
from bot.storage import Database

LONGEST_KEY = 200  # characters


class PushLogins:
    """The login with which a browser asked for notifications, checked again later.

    The owner's login holds as long as the token does: with another one nobody is told who was let
    in by the last.
    """

    def __init__(
        self, token: Callable[[], str], logins: Callable[[str], Awaitable[Sequence[Login]]]
    ) -> None:
        """`token` is the dashboard's now, or empty; `logins` are those of a person that hold."""
        self._token = token
        self._logins = logins

    def of(self, visitor: Visitor) -> str:
        """The login of this visitor's browser."""
        return f"{self._mark()}.{visitor.login}" if visitor.is_owner else visitor.login

    async def holding(self, person: str) -> Collection[str]:
        """All that a person's browsers are let in by now."""
        held = {self.of(Visitor(person, login.id)) for login in await self._logins(person)}
        # Without a token whoever sits at this machine is the owner, and has no login.
        is_open = person == PAGE_OWNER and not self._token()
        return held | {self.of(Visitor())} if is_open else held

    def _mark(self) -> str:
        token = self._token().encode()
        return hmac.new(token, b"confidant push v1", "sha256").hexdigest()[:32] if token else ""


class PushPages(Pages):
    """Browsers that are notified, and the switch for it."""

    def __init__(self, pusher: Pusher, logins: PushLogins, database: Database) -> None:
        self._pusher = pusher
        self._logins = logins
        self._database = database

    @route("GET", "/api/push", shared=True)
    async def _devices(self, visit: Visit) -> web.Response:
        """The bot's key, and the visitor's browsers by id."""
        visitor = visit.visitor
        login = self._logins.of(visitor)
        signature = await self._pusher.signature()
        found = await self._database.read(lambda tx: pusher.subscriptions_of(tx, visitor.name))
        devices = [
            {"id": each.id, "words": each.words, "is_current": each.login == login}
            for each in found
        ]
        body = {"key": signature.public, "devices": devices}
        return web.json_response(body, headers=NO_STORE)

    @route("POST", "/api/push", shared=True)
    async def _subscribe(self, visit: Visit) -> web.Response:
        """Notify this browser from now on, for as long as it is logged in as it is now."""
        try:
            asked = self._asked(visit, await visit.request.read())
            self._pusher.endpoints.check(asked.endpoint)
        except (ValueError, AddressRefused):
            raise web.HTTPBadRequest from None
        if not await self._pusher.holds(asked):
            return pages.refuse(visit.request, 403, "not_told")
        await self._database.write(lambda tx: pusher.put_subscription(tx, asked, visit.now))
        return web.json_response({"id": asked.id}, headers=NO_STORE)

    @route("DELETE", "/api/push/{id}", shared=True)
    async def _end(self, visit: Visit) -> web.Response:
        """Stop notifying one of the visitor's browsers."""
        name, which = visit.visitor.name, visit.request.match_info["id"]
        await self._database.write(lambda tx: pusher.drop_subscription(tx, which, name))
        return web.Response(status=204, headers=NO_STORE)

    def _asked(self, visit: Visit, body: bytes) -> Subscription:
        """Parse a browser's request for notifications.

        Raises:
            ValueError: it cannot be used.
        """
        from bot.push.encryption import BrowserKeys  # noqa: PLC0415 - when needed

        fields = mapping(orjson.loads(body))
        keys, endpoint = child(fields, "keys"), text(fields, "endpoint")
        p256dh, auth = text(keys, "p256dh"), text(keys, "auth")
        if not (endpoint and p256dh and auth):
            raise ValueError("something is missing")
        if max(len(p256dh), len(auth)) > LONGEST_KEY:
            raise ValueError("no keys")
        BrowserKeys.of(p256dh, auth)
        return Subscription(
            person=visit.visitor.name,
            login=self._logins.of(visit.visitor),
            endpoint=endpoint,
            p256dh=p256dh,
            auth=auth,
            origin=visit.request.headers.get("Origin", ""),
            language=visit.language,
            words=fields.get("words") is True,
        )


PAPER = "#f7f6f3"  # `--paper` of base.css
# What a browser fetches for the system, perhaps without a cookie: the project's mark.
ICONS: Final = {
    f"{ASSETS}/icon-192.png": ("192x192", "any"),
    f"{ASSETS}/icon-512.png": ("512x512", "any"),
    f"{ASSETS}/icon-maskable.png": ("512x512", "maskable"),
}


class InstallPages:
    """`/manifest.webmanifest` and `/sw.js`."""

    def __init__(self, name: Callable[[], str], files: Mapping[str, str]) -> None:
        """`name` is what the bot is called; `files` are the page's own, by path, with a version."""
        self._name = name
        self._worker = _worker(files)

    def routes(self) -> list[web.RouteDef]:
        """The routes: a worker has power over what lies below it, so it is at the top."""
        return shared(
            [web.get("/manifest.webmanifest", self._serve_manifest), web.get("/sw.js", self._serve)]
        )

    async def _serve_manifest(self, request: web.Request) -> web.Response:
        return web.Response(
            body=orjson.dumps(_manifest(self._name())),
            content_type="application/manifest+json",
            headers=NO_STORE,
        )

    async def _serve(self, request: web.Request) -> web.Response:
        body = b"const NAME = %s;\n" % orjson.dumps(self._name()) + self._worker
        return web.Response(
            body=body, content_type="text/javascript", charset="utf-8", headers=NO_STORE
        )


def _manifest(name: str) -> dict[str, object]:
    return {
        "id": "/",
        "name": name,
        "short_name": name,
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": PAPER,
        "theme_color": PAPER,
        "icons": [
            {"src": path, "sizes": sizes, "type": "image/png", "purpose": purpose}
            for path, (sizes, purpose) in ICONS.items()
        ],
    }


def _worker(files: Mapping[str, str]) -> bytes:
    """The worker, but for the bot's name."""
    source = resources.files("bot.dashboard").joinpath("worker.js").read_bytes()
    listed = orjson.dumps(dict(files), option=orjson.OPT_SORT_KEYS)
    version = hashlib.sha256(listed).hexdigest()[:16]
    known = {b"VERSION": orjson.dumps(version), b"FILES": listed}
    return b"".join(b"const %s = %s;\n" % each for each in known.items()) + source
