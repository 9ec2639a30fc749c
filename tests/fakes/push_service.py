"""A push service as browsers have one (RFC 8030), and a browser that reads what it is sent.

What it understands is written from the RFCs, apart from what the program makes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.net.addresses import Guard
from bot.push.pusher import Endpoints
from tests.fakes.sites import serving
from tests.support import until


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class PushBrowser:
    """What a browser keeps of one subscription, at an address of a service."""

    endpoint: str
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    auth: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def id(self) -> str:
        return hashlib.sha256(self.endpoint.encode()).hexdigest()

    def subscription(self, **more: Any) -> dict[str, Any]:
        """As `PushSubscription.toJSON()` has it."""
        keys = {"p256dh": encoded(self.public), "auth": encoded(self.auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys, **more}

    def read(self, body: bytes) -> bytes:
        """What was sealed for this browser (RFC 8291, with RFC 8188).

        Raises:
            InvalidTag: it was sealed for another one.
        """
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= size
        assert len(body) <= 4096
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared = self.key.exchange(ec.ECDH(), point)
        info = b"WebPush: info\0" + self.public + sender
        secret = HKDF(SHA256(), 32, self.auth, info).derive(shared)
        key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(secret)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(secret)
        padded = AESGCM(key).decrypt(nonce, sealed, None)
        words, mark, rest = padded.rpartition(b"\x02")  # the last record
        assert mark
        assert rest.strip(b"\0") == b""
        return words

    def note(self, pushed: Pushed) -> dict[str, str]:
        return json.loads(self.read(pushed.body))


@dataclass(frozen=True)
class Pushed:
    """One request to a service."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def claims(self, public: str) -> dict[str, Any]:
        """What the sender says of itself, signed with its key (RFC 8292)."""
        scheme, _, rest = self.headers["Authorization"].partition(" ")
        assert scheme == "vapid"
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert fields["k"] == public
        signed, _, signature = fields["t"].rpartition(".")
        raw = decoded(signature)
        assert len(raw) == 64
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decoded(public))
        numbers = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
        point.verify(numbers, signed.encode(), ec.ECDSA(SHA256()))
        head, claims = (json.loads(decoded(part)) for part in signed.split("."))
        assert head == {"typ": "JWT", "alg": "ES256"}
        return claims


class PushService:
    """Takes notes; `answers` are the next statuses, with headers, before it takes them again."""

    def __init__(self) -> None:
        self.pushed: list[Pushed] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.url = ""

    @property
    def endpoints(self) -> Endpoints:
        """This service alone, besides what is public."""
        return Endpoints(Guard.from_hosts([self.url.removeprefix("http://")]), frozenset({"http"}))

    def browser(self, name: str) -> PushBrowser:
        return PushBrowser(f"{self.url}/push/{name}")

    async def until(self, count: int) -> list[Pushed]:
        """All that was sent, once it is so much."""
        await until(lambda: len(self.pushed) >= count)
        return self.pushed

    @asynccontextmanager
    async def served(self) -> AsyncIterator[PushService]:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._take)
        async with serving(app) as self.url:
            yield self

    async def _take(self, request: web.Request) -> web.Response:
        assert request.method == "POST"
        body = await request.read()
        self.pushed.append(Pushed(request.path, dict(request.headers), body))
        status, headers = self.answers.pop(0) if self.answers else (201, {})
        return web.Response(status=status, headers=headers)
