"""A Nextcloud with Talk, as far as a bot meets it: its bot API, rooms, files and webhooks.

Signatures are made and checked here with hmac alone, so that nothing of the channel's own code
decides whether they are right.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp import web

from adapters.nextcloud_talk import NextcloudTalkConfig
from adapters.nextcloud_talk.account import Pace
from adapters.nextcloud_talk.channel import NextcloudTalk
from bot.channel import Health
from bot.testing import RecordingEngine
from tests.support import until

SECRET = "a-secret-of-the-bot-that-is-long-enough-for-talk"
WEBHOOK, RESPONSE, REACTION = 1, 2, 8
ALL_FEATURES = WEBHOOK | RESPONSE | REACTION
MAX_LENGTH = 32_000
API_USER, API_PASSWORD = "confidant", "app-password-1"
QUICK = Pace(store=(0.01, 0.01), port=0.02)


def signed(secret: str, random: str, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return hmac.new(secret.encode(), random.encode() + data, hashlib.sha256).hexdigest()


def payload(text: str, **changes: Any) -> dict[str, Any]:
    """A Create as Talk writes it; `changes` may set sender, name, room, id, parameters, reply."""
    room = changes.get("room", "n3xtc10ud")
    note: dict[str, Any] = {
        "type": "Note",
        "id": str(changes.get("id", 1567)),
        "name": "message",
        "content": json.dumps({"message": text, "parameters": changes.get("parameters", [])}),
        "mediaType": "text/markdown",
    }
    if "reply" in changes:
        note["inReplyTo"] = changes["reply"]
    if "thread" in changes:
        note["threadId"] = changes["thread"]
    sender = changes.get("sender", "users/ada")
    actor = {"type": "Person", "id": sender, "name": changes.get("name", "Ada Lovelace")}
    if "rank" in changes:
        actor["talkParticipantType"] = changes["rank"]
    return {
        "type": changes.get("type", "Create"),
        "actor": actor,
        "object": note,
        "target": {"type": "Collection", "id": room, "name": "world"},
    }


@dataclass
class FakeBot:
    """A bot as `occ talk:bot:install` made it."""

    secret: str
    url: str
    name: str = "Confidant"
    features: int = ALL_FEATURES
    rooms: set[str] = field(default_factory=lambda: {"n3xtc10ud"})

    @property
    def actor(self) -> str:
        return f"bots/bot-{hashlib.sha1(self.url.encode(), usedforsecurity=False).hexdigest()}"


@dataclass(frozen=True)
class Posted:
    """A message a bot posted."""

    room: str
    text: str
    reference: str = ""
    reply_to: int = 0
    silent: bool = False
    thread: int = 0
    actor: str = ""
    file: str = ""
    at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead; `after` answers like that although the work was done."""

    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    after: bool = False


