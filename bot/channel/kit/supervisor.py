"""One account of a channel at work: its tasks, its waits, its health, and storing until stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeVar, get_args

import structlog

from bot.backoff import Backoff, kept
from bot.channel import Engine, Health, Inbound
from bot.errors import SendLater, SendTransient, StorageError

FIRST, LONGEST = 2.0, 30.0  # seconds between tries: doubled after each further failure
GRACE = 5.0  # seconds for what is being stored or sent when an account stops
ELSEWHERE_AFTER = (
    1.0  # seconds of waiting for an account after which another node is said to have it
)
ELSEWHERE = "Another node listens."
# Tries of a message that fails for another reason than storage: a fault of ours must not block
# the chat for ever.
MAX_FAULTS = 5

# What can be in trouble, the worst first; "rights" are what the platform does not let the bot do.
Part = Literal["listening", "receiving", "storing", "sending", "rights"]

_log = structlog.get_logger()
T = TypeVar("T")


class Stopped(Exception):
    """A wait was given up: its account stops, or another node has it now."""


async def pause(seconds: float, event: asyncio.Event) -> bool:
    """Wait, but not past an event; True when it happened."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Lifetime:
    """The time from a start to a stop: tasks and waits that end with it."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._waited_for: set[asyncio.Future[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in a task that ends with the account."""
        task = asyncio.get_running_loop().create_task(self._until_stopped(work))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run something for as long as the account runs: when it fails, it begins anew."""
        return self.spawn(kept(name, lambda: self._until_stopped(work())))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("channel.task.failed", error=type(error).__name__, exc_info=error)

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Stopped:
            return

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a call, which is cancelled when the account stops.

        Raises:
            Stopped: the account stops first.
        """
        if self.stopping.is_set():
            work.close()
            raise Stopped
        task = asyncio.ensure_future(work)
        self._waited_for.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.stopping.is_set():
                raise Stopped from None
            raise
        finally:
            task.cancel()
            self._waited_for.discard(task)

    async def happened(self, event: asyncio.Event) -> None:
        """Wait for something.

        Raises:
            Stopped: the account stops first.
        """
        if self.stopping.is_set():
            raise Stopped
        if not event.is_set():
            await self.unless_stopped(event.wait())

    async def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            Stopped: the account stops before that.
        """
        if await pause(seconds, self.stopping):
            raise Stopped

    def close(self) -> None:
        """Let every wait end; what is being stored goes on."""
        self._is_over = True
        self._give_up()

    async def stop(self) -> None:
        """End every task, after what is being stored; at the latest after `GRACE`."""
        self.close()
        await self._ended()

    async def interrupt(self) -> None:
        """End every task but the caller's, as a stop does; then others may begin."""
        self._give_up()
        await self._ended()
        if not self._is_over:
            self.stopping.clear()

    def _give_up(self) -> None:
        self.stopping.set()
        for task in tuple(self._waited_for):
            task.cancel()

    async def _ended(self) -> None:
        if tasks := self._tasks - {asyncio.current_task()}:
            _, late = await asyncio.wait(tasks, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class Supervisor(Lifetime):
    """Runs one account: connects again, stores until stored, tells its health when it changes.

    Its log events and metrics are named after the channel: "telegram.store.failed".

    Args:
        waiting: where a message waits that cannot be stored yet, for the sentence about it:
            "New messages cannot be stored; {waiting}."
        first, longest: the waits between tries, in seconds.
    """

    def __init__(
        self,
        channel: str,
        account: str,
        engine: Engine,
        *,
        waiting: str,
        first: float = FIRST,
        longest: float = LONGEST,
    ) -> None:
        super().__init__()
        self.channel, self.account, self.engine = channel, account, engine
        self._waiting = waiting
        self.first, self.longest = first, longest
        self._troubles: dict[Part, tuple[Health, str]] = {}
        self._health: tuple[Health, str] | None = None
        self._unstored = 0  # messages that cannot be stored now

    def backoff(self) -> Backoff:
        """Waits between the tries of one thing."""
        return Backoff(self.first, self.longest)

    # --- connecting ------------------------------------------------------------------------------

    async def supervise(
        self,
        serve: Callable[[], Awaitable[None]],
        failed: Callable[[Exception], float | None] = lambda _error: None,
    ) -> None:
        """Run `serve`, a connection and what it brings, again after each failure.

        Args:
            serve: returns or raises `Stopped` when the account stops.
            failed: says what is wrong, with `trouble`, and how long to wait in seconds; None when
                it does not know the error.
        """
        backoff = self.backoff()
        while True:
            try:
                await serve()
            except Stopped:
                return
            except Exception as error:  # noqa: BLE001
                delay = failed(error)
                if delay is None:
                    delay = backoff.next()
                    self._broken(error, delay)
            else:
                return
            if await pause(delay, self.stopping):
                return

    async def listen(
        self,
        serve: Callable[[], Awaitable[None]],
        failed: Callable[[Exception], float | None] = lambda _error: None,
        *,
        begin: Callable[[], Awaitable[None]] | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """Do as `supervise` does, on one node at a time: where many run, the others wait.

        When another node gets the account, everything that was spawned ends as at a stop.

        Args:
            serve: see `supervise`.
            failed: see `supervise`.
            begin: is done first, each time the account is this node's.
            end: is called when it no longer is, to forget what others change meanwhile.
        """
        loop = asyncio.get_running_loop()
        elsewhere = loop.call_later(ELSEWHERE_AFTER, self._elsewhere)
        is_begun = False

        async def work() -> None:
            nonlocal is_begun
            if begin is not None and not is_begun:
                await begin()
            is_begun = True
            await serve()

        while True:
            async with AsyncExitStack() as stack:
                try:
                    lost = await self._given(stack)
                finally:
                    elsewhere.cancel()
                if self._troubles.get("receiving") == (Health.UP, ELSEWHERE):
                    self.trouble("receiving", Health.STARTING)
                is_begun = False
                if await _ended_first(self.spawn(self.supervise(work, failed)), lost):
                    return
                _log.warning(f"{self.channel}.account.lost", account=self.account)
                await self.interrupt()
                end()
            if self.stopping.is_set():
                return
            self._troubles.clear()
            self._elsewhere()

    async def alone(
        self,
        work: Callable[[], Awaitable[None]],
        elsewhere: Callable[[], None] = lambda: None,
    ) -> None:
        """Do something that only one node may do; it begins anew each time that is this one.

        Nothing else ends when another node gets the account: this is for one that is brought its
        messages on every node.

        Args:
            work: is cancelled when another node gets the account.
            elsewhere: is called once another node seems to have it.

        Raises:
            Stopped: the account stops.
            Exception: what `work` raised.
        """
        timer = asyncio.get_running_loop().call_later(ELSEWHERE_AFTER, elsewhere)
        while True:
            async with AsyncExitStack() as stack:
                try:
                    lost = await self._given(stack)
                finally:
                    timer.cancel()
                task = asyncio.ensure_future(work())
                try:
                    if await _ended_first(task, lost):
                        return await task
                finally:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    async def _given(self, stack: AsyncExitStack) -> asyncio.Event:
        """Wait until the account is this node's; the event says that it no longer is.

        Raises:
            Stopped: the account stops first.
        """
        # Not in a task of its own: what was entered is known to the tasks begun after it.
        task = asyncio.current_task()
        if self.stopping.is_set() or task is None:
            raise Stopped
        self._waited_for.add(task)
        try:
            return await stack.enter_async_context(self.engine.owning(self.channel, self.account))
        except asyncio.CancelledError:
            if self.stopping.is_set():
                raise Stopped from None
            raise
        finally:
            self._waited_for.discard(task)

    def _elsewhere(self) -> None:
        """Say that nothing is wrong with an account this node does not have."""
        self.trouble("receiving", Health.UP, ELSEWHERE)

    def _broken(self, error: Exception, delay: float) -> None:
        """Say that a connection ended in a way the channel knows nothing of."""
        name = type(error).__name__
        if isinstance(error, OSError):
            event = f"{self.channel}.connection.failed"
            _log.warning(event, account=self.account, error=name, retry_in=delay)
            detail = f"It cannot be reached ({name}). Trying again in {delay:g} s."
            self.trouble("receiving", Health.DEGRADED, detail)
        else:
            # A fault of ours; without this the bot would go deaf and nobody would know.
            _log.error(f"{self.channel}.fault", account=self.account, exc_info=error)
            self.trouble("receiving", Health.DOWN, f"An unexpected fault ({name}).")

    # --- storing ---------------------------------------------------------------------------------

    async def receive(self, inbound: Inbound) -> bool:
        """Give a message to the engine, until it is stored; see `store`."""
        return await self.store(lambda: self.engine.receive(inbound))

    async def store(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do what stores one message, however often that takes; meanwhile the account is degraded.

        Returns:
            False when it failed `MAX_FAULTS` times for another reason than storage: it is counted
            as dropped, so that what follows is stored.

        Raises:
            Stopped: the account stops before it is stored.
        """
        backoff, faults, is_failing = self.backoff(), 0, False
        while True:
            try:
                await work()
            except Stopped:
                raise
            except StorageError as error:
                delay = backoff.next()
                self._unstored += not is_failing
                is_failing = True
                self._failed("store.failed", error, retry_in=delay)
                detail = f"New messages cannot be stored; {self._waiting}."
                again = f"Trying again in {delay:g} s."
                self.trouble("storing", Health.DEGRADED, f"{detail} {again}")
            except Exception:  # noqa: BLE001  # see MAX_FAULTS
                faults += 1
                name = f"{self.channel}.store.fault"
                _log.exception(name, account=self.account, tries=faults)
                if faults >= MAX_FAULTS:
                    self.drop("fault")
                    break
                delay = backoff.next()
            else:
                break
            await self.pause(delay)
        if is_failing:
            self._unstored -= 1
            if not self._unstored:
                self.well("storing")
        return faults < MAX_FAULTS

    async def insist(self, event: str, work: Callable[[], Awaitable[T]]) -> T:
        """Read or write something of the account's own, until the storage does it.

        Args:
            event: what the log calls a failure, after the channel's name: "last_seen.failed".
            work: what reads or writes.

        Raises:
            Stopped: the account stops before that.
        """
        backoff = self.backoff()
        while True:
            try:
                return await work()
            except StorageError as error:
                self._failed(event, error)
                await self.pause(backoff.next())

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of the platform, asked again until it comes.

        Raises:
            ChannelError: it never will.
            Stopped: the account stops first.
        """
        backoff = self.backoff()
        while True:
            try:
                return await call()
            except SendLater as error:
                delay = error.seconds
            except SendTransient:
                delay = backoff.next()
            await self.pause(delay)

    def _failed(self, event: str, error: StorageError, **fields: float) -> None:
        name = type(error).__name__
        _log.error(f"{self.channel}.{event}", account=self.account, error=name, **fields)

    def drop(self, reason: str) -> None:
        """Count something that becomes no message; `reason` is a fixed word of the channel's."""
        self.engine.dropped(self.channel, reason)

    # --- health ----------------------------------------------------------------------------------

    def trouble(self, part: Part, health: Health, detail: str = "") -> None:
        """Something does not work; `detail` says what, and what to do, without secrets."""
        self._troubles[part] = (health, detail)
        self._tell()

    def well(self, part: Part) -> None:
        """That works, or works again."""
        if part in self._troubles or self._health is None:
            self._troubles.pop(part, None)
            self._tell()

    def _tell(self) -> None:
        """Tell the engine how the account is doing, when that changed: the worst first."""
        found = (self._troubles[part] for part in get_args(Part) if part in self._troubles)
        health = next(found, (Health.UP, ""))
        if health != self._health:
            self._health = health
            self.engine.report(self.channel, self.account, *health)


async def _ended_first(task: asyncio.Future[None], lost: asyncio.Event) -> bool:
    """True when a task ended before its account was lost."""
    gone = asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    return not lost.is_set()
