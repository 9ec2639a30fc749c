"""New databases as copies of an empty one: to make all tables takes a third of a start."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from bot.storage import files, schema, sqlite


@contextmanager
def copied_from(template: Path) -> Generator[None]:
    """Databases of this process that do not exist yet are copies of one that is made here.

    Each has an `id` of its own, by which a log of changes knows its database.
    """
    make = sqlite._connect_and_migrate
    with closing(make(template)) as made:
        ((id_,),) = made.execute("SELECT id FROM changes").fetchall()
    empty, version = template.read_bytes(), schema.VERSION

    def copied(path: Path, *, keeps: bool = True) -> apsw.Connection:
        if version == schema.VERSION and not path.exists():
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                files.create(path)
                path.write_bytes(empty.replace(id_.encode(), secrets.token_hex(8).encode()))
            except OSError:  # what follows says what is wrong
                with suppress(OSError):
                    path.unlink()
        return make(path, keeps=keeps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "_connect_and_migrate", copied)
        yield
