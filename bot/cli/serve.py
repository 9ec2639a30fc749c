"""`confidant run` and `confidant chat`: the program itself."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import typer
from pydantic import ValidationError

from bot import __version__, logs
from bot.app import App, Parts
from bot.channel import reveal
from bot.cli import startup
from bot.cli.common import load, loop_runner
from bot.cli.main import ConfigOption
from bot.config import OFFLINE, Config, LogConfig, LogForm
from bot.dashboard import Listening
from bot.errors import ChannelError, ConfidantError, StorageBusy
from bot.invocation import confidant
from bot.memory import embed
from bot.settings import Loaded
from bot.storage.files import served

STOP_SECONDS = 25  # after which a stop ends the process, whatever is away
SAME_SIGNAL = 0.5  # seconds; `make` and the terminal may both pass on one wish to stop

STOPPING = "Stopping, once the replies being written are finished."
STOPPED = "Stopped."
AT_ONCE = "Stopped at once. Unfinished replies are written after the next start."
INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended
NO_NODE = (
    "With [storage] url the terminal connects to a running node's page. Start a node with "
    "`{run}`, or set [dashboard] host and port to one."
)

log = structlog.get_logger(__name__)


def run(config: Path | None, form: LogForm | None) -> None:
    """Run the bot until it is told to stop.

    Raises:
        ConfidantError: it could not start; the message says what to do.
    """
    voice = Voice(logs.configure(first_log(form), for_good=False))
    logs.take_over()
    try:
        loaded = load(config, form=form, warn=voice.warn)
        voice = Voice(logs.form_of(loaded.config.log))
        loop_runner()(serve(loaded, voice))
    except ConfidantError as error:
        if not voice.is_log:
            raise
        log.critical("program.not_started", reason=str(error))
        raise typer.Exit(1) from error
    except KeyboardInterrupt:  # before there was anything to stop
        voice.say("program.stopped", STOPPED)
        raise typer.Exit(INTERRUPTED) from None


def first_log(form: LogForm | None) -> LogConfig:
    """The log's format before the configuration is read."""
    asked = os.environ.get("CONFIDANT_LOG__FORMAT", "").strip().lower()
    try:
        return LogConfig.model_validate({"format": form or asked or "auto"})
    except ValidationError:  # the configuration says so in a moment
        return LogConfig()


def chat(config: ConfigOption = None) -> None:
    """Chat in this terminal; if the bot is running, in its page's conversation."""
    loaded = load(config, quiet=True)
    loop_runner()(chat_here(loaded))


@dataclass(frozen=True, slots=True)
class Voice:
    """The program's own messages: words for a person, or log events."""

    form: logs.Form

    @property
    def is_log(self) -> bool:
        """True if standard error holds log events only."""
        return self.form == "json"

    def say(self, event: str, words: str) -> None:
        """Report something."""
        if self.is_log:
            log.info(event)
        else:  # over what the terminal shows of Ctrl-C
            _tell(f"\r{words}" if sys.stderr.isatty() else words)

    def warn(self, words: str) -> None:
        """Warn about something."""
        if self.is_log:
            log.warning("config.warning", reason=words)
        else:
            _tell(f"Warning: {words}")


def _tell(words: str) -> None:
    with suppress(OSError):  # a full disk, or a reader that is gone
        typer.echo(words, err=True)


async def serve(loaded: Loaded, voice: Voice) -> None:
    """Run until told to stop, even while starting, when it may be waiting for a server.

    Raises:
        ConfidantError: it could not start; the message says what to do.
    """
    stop, started = _stop_signal(voice), asyncio.Event()
    if why := embed.missing(loaded.config.memory.embedder):
        voice.warn(f"Memory is searched by words only: {why}.")
    running = asyncio.create_task(_run(loaded, started, stop, voice))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not started.is_set() and not running.done():
        voice.say("program.stopping", STOPPING)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return
    await running


