"""A backup that only a passphrase opens, by age.

A sealed backup is a tar of two files that the tool `age` opens too: a key that the passphrase
opens, `identity.age`, and the archive for that key. age takes a passphrase for what fits into
memory only, and a backup need not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from typing import IO, Any, Literal

from bot.errors import ArchiveError, ArchiveRefused
from bot.portability import passphrase as program
from bot.portability.archive import CUT, DAMAGED, FOREIGN, refused
from bot.portability.work import Advance

IDENTITY = "identity.age"
SEALED = "backup.tar.gz.age"
_BLOCK = 512  # bytes, of a tar
_MAX_IDENTITY = 10_000  # bytes


def seal(plain: IO[bytes], target: IO[bytes], passphrase: str, advance: Advance) -> None:
    """Write all of a file into another one, sealed; it must be one that can be sought in.

    Raises:
        OSError: the disk does not take it.
        ArchiveError: there is no memory for the passphrase.
    """
    age = _age()
    identity = age.x25519.Identity.generate()
    key = _with("seal", passphrase, f"{identity}\n".encode())
    target.write(_header(IDENTITY, len(key)) + key + bytes(-len(key) % _BLOCK))
    at = target.tell()
    target.write(bytes(_BLOCK))  # the header, once the size is known
    through = _Through(plain, target, advance)
    try:
        age.encrypt_io(through, through, [identity.to_public()])
    except age.EncryptError:  # it keeps the words of an error only
        raise through.failed or ArchiveError("The backup could not be sealed.") from None
    size = target.tell() - at - _BLOCK
    target.write(bytes(-size % _BLOCK + 2 * _BLOCK))
    target.seek(at)
    target.write(_header(SEALED, size))
    target.seek(0, os.SEEK_END)


def open_sealed(
    source: IO[bytes], name: str, passphrase: str, target: IO[bytes], advance: Advance
) -> None:
    """Write the archive that is sealed in a file into another file.

    Raises:
        ArchiveRefused: it is no backup, or the passphrase is another one.
        OSError: the disk does not take it.
    """
    age = _age()
    length = source.seek(0, os.SEEK_END)
    source.seek(0)
    try:
        key = source.read(_member(source, IDENTITY, _MAX_IDENTITY))
        source.read(-len(key) % _BLOCK)
        size = _member(source, SEALED, 1 << 62)
    except (tarfile.TarError, ValueError) as exc:
        raise refused(name, FOREIGN) from exc
    if source.tell() + size + -size % _BLOCK + 2 * _BLOCK > length:
        raise refused(name, CUT)
    try:
        identity = age.x25519.Identity.from_str(_with("open", passphrase, key).decode().strip())
    except (age.IdentityError, ValueError) as exc:
        raise ArchiveRefused(f"This passphrase does not open {name}. Nothing was changed.") from exc
    through = _Through(source, target, advance, size)
    try:
        age.decrypt_io(through, through, [identity])
    except (age.DecryptError, OSError) as exc:
        raise through.failed or refused(name, DAMAGED) from exc


def is_sealed(source: IO[bytes]) -> bool:
    """True when a passphrase is needed; where it is no backup at all that turns out later."""
    start = source.read(len(IDENTITY))
    source.seek(0)
    return start == IDENTITY.encode()


class _Through:
    """The next so many bytes of a file, to be written to another, and why that failed."""

    def __init__(
        self, source: IO[bytes], target: IO[bytes], advance: Advance, size: int = 1 << 62
    ) -> None:
        self._source, self._target, self._advance = source, target, advance
        self._rest = size
        self.failed: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(self._rest if size < 0 else min(size, self._rest))
        self._rest -= len(data)
        return data

    def write(self, data: bytes) -> int:
        try:
            self._advance(0)
            return self._target.write(data)
        except Exception as exc:
            self.failed = exc
            raise

    def flush(self) -> None:
        self._target.flush()


def _age() -> Any:
    import pyrage  # pyright: ignore[reportMissingTypeStubs]  # noqa: PLC0415 - rarely used

    return pyrage


def _with(what: Literal["seal", "open"], passphrase: str, data: bytes) -> bytes:
    """Seal or open something short with a passphrase.

    Raises:
        ValueError: it is another passphrase.
        ArchiveError: there is no memory for it.
    """
    lines = (what, passphrase.encode().hex(), data.hex(), "")
    done = subprocess.run(  # noqa: S603 - a program of ours, and nothing else
        [sys.executable, "-P", program.__file__],
        input="\n".join(lines).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an operator's Ctrl-C is for this program
        check=False,
    )
    if done.returncode == program.WRONG:
        raise ValueError(what)
    if done.returncode:
        raise ArchiveError(
            "The passphrase could not be used: that takes half a gigabyte of memory for a second. "
            "Nothing was changed."
        )
    return done.stdout


def _member(source: IO[bytes], name: str, most: int) -> int:
    """The size of the member that begins here; it must be this one."""
    info = tarfile.TarInfo.frombuf(source.read(_BLOCK), "utf-8", "strict")
    if info.name != name or not 0 < info.size <= most:
        raise ValueError(name)
    return info.size


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info.tobuf(tarfile.GNU_FORMAT)
