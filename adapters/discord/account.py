"""One bot: its connection and its health, and what it is made of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog
from yarl import URL

from adapters.discord import DiscordConfig, inbound, places, presses
from adapters.discord.api import Rest, new_session, reason
from adapters.discord.drafts import Drafts
from adapters.discord.files import Shelf, origin
from adapters.discord.gateway import Connection, Invalidated, Lost
from adapters.discord.history import History
from adapters.discord.inbound import CHANNEL, Identity, first_id_at, number_in
from adapters.discord.intake import Intake
from adapters.discord.menu import sync
from adapters.discord.pace import Pace
from adapters.discord.places import ADMINISTRATOR, MANAGE_GUILD, Places
from adapters.discord.replies import Replies
from adapters.discord.sdk import discord
from adapters.discord.send import Sender
from adapters.discord.shapes import Json, child, identity, ids, label, node, text
from adapters.waits import Backoff, Stopped, pause
from bot.channel import Address, Command, Engine, Health
from bot.errors import StorageError

READY, RESUMED = "READY", "RESUMED"
EVENTS = (READY, RESUMED, *places.EVENTS, *inbound.EVENTS, presses.EVENT)
MAX_REACTIONS = 1024  # signs kept in mind, to be able to take them away
STEADY = 10.0  # seconds after which the end of a connection is nothing to wait for
HEARD = "heard"  # keeps the message id until which everything said in servers was dealt with
SKEW = 600_000  # ms that this machine's clock may be ahead of Discord's
GRACE = 5.0  # seconds for what is being stored or sent when the account stops

# Close codes after which only a person can help, with what to do.
_REFUSALS = {
    4004: "Discord does not accept this bot's token. Copy it again from the developer portal.",
    4010: "Discord does not accept this connection.",
    4011: "This bot is in too many servers for one connection.",
    4012: "Discord no longer speaks this version of its gateway. Update Confidant.",
    4013: "Discord does not know what this bot asks for. Update Confidant.",
    4014: "Discord does not let this bot read messages: switch on Message Content Intent on the "
    "Bot page of the developer portal.",
}

_log = structlog.get_logger()


class Account:
    """One bot of the channel."""

    def __init__(
        self, *, name: str, config: DiscordConfig, token: str, engine: Engine, pace: Pace
    ) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self._engine = engine
        self._pace = pace
        self._session = new_session()
        self.rest = Rest(token, config.api_root, self._session)
        self.places = Places()
        self.drafts = Drafts(self.rest, name, self._spawn, pace)
        self.replies = Replies(self.rest, name, self._spawn, pace)
        self.sender = Sender(self.rest, self.drafts, self.replies, self.places)
        hosts = frozenset(origin(URL(address)) for address in config.attachment_hosts)
        self.shelf = Shelf(self.rest, config.api_root, hosts)
        self.history = History(
            rest=self.rest,
            account=name,
            config=config,
            places=self.places,
            drafts=self.drafts,
            pace=pace,
            stopping=self.stopping,
        )
        self.intake = Intake(
            account=name,
            engine=engine,
            places=self.places,
            history=self.history,
            replies=self.replies,
            report=self._report,
            spawn=self._spawn,
            pace=pace,
            stopping=self.stopping,
        )
        self._connection = Connection(
            self.rest, config.gateway_url, events=EVENTS, listen=self._hear, wait=pace.identify
        )
        self._backoff = Backoff(pace.first, pace.longest)
        # A new session costs one of the 1000 a day, so these waits grow longer.
        self._restarts = Backoff(pace.first, pace.rejected)
        self._restarted = False  # without a wait, since a connection last stood for a while
        self._application = ""
        self._described = asyncio.Event()  # every server
        self._menus: dict[str, Sequence[Command]] = {}
        self._since = 0  # the message id after which chats never heard before are looked through
        self._published = True
        self._health: tuple[Health, str] | None = None
        self._signs: dict[tuple[str, str], str] = {}
        self._runner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin in a task of its own."""
        self._report(Health.STARTING)
        self._runner = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Leave the gateway, wait for what is being stored, release the connections."""
        is_even, moment = bool(self._since) and self.intake.is_idle, _now()
        self.stopping.set()
        self.drafts.close()
        self.replies.close()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if is_even:
            await self._heard(moment - SKEW)
        await self._session.close()

    def publish(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands as soon as there is a connection."""
        self._menus = menus
        self._published = not menus
        if self._application and menus:
            self._spawn(self._publish())

    async def typing(self, chat: str) -> None:
        """Show "is typing…" in a chat, if that works."""
        try:
            await self.rest.call("POST", "/channels/{channel_id}/typing", channel_id=chat)
        except discord.DiscordException as error:
            _log.debug("discord.typing.failed", account=self.name, error=reason(error))

    async def react(self, chat: str, message: str, emoji: str) -> None:
        """Put a sign below a message, or take the last one away."""
        method, sign = ("PUT", emoji) if emoji else ("DELETE", self._signs.pop((chat, message), ""))
        if not sign:
            return
        path = "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me"
        try:
            await self.rest.call(method, path, channel_id=chat, message_id=message, emoji=sign)
        except discord.DiscordException as error:
            _log.debug("discord.reaction.failed", account=self.name, error=reason(error))
            return
        if emoji:
            self._signs[chat, message] = emoji
            if len(self._signs) > MAX_REACTIONS:
                self._signs.pop(next(iter(self._signs)))

    async def is_admin(self, address: Address, sender: str) -> bool:
        """Whether a person may manage the server a room belongs to."""
        place = self.places.place(address.chat)
        if place is None or not place.server:
            return False
        try:
            found = await self.rest.call(
                "GET",
                "/guilds/{guild_id}/members/{user_id}",
                guild_id=place.server,
                user_id=sender,
            )
        except discord.DiscordException as error:
            _log.info("discord.member.unknown", account=self.name, error=reason(error))
            return False
        powers = self.places.powers(place.server, sender, ids(node(found) or {}, "roles"))
        return bool(powers & (ADMINISTRATOR | MANAGE_GUILD))

    # --- the connection --------------------------------------------------------------------------

    async def _run(self) -> None:
        async with self._connection as connection:
            while not self.stopping.is_set():
                delay = await self._serve(connection)
                if await pause(delay, self.stopping):
                    return

    async def _serve(self, connection: Connection) -> float:
        """Be connected once; how long to wait before the next time, in seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await connection.serve()
        except Lost as lost:
            return self._lost(lost, loop.time() - began)
        except discord.ConnectionClosed as closed:
            return self._refused(closed.code)
        except Exception as error:  # noqa: BLE001
            # A fault of ours; without this the bot would go deaf and nobody would know.
            _log.exception("discord.fault", account=self.name)
            self._report(Health.DOWN, f"An unexpected fault ({type(error).__name__}).")
        return self._backoff.next()

    def _lost(self, lost: Lost, lasted: float) -> float:
        """The connection ended by itself; how long to wait before the next one."""
        if lasted >= STEADY:
            self._backoff.reset()
            self._restarts.reset()
            self._restarted = False
        if isinstance(lost, Invalidated):
            delay = self._restart()
        else:
            delay = 0.0 if lasted >= STEADY else self._backoff.next()
        if self._is_up() or not delay:
            # It was a good connection: come back, and say nothing if that works.
            self._health = None
            _log.info("discord.connection.lost", account=self.name, error=str(lost), retry_in=delay)
        else:
            _log.warning("discord.connection.failed", error=str(lost), retry_in=delay)
            ends = isinstance(lost, Invalidated)
            why = "Discord ends every session" if ends else "Discord cannot be reached"
            self._report(Health.DOWN, f"{why}. Trying again in {delay:g} s.")
        return delay

    def _restart(self) -> float:
        """A session was invalidated: at once to a new one, unless that is over again as soon."""
        self._backoff.reset()
        if self._restarted:
            return self._restarts.next()
        self._restarted = True
        return 0.0

    def _is_up(self) -> bool:
        return self._health is not None and self._health[0] in {Health.UP, Health.DEGRADED}

    def _refused(self, code: int) -> float:
        words = _REFUSALS.get(code)
        if words is None:
            delay = self._backoff.next()
            words = f"Discord ended the connection ({code})."
        else:
            delay = self._pace.rejected
        _log.error("discord.connection.refused", account=self.name, code=code, retry_in=delay)
        self._report(Health.DOWN, words)
        return delay

    def _hear(self, event: str, data: Json) -> None:
        """One event of the gateway. It must not fail: the connection would end with it."""
        try:
            if event in places.EVENTS:
                self.places.hear(event, data)
                self._look_around()
                if event == places.DESCRIBED and self._since:
                    # It comes late: the others have been looked through already.
                    server = identity(data, "id")
                    self.intake.release(self.history.chats({}, self._since, server))
            elif event == READY:
                self._ready(data)
            elif event == RESUMED:
                self._report(Health.UP)
            else:
                self.intake.offer(event, data)
        except Exception:  # noqa: BLE001
            self.intake.leave_out("fault")
            _log.exception("discord.event.fault", account=self.name, kind=event)

    def _ready(self, data: Json) -> None:
        user = child(data, "user")
        number = identity(user, "id")
        self.places.me = number
        self.intake.me = Identity(number, label(text(user, "username")))
        self._application = identity(child(data, "application"), "id") or number
        self.places.connected(data)
        self._described.clear()
        self._look_around()
        self.intake.hold()
        self._since = 0
        _log.info("discord.connected", account=self.name)
        self._report(Health.UP)
        self._spawn(self._begin(_now()))
        if not self._published:
            self._spawn(self._publish())

    def _look_around(self) -> None:
        if self.places.settled:
            self._described.set()

    async def _begin(self, moment: int) -> None:
        """Let messages in, after those that were missed.

        Args:
            moment: when this session began, in ms since the epoch.
        """
        try:
            async with asyncio.timeout(self._pace.settle):
                await self._described.wait()
        except TimeoutError:
            _log.warning("discord.servers.undescribed", account=self.name)
        backoff = Backoff(self._pace.first, self._pace.longest)
        while True:
            try:
                seen = await self._engine.last_seen(CHANNEL, self.name)
                kept = await self._engine.kept(CHANNEL, self.name)
            except StorageError as error:
                delay = backoff.next()
                _log.error("discord.last_seen.failed", error=type(error).__name__)
                if await pause(delay, self.stopping):
                    return
            else:
                break
        before = number_in(kept.get(HEARD, ""))
        # The first time there is nothing that was missed.
        self._since = int(before or first_id_at(moment))
        self.intake.release(self.history.chats(seen, self._since))
        try:
            await self.intake.caught_up()
        except Stopped:
            return
        await self._heard(moment - SKEW if before else moment)

    async def _heard(self, moment: int) -> None:
        """Note that what was said until a moment (ms since the epoch) is stored."""
        since = first_id_at(moment)
        if not self.places.settled or int(since) < self._since:
            return  # there is a server whose chats are yet to be looked through
        try:
            await self._engine.keep(CHANNEL, self.name, HEARD, since)
        except StorageError as error:
            _log.warning("discord.heard.not_kept", error=type(error).__name__)

    async def _publish(self) -> None:
        menus, self._published = self._menus, True
        try:
            changed = await sync(self.rest, self._application, menus)
        except discord.DiscordException as error:
            self._published = False  # the next connection tries again
            _log.warning("discord.menu.failed", account=self.name, error=reason(error))
        else:
            _log.info("discord.menu.synced", account=self.name, changed=changed)

    def _report(self, health: Health, detail: str = "") -> None:
        """Tell the engine how this bot is doing, when that changed."""
        if (health, detail) != self._health:
            self._health = (health, detail)
            self._engine.report(CHANNEL, self.name, health, detail)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> int:
    return time.time_ns() // 1_000_000
