"""One writer thread for a database: all work that waits is committed together, in order.

A hundred messages cost one flush to disk, and a piece of work that fails takes none of the others
with it. Both engines write this way; `commit` is theirs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import structlog

from bot import errors
from bot.storage import Transaction

T = TypeVar("T")
Work = Callable[[Transaction], Any]
Outcome = tuple[Any, BaseException | None]  # what the work returned, or why it failed

MAX_BATCH = 512  # pieces of work in one commit

log = structlog.get_logger(__name__)

# Who waits is a task of a loop, or a thread.
_Job = tuple[
    Work, "asyncio.Future[Any] | concurrent.futures.Future[Any]", asyncio.AbstractEventLoop | None
]


class Savepoints(Transaction, Protocol):
    """A transaction whose work can fail by itself; `failures` are those that end all of it."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """The errors of the engine after which the whole transaction is gone."""
        ...

    def mapped(self, error: Exception) -> Exception:
        """Our error for one of the engine's; any other as it is."""
        ...


class Writer:
    """Runs work in a thread, by `commit`, which has an outcome for each piece in order."""

    def __init__(self, commit: Callable[[Sequence[Work]], Sequence[Outcome]]) -> None:
        self._commit = commit
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="confidant-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` and return once it is on disk.

        Raises:
            StorageClosed: nothing is taken any more.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._wake:
            if self._closing:
                raise errors.StorageClosed
            self._jobs.append((work, future, loop))
            self._wake.notify()
        return await future

    def write_now(self, work: Callable[[Transaction], T]) -> T:
        """`write` for a thread, which waits; never call it on an event loop.

        Raises:
            StorageClosed: nothing is taken any more.
        """
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._wake:
            if self._closing:
                raise errors.StorageClosed
            self._jobs.append((work, future, None))
            self._wake.notify()
        return future.result()

    def stop(self) -> None:
        """Take nothing any more; what is queued is still committed."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def join(self) -> None:
        """Wait until all that was queued is committed; after `stop`, and not on the loop."""
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._jobs and not self._closing:
                    self._wake.wait()
                if not self._jobs:
                    return
                batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), MAX_BATCH))]
            try:
                outcomes = self._commit([work for work, _, _ in batch])
            except errors.StorageError as exc:
                outcomes = [(None, exc)] * len(batch)
            except Exception:
                # Whatever happens here, nobody may wait for an answer that never comes.
                log.exception("storage.writer_failed")
                outcomes = [(None, errors.StorageError())] * len(batch)
            done = list(zip(batch, outcomes, strict=True))
            _settle([each for each in done if each[0][2] is None])
            waiting = [each for each in done if each[0][2] is not None]
            loop = next((job[2] for job, _ in waiting), None)
            if loop is not None:
                try:
                    loop.call_soon_threadsafe(_settle, waiting)
                except RuntimeError:  # the loop is gone; what was committed stays committed
                    log.warning("storage.caller_gone", works=len(waiting))


def attempt(tx: Savepoints, work: Work) -> Outcome:
    """Run one piece of work of a group: what fails is undone, and the rest goes on."""
    tx.execute("SAVEPOINT work")
    outcome = attempt_alone(tx, work)
    if outcome[1] is not None:
        tx.execute("ROLLBACK TO SAVEPOINT work")
    tx.execute("RELEASE SAVEPOINT work")
    return outcome


def attempt_alone(tx: Savepoints, work: Work) -> Outcome:
    """Run the only piece of work of a transaction; when it fails, the caller undoes that."""
    try:
        return work(tx), None
    except tx.failures:
        raise
    except Exception as exc:  # noqa: BLE001 - it goes to whoever asked, the group goes on
        if isinstance(exc, StopIteration):  # no future takes one
            return None, RuntimeError("the work raised StopIteration")
        return None, tx.mapped(exc)


def _settle(done: Sequence[tuple[_Job, Outcome]]) -> None:
    for (_, future, _), (result, error) in done:
        if future.done():  # its caller was cancelled; the work itself is committed
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
