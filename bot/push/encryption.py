"""Sealing a note for one browser (RFC 8291), and saying who sends it (VAPID, RFC 8292).

This is done here, with `cryptography`, which reading PDF needs as well: `pywebpush` and `http-ece`
would add a package that must be compiled at the installation, and connections of their own that go
wherever an address leads.
"""

from __future__ import annotations

import hmac
import os
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Self

import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CURVE = ec.SECP256R1()
RECORD = 4096  # bytes; all that is sent is one record
LENGTH = 1_024  # bytes: every note is made as long as this, so that its length tells nothing
SIGNED_SECONDS = 12 * 3600  # how long a signature holds; services take 24 hours at most
_PUBLIC, _AUTH, _COORDINATE = 65, 16, 32  # bytes


def base64url(data: bytes) -> str:
    """Bytes as the web writes them, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """The bytes again.

    Raises:
        ValueError: it is something else.
    """
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


@dataclass(frozen=True, slots=True)
class BrowserKeys:
    """A browser's keys, with which its notes are sealed."""

    public: bytes
    auth: bytes

    @classmethod
    def of(cls, p256dh: str, auth: str) -> Self:
        """The keys as a browser writes them.

        Raises:
            ValueError: they are none.
        """
        found = cls(from_base64url(p256dh), from_base64url(auth))
        if len(found.public) != _PUBLIC or len(found.auth) != _AUTH:
            raise ValueError("keys of another length")
        ec.EllipticCurvePublicKey.from_encoded_point(CURVE, found.public)
        return found


def sealed(
    note: bytes,
    keys: BrowserKeys,
    *,
    sender: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes = b"",
    length: int = LENGTH,
) -> bytes:
    """A note that only this browser can read, as the body of a request (`aes128gcm`).

    `sender` and `salt` are new ones for each note; the tests give those of the RFC.

    Raises:
        ValueError: the note is longer than `length` bytes.
    """
    if len(note) > length:
        raise ValueError("too long")
    sender = sender or ec.generate_private_key(CURVE)
    salt = salt or os.urandom(16)
    mine = _public(sender)
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, keys.public)
    shared = sender.exchange(ec.ECDH(), theirs)
    secret = _derived(keys.auth, shared, b"WebPush: info\0" + keys.public + mine, 32)
    key = _derived(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(salt, secret, b"Content-Encoding: nonce\0", 12)
    padded = note + b"\x02" + bytes(length - len(note))
    head = salt + struct.pack(">IB", RECORD, len(mine)) + mine
    return head + AESGCM(key).encrypt(nonce, padded, None)


class Signature:
    """The bot's own key: browsers take notes of whoever has it, and of nobody else."""

    def __init__(self, secret: str) -> None:
        """`secret` is what `new_secret` made."""
        self._key = ec.derive_private_key(int.from_bytes(from_base64url(secret)), CURVE)
        self.public = base64url(_public(self._key))

    def header(self, audience: str, subject: str, now: float) -> str:
        """The Authorization for a push service, by its origin; `now` in seconds.

        `subject` is where the service may ask who this is.
        """
        claims = {"aud": audience, "exp": int(now) + SIGNED_SECONDS, "sub": subject}
        parts = (orjson.dumps(each) for each in ({"typ": "JWT", "alg": "ES256"}, claims))
        signed = ".".join(map(base64url, parts))
        numbers = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        raw = b"".join(each.to_bytes(_COORDINATE) for each in numbers)
        return f"vapid t={signed}.{base64url(raw)}, k={self.public}"


def new_secret() -> str:
    """A new key for a `Signature`."""
    number = ec.generate_private_key(CURVE).private_numbers().private_value
    return base64url(number.to_bytes(_COORDINATE))


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derived(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    """HKDF with SHA-256 (RFC 5869), as far as its first block reaches."""
    key = hmac.digest(salt, secret, "sha256")
    return hmac.digest(key, info + b"\x01", "sha256")[:length]
