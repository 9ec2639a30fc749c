"""End-to-end encryption of one device: the SDK's Olm machine, with its keys kept by the engine.

What changes is written down before anything leaves that depends on it, and before the sync token
is: so keys are in backups, move with the account to another node, and no key is used twice.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any
from uuid import uuid4

import nio  # pyright: ignore[reportMissingTypeStubs]
import orjson
import structlog
from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nio import crypto  # pyright: ignore[reportMissingTypeStubs]

from adapters.matrix.api import Api, Refused, TokenRefused, escaped
from adapters.matrix.inbound import ENCRYPTED, Identity
from bot.channel.kit.json_access import Json, child, children, mapping, parse_json, text, texts
from bot.errors import SendRefused

MOST_GROUPS = 5000  # keys of other people's messages that are kept, the newest
MOST_SESSIONS = 5000  # with devices, the last used
SEEN = 20_000  # messages, to tell a repeated ciphertext from a copy of its event

_NO_KEYS = "The token belongs to a device whose keys are not here: log in again for a new one"
_log = structlog.get_logger()
logging.getLogger("nio").setLevel(logging.CRITICAL)  # it names people, rooms and keys
_sdk: Any = nio


class Missing(Exception):
    """The key of a message is not here, or not yet."""


class Forged(Exception):
    """A message is not what its sender encrypted."""


class _Groups(crypto.GroupSessionStore):
    """Group sessions, read when needed; the SDK would hold all of them in memory."""

    def add(self, session: Any) -> bool:
        return True


class Store:
    """The kept rows in the form that the SDK's Olm machine asks for."""

    def __init__(self, me: Identity, kept: Mapping[str, str]) -> None:
        self._prefix = f"keys/{me.device}/"
        self.by = me.id  # whose the keys are that come now
        mine = (each for each in kept.items() if each[0].startswith(self._prefix))
        own = {name: mapping(parse_json(row)) for name, row in mine}
        self._account = own.get(f"{self._prefix}account", {})
        found = ((name, row) for name, row in own.items() if "/session/" in name)
        self._rows = dict(sorted(found, key=lambda each: text(each[1], "used")))
        self._sessions: dict[str, tuple[str, crypto.Session]] = {}  # the last used at the end
        self._loaded = crypto.SessionStore()
        groups = [row for name, row in own.items() if "/group/" in name]
        self.groups = {
            text(row, "id"): row for row in sorted(groups, key=lambda row: text(row, "at"))
        }
        self.dirty: dict[str, Callable[[], Json] | None] = {}

    def name(self, *parts: str) -> str:
        """The name of a row."""
        number = blake2b("/".join(parts[1:]).encode(), digest_size=12).hexdigest()
        return f"{self._prefix}{parts[0]}" + (f"/{number}" if parts[1:] else "")

    def load_account(self) -> crypto.OlmAccount | None:
        row = self._account
        shared = row.get("shared") is True
        return crypto.OlmAccount.from_pickle(text(row, "key").encode(), "", shared) if row else None

    def save_account(self, account: crypto.OlmAccount) -> None:
        self.dirty[self.name("account")] = lambda: {
            "key": account.pickle().decode(),
            "shared": account.shared,
        }

    def load_sessions(self) -> crypto.SessionStore:
        for name, row in self._rows.items():
            begun, used = (dt.datetime.fromisoformat(text(row, each)) for each in ("at", "used"))
            session = crypto.Session.from_pickle(text(row, "key").encode(), begun, "", used)
            self._loaded.add(text(row, "curve"), session)
            self._sessions[name] = text(row, "curve"), session
        return self._loaded

    def save_session(self, curve: str, session: crypto.Session) -> None:
        name = self.name("session", curve, session.id)
        self._sessions.pop(name, None)
        self._sessions[name] = curve, session
        if len(self._sessions) > MOST_SESSIONS:  # anybody may begin some
            oldest = next(iter(self._sessions))
            whose, old = self._sessions.pop(oldest)
            self._loaded[whose].remove(old)
            self.dirty[oldest] = None
        self.dirty[name] = lambda: {
            "curve": curve,
            "key": session.pickle().decode(),
            "at": session.creation_time.isoformat(),
            "used": session.use_time.isoformat(),
        }

    def load_inbound_group_sessions(self) -> crypto.GroupSessionStore:
        return _Groups()

    def save_inbound_group_session(self, session: crypto.InboundGroupSession) -> None:
        if session.id in self.groups:
            return  # nobody gives a key another owner
        row: Json = {"id": session.id, "room": session.room_id, "by": self.by}
        row |= {"key": session.pickle().decode(), "at": dt.datetime.now(dt.UTC).isoformat()}
        self.groups[session.id] = row
        self.dirty[self.name("group", session.id)] = lambda: row
        if len(self.groups) > MOST_GROUPS:
            oldest = next(iter(self.groups))
            del self.groups[oldest]
            self.dirty[self.name("group", oldest)] = None

    def load_device_keys(self) -> crypto.DeviceStore:
        return crypto.DeviceStore()

    def load_outgoing_key_requests(self) -> dict[str, Any]:
        return {}

    def is_device_ignored(self, device: object) -> bool:
        """Every device in a room gets its keys: nobody is there to compare them."""
        return True

    def _no(self, *_: object) -> bool:
        return False

    is_device_verified = is_device_blacklisted = save_device_keys = _no
    add_outgoing_key_request = remove_outgoing_key_request = _no


