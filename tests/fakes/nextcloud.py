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
ALL_FEATURES = WEBHOOK | RESPONSE  # all that is needed
MAX_LENGTH = 32_000
API_USER, API_PASSWORD = "confidant", "app-password-1"
QUICK = Pace(store=(0.01, 0.01), first=0.01, longest=0.02, hold=4.0)


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


def record(text: str, **changes: Any) -> dict[str, Any]:
    """An entry of a room's own record, as Talk's chat API shows it; `changes` as in `payload`.

    They may also set at (seconds since the epoch), system, kind, reference and deleted.
    """
    kind, _, actor = changes.get("sender", "users/ada").partition("/")
    number, system = int(changes.get("id", 1567)), changes.get("system", "")
    found: dict[str, Any] = {
        "id": number,
        "token": changes.get("room", "n3xtc10ud"),
        "actorType": kind,
        "actorId": actor,
        "actorDisplayName": changes.get("name", "Ada Lovelace"),
        "timestamp": int(changes.get("at", time.time())),
        "message": text,
        "messageParameters": changes.get("parameters", []),
        "systemMessage": system,
        "messageType": changes.get("kind", "system" if system else "comment"),
        "isReplyable": not system,
        "referenceId": changes.get("reference", ""),
        "reactions": {},
        "expirationTimestamp": 0,
        "markdown": not system,
        "threadId": changes.get("thread", number),
    }
    if changes.get("deleted"):
        found |= {"deleted": True, "messageType": "comment_deleted"}
    if "reply" in changes:
        answered = changes["reply"]
        inner = json.loads(answered["object"]["content"])
        found["parent"] = record(
            inner["message"],
            id=answered["object"]["id"],
            sender=answered["actor"]["id"],
            name=answered["actor"]["name"],
            parameters=inner["parameters"],
        )
    return found


@dataclass
class FakeBot:
    """A bot as `occ talk:bot:install` made it."""

    secret: str
    url: str
    name: str = "Confidant"
    features: int = ALL_FEATURES
    rooms: set[str] = field(default_factory=lambda: {"n3xtc10ud"})

    @property
    def shown(self) -> str:
        """What Talk calls the bot wherever it shows what it said."""
        return f"{self.name} (Bot)"

    @property
    def actor(self) -> str:
        return f"bots/bot-{hashlib.sha1(self.url.encode(), usedforsecurity=False).hexdigest()}"


def reply_to(said: dict[str, Any]) -> dict[str, Any]:
    """What Talk (21 and later) tells of the answered message, which is an entry of `record`."""
    body = payload(
        said["message"],
        id=said["id"],
        sender=f"{said['actorType']}/{said['actorId']}",
        name=said["actorDisplayName"],
        parameters=said["messageParameters"],
    )
    return {"type": "Note", "actor": body["actor"], "object": body["object"]}


def shared(kind: str, number: str, name: str, **more: str) -> dict[str, Any]:
    """The parameters of something a person shared that is no file, as Talk fills them in."""
    actor = {"type": "user", "id": "ada", "name": "Ada Lovelace"}
    return {"actor": actor, "object": {"type": kind, "id": number, "name": name, **more}}


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
    records: list[dict[str, Any]] = field(default_factory=list)  # of all rooms, oldest first
    strangers: set[str] = field(default_factory=set)  # rooms the API user is not in
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # records: room, query
    read: int = 0  # how often a record was read to its end
    chat: Callable[[str, dict[str, str]], web.Response] | None = None  # in place of the real one
    requests: list[tuple[str, str]] = field(default_factory=list)
    backend: str = ""  # overwrite.cli.url, when it differs
    url: str = ""
    _written: set[int] = field(default_factory=set)  # ids of the records
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
        number = self.write(text, **changes)
        return await self.bring(payload(text, **(changes | {"id": number})))

    def write(self, text: str, **changes: Any) -> int:
        """A person writes, and the bots are not told; the message's id."""
        number = int(changes.setdefault("id", max(self.messages) + 1))
        if number not in self._written:
            self._written.add(number)
            self.messages.add(number)
            self.records.append(record(text, **changes))
        return number

    async def switch(self, bot: FakeBot, room: str, *, on: bool = True) -> int:
        """A moderator switches a bot on in a room, or off; the status it answered with."""
        body = {
            "type": "Join" if on else "Leave",
            "actor": {"type": "Application", "id": bot.actor, "name": bot.name},
            "object": {"type": "Collection", "id": room, "name": "world"},
        }
        (bot.rooms.add if on else bot.rooms.discard)(room)
        return await self.call(bot.url, json.dumps(body).encode(), bot.secret)

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
            self.write(
                text,
                room=token,
                sender=bot.actor,
                name=bot.shown,
                reference=body.get("referenceId", ""),
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
        rooms = [token for token in self.kinds if token not in self.strangers]
        return ocs([{"token": token, "type": self.kinds[token]} for token in rooms])

    async def _room(self, request: web.Request) -> web.Response:
        self._user(request)
        token = request.match_info["token"]
        if token not in self.kinds or token in self.strangers:
            raise web.HTTPNotFound
        return ocs({"token": token, "type": self.kinds[token]})

    async def _chat(self, request: web.Request) -> web.Response:
        """A room's record, forwards or backwards, as ChatController.php gives it."""
        self._user(request)
        token, query = request.match_info["token"], dict(request.query)
        self.asked.append((token, query))
        if self.chat is not None:
            return self.chat(token, query)
        if token not in self.kinds or token in self.strangers:
            raise web.HTTPNotFound
        known, limit = int(query.get("lastKnownMessageId", 0)), int(query.get("limit", 100))
        said = sorted((e for e in self.records if e["token"] == token), key=lambda e: e["id"])
        if query["lookIntoFuture"] == "1":
            assert query["timeout"] == "0", "nobody waits for what is to come"
            found = [e for e in said if e["id"] > known]
        else:
            found = [e for e in reversed(said) if not known or e["id"] < known]
        found = found[: min(limit, 200)]
        if not found:
            self.read += 1
            return web.Response(status=304)
        return ocs(found, headers={"X-Chat-Last-Given": str(found[-1]["id"])})

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
            reference=body["referenceId"],
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


def ocs(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    meta = {"status": "ok", "statuscode": status, "message": "OK"}
    body = {"ocs": {"meta": meta, "data": data}}
    return web.json_response(body, status=status, headers=headers)


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


@asynccontextmanager
async def running(
    engine: RecordingEngine,
    config: NextcloudTalkConfig,
    *,
    wait: bool = True,
    pace: Pace = QUICK,
) -> AsyncIterator[NextcloudTalk]:
    """The channel, started and listening; stopped at the end."""
    engine.health.clear()
    channel = NextcloudTalk(config, pace)
    await channel.start(engine)
    try:
        if wait:
            await until(lambda: any(state is Health.UP for state, _ in engine.health.values()))
        yield channel
    finally:
        await channel.stop()