async def _run(loaded: Loaded, started: asyncio.Event, stop: asyncio.Event, voice: Voice) -> None:
    """Run the program until `stop`; `started` is set once it runs."""
    parts = Parts(loaded=loaded, on_loaded=startup.settle)
    async with App(loaded.config, loaded.plugins, parts) as app:
        started.set()
        if voice.form == "plain":
            for line in greeting(app, loaded.config):
                typer.echo(line)
        url = app.address.url if app.address is not None else ""
        if url and loaded.config.log.format != "json":
            typer.echo(f"Confidant is at {url}")
        log.info("program.started", page=url)
        await stop.wait()
        voice.say("program.stopping", STOPPING)
        # To the very end: a thread that waits for a database would keep the process alive.
        faulthandler.dump_traceback_later(STOP_SECONDS, exit=True)
    voice.say("program.stopped", STOPPED)


def greeting(app: App, config: Config) -> list[str]:
    """The lines a person sees at the start: the model, where things are, how to stop."""
    model = app.agent.models.default
    if model == OFFLINE:
        model = "offline, until it has a key (on the page: Settings, Quick setup)"
    lines = [f"Confidant {__version__}", f"  Model     {model}"]
    if reveal(config.storage.url):
        lines.append("  Kept in   the PostgreSQL of [storage] url")
    else:
        lines.append(f"  Folder    {config.storage.folder}")
    lines.append(f"  Channels  {', '.join(sorted(app.core.channels)) or 'none'}")
    if config.dashboard.has_token:
        lines.append(f"  Log in    {confidant('login owner')}")
    return [*lines, "  Stop      Ctrl-C"]


def _stop_signal(voice: Voice) -> asyncio.Event:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets; a later one ends the process.

    SIGQUIT writes the stack of every task and thread to standard error.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first = 0.0

    def asked() -> None:
        nonlocal first
        if not stop.is_set():
            first = loop.time()
            stop.set()
        elif loop.time() - first > SAME_SIGNAL:
            voice.say("program.stopped_at_once", AT_ONCE)
            sys.stdout.flush()
            os._exit(INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked)
    loop.add_signal_handler(signal.SIGQUIT, _dump_tasks)
    faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)  # also of a stuck loop
    return stop


def _dump_tasks() -> None:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    _tell(f"{len(tasks)} tasks")
    for task in tasks:
        _tell(f"  {task.get_name()}: {' > '.join(_awaits(task.get_coro()))}")


def _awaits(coroutine: Any) -> Iterator[str]:
    """Yields each function a coroutine is in, with file and line; the innermost last."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        code = frame.f_code
        yield f"{code.co_qualname} {Path(code.co_filename).name}:{frame.f_lineno}"
        coroutine = coroutine.cr_await


async def chat_here(loaded: Loaded) -> None:
    """Chat in this terminal, with a bot of its own or the one already running.

    With a shared database it is always a running one: a node with nothing but a terminal would
    take turns of conversations whose channels it does not have.

    Raises:
        ConfidantError: neither could be reached; the message says what to do.
    """
    config = loaded.config
    plugin = loaded.plugins["console"]
    console = plugin.create(config.channels.get("console"))
    url = Listening(config.dashboard.host, config.dashboard.port).url
    token = reveal(config.dashboard.token)
    if reveal(config.storage.url):
        try:
            await console.attach(url, token)
        except ChannelError as exc:
            raise ChannelError(f"{NO_NODE.format(run=confidant('run'))} {exc}") from exc
        return
    try:
        parts = Parts(channels={"console": console}, dashboard=False)
        async with App(config, loaded.plugins, parts):
            await console.finished()
    except StorageBusy as busy:
        try:
            page = served(config.storage.folder)
            await console.attach(page.url if page is not None else url, token)
        except ChannelError as exc:
            raise StorageBusy(f"{busy} Its page could not be joined from here: {exc}") from exc
