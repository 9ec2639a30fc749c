"""Slack in some hundred lines: the Web API, and Socket Mode over real websockets on 127.0.0.1.

What it brings has the shape of what Slack itself sent: envelopes, slash commands and `hello` as in
`tests/slack_sdk/socket_mode` of slackapi/python-slack-sdk; messages, files, edits, deletions and
presses as in `tests/scenario_tests` of slackapi/bolt-python; answers as in `json-logs/samples/api`
of slackapi/java-slack-sdk.

An envelope that is not acknowledged is brought again by `again`, as Slack does after some time.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any, Self
from uuid import uuid4

from aiohttp import WSMsgType, web

from tests.fakes.sites import Changed

Json = dict[str, Any]
BOT_TOKEN, APP_TOKEN = "xoxb-111-222-fake", "xapp-1-A111-333-fake"
BOT, TEAM, APP = "U111", "T111", "A111"
HELLO = {
    "type": "hello",
    "num_connections": 1,
    "debug_info": {
        "host": "applink-111-xxx",
        "build_number": 10,
        "approximate_connection_time": 18060,
    },
    "connection_info": {"app_id": APP},
}
FILE = {
    "created": 1652227642,
    "timestamp": 1652227642,
    "filetype": "png",
    "pretty_type": "PNG",
    "editable": False,
    "mode": "hosted",
    "is_external": False,
    "external_type": "",
    "is_public": True,
    "public_url_shared": False,
    "display_as_bot": False,
    "username": "",
    "media_display_type": "unknown",
    "has_rich_preview": False,
}


class FakeSlack:
    """The server; start it with `async with`."""

    def __init__(self) -> None:
        self.changed = Changed()
        self.url = ""
        self.people: dict[str, Json] = {}
        self.chats: dict[str, Json] = {}
        self.messages: dict[str, list[Json]] = {}  # by chat, threads too, oldest first
        self.files: dict[str, tuple[int, str, bytes]] = {}  # by path: status, type, bytes
        self.uploaded: list[str] = []
        self.ephemeral: list[Json] = []
        self.calls: list[tuple[str, Json]] = []
        self.faults: deque[tuple[str, int, Json, dict[str, str]]] = deque()
        self.always: dict[str, str] = {}  # method → an error for every call
        self.forbidden: dict[str, str] = {}  # chat → an error for everything that is sent there
        self.acknowledged: list[str] = []
        self.unacknowledged: dict[str, Json] = {}
        self.connections = 0
        self._sockets: list[web.WebSocketResponse] = []
        self._clock = time.time_ns() // 1000
        self._runner: web.AppRunner | None = None
        self._names: dict[str, str] = {}
        self.person("U7", "ada")
        self.chat("C5", "general", is_channel=True)

    # --- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_get("/link", self._link)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/files-pri/{name}", self._file)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.cut()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def api_root(self) -> str:
        return f"{self.url}/api/"

    @property
    def is_connected(self) -> bool:
        return bool(self._sockets)

    async def cut(self) -> None:
        """End every connection without a word."""
        for socket in tuple(self._sockets):
            await socket.close()

    # --- who and what there is -------------------------------------------------------------------

    def person(self, number: str, name: str, **more: Any) -> None:
        profile = {"display_name": name, "real_name": f"{name} full"}
        self.people[number] = {
            "id": number,
            "team_id": TEAM,
            "name": name,
            "tz": "Europe/Vienna",
            "locale": "en-US",
            "is_admin": False,
            "is_owner": False,
            "is_bot": False,
            "profile": profile,
            **more,
        }

    def chat(self, number: str, name: str = "", **more: Any) -> str:
        self.chats[number] = {"id": number, "name": name, "is_member": True, **more}
        self.messages.setdefault(number, [])
        return number

    def dm(self, person: str) -> str:
        return self.chat(f"D{person}", is_im=True, user=person)

    def stamp(self) -> str:
        self._clock += 1000
        return f"{self._clock // 10**6}.{self._clock % 10**6:06}"

    def file(self, name: str, data: bytes, mime: str, **more: Any) -> Json:
        """A file that somebody shared, as it comes with a message."""
        self.files[name] = (200, mime, data)
        url = f"{self.url}/files-pri/{name}"
        about = {"id": f"F{len(self.files)}", "name": name, "title": name, "mimetype": mime}
        return {**FILE, **about, "size": len(data), "url_private": url, **more}

    def message(self, person: str, text: str, chat: str = "", **more: Any) -> Json:
        """A message of a person; it stands there from now on."""
        chat = chat or self.dm(person)
        kind = "im" if self.chats[chat].get("is_im") else "channel"
        kind = "mpim" if self.chats[chat].get("is_mpim") else kind
        stamp = self.stamp()
        made = {
            "client_msg_id": str(uuid4()),
            "type": "message",
            "text": text,
            "user": person,
            "ts": stamp,
            "team": TEAM,
            "channel": chat,
            "event_ts": stamp,
            "channel_type": kind,
            **more,
        }
        self._keep(chat, made)
        return made

    def _keep(self, chat: str, made: Json) -> None:
        root = next((m for m in self.messages[chat] if m["ts"] == made.get("thread_ts")), None)
        if root is not None and root is not made:
            root |= {"latest_reply": made["ts"], "thread_ts": root["ts"], "reply_count": 1}
            made["parent_user_id"] = root["user"]
        self.messages[chat].append(made)

    # --- what the bot is brought -----------------------------------------------------------------

    async def say(self, person: str, text: str, chat: str = "", **more: Any) -> Json:
        """A person writes, and the bot hears of it."""
        made = self.message(person, text, chat, **more)
        await self.event(made)
        return made

    async def edit(self, made: Json, text: str) -> None:
        """A person changes what they wrote."""
        before, stamp = dict(made), self.stamp()
        made |= {"text": text, "edited": {"user": made["user"], "ts": stamp}}
        await self.event(
            self._hidden(made, "message_changed", message=dict(made)) | {"previous_message": before}
        )

    async def delete(self, made: Json) -> None:
        """A person deletes what they wrote."""
        self.messages[made["channel"]].remove(made)
        more = {"deleted_ts": made["ts"], "previous_message": made}
        await self.event(self._hidden(made, "message_deleted", **more))

    async def react(self, person: str, below: Json, name: str = "+1", kind: str = "added") -> None:
        """A person puts a reaction below a message, or takes it back (`kind` "removed")."""
        item = {"type": "message", "channel": below["channel"], "ts": below["ts"]}
        made = {"type": f"reaction_{kind}", "user": person, "reaction": name, "item": item}
        await self.event(made | {"item_user": below.get("user", BOT), "event_ts": self.stamp()})

    def _hidden(self, made: Json, subtype: str, **more: Any) -> Json:
        stamp = self.stamp()
        place = {"channel": made["channel"], "channel_type": made["channel_type"]}
        kind = {"type": "message", "subtype": subtype, "hidden": True}
        return {**kind, **place, "ts": stamp, "event_ts": stamp, **more}

    async def event(self, event: Json) -> None:
        """Bring an event of the Events API."""
        authorization = {"enterprise_id": None, "team_id": TEAM, "user_id": BOT, "is_bot": True}
        payload = {
            "token": "verification-token",
            "team_id": TEAM,
            "api_app_id": APP,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{uuid4().hex[:10]}",
            "event_time": 1610241741,
            "authorizations": [authorization],
            "is_ext_shared_channel": False,
            "event_context": "1-message-T111-C111",
        }
        more = {"accepts_response_payload": False, "retry_attempt": 0, "retry_reason": ""}
        await self.bring("events_api", payload, **more)

    async def command(self, person: str, text: str, chat: str = "", trigger: str = "") -> None:
        """A person uses the app's slash command."""
        payload = {
            "token": "verification-token",
            "team_id": TEAM,
            "team_domain": "xxx",
            "channel_id": chat or self.dm(person),
            "channel_name": "random",
            "user_id": person,
            "user_name": "testxyz",
            "command": "/confidant",
            "text": text,
            "api_app_id": APP,
            "response_url": f"{self.url}/commands/T111/111/xxx",
            "trigger_id": trigger or f"111.{self.stamp()}",
        }
        await self.bring("slash_commands", payload, accepts_response_payload=True)

    def pressing(self, person: str, below: Json, value: str) -> Json:
        """The payload of a press on a button below a message of the bot's."""
        chat = below["channel"]
        button = {"type": "plain_text", "text": "Button", "emoji": True}
        action = {"action_id": "press-0", "block_id": "b", "text": button, "value": value}
        return {
            "type": "block_actions",
            "api_app_id": APP,
            "token": "verification_token",
            "user": {"id": person, "username": "ada", "name": "ada", "team_id": TEAM},
            "container": {
                "type": "message",
                "message_ts": below["ts"],
                "channel_id": chat,
                "is_ephemeral": False,
            },
            "trigger_id": "111.222.valid",
            "team": {"id": TEAM, "domain": "workspace-domain"},
            "channel": {"id": chat, "name": "test-channel"},
            "message": dict(below),
            "response_url": f"{self.url}/actions/T111/111/random-value",
            "actions": [action | {"type": "button", "action_ts": self.stamp()}],
        }

    async def bring(self, kind: str, payload: Json, **more: Any) -> None:
        """Bring an envelope to the newest connection."""
        number = str(uuid4())
        envelope = {"envelope_id": number, "payload": payload, "type": kind, **more}
        self.unacknowledged[number] = envelope
        await self.frame(envelope)

    async def again(self) -> None:
        """Bring once more what was not acknowledged."""
        for envelope in tuple(self.unacknowledged.values()):
            await self.frame(envelope)

    async def frame(self, frame: Json | str) -> None:
        """Send a frame to the newest connection, if there is one."""
        if self._sockets:
            await self._sockets[-1].send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def disconnect(self, reason: str) -> None:
        """Ask to connect again, or say why there will be no connection."""
        await self.frame({"type": "disconnect", "reason": reason, "debug_info": {"host": "x"}})

    # --- what tests ask --------------------------------------------------------------------------

    @property
    def sent(self) -> list[Json]:
        """What the bot said, as it stands now."""
        own = [m for chat in self.messages.values() for m in chat if m["user"] == BOT]
        return sorted(own, key=lambda made: made["ts"])

    @property
    def shown(self) -> list[str]:
        """The words of what the bot said."""
        return [words(made) for made in self.sent if made.get("blocks")]

    def fail(self, method: str, error: str, status: int = 200, **headers: str) -> None:
        """Make the next call of a method fail."""
        self.faults.append((method, status, {"ok": False, "error": error}, headers))

    def called(self, method: str) -> list[Json]:
        return [values for name, values in self.calls if name == method]

    async def wait_for(self, ready: Any, within: float = 60.0) -> None:
        await self.changed.wait_for(ready, within)

    async def wait_shown(self, count: int) -> list[str]:
        await self.wait_for(lambda: len(self.shown) >= count)
        return self.shown

    # --- the socket ------------------------------------------------------------------------------

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json(HELLO)
        self._sockets.append(socket)
        self.connections += 1
        self.changed.notify()
        try:
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    number = json.loads(frame.data).get("envelope_id", "")
                    self.acknowledged.append(number)
                    self.unacknowledged.pop(number, None)
                    self.changed.notify()
        finally:
            self._sockets.remove(socket)
            self.changed.notify()
        return socket

    # --- the Web API -----------------------------------------------------------------------------

    async def _api(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        values = dict(request.query) | dict(await request.post())
        if request.content_type == "application/json":
            values |= await request.json()
        self.calls.append((method, values))
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        fault = next((each for each in self.faults if each[0] == method), None)
        if fault is not None:
            self.faults.remove(fault)
            self.changed.notify()
            return web.json_response(fault[2], status=fault[1], headers=fault[3])
        error = self.always.get(method) or self.forbidden.get(str(values.get("channel")))
        if token != (APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN):
            error = "invalid_auth"
        found = {"ok": False, "error": error} if error else self._answer(method, values)
        if error == "missing_scope":
            found |= {"needed": "chat:write", "provided": "im:history"}
        self.changed.notify()
        return web.json_response(found)

    def _answer(self, method: str, values: Json) -> Json:
        known = getattr(self, "_" + method.replace(".", "_"), None)
        if known is None:
            return {"ok": False, "error": "unknown_method"}
        chat = values.get("channel")
        if chat is not None and chat not in self.chats and chat not in self.people:
            return {"ok": False, "error": "channel_not_found"}
        return {"ok": True} | known(values)

    def _auth_test(self, _values: Json) -> Json:
        who = {"team": "Subarachnoid Workspace", "user": "confidant", "user_id": BOT}
        return {"url": "https://x.slack.com/", "team_id": TEAM, "bot_id": "B111", **who}

    def _apps_connections_open(self, _values: Json) -> Json:
        return {"url": self.url.replace("http", "ws", 1) + "/link?ticket=secret&app_id=A111"}

    def _users_info(self, values: Json) -> Json:
        person = self.people.get(values["user"])
        return {"user": person} if person else {"ok": False, "error": "user_not_found"}

    def _conversations_info(self, values: Json) -> Json:
        return {"channel": self.chats[values["channel"]]}

    def _conversations_open(self, values: Json) -> Json:
        return {"channel": {"id": self.dm(values["users"])}}

    def _users_conversations(self, _values: Json) -> Json:
        return {"channels": [chat for chat in self.chats.values() if chat.get("is_im")]}

    def _conversations_history(self, values: Json) -> Json:
        here = [m for m in self.messages[values["channel"]] if _is_top(m)]
        return {"messages": [_stored(m) for m in here[::-1][: int(values["limit"])]]}

    def _conversations_replies(self, values: Json) -> Json:
        here = self.messages[values["channel"]]
        found = [m for m in here if values["ts"] in {m["ts"], m.get("thread_ts")}]
        return {"messages": [_stored(m) for m in found[: int(values["limit"])]]}

    def _chat_postMessage(self, values: Json) -> Json:  # noqa: N802 - as Slack calls it
        chat = values["channel"]
        chat = self.dm(chat) if chat in self.people else chat
        made = {
            "type": "message",
            "user": BOT,
            "bot_id": "B111",
            "app_id": APP,
            "team": TEAM,
            "ts": self.stamp(),
            "channel": chat,
            "text": values.get("text", ""),
            "blocks": _list(values.get("blocks")),
            "at": time.monotonic(),
        }
        if values.get("thread_ts"):
            made["thread_ts"] = values["thread_ts"]
        self._keep(chat, made)
        return {"channel": chat, "ts": made["ts"], "message": made}

    def _chat_postEphemeral(self, values: Json) -> Json:  # noqa: N802 - as Slack calls it
        self.ephemeral.append(values | {"blocks": _list(values.get("blocks"))})
        return {"message_ts": self.stamp()}

    def _chat_update(self, values: Json) -> Json:
        made = next((m for m in self.messages[values["channel"]] if m["ts"] == values["ts"]), None)
        if made is None:
            return {"ok": False, "error": "message_not_found"}
        made |= {"text": values.get("text", ""), "blocks": _list(values.get("blocks"))}
        return {"channel": values["channel"], "ts": made["ts"], "text": made["text"]}

    def _chat_delete(self, values: Json) -> Json:
        here = self.messages[values["channel"]]
        here[:] = [m for m in here if m["ts"] != values["ts"]]
        return {"channel": values["channel"], "ts": values["ts"]}

    def _files_getUploadURLExternal(self, values: Json) -> Json:  # noqa: N802
        number = f"F{len(self._names) + 100}"
        self._names[number] = values["filename"]
        return {"upload_url": f"{self.url}/upload/{number}", "file_id": number}

    def _files_completeUploadExternal(self, values: Json) -> Json:  # noqa: N802
        files = [{"id": each["id"], "title": each["title"]} for each in _list(values["files"])]
        self.uploaded += [self._names[each["id"]] for each in files]
        shared = {"ts": self.stamp(), "channel": values["channel_id"], "user": BOT, "text": ""}
        self.messages[values["channel_id"]].append(
            {"type": "message", "subtype": "file_share", "files": files, **shared}
        )
        return {"files": files}

    async def _upload(self, request: web.Request) -> web.Response:
        data = await request.read()
        return web.Response(text=f"OK - {len(data)}")

    async def _file(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {BOT_TOKEN}":
            raise web.HTTPFound("https://x.slack.com/?redir=%2Ffiles-pri")
        status, mime, data = self.files.get(request.match_info["name"], (404, "text/html", b""))
        if status == 302:
            raise web.HTTPFound("https://x.slack.com/?redir=%2Ffiles-pri")
        return web.Response(status=status, body=data, content_type=mime)


def words(made: Json) -> str:
    """What is read of a message of the bot's."""
    return "\n".join(each["text"] for each in made["blocks"] if each["type"] == "markdown")


def _list(value: Any) -> list[Json]:
    return json.loads(value) if isinstance(value, str) else (value or [])


def _is_top(made: Json) -> bool:
    return made.get("thread_ts", made["ts"]) == made["ts"]


def _stored(made: Json) -> Json:
    return {key: made[key] for key in made if key not in {"channel", "channel_type", "event_ts"}}
