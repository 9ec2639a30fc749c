"""One bot: its connection and its health, and what it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from yarl import URL

from adapters.discord import DiscordConfig, inbound, interactions, places
from adapters.discord.api import Rest, first_id_at, identity, ids, new_session, number_in, reason
from adapters.discord.drafts import DiscordDrafts
from adapters.discord.gateway import Connection, Invalidated, Lost
from adapters.discord.history import History, PendingInteractions
from adapters.discord.inbound import CHANNEL, REACTIONS, Identity, Ignored, normalise
from adapters.discord.interactions import Interaction, interaction_of, sync
from adapters.discord.places import ADMINISTRATOR, MANAGE_GUILD, Place, Places, Room
from adapters.discord.sdk import discord
from adapters.discord.send import Sender, Shelf, origin
from bot.channel import Address, Command, Engine, Health, Inbound, reveal
from bot.channel.kit.drafts import Drafts
from bot.channel.kit.intake import Intake
from bot.channel.kit.json_access import Json, child, integer, label, mapping, text
from bot.channel.kit.supervisor import Backoff, Stopped, Supervisor
from bot.clock import system_clock
from bot.errors import StorageError

# One event of the gateway → a stored message: its place, its reading, what else it needs.

_log = structlog.get_logger()

Event = tuple[str, Json]  # its name, and what it holds


class Events:
    """What one account does with the messages and interactions it gets."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        places: Places,
        history: History,
        pending: PendingInteractions,
        drafts: Drafts[str],
    ) -> None:
        self.me = Identity("")
        self.public: Collection[str] = ()  # commands whose answers everybody may read
        self._supervisor = supervisor
        self._places = places
        self._history = history
        self._pending = pending
        self._drafts = drafts

    async def read(self, chat: str, after: int) -> Collection[int]:
        """Store what was missed in a chat after a message; the numbers of what is there.

        Raises:
            Stopped: the account stops first.
        """
        missed = await self._history.missed(chat, after)
        if missed:
            account = self._supervisor.account
            _log.info("discord.history.read", account=account, messages=len(missed))
        for kind, message in missed:
            await self.store(chat, (kind, {**message, "channel_id": chat}))
        return {int(identity(message, "id")) for _, message in missed}

    async def store(self, chat: str, event: Event) -> None:
        """Store the message in an event, however often it takes, or count why there is none.

        Raises:
            Stopped: the account stops first.
        """
        try:
            read = await self._read(chat, *event)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            self.leave_out("unreadable")
            name, account = type(error).__name__, self._supervisor.account
            _log.warning("discord.event.unreadable", account=account, error=name)
            return
        if read is None:
            return
        found, interaction = read
        if interaction is not None:
            self._pending.opened(interaction)
        elif found.chat_type != "direct" and found.mentions_bot:
            # In a room a reply is one from its first word.
            self._drafts.asked[found.chat] = number_in(found.message_id)
        if await self._supervisor.receive(found) and interaction is not None:
            self._pending.stored(interaction)

    async def _read(
        self, chat: str, kind: str, data: Json
    ) -> tuple[Inbound, Interaction | None] | None:
        """The message in an event, or None after counting why there is none."""
        if kind == interactions.EVENT:
            interaction = interaction_of(data, self.public)
            found = interactions.normalise(data, self._supervisor.account, self.me, self.public)
            if interaction is None or found is None:
                self.leave_out("interaction")
            elif self._pending.repeated(interaction):
                self.leave_out("repeated")
            else:
                self._places.keep(chat, interactions.place_in(data))
                return found, interaction
            if interaction is not None:
                self._pending.dismiss(interaction)
            return None
        if kind in REACTIONS:
            await self._reacted(chat, kind, data)
            return None
        # Most of what is left out can be told without knowing the place.
        first = normalise(kind, data, self._supervisor.account, self.me, Room(Place("group")))
        if isinstance(first, Ignored):
            self.leave_out(first.reason)
            return None
        room = self._places.room(await self._place(chat, data))
        result = normalise(kind, data, self._supervisor.account, self.me, room)
        if isinstance(result, Ignored):
            return None
        if result.mentions_bot and result.chat_type == "thread" and result.reply_to is None:
            start = await self._history.start(result.parent, chat)
            result = normalise(kind, data, self._supervisor.account, self.me, room, start=start)
        return None if isinstance(result, Ignored) else (result, None)

    async def _reacted(self, chat: str, kind: str, data: Json) -> None:
        account, nowhere = self._supervisor.account, Place("group")
        if inbound.reaction_of(kind, data, account, self.me, nowhere) is None:
            self.leave_out("reaction")
            return
        place = await self._place(chat, data)
        reaction = inbound.reaction_of(kind, data, account, self.me, place)
        if reaction is not None:
            await self._supervisor.engine.reacted(reaction)

    async def _place(self, chat: str, data: Json) -> Place:
        known = self._places.place(chat)
        if known is not None:
            return known
        server = identity(data, "guild_id")
        if integer(data, "channel_type") == 1 and not server:
            return self._places.learn({"id": chat, "type": 1})
        found = await self._history.place(chat)
        # Who may not know where this is takes it for a room: there nothing private shows.
        return found or Place("channel" if server else "group", "", server)

    def leave_out(self, why: str) -> None:
        """Count something that becomes no message."""
        self._supervisor.drop(why)
        _log.debug("discord.event.ignored", account=self._supervisor.account, reason=why)


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


