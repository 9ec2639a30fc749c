"""Talk's signatures: HMAC-SHA256 of a random value and a text, in hexadecimal. Pure.

Talk signs the raw body of what it brings; a bot signs the words it says, not the JSON around them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

RANDOM_BYTES = 32  # of ours: 64 characters, as many as Talk's own
_RANDOM = re.compile(r"[\x21-\x7e]{32,256}")  # Talk refuses fewer than 32 itself
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{64}")


def new_random() -> str:
    """A random value for one request of ours."""
    return secrets.token_hex(RANDOM_BYTES)


def sign(secret: str, random: str, text: str | bytes) -> str:
    """The signature of a text."""
    data = text if isinstance(text, bytes) else text.encode()
    return hmac.new(secret.encode(), random.encode() + data, hashlib.sha256).hexdigest()


def well_formed(random: str, signature: str) -> bool:
    """Whether these can be a random value and a signature at all."""
    return bool(_RANDOM.fullmatch(random)) and bool(_SIGNATURE.fullmatch(signature))


def verify(secret: str, random: str, body: bytes, signature: str) -> bool:
    """Whether a well-formed signature is the body's; takes the same time either way."""
    return hmac.compare_digest(sign(secret, random, body), signature.lower())
