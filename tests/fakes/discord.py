"""Discord in a few hundred lines, for tests, benchmarks and crash proofs: gateway and REST.

It speaks real websockets and HTTP on 127.0.0.1: HELLO, IDENTIFY, READY, GUILD_CREATE, heartbeats,
RESUME with replay, compression, invalid sessions, close codes, buckets and global limits.

In a test: `async with FakeDiscord() as discord: ...`. As a process of its own:
`python -m tests.fakes.discord --port 8098`, with

    POST /control/push   [{"user_id": "7", "text": "hello", "channel": "501"}, {"event": …}, …]
    GET  /control/sent   ?since=N   what the bot said, as it stands now
    GET  /control/state             {"sent": n, "calls": {"METHOD /path": n}, …}
    GET  /control/wait   ?sent=N&timeout=S   returns the state once N messages stand
    POST /control/fail   {"match": "POST /channels", "status": 429, "retry_after": 1, "times": 1}
    POST /control/close  {"code": 4000}   ends the gateway connection
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

from aiohttp import WSCloseCode, WSMsgType, web

from tests.fakes.discord_parts import (
    APPLICATION_ID,
    POSTED_IN,
    TOKEN,
    ApiError,
    Call,
    Fault,
    Json,
    Session,
    Shown,
    bot_user,
    guild,
    message,
    snowflake,
    user,
)
from tests.fakes.discord_rest import Chats
from tests.fakes.mocks import run_fake

CONTENT_INTENT = 1 << 15
_ID = re.compile(r"\d{3,}")


class _Socket:
    """One websocket connection, compressing when it was asked to."""

    def __init__(self, ws: web.WebSocketResponse, *, compress: bool) -> None:
        self.ws = ws
        self._zlib = zlib.compressobj() if compress else None
        self.session: Session | None = None
        self.is_ended = False  # by the server

    async def send(self, op: int, data: Any, event: str | None = None, seq: int | None = None):
        text = json.dumps({"op": op, "d": data, "t": event, "s": seq})
        with contextlib.suppress(ConnectionError, RuntimeError):
            if self._zlib is None:
                await self.ws.send_str(text)
                return
            packed = self._zlib.compress(text.encode()) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
            await self.ws.send_bytes(packed)


class FakeDiscord(Chats):
    """The server; start it with `async with`."""

    def __init__(self, *tokens: str, record_calls: bool = True, bucket: int = 0) -> None:
        super().__init__()
        self.tokens = {*(tokens or (TOKEN,))}
        self.token = next(iter(tokens or (TOKEN,)))
        self.record_calls = record_calls
        self.bucket = bucket  # messages a channel takes in five seconds; 0 is any number
        self.heartbeat = 41.25  # seconds
        self.identify_every = 0.0  # seconds; a session that begins sooner is invalid
        self._identify_at = 0.0
        self.content_allowed = True  # whether the bot may ask for what messages say
        self.compress = True
        self.undescribed: set[str] = set()  # servers that stay unavailable
        self.url = ""
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.identified: list[Json] = []
        self.resumed: list[Json] = []
        self.heartbeats = 0
        self._spent: dict[str, deque[float]] = {}
        self._faults: deque[Fault] = deque()
        self._sockets: set[_Socket] = set()
        self._runner: web.ServerRunner | None = None
        self.files: dict[str, tuple[int, bytes]] = {}  # paths below /cdn/ → status, bytes
        self.fetched: list[str] = []  # of these, whether there or not
        self.add_guild(guild())

    # --- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; `api_root` and `gateway_url` say where."""
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None), handle_signals=False, shutdown_timeout=0.2
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=256)
        await site.start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        for socket in tuple(self._sockets):
            await socket.ws.close(code=WSCloseCode.GOING_AWAY)
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def api_root(self) -> str:
        return f"{self.url}/api/v10"

    @property
    def gateway_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/gateway"

    # --- what tests say and ask --------------------------------------------------------------

    def add_guild(self, data: Json) -> None:
        """A server the bot is in."""
        self.guilds[data["id"]] = data
        for channel in (*data["channels"], *data["threads"]):
            self.channels[channel["id"]] = {**channel, "guild_id": data["id"]}

    def described(self, server: Json) -> Json:
        """A server with the newest message of each channel and thread, a forum's newest post."""

        def newest(channel: Json) -> str | None:
            posts = [t["id"] for t in server["threads"] if t["parent_id"] == channel["id"]]
            said = [made["id"] for made in self.messages.get(channel["id"], ())]
            found = posts if channel["type"] in POSTED_IN else said
            return max(found, key=int, default=None)

        listed = {
            kind: [{**channel, "last_message_id": newest(channel)} for channel in server[kind]]
            for kind in ("channels", "threads")
        }
        return {**server, **listed}

    def dm(self, person: str) -> str:
        """The id of the direct chat with a person."""
        number = str(700_000 + int(person))
        self.channels[number] = {"id": number, "type": 1, "recipients": [user(person)]}
        return number

    def message(self, person: str, text: str, channel: str = "", **extra: Any) -> Json:
        """A message of a person, in a direct chat or in a channel; it stands there from now on."""
        channel = channel or self.dm(person)
        made = message(channel, extra.pop("author", user(person)), text, **extra)
        server = self.channels.get(channel, {}).get("guild_id")
        if server:
            made |= {"guild_id": server, "member": {"nick": None, "roles": []}}
        self.messages[channel].append(made)
        return made

    async def say(self, person: str, text: str, channel: str = "", **extra: Any) -> Json:
        """A person writes, and the bot hears of it."""
        made = self.message(person, text, channel, **extra)
        await self.dispatch("MESSAGE_CREATE", made)
        return made

    def edited(self, made: Json, text: str, at: float | None = None) -> Json:
        """A person changes what they wrote, now or at a time (seconds since the epoch)."""
        moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
        made |= {"content": text, "edited_timestamp": moment.isoformat()}
        return made

    async def edit(self, made: Json, text: str, at: float | None = None) -> None:
        """A person changes what they wrote, and the bot hears of it."""
        self.edited(made, text, at)
        await self.dispatch("MESSAGE_UPDATE", made)

    async def interact(self, person: str, data: Json, channel: str = "", **extra: Any) -> Shown:
        """A person uses a command or presses a button."""
        channel = channel or self.dm(person)
        place = self.channels[channel]
        number, token = snowflake(), f"interaction-token-{snowflake()}"
        event: Json = {
            "id": number,
            "application_id": APPLICATION_ID,
            "type": 2,
            "token": token,
            "version": 1,
            "data": data,
            "channel_id": channel,
            "channel": place,
            "locale": "en-US",
            **extra,
        }
        if place.get("guild_id"):
            member = {"user": user(person), "roles": [], "permissions": "0"}
            event |= {"guild_id": place["guild_id"], "member": member, "context": 0}
        else:
            event |= {"user": user(person), "context": 1}
        shown = Shown(number, token, channel, time.time(), event=event)
        self.interactions[token] = shown
        await self.dispatch("INTERACTION_CREATE", event)
        return shown

    async def repeat(self, shown: Shown) -> None:
        """Tell the bot of an interaction once more."""
        await self.dispatch("INTERACTION_CREATE", shown.event)

    async def command(self, person: str, name: str, text: str = "", channel: str = "") -> Shown:
        """A person uses a slash command."""
        options = [{"type": 3, "name": "text", "value": text}] if text else []
        data = {"id": "1", "name": name, "type": 1, "options": options}
        return await self.interact(person, data, channel)

    async def press(self, person: str, made: Json, custom_id: str = "") -> Shown:
        """A person presses a button below a message of the bot's; without a name its first."""
        custom_id = custom_id or made["components"][0]["components"][0]["custom_id"]
        data = {"component_type": 2, "custom_id": custom_id}
        return await self.interact(person, data, made["channel_id"], type=3, message=made)

    async def dispatch(self, event: str, data: Json) -> None:
        """Tell every session of something; one that is not connected is told when it resumes."""
        for session in self.sessions.values():
            session.sequence += 1
            record = {"t": event, "s": session.sequence, "d": data}
            session.events.append(record)
            if session.socket is not None:
                await session.socket.send(0, data, event, session.sequence)

    def fail(self, match: str, fault: Fault | None = None, times: int = 1, **values: Any) -> None:
        """Make the next calls fail whose "METHOD /path" contains `match`."""
        fault = fault or Fault(**values)
        fault.match = match
        self._faults.extend([fault] * times)

    async def close_gateway(self, code: int = 4000) -> None:
        """End the gateway connections with a close code."""
        for socket in tuple(self._sockets):
            socket.is_ended = True
            await socket.ws.close(code=code)

    async def cut_gateway(self) -> None:
        """End the gateway connections without a word."""
        for socket in tuple(self._sockets):
            transport = socket.ws._req.transport if socket.ws._req is not None else None
            if transport is not None:
                transport.abort()

    async def signal(self, op: int, data: Any = None) -> None:
        """Send an operation: 7 asks to reconnect, 9 ends the session, 1 asks for a heartbeat."""
        if op == 9 and data is not True:
            self.sessions.clear()
        for socket in tuple(self._sockets):
            await socket.send(op, data)

    def called(self, match: str) -> list[Call]:
        """The recorded calls whose "METHOD /path" contains this."""
        return [call for call in self.calls if match in f"{call.method} {call.path}"]

    async def wait_for(self, ready: Callable[[], bool], within: float = 60.0) -> None:
        """Return once `ready` is true; it is asked again after every call and operation."""
        await self.changed.wait_for(ready, within)

    async def wait_sent(self, count: int, within: float = 60.0) -> list[Json]:
        """What the bot said, once it is so many messages."""
        await self.wait_for(lambda: len(self.sent) >= count, within)
        return self.sent

    async def wait_online(self, within: float = 60.0) -> None:
        """Return once a session is connected."""
        await self.wait_for(lambda: any(s.socket for s in self.sessions.values()), within)

    # --- the gateway -------------------------------------------------------------------------

    async def _gateway(self, request: web.BaseRequest) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        compress = self.compress and request.query.get("compress") == "zlib-stream"
        socket = _Socket(ws, compress=compress)
        self._sockets.add(socket)
        try:
            await socket.send(10, {"heartbeat_interval": self.heartbeat * 1000})
            async for frame in ws:
                if frame.type is not WSMsgType.TEXT:
                    break
                await self._operation(socket, json.loads(frame.data))
                self.changed.notify()
        finally:
            self._sockets.discard(socket)
            if socket.session is not None and socket.session.socket is socket:
                socket.session.socket = None
                if ws.close_code in {1000, 1001} and not socket.is_ended:
                    self.sessions.pop(socket.session.id, None)  # the bot said goodbye
            self.changed.notify()
        return ws

    async def _operation(self, socket: _Socket, frame: Json) -> None:
        op, data = frame.get("op"), frame.get("d")
        if op == 1:
            self.heartbeats += 1
            await socket.send(11, None)
        elif op == 2 and socket.session is not None:
            await socket.ws.close(code=4005)
        elif op == 2:
            await self._identify(socket, data or {})
        elif op == 6:
            await self._resume(socket, data or {})
        elif socket.session is None:
            await socket.ws.close(code=4003)

    async def _identify(self, socket: _Socket, data: Json) -> None:
        self.identified.append(data)
        intents = int(data["intents"])
        if data["token"] not in self.tokens:
            await socket.ws.close(code=4004)
            return
        if intents & CONTENT_INTENT and not self.content_allowed:
            await socket.ws.close(code=4014)
            return
        now = asyncio.get_running_loop().time()
        if now < self._identify_at:
            await socket.send(9, data=False)
            return
        self._identify_at = now + self.identify_every
        session = Session(f"session-{snowflake()}", data["token"], intents)
        self.sessions[session.id] = session
        socket.session, session.socket = session, socket
        ready = {
            "v": 10,
            "user": bot_user(),
            "guilds": [{"id": number, "unavailable": True} for number in self.guilds],
            "session_id": session.id,
            "resume_gateway_url": self.gateway_url,
            "application": {"id": APPLICATION_ID, "flags": 1 << 18},
            "private_channels": [],
        }
        session.sequence = 1
        session.events.append({"t": "READY", "s": 1, "d": ready})
        await socket.send(0, ready, "READY", 1)
        for number, described in self.guilds.items():
            if number not in self.undescribed:
                await self.dispatch("GUILD_CREATE", self.described(described))

    async def _resume(self, socket: _Socket, data: Json) -> None:
        self.resumed.append(data)
        session = self.sessions.get(data["session_id"])
        if session is None or data["token"] != session.token:
            await socket.send(9, data=False)
            return
        socket.session, session.socket = session, socket
        for event in [e for e in session.events if e["s"] > int(data["seq"] or 0)]:
            await socket.send(0, event["d"], event["t"], event["s"])
        session.sequence += 1
        await socket.send(0, {"_trace": []}, "RESUMED", session.sequence)

    # --- HTTP --------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path == "/gateway":
            return await self._gateway(request)
        if path.startswith("/control/"):
            return await self._control(request, path.removeprefix("/control/"))
        if path.startswith("/cdn/"):
            self.fetched.append(path.removeprefix("/cdn/"))
            status, data = self.files.get(self.fetched[-1], (404, b""))
            return web.Response(status=status, body=data, headers={"Location": "/cdn/other"})
        try:
            return await self._api(request, path.removeprefix("/api/v10"))
        finally:
            self.changed.notify()

    async def _api(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        body, files = await _body_of(request)
        name = f"{request.method} {path}"
        token = request.headers.get("Authorization", "").removeprefix("Bot ")
        if self.record_calls:
            call = Call(time.monotonic(), request.method, path, body, dict(request.query), token)
            self.calls.append(call)
        self.counts[_ID.sub("#", name)] += 1
        headers = {"Via": "1.1 google"}
        fault = next((f for f in self._faults if f.match in name), None)
        if fault is not None:
            self._faults.remove(fault)
            await asyncio.sleep(fault.delay)
            if fault.after:
                await self.route(request.method, path, body, request.query, files)
            if fault.drop:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            if fault.body is not None:
                return web.Response(status=fault.status, body=fault.body)
        try:
            self._check(fault, path, token)
            headers |= self._limited(request.method, path)
            result = await self.route(request.method, path, body, request.query, files)
        except ApiError as error:
            return _answer(error.body, error.status, headers | error.headers)
        return _answer(result, 200 if result is not None else 204, headers)

    def _check(self, fault: Fault | None, path: str, token: str) -> None:
        if fault is not None and fault.status:
            raise _error_of(fault)
        if not path.startswith(("/webhooks/", "/interactions/")) and token not in self.tokens:
            raise ApiError(401, 0, "401: Unauthorized")

    def _limited(self, method: str, path: str) -> dict[str, str]:
        """The headers of the bucket of messages; raises when it is empty."""
        found = re.fullmatch(r"/channels/(\d+)/messages(/\d+)?", path)
        if not self.bucket or found is None or method == "GET":
            return {}
        name = "edits" if found[2] else "sends"
        spent = self._spent.setdefault(f"{name}:{found[1]}", deque())
        now = time.monotonic()
        while spent and now - spent[0] >= 5:
            spent.popleft()
        after = f"{5 - (now - spent[0]) if spent else 5:.3f}"
        headers = {
            "X-RateLimit-Bucket": name,
            "X-RateLimit-Limit": str(self.bucket),
            "X-RateLimit-Remaining": str(max(0, self.bucket - len(spent) - 1)),
            "X-RateLimit-Reset-After": after,
        }
        if len(spent) >= self.bucket:
            words = "You are being rate limited."
            more = {"retry_after": float(after), "global": False}
            raise ApiError(429, 0, words, headers, **more)
        spent.append(now)
        return headers

    # --- control over HTTP -------------------------------------------------------------------

    def state(self) -> Json:
        """Counts of everything, for a driver in another process."""
        return {
            "sent": len(self.sent),
            "calls": dict(self.counts),
            "sessions": len(self.sessions),
            "online": sum(s.socket is not None for s in self.sessions.values()),
            "identified": len(self.identified),
            "resumed": len(self.resumed),
            "commands": self.commands,
        }

    async def _control(self, request: web.BaseRequest, action: str) -> web.Response:
        query = request.query
        body: Any = json.loads(await request.read()) if request.method == "POST" else {}
        if action == "push":
            return _answer({"pushed": [await self._push(item) for item in body]})
        if action == "sent":
            return _answer(self.sent[int(query.get("since", 0)) :])
        if action == "wait":
            with contextlib.suppress(TimeoutError):
                await self.wait_sent(int(query.get("sent", 0)), float(query.get("timeout", 10)))
            return _answer(self.state())
        if action == "fail":
            match, times = body.pop("match"), body.pop("times", 1)
            self.fail(match, times=times, **body)
            return _answer({})
        if action == "close":
            await self.close_gateway(int(body.get("code", 4000)))
            return _answer({})
        return _answer(self.state())

    async def _push(self, item: Json) -> str:
        """One entry of /control/push: a raw event, or a text of a person; returns its id."""
        if "event" in item:
            await self.dispatch(item["event"], item["data"])
            return ""
        person, text = str(item.pop("user_id")), str(item.pop("text"))
        return (await self.say(person, text, **item))["id"]


async def _body_of(request: web.BaseRequest) -> tuple[Any, list[tuple[str, str, bytes]]]:
    """The JSON of a call, and the files that came with it."""
    if request.content_type != "multipart/form-data":
        raw = await request.read()
        return (json.loads(raw) if raw else None), []
    body: Any = None
    files: list[tuple[str, str, bytes]] = []
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            files.append((value.filename, value.content_type, value.file.read()))
        elif name == "payload_json":
            body = json.loads(value)
    return body, files


def _error_of(fault: Fault) -> ApiError:
    if fault.retry_after is None:
        return ApiError(fault.status, fault.code, fault.message)
    headers = {"X-RateLimit-Global": "true"} if fault.everywhere else {}
    more = {"retry_after": fault.retry_after, "global": fault.everywhere}
    return ApiError(429, 0, "You are being rate limited.", headers, **more)


def _answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    if status == 204:
        return web.Response(status=204, headers=headers)
    # The SDK compares the content type as a whole, so there is no charset in it.
    made = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=json.dumps(value).encode(), status=status, headers=made)


def main() -> None:
    """Run the server until it is told to end."""
    parser = argparse.ArgumentParser(description="Discord for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", action="append", default=[], help="a bot's token; repeatable")
    options = parser.parse_args()
    run_fake(lambda: FakeDiscord(*options.token, record_calls=False), options.port)


if __name__ == "__main__":
    main()