class Account:
    """One bot of the channel.

    It has many methods because a gateway's session begins, goes on and ends in many ways.
    """

    def __init__(
        self, *, name: str, config: DiscordConfig, token: str, engine: Engine, pace: Pace
    ) -> None:
        self.name = name
        self._engine = engine
        self._pace = pace
        self.supervisor = Supervisor(
            CHANNEL,
            name,
            engine,
            waiting="they wait in memory",
            first=pace.first,
            longest=pace.longest,
        )
        self._session = new_session(reveal(config.proxy))
        self.rest = Rest(token, config.api_root, self._session)
        self.places = Places()
        self.drafts = DiscordDrafts(
            self.rest, name, self.supervisor.spawn, pace.draft_first, pace.draft
        )
        self.pending = PendingInteractions(self.rest, name, self.supervisor.spawn, pace.unanswered)
        self.sender = Sender(name, self.rest, self.drafts, self.pending, self.places)
        hosts = frozenset(origin(URL(address)) for address in config.attachment_hosts)
        self.shelf = Shelf(self.rest, config.api_root, hosts)
        self.history = History(
            self.supervisor,
            rest=self.rest,
            config=config,
            places=self.places,
            drafts=self.drafts,
        )
        self.events = Events(
            self.supervisor,
            places=self.places,
            history=self.history,
            pending=self.pending,
            drafts=self.drafts,
        )
        self.intake = Intake[Event](self.supervisor, read=self.events.read, store=self.events.store)
        self._connection = Connection(
            self.rest, config.gateway_url, events=EVENTS, listen=self._hear, wait=pace.identify
        )
        self._backoff = self.supervisor.backoff()
        # A new session costs one of the 1000 a day, so these waits grow longer.
        self._restarts = Backoff(pace.first, pace.rejected)
        self._restarted = False  # without a wait, since a connection last stood for a while
        self.application = ""
        self._menus: dict[str, Sequence[Command]] = {}
        self._since = 0  # the message id after which chats never heard before are looked through
        self._published = True
        self._is_connected = False  # since it last was, nothing failed

    def start(self) -> None:
        """Begin in a task of its own."""
        self.supervisor.trouble("receiving", Health.STARTING)
        self.supervisor.keep(f"{CHANNEL}/{self.name}", self._run)

    async def stop(self) -> None:
        """Leave the gateway, wait for what is being stored, release the connections."""
        is_even, moment = bool(self._since) and self.intake.is_idle, system_clock()
        self.supervisor.close()
        self.drafts.close()
        self.pending.close()
        await self.supervisor.stop()
        if is_even:
            await self._heard(moment - SKEW)
        await self._session.close()

    def publish(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands as soon as there is a connection."""
        self._menus = menus
        self.events.public = {each.name for each in menus.get("", ()) if not each.is_private}
        self._published = not menus
        if self.application and menus:
            self.supervisor.spawn(self._publish())

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may manage the server a room belongs to."""
        places = self.places
        try:
            if places.place(address.chat) is None:
                places = await self._asked(address.chat)
            place = places.place(address.chat)
            if place is None or not place.server:
                return False
            found = await self.rest.call(
                "GET",
                "/guilds/{guild_id}/members/{user_id}",
                guild_id=place.server,
                user_id=sender,
            )
        except discord.DiscordException as error:
            _log.info("discord.member.unknown", account=self.name, error=reason(error))
            return False
        powers = places.powers(place.server, sender, ids(mapping(found), "roles"))
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

    async def _run(self) -> None:
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
        self.drafts.clear()
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
            self.events.leave_out("malformed")

    def _ready(self, data: Json) -> None:
        user = child(data, "user")
        number = identity(user, "id")
        self.places.me = number
        self.events.me = Identity(number, label(text(user, "username")))
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
        seen = await self._engine.last_seen(CHANNEL, self.name)
        return seen, await self._engine.kept(CHANNEL, self.name)

    async def _heard(self, moment: int) -> None:
        """Note that what was said until a moment (ms since the epoch) is stored."""
        since = first_id_at(moment)
        if not self.places.described.is_set() or int(since) < self._since:
            return  # there is a server whose chats are yet to be looked through
        try:
            await self._engine.keep(CHANNEL, self.name, HEARD, since)
        except StorageError as error:
            _log.warning("discord.heard.not_kept", error=type(error).__name__)

    async def _publish(self) -> None:
        menus, self._published = self._menus, True
        try:
            changed = await sync(self.rest, self.application, menus)
        except discord.DiscordException as error:
            self._published = False  # the next connection tries again
            _log.warning("discord.menu.failed", account=self.name, error=reason(error))
        else:
            _log.info("discord.menu.synced", account=self.name, changed=changed)