class Keys:
    """Encrypts and decrypts for one device.

    Args:
        api: the homeserver.
        me: the bot.
        kept: what an earlier run left.
        keep: writes a row, by name; an empty one deletes.
    """

    def __init__(
        self,
        api: Api,
        me: Identity,
        kept: Mapping[str, str],
        keep: Callable[[str, str], Awaitable[object]],
    ) -> None:
        self._api, self._me, self._keep = api, me, keep
        self._store = Store(me, kept)
        self._olm: Any = crypto.Olm(me.id, me.device, self._store)  # pyright: ignore[reportArgumentType]
        self._indexes: LRUCache[tuple[str, int], str] = LRUCache(SEEN)
        self._sharing = asyncio.Lock()
        self._flushing = asyncio.Lock()

    @property
    def fingerprint(self) -> str:
        """The fingerprint by which people recognise this device."""
        return str(self._olm.account.identity_keys["ed25519"])

    async def flush(self) -> None:
        """Write down what changed."""
        async with self._flushing:
            while self._store.dirty:
                # The newest first: a key of messages, then the session it came with, then the
                # account. After a crash the homeserver brings again what is not all there.
                name, row = self._store.dirty.popitem()
                await self._keep(name, orjson.dumps(row()).decode() if row else "")

    # --- what comes in ---------------------------------------------------------------------------

    def has(self, session: str) -> bool:
        """True if a key of messages is here."""
        return session in self._store.groups

    def hear(self, sync: Json) -> None:
        """Take what a sync brings for this device."""
        olm = self._olm
        for raw in children(child(sync, "to_device"), "events"):
            event = None
            try:
                event = _sdk.ToDeviceEvent.parse_event(raw)
                if isinstance(event, nio.OlmEvent):
                    self._store.by = event.sender
                    olm.handle_to_device_event(event)
            except Exception as error:  # noqa: BLE001  # anybody may send anything to a device
                _log.info("matrix.keys.unreadable", error=type(error).__name__)
                if isinstance(event, nio.OlmEvent):
                    olm._mark_device_for_unwedging(event.sender, event.sender_key)  # noqa: SLF001
            finally:
                self._store.by = self._me.id
        self.forget(texts(child(sync, "device_lists"), "changed"))
        counts = child(sync, "device_one_time_keys_count")
        if "device_one_time_keys_count" in sync:
            olm.uploaded_key_count = counts.get("signed_curve25519", 0)

    def decrypt(self, room: str, event: Json) -> Json:
        """An encrypted event as it was before.

        Raises:
            Missing: there is no key for it.
            Forged: it is somebody else's, or of another room.
        """
        content = child(event, "content")
        row = self._store.groups.get(text(content, "session_id"), {})
        if not row:
            raise Missing
        if row.get("room") != room or row.get("by") != event.get("sender"):
            raise Forged
        try:
            key = text(row, "key").encode()
            session = crypto.InboundGroupSession.from_pickle(key, "", "", room)
            words, index = session.decrypt(text(content, "ciphertext"))
            plain = mapping(parse_json(words))
        except Exception as error:  # vodozemac has no common class of its errors
            _log.info("matrix.decrypt.failed", error=type(error).__name__)
            raise Missing from error
        number = text(event, "event_id")
        is_first = self._indexes.setdefault((session.id, index), number) == number
        if not is_first or plain.get("room_id") != room:
            raise Forged
        inner = child(plain, "content")
        if "m.relates_to" in content:
            inner.setdefault("m.relates_to", content["m.relates_to"])
        return {**event, "type": plain.get("type"), "content": inner}

    # --- what goes out ---------------------------------------------------------------------------

    async def encrypt(self, room: str, kind: str, content: Json, people: Collection[str]) -> Json:
        """The content of an encrypted event, after everybody in the room has its key."""
        async with self._sharing:
            while self._olm.should_share_group_session(room):
                await self._share(room, people)
            made = self._olm.group_encrypt(room, {"content": content, "type": kind})
            await self.flush()
        if "m.relates_to" in content:  # servers have to see that
            made["m.relates_to"] = content["m.relates_to"]
        return made

    def rotate(self, room: str) -> None:
        """Have a new key for what is said from now on: other people are in the room now."""
        self._olm.outbound_group_sessions.pop(room, None)

    def forget(self, changed: Iterable[str]) -> None:
        """Ask again which devices these people have, and give those new keys."""
        if known := {*changed} & self._olm.tracked_users:
            self._olm.users_for_key_query.update(known)
            self._olm.outbound_group_sessions.clear()

    async def tidy(self) -> None:
        """Upload one-time keys, and begin anew with devices whose messages cannot be read."""
        olm = self._olm
        if olm.should_upload_keys:
            body = olm.share_keys()
            olm.save_account()
            await self.flush()
            try:
                answer = await self._api.call("POST", "/keys/upload", body)
            except Refused:
                raise TokenRefused(_NO_KEYS) from None
            counts = child(answer, "one_time_key_counts")
            olm.handle_response(nio.KeysUploadResponse(0, counts.get("signed_curve25519", 0)))
            await self.flush()
        if olm.wedged_devices:
            wanted = olm.get_users_for_key_claiming()
            await self._claim(wanted)
            olm.wedged_devices.clear()
        for message in [*olm.outgoing_to_device_messages]:
            await self._to_device(message.as_dict()["messages"], message.type)
            olm.handle_response(nio.ToDeviceResponse(message))

    async def sign(self) -> None:
        """Sign the device as the account's own, unless another app looks after that."""
        me, device = self._me.id, self._me.device
        found = await self._api.call("POST", "/keys/query", {"device_keys": {me: []}})
        own = child(child(child(found, "device_keys"), me), device)
        if child(found, "master_keys").get(me) or not own:
            return
        master, signer = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        body: Json = {
            "master_key": {"user_id": me, "usage": ["master"], "keys": _public(master)},
            "self_signing_key": {"user_id": me, "usage": ["self_signing"], "keys": _public(signer)},
        }
        self._signed(body["self_signing_key"], master)
        self._signed(body["master_key"], master)
        try:
            await self._api.call("POST", "/keys/device_signing/upload", body)
            signed = {
                name: own.get(name) for name in ("user_id", "device_id", "algorithms", "keys")
            }
            self._signed(signed, signer)
            await self._api.call("POST", "/keys/signatures/upload", {me: {device: signed}})
        except Refused as error:  # some want the password for it
            _log.warning("matrix.signing.refused", error=error.code, status=error.status)

    def _signed(self, words: Json, key: Ed25519PrivateKey) -> None:
        """Put a signature below what it signs."""
        data = key.sign(_sdk.Api.to_canonical_json(words).encode())
        (name,) = _public(key)
        words["signatures"] = {self._me.id: {name: _base64(data)}}

    async def _share(self, room: str, people: Collection[str]) -> None:
        olm = self._olm
        self.rotate(room)
        olm.users_for_key_query.update({*people} - olm.tracked_users)
        await self._query()
        if missing := olm.get_missing_sessions([*people]):
            await self._claim(missing)
        for _, messages in olm.share_group_session_parallel(room, [*people]):
            await self._to_device(messages["messages"], ENCRYPTED)
        if (session := olm.outbound_group_sessions.get(room)) is not None:
            session.shared = True

    async def _query(self) -> None:
        if not (asked := [*self._olm.users_for_key_query]):
            return
        body: Json = {"device_keys": {who: [] for who in asked}}
        answer = child(await self._api.call("POST", "/keys/query", body), "device_keys")
        for who in asked:
            found = child(answer, who)
            self._learn(nio.KeysQueryResponse, {"device_keys": {who: found}, "failures": {}})
            self._olm.users_for_key_query.discard(who)
            await asyncio.sleep(0)  # a large room has thousands

    async def _claim(self, wanted: Mapping[str, Collection[str]]) -> None:
        body = {who: dict.fromkeys(devices, "signed_curve25519") for who, devices in wanted.items()}
        answer = await self._api.call("POST", "/keys/claim", {"one_time_keys": body})
        for who, devices in child(answer, "one_time_keys").items():
            self._learn(nio.KeysClaimResponse, {"one_time_keys": {who: devices}, "failures": {}})

    def _learn(self, kind: Any, answer: Json) -> None:
        """Take the keys of one person; what is wrong with them concerns nobody else."""
        try:
            self._olm.handle_response(kind.from_dict(answer))
        except Exception as error:  # noqa: BLE001  # they are what somebody uploaded
            _log.info("matrix.keys.unusable", error=type(error).__name__)

    async def _to_device(self, messages: Json, kind: str) -> None:
        await self.flush()
        path = f"/sendToDevice{escaped(kind, str(uuid4()))}"
        await self._api.call("PUT", path, {"messages": messages})


def _base64(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def _public(key: Ed25519PrivateKey) -> dict[str, str]:
    """A signing key as others know it."""
    words = _base64(key.public_key().public_bytes_raw())
    return {f"ed25519:{words}": words}


def sealed(data: bytes) -> tuple[bytes, Json]:
    """A file as it is uploaded to an encrypted room, and its keys."""
    return crypto.encrypt_attachment(data)


def opened(data: bytes, locked: Json) -> bytes:
    """A file of an encrypted room.

    Raises:
        SendRefused: it is not what its sender uploaded.
    """
    key, digest = text(child(locked, "key"), "k"), text(child(locked, "hashes"), "sha256")
    try:
        return crypto.decrypt_attachment(data, key, digest, text(locked, "iv"))
    except (nio.EncryptionError, ValueError):
        raise SendRefused("this file is damaged") from None
