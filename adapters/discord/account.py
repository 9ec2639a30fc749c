"""One bot: its connection and its health, and what it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from yarl import URL

from adapters.discord import DiscordConfig, inbound, interactions, places
from adapters.discord.api import (
    Rest,
    discord,
    first_id_at,
    identity,
    ids_in,
    is_id,
    new_session,
    number_in,
)
from adapters.discord.gateway import Connection, Invalidated, Lost
from adapters.discord.history import Event, History
from adapters.discord.inbound import CHANNEL, REACTIONS, Identity
from adapters.discord.interactions import Menus, PendingInteractions, sync
from adapters.discord.places import ADMINISTRATOR, MANAGE_GUILD, Places
from adapters.discord.send import Sender, Shelf, origin
from bot.channel import Address, Engine, Health, Media, Piece, reveal
from bot.channel.kit import accounts
from bot.channel.kit.intake import Intake
from bot.channel.kit.json_access import Json, child, label, mapping, text
from bot.channel.kit.supervisor import Backoff, Supervisor
from bot.clock import system_clock
from bot.errors import ChannelError, StorageError

_log = structlog.get_logger()

READY, RESUMED = "READY", "RESUMED"
EVENTS = (READY, RESUMED, *places.EVENTS, *inbound.EVENTS, *REACTIONS, interactions.EVENT)
STEADY = 10.0  # seconds after which the end of a connection is nothing to wait for
HEARD = "heard"  # keeps the message id until which everything said in servers was dealt with
SKEW = 600_000  # ms that this machine's clock may be ahead of Discord's

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


# View channels, send messages, embed links, attach files, read history, react, write in threads.
PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 6 | 1 << 38


def invitation(application: str) -> str:
    """The address at which somebody adds the bot to their server."""
    return (
        f"https://discord.com/oauth2/authorize?client_id={application}"
        f"&scope=bot+applications.commands&permissions={PERMISSIONS}"
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; tests make them short."""

    first: float = 2.0  # after the first failure, doubled after each further one
    longest: float = 30.0
    # After a refused token or intent, which only a person can mend. Discord resets the token of a
    # bot that identifies itself 1000 times a day.
    rejected: float = 120.0
    identify: float = 5.0  # from the beginning of one session to the next; Discord's own rule
    settle: float = 5.0  # for the servers to be described after a connect
    draft_first: float = 1.0  # before a reply shows while it is being written
    draft: float = 1.3  # between two edits of one message; Discord takes about 5 in 5 s
    unanswered: float = 14 * 60.0  # until a "thinking…" that nobody answers is taken away


