"""`confidant run` and `confidant chat`: the program itself."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import structlog
import typer

from bot.app import App, Parts
from bot.channel import Interactive, reveal
from bot.cli import garbage
from bot.cli.common import load, loop_runner
from bot.dashboard import Listening
from bot.errors import ChannelError, ConfigError, StorageBusy
from bot.memory import embed
from bot.settings import Loaded

SAME_SIGNAL = 0.5  # seconds; `make` and the terminal may both pass on one wish to stop

STOPPING = "Stopping: replies being written are finished first."
NO_NODE = (
    "With [storage] url the terminal joins the page of a running node. Start one with "
    "`confidant run`, or set [dashboard] host and port to where one is."
)

log = structlog.get_logger(__name__)


def run(config: Path | None) -> None:
    """Run the bot until it is told to stop."""
    loaded = load(config)
    loop_runner()(serve(loaded))


def chat(config: Path | None) -> None:
    """Chat in this terminal."""
    loaded = load(config, quiet=True)
    loop_runner()(chat_here(loaded))


async def serve(loaded: Loaded) -> None:
    """Run until told to stop, which may also be while it starts: a server may be waited for there.

    Raises:
        ConfidantError: it could not start; the message says what to do.
    """
    stop, started = _stop_signal(), asyncio.Event()
    if why := embed.missing(loaded.config.memory.embedder):
        typer.echo(f"Memory is searched by words alone: {why}.", err=True)
    running = asyncio.create_task(_run(loaded, started, stop))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not started.is_set() and not running.done():
        typer.echo(STOPPING, err=True)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return
    await running


async def _run(loaded: Loaded, started: asyncio.Event, stop: asyncio.Event) -> None:
    """Run the program until `stop`; `started` is set once it runs."""
    parts = Parts(loaded=loaded, on_loaded=garbage.settle)
    async with App(loaded.config, loaded.plugins, parts) as app:
        started.set()
        if app.address is not None:
            typer.echo(f"Confidant is at {app.address.url}")
        await stop.wait()
        typer.echo(STOPPING, err=True)


def _stop_signal() -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM; another one later ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first = 0.0

    def asked() -> None:
        nonlocal first
        if not stop.is_set():
            first = loop.time()
            stop.set()
        elif loop.time() - first > SAME_SIGNAL:
            os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    return stop


async def chat_here(loaded: Loaded) -> None:
    """Talk in this terminal: with a bot of its own, or with the one that runs already.

    Where many nodes share a database it is always one that runs: a node with nothing but a terminal
    would take up turns of conversations whose channels it does not have.

    Raises:
        ConfidantError: neither could be reached; the message says what to do.
    """
    config = loaded.config
    plugin = loaded.plugins["console"]
    console = plugin.create(config.channels.get("console"))
    if not isinstance(console, Interactive):
        raise ConfigError("The installed console channel cannot be used by `confidant chat`.")
    url = Listening(config.dashboard.host, config.dashboard.port).url
    token = reveal(config.dashboard.token)
    if reveal(config.storage.url):
        try:
            await console.attach(url, token)
        except ChannelError as exc:
            raise ChannelError(f"{NO_NODE} {exc}") from exc
        return
    try:
        parts = Parts(channels={"console": console}, dashboard=False)
        async with App(config, loaded.plugins, parts):
            await console.finished()
    except StorageBusy as busy:
        try:
            await console.attach(url, token)
        except ChannelError as exc:
            raise StorageBusy(f"{busy} Its page could not be joined from here: {exc}") from exc
