"""Fences: what a task may only write while it is still the one to do so.

A node that was paused for long wakes up in the middle of its work, which another one has taken over
by then. So whoever takes something over raises its epoch, and every write that a task makes checks,
in its own transaction, that the epoch it began with still counts.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """The name of what a task is alone in doing, and the epoch in which it began."""

    name: str
    epoch: int


_current: ContextVar[Fence | None] = ContextVar("fence", default=None)


def current() -> Fence | None:
    """The fence of this task; None when there is nothing to lose."""
    return _current.get()


def put(fence: Fence | None) -> None:
    """Let this fence hold for the task, and for those it begins from now on."""
    _current.set(fence)


@contextmanager
def behind(fence: Fence | None) -> Generator[None]:
    """Let a fence hold within a `with`, and for tasks that begin there."""
    token = _current.set(fence)
    try:
        yield
    finally:
        _current.reset(token)