class Account(accounts.Account):
    """One bot of the channel.

    It has many methods because a gateway's session begins, goes on and ends in many ways.
    """

    def __init__(
        self, *, name: str, config: DiscordConfig, token: str, engine: Engine, pace: Pace
    ) -> None:
        supervisor = Supervisor(
            *(CHANNEL, name, engine),
            waiting="they wait in memory",
            first=pace.first,
            longest=pace.longest,
        )
        calls = new_session(reveal(config.proxy))
        super().__init__(supervisor, calls)
        self._pace = pace
        self.rest = Rest(token, config.api_root, calls)
        self.places = Places()
        self.pending = PendingInteractions(self.rest, name, supervisor.spawn, pace.unanswered)
        paces = (pace.draft_first, pace.draft)
        self.drafts = self.sender = Sender(
            supervisor, self.rest, self.pending, self.places, pace=paces
        )
        hosts = frozenset(origin(URL(address)) for address in config.attachment_hosts)
        self.shelf = Shelf(self.rest, config.api_root, hosts)
        self.history = History(
            supervisor,
            rest=self.rest,
            config=config,
            places=self.places,
            pending=self.pending,
            sender=self.sender,
        )
        self.intake = Intake[Event](supervisor, read=self.history.read, store=self.history.store)
        self._connection = Connection(
            self.rest, config.gateway_url, events=EVENTS, listen=self._hear, wait=pace.identify
        )
        self._backoff = supervisor.backoff()
        # A new session costs one of the 1000 a day, so these waits grow longer.
        self._restarts = Backoff(pace.first, pace.rejected)
        self._restarted = False  # without a wait, since a connection last stood for a while
        self.application = ""
        self._menus: Menus = {}
        self._since = 0  # the message id after which chats never heard before are looked through
        self._published = True
        self._is_connected = False  # since it last was, nothing failed

    @property
    def link(self) -> str:
        """The address at which a server takes it along."""
        return invitation(self.application) if self.application else ""

    async def stop(self) -> None:
        """Leave the gateway, wait for what is being stored, release the connections."""
        is_even, moment = bool(self._since) and self.intake.is_idle, system_clock()
        self.pending.close()
        await super().stop()
        if is_even:
            await self._heard(moment - SKEW)

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self.sender.send(piece)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of what came with a message; see `Channel.fetch`."""
        return await self.shelf.fetch(media, most)

    async def typing(self, address: Address) -> None:
        """Show "is typing…" in a chat."""
        await self.rest.call("POST", "/channels/{channel_id}/typing", channel_id=address.chat)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message, or take the last one away."""
        number = number_in(message_id) if message_id[:1].isdecimal() else ""
        if number:
            await self.sender.react(address.chat, number, emoji)

    def publish(self, menus: Menus) -> None:
        """Register the commands as soon as there is a connection."""
        self._menus = menus
        self.history.public = {each.name for each in menus.get("", ()) if not each.is_private}
        self._published = not menus
        if self.application and menus:
            self.supervisor.spawn(self._publish())

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may manage the server a room belongs to."""
        places = self.places
        if places.place(address.chat) is None:
            places = await self._asked(address.chat)
        place = places.place(address.chat)
        if place is None or not place.server or not is_id(sender):
            return False
        path = "/guilds/{guild_id}/members/{user_id}"
        found = await self.rest.call("GET", path, guild_id=place.server, user_id=sender)
        powers = places.powers(place.server, sender, ids_in(mapping(found), "roles"))
        return bool(powers & (ADMINISTRATOR | MANAGE_GUILD))

    async def _asked(self, chat: str) -> Places:
        """A chat and its server as they are now, for a node that is not told of changes."""
        asked = Places()
        channel = mapping(await self.rest.call("GET", "/channels/{channel_id}", channel_id=chat))
        server = asked.learn({**channel, "id": chat}).server
        if server:
            guild = await self.rest.call("GET", "/guilds/{guild_id}", guild_id=server)
            asked.hear("GUILD_UPDATE", {**mapping(guild), "id": server})
        return asked

    # --- the connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a connection to the gateway, on one node at a time."""
        loop = asyncio.get_running_loop()
        began = 0.0

        async def serve() -> None:
            nonlocal began
            began = loop.time()
            await self.supervisor.unless_stopped(connection.serve())

        async with self._connection as connection:
            await self.supervisor.listen(
                serve, lambda error: self._failed(error, loop.time() - began), end=self._end
            )

    def _end(self) -> None:
        """Forget what is another one's now: that begins with what was missed."""
        self._since, self.application, self._is_connected = 0, "", False
        self.intake.hold()
        self.places.forget()
        self.sender.clear()
        self.pending.close()

    def _failed(self, error: Exception, lasted: float) -> float | None:
        """The connection ended after some seconds; how many to wait before the next one."""
        delay: float | None = None
        if isinstance(error, Lost):
            delay = self._lost(error, lasted)
        elif isinstance(error, discord.ConnectionClosed):
            delay = self._refused(error.code)
        self._is_connected = False
        return delay

    def _lost(self, lost: Lost, lasted: float) -> float:
        """It ended by itself."""
        if lasted >= STEADY:
            self._backoff.reset()
            self._restarts.reset()
            self._restarted = False
        delay = 0.0
        if isinstance(lost, Invalidated):
            # At once to a new session, unless that is over again as soon.
            self._backoff.reset()
            if self._restarted:
                delay = self._restarts.next()
            self._restarted = True
        elif lasted < STEADY:
            delay = self._backoff.next()
        if self._is_connected or not delay:
            # It was a good connection: come back, and say nothing if that works.
            _log.info("discord.connection.lost", account=self.name, error=str(lost), retry_in=delay)
        else:
            _log.warning("discord.connection.failed", error=str(lost), retry_in=delay)
            ends = isinstance(lost, Invalidated)
            why = "Discord ends every session" if ends else "Discord cannot be reached"
            self.supervisor.trouble(
                "receiving", Health.DOWN, f"{why}. Trying again in {delay:g} s."
            )
        return delay

    def _refused(self, code: int) -> float:
        words = _REFUSALS.get(code)
        if words is None:
            delay = self._backoff.next()
            words = f"Discord ended the connection ({code})."
        else:
            delay = self._pace.rejected
        _log.error("discord.connection.refused", account=self.name, code=code, retry_in=delay)
        self.supervisor.trouble("receiving", Health.DOWN, words)
        return delay

    def _hear(self, event: str, data: Json) -> None:
        """One event of the gateway. It must not fail: the connection would end with it."""
        try:
            if event in places.EVENTS:
                self.places.hear(event, data)
                if event == places.DESCRIBED and self._since:
                    # It comes late: the others have been looked through already.
                    server = identity(data, "id")
                    self.intake.release(self.history.chats({}, self._since, server))
            elif event in {READY, RESUMED}:
                self._is_connected = True
                self.supervisor.well("receiving")
                if event == READY:
                    self._ready(data)
            else:
                self._offer(event, data)
        except Exception:  # noqa: BLE001
            self.supervisor.drop("fault")
            _log.exception("discord.event.fault", account=self.name, kind=event)

    def _offer(self, event: str, data: Json) -> None:
        chat = identity(data, "channel_id")
        if chat:
            number = int(identity(data, "id") or 0) if event == inbound.CREATED else 0
            self.intake.offer(chat, (event, data), number)
        else:
            self.history.leave_out("malformed")

    def _ready(self, data: Json) -> None:
        user = child(data, "user")
        number = identity(user, "id")
        self.places.me = number
        self.history.me = Identity(number, label(text(user, "username")))
        self.application = identity(child(data, "application"), "id") or number
        self.places.connected(data)
        self.intake.hold()
        self._since = 0
        _log.info("discord.connected", account=self.name)
        self.supervisor.spawn(self._begin(system_clock()))
        if not self._published:
            self.supervisor.spawn(self._publish())

    async def _begin(self, moment: int) -> None:
        """Let messages in, after those that were missed.

        Args:
            moment: when this session began, in ms since the epoch.
        """
        try:
            async with asyncio.timeout(self._pace.settle):
                await self.places.described.wait()
        except TimeoutError:
            _log.warning("discord.servers.undescribed", account=self.name)
        seen, kept = await self.supervisor.insist("last_seen.failed", self._left_off)
        before = number_in(kept.get(HEARD, ""))
        # The first time there is nothing that was missed.
        self._since = int(before or first_id_at(moment))
        self.intake.release(self.history.chats(seen, self._since))
        await self.intake.caught_up()
        await self._heard(moment - SKEW if before else moment)

    async def _left_off(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The newest message stored in each chat, and what the account keeps."""
        seen = await self.engine.last_seen(CHANNEL, self.name)
        return seen, await self.engine.kept(CHANNEL, self.name)

    async def _heard(self, moment: int) -> None:
        """Note that what was said until a moment (ms since the epoch) is stored."""
        since = first_id_at(moment)
        if not self.places.described.is_set() or int(since) < self._since:
            return  # there is a server whose chats are yet to be looked through
        try:
            await self.engine.keep(CHANNEL, self.name, HEARD, since)
        except StorageError as error:
            _log.warning("discord.heard.not_kept", error=type(error).__name__)

    async def _publish(self) -> None:
        menus, self._published = self._menus, True
        try:
            changed = await sync(self.rest, self.application, menus)
        except ChannelError as error:
            self._published = False  # the next connection tries again
            _log.warning("discord.menu.failed", account=self.name, error=str(error))
        else:
            _log.info("discord.menu.synced", account=self.name, changed=changed)
