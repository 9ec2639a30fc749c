"""The channels of the program: started, put in the place of one another, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from bot.channel import DEFAULT_ACCOUNT, Address, Channel, ChannelPlugin, Engine, Health
from bot.commands.commander import menus
from bot.config import ChannelsConfig
from bot.coordination import Event
from bot.core import Core
from bot.errors import StorageError
from bot.gateway.gateway import Connections
from bot.identity import MessageOrigin
from bot.identity.view import main_space
from bot.memory import versions

START_SECONDS = 30.0  # that a channel may take, which is to connect after it has started

log = structlog.get_logger(__name__)


def made(plugins: Mapping[str, ChannelPlugin], config: ChannelsConfig) -> dict[str, Channel]:
    """The channels that are set up, by name."""
    found: dict[str, Channel] = {}
    for name, plugin in plugins.items():
        section = config.get(name)
        if section.enabled and plugin.ready(section):
            found[name] = plugin.create(section)
        else:
            log.debug("channel.off", channel=name)
    return found


class RunningChannels:
    """Starts and stops the channels of a table that everything else only looks into."""

    def __init__(self, channels: dict[str, Channel], connections: Connections) -> None:
        self._channels = channels
        self._connections = connections
        self._engine: Engine | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, engine: Engine, *, pages: bool) -> None:
        """Start those that serve pages, or the others."""
        self._engine = engine
        for name, channel in tuple(self._channels.items()):
            if channel.capabilities.pages is not pages:
                continue
            try:
                await self._start(channel, engine)
            except TimeoutError:
                log.error("channel.start.failed", channel=name, seconds=START_SECONDS)  # noqa: TRY400
                detail = f"It did not start within {START_SECONDS:g} s."
                self._connections.report(name, DEFAULT_ACCOUNT, Health.DOWN, detail)

    async def adopt(
        self, plugins: Mapping[str, ChannelPlugin], before: ChannelsConfig, config: ChannelsConfig
    ) -> None:
        """Start, stop, or put anew those whose section is another one.

        What serves pages stays as it is: its routes are those of the server.
        """
        for name, plugin in plugins.items():
            section = config.get(name)
            running = self._channels.get(name)
            serves_pages = running is not None and running.capabilities.pages
            if section == before.get(name) or serves_pages:
                continue
            if running is not None:
                del self._channels[name]
                await _stop(running)
                self._connections.forget(name)
                log.info("channel.stopped", channel=name)
            if section.enabled and plugin.ready(section):
                await self._put(name, plugin, section)

    async def reopen_pages(self) -> None:
        """End every connection of those that serve pages; whoever may comes back by itself."""
        for channel in tuple(self._channels.values()):
            if channel.capabilities.pages and self._engine is not None:
                await channel.stop()
                await channel.start(self._engine)

    async def stop(self) -> None:
        """Stop all of them, the last started first; what one raises stops no other."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in reversed(tuple(self._channels.values())):
            await _stop(channel)

    async def _put(self, name: str, plugin: ChannelPlugin, section: object) -> None:
        try:
            channel = await asyncio.to_thread(plugin.create, section)  # it imports an SDK
            self._channels[name] = channel
            if self._engine is not None:
                await self._start(channel, self._engine)
        except Exception as error:
            log.exception("channel.start.failed", channel=name)
            detail = f"It could not be started ({type(error).__name__}); the log has the reason."
            self._connections.report(name, DEFAULT_ACCOUNT, Health.DOWN, detail)
        else:
            log.info("channel.started", channel=name)

    async def _start(self, channel: Channel, engine: Engine) -> None:
        async with asyncio.timeout(START_SECONDS):
            await channel.start(engine)
        if channel.capabilities.command_menu:
            task = asyncio.create_task(_publish(channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _stop(channel: Channel) -> None:
    try:
        await channel.stop()
    except Exception:
        log.exception("channel.stop.failed", channel=channel.name)


async def _publish(channel: Channel) -> None:
    try:
        await channel.publish_commands(menus())
    except Exception:
        log.exception("channel.menu.failed")


class Hiding:
    """Has channels that show what was said show it anew, for whoever had some of it forgotten."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: Mapping[str, int] = {}
        core.coordination.on("forgotten", self._heard)

    async def begin(self) -> None:
        """Know what was forgotten before anybody looks.

        Raises:
            StorageError: the database cannot be read.
        """
        self._known = await self._core.database.read(versions.numbers)

    async def look(self) -> None:
        """Something was forgotten, here or elsewhere: let no page show it. Never raises."""
        try:
            numbers = await self._core.database.read(versions.numbers)
            news = (space for space, n in numbers.items() if self._known.get(space) != n)
            changed = {*map(main_space, news)}  # a page shows what was said to every agent
            if not changed:
                return
            for channel in tuple(self._core.channels.values()):
                await channel.forgotten(lambda address: self._space_of(address) in changed)
            self._known = numbers
        except StorageError as error:
            log.warning("forgotten.not_hidden", error=type(error).__name__)

    async def _heard(self, _event: Event) -> None:
        await self.look()

    def _space_of(self, address: Address) -> str:
        chat = address.chat
        origin = MessageOrigin(address.channel, address.account, chat, "direct", chat)
        return main_space(self._core.resolver.of(origin).view.space)
