"""Codes that people pass on to prove something: short enough to type, too many to guess."""

from __future__ import annotations

import re
import secrets

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no I, O, 0 or 1: codes are read aloud
CODE_LENGTH = 8

_LIKE_A_CODE = re.compile(
    rf"(?<![A-Za-z0-9])[{ALPHABET}{ALPHABET.lower()}]{{{CODE_LENGTH}}}(?![A-Za-z0-9])"
)


def new_code() -> str:
    """A code nobody can guess."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def is_same(code: str, typed: str) -> bool:
    """Whether somebody typed this code, in whatever case; an empty one never is."""
    return bool(code) and secrets.compare_digest(code.encode(), typed.strip().upper().encode())


def typed_in(text: str) -> frozenset[str]:
    """What in a text could be a code, as it was handed out; many an ordinary word could."""
    return frozenset(match[0].upper() for match in _LIKE_A_CODE.finditer(text))
