"""Seals or opens a short text with a passphrase; a program of its own.

Making guesses slow takes a second and half a gigabyte, and blocks everything else meanwhile.
Standard input has three lines: "seal" or "open", the passphrase and the text, these two in
hexadecimal. Standard output has the result. The exit status is WRONG for a wrong passphrase.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

WRONG = 3  # an exit status


def main() -> int:
    """Do it; the exit status."""
    age: Any = importlib.import_module("pyrage")
    what, words, data = sys.stdin.read().split("\n")[:3]
    secret, text = bytes.fromhex(words).decode(), bytes.fromhex(data)
    work = age.passphrase.encrypt if what == "seal" else age.passphrase.decrypt
    try:
        done: bytes = work(text, secret)
    except Exception:  # noqa: BLE001 - it has one kind of error for all
        return WRONG
    sys.stdout.buffer.write(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
