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
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO, Any, Literal

from bot.archive import container
from bot.archive import passphrase as program
from bot.errors import ArchiveError, ArchiveRefused

IDENTITY = "identity.age"
SEALED = "backup.tar.gz.age"
_BLOCK = 512  # bytes, of a tar
_MAX_IDENTITY = 10_000  # bytes


@contextmanager
def sealing(target: IO[bytes], passphrase: str) -> Generator[IO[bytes]]:
    """What is written within, sealed into `target`, which must be a file that can be sought in.

    Raises:
        OSError: the disk does not take it.
    """
    age = _age()
    identity = age.x25519.Identity.generate()
    _add(target, IDENTITY, _with("seal", passphrase, f"{identity}\n".encode()))
    at = target.tell()
    target.write(bytes(_BLOCK))  # the header, once the size is known
    reader, writer = _pipe()
    into = _Into(target)

    def encrypt() -> None:
        try:
            age.encrypt_io(reader, into, [identity.to_public()])
        except age.EncryptError:
            if into.failed is not None:  # it keeps the words of an error only
                raise into.failed from None
            raise

    with _beside(encrypt, reader), writer:
        yield writer
    size = target.tell() - at - _BLOCK
    target.write(bytes(-size % _BLOCK + 2 * _BLOCK))
    end = target.tell()
    target.seek(at)
    target.write(_header(SEALED, size))
    target.seek(end)


@contextmanager
def opened(source: IO[bytes], name: str, passphrase: Callable[[], str]) -> Generator[IO[bytes]]:
    """The archive in a file, whether it is sealed or not; `passphrase` is asked only if it is.

    Raises:
        ArchiveRefused: it is no backup, or the passphrase is another one.
    """
    if not is_sealed(source):
        yield source
        return
    age = _age()
    identity, size = _identity(age, source, name, passphrase)
    reader, writer = _pipe()

    def decrypt() -> None:
        try:
            age.decrypt_io(_Bounded(source, size), writer, [identity])
        except age.DecryptError as exc:
            raise container.damaged(name) from exc
        except OSError as exc:
            if exc.errno is None:
                raise container.damaged(name) from exc
            raise

    with _beside(decrypt, writer), reader:
        yield reader


def is_sealed(source: IO[bytes]) -> bool:
    """Whether a passphrase is needed; where it is no backup at all that turns out later."""
    start = source.read(len(IDENTITY))
    source.seek(0)
    return start == IDENTITY.encode()


def _age() -> Any:
    import pyrage  # pyright: ignore[reportMissingTypeStubs]  # noqa: PLC0415 - rarely used

    return pyrage


def _identity(
    age: Any, source: IO[bytes], name: str, passphrase: Callable[[], str]
) -> tuple[Any, int]:
    """The key that opens the rest of the file, where `source` is then, and how long that is."""
    length = source.seek(0, os.SEEK_END)
    source.seek(0)
    try:
        sealed = source.read(_member(source, IDENTITY, _MAX_IDENTITY))
        source.read(-len(sealed) % _BLOCK)
        size = _member(source, SEALED, 1 << 62)
    except (tarfile.TarError, ValueError) as exc:
        raise container.foreign(name) from exc
    if source.tell() + size + -size % _BLOCK + 2 * _BLOCK > length:
        raise container.ends_too_early(name)
    try:
        said = _with("open", passphrase(), sealed)
        return age.x25519.Identity.from_str(said.decode().strip()), size
    except (age.IdentityError, ValueError) as exc:
        raise ArchiveRefused(f"This passphrase does not open {name}. Nothing was changed.") from exc


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


class _Into:
    """A file that is written, and why that failed."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.failed: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._target.write(data)
        except OSError as exc:
            self.failed = exc
            raise

    def flush(self) -> None:
        self._target.flush()


class _Bounded:
    """The next so many bytes of a file."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source = source
        self._rest = size

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(self._rest if size < 0 else min(size, self._rest))
        self._rest -= len(data)
        return data


def _member(source: IO[bytes], name: str, most: int) -> int:
    """The size of the member that begins here; it must be this one."""
    info = tarfile.TarInfo.frombuf(source.read(_BLOCK), "utf-8", "strict")
    if info.name != name or not 0 < info.size <= most:
        raise ValueError(name)
    return info.size


def _add(target: IO[bytes], name: str, data: bytes) -> None:
    target.write(_header(name, len(data)) + data + bytes(-len(data) % _BLOCK))


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info.tobuf(tarfile.GNU_FORMAT)


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    return os.fdopen(reader, "rb"), os.fdopen(writer, "wb")


@contextmanager
def _beside(work: Callable[[], object], end: IO[bytes]) -> Generator[None]:
    """Run `work` in a thread meanwhile; it closes its end of the pipe when it is over.

    What went wrong there is what went wrong: that a pipe broke is only what came of it.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with end:
                work()
        except BaseException as exc:  # noqa: BLE001 - it is raised where the rest is done
            failed.append(exc)

    thread = threading.Thread(target=run, name="confidant-age")
    thread.start()
    try:
        yield
    except BaseException:
        thread.join()
        if failed and not isinstance(failed[0], BrokenPipeError):
            raise failed[0] from None
        raise
    thread.join()
    if failed:
        raise failed[0]
