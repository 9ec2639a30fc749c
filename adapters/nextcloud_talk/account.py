"""One bot: what it does with what Talk brings it, how it speaks, and its health."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeVar, get_args

import aiohttp
import structlog
from yarl import URL

from adapters.missed import listens
from adapters.nextcloud_talk import Seat, normal_url
from adapters.nextcloud_talk.api import TalkApi
from adapters.nextcloud_talk.catchup import CatchUp
from adapters.nextcloud_talk.files import Fetcher
from adapters.nextcloud_talk.history import History
from adapters.nextcloud_talk.inbound import (
    CHANNEL,
    Identity,
    Membership,
    actor_of,
    chat_id,
    moderates,
    normalise,
    room_token,
)
from adapters.nextcloud_talk.pace import Pace
from adapters.nextcloud_talk.record import Entry, read
from adapters.nextcloud_talk.rich import file_ref
from adapters.nextcloud_talk.rooms import DIRECT, Rooms
from adapters.nextcloud_talk.send import NotAccepted, Sender
from adapters.nextcloud_talk.shapes import number
from adapters.nextcloud_talk.share import Sharer
from bot.channel import Address, ChannelConfig, Engine, Health, Inbound, Media, Outbound
from bot.errors import SendRefused, SendTransient, StorageError

REMEMBERED = 10_000  # rooms, and people in rooms
ACTOR = "actor"  # what the engine keeps the bot's own id under

# What can be in trouble, the worst first.
Part = Literal["listening", "receiving", "storing", "sending"]

_log = structlog.get_logger()
K = TypeVar("K")


class Account:
    """One bot of the channel; `config` is its section."""

    def __init__(
        self,
        seat: Seat,
        config: ChannelConfig,
        engine: Engine,
        session: aiohttp.ClientSession,
        pace: Pace,
    ) -> None:
        self.seat = seat
        self._config = config
        own = {actor_of(seat.webhook_url), f"users/{seat.api_user}" if seat.api_user else ""}
        self.me = Identity(
            seat.account, seat.bot_name, place=seat.place, also=frozenset(own - {""})
        )
        self._dropped: Counter[str] = Counter()
        self._engine = engine
        self._pace = pace
        api = TalkApi(seat, session)
        self._sharer = Sharer(seat.account, api, seat.api_user)
        self._sender = Sender(seat.account, api, self._sharer)
        self._rooms = Rooms(seat.account, api, seat.api_user)
        self._files = Fetcher(api, seat.api_user, URL(seat.base_url).path.rstrip("/"))
        self._present: OrderedDict[str, bool] = OrderedDict()  # False once the bot was removed
        self._moderators: OrderedDict[tuple[str, str], bool] = OrderedDict()
        self._is_recalled = False
        self._health: tuple[Health, str] | None = None
        self._troubles: dict[Part, tuple[Health, str]] = {}
        self._stopping = asyncio.Event()
        self._catch_up = self._reader(api) if api.has_login else None

    async def start(self) -> None:
        """Begin to look for what was missed, if there is an account that can."""
        await self._recall()
        if self._catch_up is not None:
            self._catch_up.start()

    def close(self) -> None:
        """Let nothing wait any longer for what was missed."""
        self._stopping.set()

    async def stop(self) -> None:
        """Wait for what is being stored."""
        self.close()
        if self._catch_up is not None:
            await self._catch_up.stop()

    # --- what comes in ---------------------------------------------------------------------------

    async def take(self, payload: object) -> bool:
        """Store what one verified call brings; False when it is nothing Talk would send.

        Raises:
            StorageError: it could not be stored.
            Stopped: the account stops before that.
        """
        await self._recall()
        result = normalise(payload, self.me, time.time_ns() // 1_000_000)
        if isinstance(result, Membership):
            await self._moved(result)
        elif isinstance(result, Inbound):
            if self._is_echo(result):
                self.drop("from_bot")
                return True
            await self._arrived(result, is_moderator=moderates(payload))
        else:
            self.drop(result.reason)
            return result.reason != "malformed"
        return True

    def _is_echo(self, inbound: Inbound) -> bool:
        """Whether this is a file we showed ourselves, as the API user."""
        return any(self._sharer.is_own(file_ref(media.ref)[0]) for media in inbound.media)

    async def _arrived(self, inbound: Inbound, *, is_moderator: bool | None) -> None:
        """Store a message that a call brought, after what was missed before it."""
        room = room_token(inbound.chat)
        _keep(self._present, room, value=True)
        if is_moderator is not None:
            _keep(self._moderators, (inbound.chat, inbound.sender), value=is_moderator)
        if self._catch_up is not None:
            await self._catch_up.settled(room)
        try:
            await self._store(await self._placed(inbound))
        except StorageError as error:
            self._unstored(error)
            if self._catch_up is not None:
                self._catch_up.read(room, int(inbound.message_id) - 1, self._pace.first)
            raise

    async def _placed(self, inbound: Inbound) -> Inbound:
        """The message with what only its server knows."""
        is_direct = await self._rooms.is_direct(room_token(inbound.chat), self._user(inbound))
        return replace(inbound, chat_type="direct") if is_direct else inbound

    def _user(self, inbound: Inbound) -> str:
        """The sender's id as their own server has it."""
        return inbound.sender.removeprefix(f"{self.seat.place}/" if self.seat.place else "")

    async def _store(self, inbound: Inbound) -> None:
        await self._insist(lambda: self._engine.receive(inbound))
        self.well("storing")

    async def _insist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Store something, tried for as long as Talk waits.

        Raises:
            StorageError: it could not be stored.
        """
        for delay in self._pace.store:
            try:
                await work()
            except StorageError as error:
                name = type(error).__name__
                _log.error("nextcloud_talk.store.failed", account=self.seat.account, error=name)
                await asyncio.sleep(delay)
            else:
                return
        await work()

    def _unstored(self, error: StorageError) -> None:
        name, account = type(error).__name__, self.seat.account
        if self._catch_up is not None:
            _log.error("nextcloud_talk.message.late", account=account, error=name)
            then = "it is read from its conversation once that works."
        else:
            _log.error("nextcloud_talk.message.lost", account=account, error=name)
            then = "Talk brings it only once, so its writer has to send it again."
        self.trouble("storing", Health.DEGRADED, f"A new message could not be stored; {then}")

    # --- what was missed -------------------------------------------------------------------------

    def _reader(self, api: TalkApi) -> CatchUp:
        account, pace, stopping = self.seat.account, self._pace, self._stopping
        return CatchUp(
            account=account,
            engine=self._engine,
            history=History(
                account=account, api=api, rooms=self._rooms, pace=pace, stopping=stopping
            ),
            listens=self._listens,
            entry=self._entry,
            keep=self._keep_missed,
            rooms=self._known,
            drop=self.drop,
            pace=pace,
            stopping=stopping,
        )

    def _known(self, seen: Mapping[str, str]) -> dict[str, int]:
        """The rooms of this account's server, with the newest message seen in each."""
        known = dict(seen)
        here = {room_token(chat): number(known, chat) for chat in known if self._is_here(chat)}
        return {room: after for room, after in here.items() if after}

    def _is_here(self, chat: str) -> bool:
        return chat == chat_id(self.me, room_token(chat))

    def _listens(self, room: str, kind: int) -> bool:
        somewhere = Inbound(
            channel=CHANNEL,
            account=self.seat.account,
            chat=chat_id(self.me, room),
            chat_type="direct" if kind in DIRECT else "group",
            sender="",
            message_id="",
            text="",
            sent_at=0,
        )
        return listens(self._config, somewhere)

    def _entry(self, room: str, said: object) -> Entry:
        return read(said, room, self.me, time.time_ns() // 1_000_000)

    async def _keep_missed(self, inbound: Inbound) -> None:
        """Store a message that was found in its room's record.

        Raises:
            StorageError: it could not be stored.
        """
        # Which files we showed ourselves is not known any more, but who did that for us.
        if self._is_echo(inbound) or (inbound.media and self._user(inbound) == self.seat.api_user):
            self.drop("from_bot")
            return
        try:
            await self._store(await self._placed(inbound))
        except StorageError as error:
            self._unstored(error)
            raise

    async def _recall(self) -> None:
        """Know the bot's own id again, if Talk told an earlier run of the program."""
        if self._is_recalled:
            return
        try:
            kept = await self._engine.kept(CHANNEL, self.seat.account)
        except StorageError as error:  # until it works, its name has to do
            name = type(error).__name__
            _log.error("nextcloud_talk.actor.unread", account=self.seat.account, error=name)
            return
        self._is_recalled = True
        if not self.me.actor:
            self.me = replace(self.me, actor=kept.get(ACTOR, ""))

    async def _moved(self, change: Membership) -> None:
        """The bot came into a room or left it.

        Raises:
            StorageError: its id is known, but not after a restart.
        """
        _keep(self._present, change.room, value=change.joined)
        self._rooms.forget(change.room)
        # Without the room's token: whoever knows that of a public room may come in.
        event = "nextcloud_talk.room.joined" if change.joined else "nextcloud_talk.room.left"
        _log.info(event, account=self.seat.account)
        actor, account = change.actor, self.seat.account
        if actor.startswith("bots/"):
            self.me = replace(self.me, actor=actor)
            await self._insist(lambda: self._engine.keep(CHANNEL, account, ACTOR, actor))

    def drop(self, reason: str) -> None:
        """Count something that becomes no message; the log hears of it ever more rarely."""
        self._engine.dropped(CHANNEL, reason)
        self._dropped[reason] += 1
        count = self._dropped[reason]
        if count == 10 ** (len(str(count)) - 1):
            account = self.seat.account
            _log.info("nextcloud_talk.dropped", account=account, reason=reason, count=count)

    def is_admin(self, address: Address, sender: str) -> bool:
        """Whether Talk said that this person looks after the room."""
        return self._moderators.get((address.chat, sender), False)

    # --- what goes out ---------------------------------------------------------------------------

    async def send(self, outbound: Outbound) -> str:
        """Send one piece of text; see `Channel.send`."""
        room = room_token(outbound.address.chat)
        if not self._is_here(outbound.address.chat):
            raise SendRefused("this is no conversation on this account's server")
        if self._present.get(room) is False:
            raise SendRefused("the bot was removed from this conversation")
        try:
            sent = await self._sender.send(outbound)
        except NotAccepted as error:
            self.trouble("sending", Health.DEGRADED, str(error))
            raise
        except SendTransient as error:
            again = f"{error}. It is tried again by itself."
            self.trouble("sending", Health.DEGRADED, again)
            raise
        self.well("sending")
        return sent

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction below a message, if that works."""
        if self._present.get(room_token(address.chat)) is not False:
            await self._sender.react(address, message_id, emoji)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file; see `Files.fetch`."""
        return await self._files.fetch(media, most)

    # --- health ----------------------------------------------------------------------------------

    def trouble(self, part: Part, health: Health, detail: str) -> None:
        """Something does not work; `detail` says what, and what to do."""
        self._troubles[part] = (health, detail)
        self._tell()

    def well(self, part: Part) -> None:
        """That works, or works again."""
        self._troubles.pop(part, None)
        self._tell()

    def _tell(self) -> None:
        """Tell the engine how this bot is doing, when that changed: the worst first."""
        found = [self._troubles[part] for part in get_args(Part) if part in self._troubles]
        health = found[0] if found else (Health.UP, "")
        if health != self._health:
            self._health = health
            self._engine.report(CHANNEL, self.seat.account, *health)

    def wrong_backend(self, backend: str) -> None:
        """Somebody with this bot's secret calls from an address that is not configured."""
        called = normal_url(backend)[:200] or "nothing"
        _log.warning("nextcloud_talk.webhook.backend", account=self.seat.account, backend=called)
        self.trouble(
            "receiving",
            Health.DEGRADED,
            f"Nextcloud calls itself {called}, but base_url is {self.seat.base_url}: make base_url "
            "and overwrite.cli.url in its config.php the same.",
        )


def _keep(kept: OrderedDict[K, bool], key: K, *, value: bool) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > REMEMBERED:
        kept.popitem(last=False)