@dataclass
class FakeNextcloud:
    """The server; `async with` starts and stops it."""

    bots: list[FakeBot] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=lambda: {"n3xtc10ud": 1})
    posted: list[Posted] = field(default_factory=list)
    reactions: list[tuple[str, str, str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # of webhooks
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # number → path, bytes
    folders: set[str] = field(default_factory=lambda: {""})
    shared: set[tuple[str, str]] = field(default_factory=set)
    abilities: list[str] = field(default_factory=lambda: ["bots-v1", "bot-features-api"])
    messages: set[int] = field(default_factory=lambda: {1567})
    requests: list[tuple[str, str]] = field(default_factory=list)
    backend: str = ""  # overwrite.cli.url, when it differs
    url: str = ""
    _faults: dict[str, deque[Fault]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._faulty], client_max_size=1 << 22)
        talk = "/ocs/v2.php/apps/spreed/api"
        app.router.add_post(f"{talk}/v1/bot/ask-features", self._features)
        app.router.add_post(f"{talk}/v1/bot/{{token}}/message", self._message)
        app.router.add_route("*", f"{talk}/v1/bot/{{token}}/reaction/{{id}}", self._reaction)
        app.router.add_get(f"{talk}/v1/chat/{{token}}", self._chat)
        app.router.add_get(f"{talk}/v4/room", self._rooms)
        app.router.add_get(f"{talk}/v4/room/{{token}}", self._room)
        app.router.add_get("/ocs/v2.php/cloud/capabilities", self._capabilities)
        app.router.add_route("SEARCH", "/remote.php/dav/", self._search)
        app.router.add_get("/remote.php/dav/files/{user}/{path:.*}", self._file)
        app.router.add_route("MKCOL", "/remote.php/dav/files/{user}/{path:.*}", self._folder)
        app.router.add_put("/remote.php/dav/files/{user}/{path:.*}", self._upload)
        app.router.add_post("/ocs/v2.php/apps/files_sharing/api/v1/shares", self._share)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        self._client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._client.close()
        await self._runner.cleanup()

    # --- for tests -------------------------------------------------------------------------------

    def fail_next(self, part: str, fault: Fault, times: int = 1) -> None:
        """Let requests whose path has `part` in it fail."""
        self._faults.setdefault(part, deque()).extend([fault] * times)

    async def wait_posted(self, count: int) -> list[Posted]:
        await self.wait_for(lambda: len(self.posted) >= count)
        return self.posted

    async def wait_for(self, ready: Callable[[], bool]) -> None:
        """Return once `ready` is true; it is asked again after every message of a bot."""
        async with self._changed:
            await self._changed.wait_for(ready)

    async def say(self, text: str, **changes: Any) -> list[int]:
        """A person writes; the statuses the bots of the room answered with."""
        changes.setdefault("id", max(self.messages) + 1)
        self.messages.add(int(changes["id"]))
        return await self.bring(payload(text, **changes))

    async def bring(self, body: dict[str, Any]) -> list[int]:
        """Send an activity to the bots of its room."""
        where = "object" if body["type"] in {"Join", "Leave"} else "target"
        room = body[where]["id"]
        found = [
            await self.call(bot.url, json.dumps(body).encode(), bot.secret)
            for bot in self.bots
            if room in bot.rooms and bot.features & WEBHOOK
        ]
        self.statuses += found
        return found

    async def call(self, url: str, body: bytes, secret: str, **headers: str) -> int:
        """One signed webhook call; its status, 0 without an answer. Headers replace Talk's."""
        random = headers.pop("random", secrets.token_urlsafe(48))
        said = {
            "Content-Type": "application/json",
            "X-Nextcloud-Talk-Random": random,
            "X-Nextcloud-Talk-Signature": headers.pop("signature", signed(secret, random, body)),
            "X-Nextcloud-Talk-Backend": headers.pop("backend", f"{self.backend or self.url}/"),
            "OCS-APIRequest": "true",
        }
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with self._client.post(url, data=body, headers=said, timeout=timeout) as response:
                return response.status
        except (TimeoutError, aiohttp.ClientConnectionError):
            return 0

    # --- the bot API -----------------------------------------------------------------------------

    def _bot(self, request: web.Request, token: str, text: str, needed: int) -> FakeBot:
        random = request.headers.get("X-Nextcloud-Talk-Bot-Random", "")
        signature = request.headers.get("X-Nextcloud-Talk-Bot-Signature", "")
        if request.headers.get("OCS-APIRequest") != "true" or len(random) < 32 or not signature:
            raise web.HTTPBadRequest
        for bot in self.bots:
            if token not in bot.rooms or bot.features & needed != needed:
                continue
            if hmac.compare_digest(signed(bot.secret, random, text), signature):
                return bot
        raise web.HTTPUnauthorized

    async def _message(self, request: web.Request) -> web.Response:
        body, token = await request.json(), request.match_info["token"]
        text = body["message"]
        if not text.strip():
            raise web.HTTPBadRequest
        bot = self._bot(request, token, text, RESPONSE)
        if token not in self.kinds:
            raise web.HTTPNotFound
        if body.get("replyTo") and body["replyTo"] not in self.messages:
            raise web.HTTPBadRequest
        if len(text) > MAX_LENGTH:
            raise web.HTTPRequestEntityTooLarge(max_size=MAX_LENGTH, actual_size=len(text))
        async with self._changed:
            self.posted.append(
                Posted(
                    token,
                    text,
                    body.get("referenceId", ""),
                    body.get("replyTo", 0),
                    body.get("silent", False),
                    body.get("threadId", 0),
                    bot.actor,
                )
            )
            self._changed.notify_all()
        return ocs(None, 201)

    async def _reaction(self, request: web.Request) -> web.Response:
        body, token = await request.json(), request.match_info["token"]
        self._bot(request, token, body["reaction"], RESPONSE)
        if int(request.match_info["id"]) not in self.messages:
            raise web.HTTPNotFound
        entry = (token, request.match_info["id"], body["reaction"])
        if request.method == "POST":
            self.reactions.append(entry)
            return ocs(None, 201)
        if entry not in self.reactions:
            raise web.HTTPNotFound
        self.reactions.remove(entry)
        return ocs(None)

    async def _features(self, request: web.Request) -> web.Response:
        if "bot-features-api" not in self.abilities:
            raise web.HTTPNotFound
        token = (await request.json())["token"]
        return ocs({"features": self._bot(request, token, token, 0).features})

    # --- what an account may ask -----------------------------------------------------------------

    def _user(self, request: web.Request) -> None:
        login = base64.b64encode(f"{API_USER}:{API_PASSWORD}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            raise web.HTTPUnauthorized

    async def _rooms(self, request: web.Request) -> web.Response:
        self._user(request)
        return ocs([{"token": token, "type": kind} for token, kind in self.kinds.items()])

    async def _room(self, request: web.Request) -> web.Response:
        self._user(request)
        token = request.match_info["token"]
        if token not in self.kinds:
            raise web.HTTPNotFound
        return ocs({"token": token, "type": self.kinds[token]})

    async def _chat(self, request: web.Request) -> web.Response:
        self._user(request)
        said = [each for each in self.posted if each.room == request.match_info["token"]]
        return ocs([{"message": e.text, "referenceId": e.reference} for e in reversed(said)])

    async def _capabilities(self, request: web.Request) -> web.Response:
        spreed = {"spreed": {"features": self.abilities}} if self.abilities else {}
        return ocs({"version": {"major": 33}, "capabilities": spreed})

    async def _search(self, request: web.Request) -> web.Response:
        self._user(request)
        number = (await request.text()).partition("<d:literal>")[2].partition("<")[0]
        path = self.files.get(number, ("",))[0]
        href = f"<d:response><d:href>/remote.php/dav/files/{API_USER}/{path}</d:href></d:response>"
        body = f'<d:multistatus xmlns:d="DAV:">{href if path else ""}</d:multistatus>'
        return web.Response(status=207, text=body, content_type="application/xml")

    async def _file(self, request: web.Request) -> web.Response:
        self._user(request)
        for path, data in self.files.values():
            if request.raw_path == f"/remote.php/dav/files/{API_USER}/{path}":
                return web.Response(body=data)
        raise web.HTTPNotFound

    async def _folder(self, request: web.Request) -> web.Response:
        self._user(request)
        path = request.match_info["path"]
        if path.rpartition("/")[0] not in self.folders:
            raise web.HTTPConflict
        known = path in self.folders
        self.folders.add(path)
        return web.Response(status=405 if known else 201)

    async def _upload(self, request: web.Request) -> web.Response:
        self._user(request)
        path = request.match_info["path"]
        if path.rpartition("/")[0] not in self.folders:
            raise web.HTTPConflict
        numbers = {kept: number for number, (kept, _) in self.files.items()}
        number = numbers.get(path, str(5000 + len(self.files)))
        self.files[number] = (path, await request.read())
        return web.Response(status=201, headers={"OC-FileId": f"{int(number):08}oc1a2b3c"})

    async def _share(self, request: web.Request) -> web.Response:
        self._user(request)
        body = await request.json()
        room, path = body["shareWith"], body["path"].removeprefix("/")
        number = next(number for number, (kept, _) in self.files.items() if kept == path)
        if body["shareType"] != 10 or room not in self.kinds:
            raise web.HTTPNotFound
        if (room, path) in self.shared:
            words = "Path is already shared with this conversation"
            return web.json_response({"ocs": {"meta": {"message": words}}}, status=403)
        self.shared.add((room, path))
        name = path.rpartition("/")[2]
        async with self._changed:
            self.posted.append(Posted(room, "", body["referenceId"], file=name, actor=API_USER))
            self._changed.notify_all()
        file = {"type": "file", "id": number, "name": name, "mimetype": "image/png"}
        await self.say(
            "{file}",
            room=room,
            sender=f"users/{API_USER}",
            parameters={"file": file},
            type="Activity",
        )
        return ocs({"id": 1})

    @web.middleware
    async def _faulty(
        self, request: web.Request, handler: Callable[..., Any]
    ) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        fault = next(
            (
                queue.popleft()
                for part, queue in self._faults.items()
                if queue and part in request.path
            ),
            None,
        )
        if fault is not None and fault.after:
            await handler(request)
        if fault is not None and fault.drop:
            if request.transport is not None:
                request.transport.close()
            return web.Response()
        if fault is not None:
            return web.Response(status=fault.status, headers=fault.headers)
        return await handler(request)


def ocs(data: Any, status: int = 200) -> web.Response:
    meta = {"status": "ok", "statuscode": status, "message": "OK"}
    return web.json_response({"ocs": {"meta": meta, "data": data}}, status=status)


def settings(fake: FakeNextcloud, port: int, **values: Any) -> NextcloudTalkConfig:
    """A configuration for the fake server, with the bot it knows installed."""
    config = NextcloudTalkConfig.model_validate(
        {
            "base_url": fake.url,
            "bot_secret": SECRET,
            "webhook_port": port,
            "public_url": f"http://127.0.0.1:{port}",
            **values,
        }
    )
    if not fake.bots:
        fake.bots.append(FakeBot(SECRET, f"http://127.0.0.1:{port}{config.webhook_path}"))
    return config


WITH_API_USER = {"api_user": API_USER, "api_password": API_PASSWORD}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@asynccontextmanager
async def running(
    engine: RecordingEngine, config: NextcloudTalkConfig, *, wait: bool = True
) -> AsyncIterator[NextcloudTalk]:
    """The channel, started and listening; stopped at the end."""
    channel = NextcloudTalk(config, QUICK)
    await channel.start(engine)
    try:
        if wait:
            await until(lambda: any(state is Health.UP for state, _ in engine.health.values()))
        yield channel
    finally:
        await channel.stop()
