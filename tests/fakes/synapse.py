"""A real homeserver, Synapse from its wheel on SQLite, and people with an app of the SDK."""

from __future__ import annotations

import asyncio
import atexit
import base64
import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import nio
import pytest

from tests.fakes.ports import free_port

START_SECONDS = 60.0
NAME = "hs.test"
_NO_LIMIT = {"per_second": 10_000, "burst_count": 10_000}
_numbers = count(1)


class Synapse:
    """One server in a folder of its own, on 127.0.0.1. Not started yet."""

    def __init__(self, **options: Any) -> None:
        if find_spec("synapse") is None:
            pytest.skip("Synapse has no wheel for this system")
        self.folder = Path(tempfile.mkdtemp(prefix="confidant-matrix-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (self.folder / "signing.key").write_text(f"ed25519 a_test {seed}\n")
        logs = {
            "version": 1,
            "handlers": {"all": {"class": "logging.StreamHandler"}},
            "loggers": {"synapse.access": {"level": "INFO"}},
            "root": {"level": "ERROR", "handlers": ["all"]},
        }
        (self.folder / "log.yaml").write_text(json.dumps(logs))
        limits = dict.fromkeys(("rc_message", "rc_registration"), _NO_LIMIT)
        limits["rc_login"] = {"address": _NO_LIMIT, "account": _NO_LIMIT}
        limits["rc_joins"] = {"local": _NO_LIMIT, "remote": _NO_LIMIT}
        limits["rc_invites"] = dict.fromkeys(("per_room", "per_user", "per_issuer"), _NO_LIMIT)
        listener = {"port": self.port, "bind_addresses": ["127.0.0.1"], "type": "http"}
        config = {
            "server_name": NAME,
            "listeners": [{**listener, "resources": [{"names": ["client"]}]}],
            "database": {
                "name": "sqlite3",
                "args": {"database": f"{self.folder}/homeserver.db"},
            },
            "log_config": f"{self.folder}/log.yaml",
            "media_store_path": f"{self.folder}/media",
            "signing_key_path": f"{self.folder}/signing.key",
            "macaroon_secret_key": secrets.token_hex(),
            "enable_registration": True,
            "enable_registration_without_verification": True,
            "report_stats": False,
            "bcrypt_rounds": 4,
            "caches": {"sync_response_cache_duration": 0},
            "trusted_key_servers": [],
            **limits,
            **options,
        }
        (self.folder / "homeserver.yaml").write_text(json.dumps(config))  # JSON is YAML

    def start(self) -> None:
        """Start it, also after `kill`; returns when it answers."""
        with (self.folder / "out.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*(sys.executable, "-m", "synapse.app.homeserver"), "-c", "homeserver.yaml"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"},
            )
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5):
                    return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise AssertionError((self.folder / "out.log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def answered(self, call: str) -> int:
        """How many calls with these words in their address were answered."""
        return (self.folder / "out.log").read_text().count(call)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End it, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def register(self, name: str = "bot") -> dict[str, str]:
        """A new account, logged in: "user_id", "device_id" and "access_token"."""
        body = {"username": f"{name}{next(_numbers)}", "password": "p"}
        auth = {"auth": {"type": "m.login.dummy"}}
        url = f"{self.url}/_matrix/client/v3/register"
        async with (
            aiohttp.ClientSession() as calls,
            calls.post(url, json=body | auth) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()


@cache
def shared() -> Synapse:
    """The same one for all tests of a process."""
    server = Synapse()
    atexit.register(server.close)
    server.start()
    return server


class Person:
    """Somebody with an app, whose device can encrypt; `seen` is what their rooms show, in order."""

    def __init__(self, server: Synapse, login: Mapping[str, str]) -> None:
        self.id = login["user_id"]
        self.server = server
        self.seen: list[dict[str, Any]] = []
        store = nio.store.SqliteMemoryStore
        config = nio.AsyncClientConfig(store=store, max_timeouts=0, max_limit_exceeded=0)
        self.app = nio.AsyncClient(server.url, self.id, config=config)
        self.app.restore_login(self.id, login["device_id"], login["access_token"])
        self.app.add_event_callback(self._show, nio.Event)
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.app.close()
        self.app.store.database.close()  # which its app leaves open

    async def _listen(self) -> None:
        while True:
            try:
                await self._sync()
            except (aiohttp.ClientError, TimeoutError):  # the server was killed
                await asyncio.sleep(0.05)

    async def _sync(self) -> None:
        found = await self.app.sync(20_000)
        assert not isinstance(found, nio.SyncError), found
        if self.app.should_upload_keys:
            await self.app.keys_upload()
        if self.app.should_query_keys:
            await self.app.keys_query()
        if self.app.should_claim_keys:
            await self.app.keys_claim(self.app.get_users_for_key_claiming())
        await self.app.send_to_device_messages()
        async with self._changed:
            self._changed.notify_all()

    async def _show(self, room: nio.MatrixRoom, event: nio.Event) -> None:
        if event.source.get("event_id") not in {each.get("event_id") for each in self.seen}:
            at = time.monotonic()
            self.seen.append({**event.source, "room_id": room.room_id, "at": at})

    async def wait_for(self, ready: Callable[[], bool], within: float = 30.0) -> None:
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(ready)

    def said(self, room: str, by: str = "") -> list[dict[str, Any]]:
        """The contents of the messages of others in a room."""
        return [
            each["content"]
            for each in self.seen
            if each["room_id"] == room and each["type"] == "m.room.message"
            if each["sender"] == by or (not by and each["sender"] != self.id)
        ]

    async def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask the server directly."""
        url = f"{self.server.url}/_matrix/client/v3{path}"
        login = {"Authorization": f"Bearer {self.app.access_token}"}
        async with (
            aiohttp.ClientSession() as calls,
            calls.request(method, url, json=body, headers=login) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def room(self, *others: str, encrypted: bool = False, direct: bool = False) -> str:
        """A new room that others are invited to."""
        state = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        body = {
            "preset": "private_chat",
            "invite": others,
            "is_direct": direct,
            "initial_state": [state] if encrypted else [],
        }
        room = (await self.call("POST", "/createRoom", body))["room_id"]
        await self.wait_for(lambda: room in self.app.rooms)
        return room

    async def joined(self, room: str, who: str) -> None:
        """Return once somebody came in."""
        await self.wait_for(
            lambda: any(
                each["type"] == "m.room.member"
                and each.get("state_key") == who
                and each["content"]["membership"] == "join"
                for each in self.seen
                if each["room_id"] == room
            )
        )

    async def say(self, room: str, text: str, **content: Any) -> str:
        """Say something, encrypted where that is on; the event's id."""
        return await self.post(room, {"msgtype": "m.text", "body": text, **content})

    async def post(
        self, room: str, content: dict[str, Any], kind: str = "m.room.message", txn: str = ""
    ) -> str:
        sent = await self.app.room_send(
            room, kind, content, txn or None, ignore_unverified_devices=True
        )
        assert isinstance(sent, nio.RoomSendResponse), sent
        return sent.event_id

    async def upload(self, data: bytes, mime: str, *, encrypted: bool = False) -> dict[str, Any]:
        """Where a file is now, as messages say it."""
        source = io.BytesIO(data)
        answer, keys = await self.app.upload(source, mime, encrypt=encrypted, filesize=len(data))
        assert isinstance(answer, nio.UploadResponse), answer
        url = answer.content_uri
        return {"file": {"url": url, **(keys or {})}} if encrypted else {"url": url}


@asynccontextmanager
async def person(server: Synapse, name: str = "ada") -> AsyncIterator[Person]:
    """A new person, who is there."""
    who = Person(server, await server.register(name))
    await who.start()
    try:
        yield who
    finally:
        await who.stop()
