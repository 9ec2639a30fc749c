"""Importing a package without others that it takes along and nobody here uses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _Absent(MetaPathFinder):
    """Finds that some packages are not there, for imports of one thread."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        """Nothing, so that the next finder looks.

        Raises:
            ModuleNotFoundError: it is one of them, imported by that thread.
        """
        if name.partition(".")[0] in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


@contextmanager
def without(*names: str) -> Generator[None]:
    """Import as if these packages were not installed, in this thread; those loaded stay."""
    absent = _Absent(frozenset(names))
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
