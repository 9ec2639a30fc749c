"""Secrets kept in files of their own, as container platforms hand them out."""

from __future__ import annotations

from pathlib import Path

FILE_PREFIX = "file:"
_MAX_BYTES = 64 * 1024  # a key or token is far shorter; this is some other file


def from_file(name: str, folder: Path) -> str:
    """The secret in a file; a relative name is looked up in `folder`.

    Raises:
        ValueError: with a sentence on why there is no secret to be had; never with its content.
    """
    path = folder / name
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"the file {name} is too large to hold only a secret")
        secret = path.read_bytes().decode("utf-8-sig").strip()
    except UnicodeDecodeError:  # its message would repeat the content
        raise ValueError(f"the file {name} is not text") from None
    except OSError as error:
        raise ValueError(f"the file {name} cannot be read: {error.strerror}") from error
    if not secret:
        raise ValueError(f"the file {name} is empty")
    if "\0" in secret or "\n" in secret:
        raise ValueError(f"the file {name} holds more than one line of text")
    return secret
