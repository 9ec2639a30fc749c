"""One bot: what it does with what Talk brings it, and with what was said while nobody listened."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import aiohttp
import structlog
from cachetools import LRUCache
from yarl import URL

from adapters.nextcloud_talk import Seat, normal_url
from adapters.nextcloud_talk.api import TalkApi
from adapters.nextcloud_talk.files import Files
from adapters.nextcloud_talk.history import History, Unreadable, read
from adapters.nextcloud_talk.inbound import (
    CHANNEL,
    Identity,
    Membership,
    Reacted,
    actor_of,
    chat_id,
    moderates,
    normalise,
    room_token,
)
from adapters.nextcloud_talk.rich import DIRECT, Rooms, file_ref
from adapters.nextcloud_talk.send import NotAccepted, Sender
from bot.channel import Address, ChannelConfig, Engine, Health, Inbound, Media, Piece, Reaction
from bot.channel.kit import accounts
from bot.channel.kit.intake import Intake, Where, listens, newest_chats
from bot.channel.kit.json_access import number
from bot.channel.kit.supervisor import Supervisor
from bot.clock import system_clock
from bot.errors import SendRefused, SendTransient, SendUnreachable, StorageError

REMEMBERED = 10_000  # rooms, and people in rooms
ACTOR = "actor"  # what the engine keeps the bot's own id under

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; tests make them short."""

    # After storing failed. Talk brings a message once and waits 5 s, so it is tried again at once.
    store: Sequence[float] = (0.2, 0.5, 1.0)
    first: float = 2.0  # after the first failure of what can wait, doubled after each further one
    longest: float = 30.0
    hold: float = 20.0  # a message waits at most for what was said before it to be read


class Account(accounts.Account):
    """One bot of the channel; `config` is its section."""

    def __init__(
        self,
        seat: Seat,
        config: ChannelConfig,
        engine: Engine,
        session: aiohttp.ClientSession,
        pace: Pace,
    ) -> None:
        supervisor = Supervisor(
            *(CHANNEL, seat.account, engine),
            waiting="each is read from its conversation once that works",
            first=pace.first,
            longest=pace.longest,
        )
        super().__init__(supervisor)
        self.seat, self._config, self._pace = seat, config, pace
        own = {actor_of(seat.webhook_url), f"users/{seat.api_user}" if seat.api_user else ""}
        self.me = Identity(
            seat.account, seat.bot_name, place=seat.place, also=frozenset(own - {""})
        )
        api, base_path = TalkApi(seat, session), URL(seat.base_url).path.rstrip("/")
        self._files = Files(seat.account, api, seat.api_user, base_path)
        self._rooms = Rooms(seat.account, api, seat.api_user)
        self._sender = Sender(seat.account, api, self._files)
        self._history = History(supervisor, api, self._rooms) if api.has_login else None
        self._intake = Intake[Inbound](supervisor, read=self._read_back, store=self._keep)
        self._dropped: Counter[str] = Counter()
        # Rooms; False once the bot was removed.
        self._present: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._moderators: LRUCache[tuple[str, str], bool] = LRUCache(REMEMBERED)
        self._is_recalled = False
        self._has_account = False  # whether this node sends, and reads back

    async def start(self) -> None:
        """Begin to look for what was missed, if there is an account that can."""
        self.supervisor.trouble("listening", Health.STARTING)
        await self._recall()
        if self._history is not None:
            self.supervisor.keep(f"{CHANNEL}/{self.name}", self.run)

    async def run(self) -> None:
        """Read back what was missed; when another node does, this one lets messages in."""
        await self.supervisor.alone(self._begin, partial(self._intake.release, {}))

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        chat = piece.address.chat
        if not self.is_here(chat):
            raise SendRefused("this is no conversation on this account's server")
        if self.was_removed(chat):
            raise SendUnreachable("the bot was removed from this conversation")
        try:
            sent = await self._sender.send(piece)
        except NotAccepted as error:
            self.supervisor.trouble("sending", Health.DEGRADED, str(error))
            raise
        except SendTransient as error:
            again = f"{error}. It is tried again by itself."
            self.supervisor.trouble("sending", Health.DEGRADED, again)
            raise
        self.supervisor.well("sending")
        return sent

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction below a message, if that works."""
        if not self.was_removed(address.chat):
            await self._sender.react(address, message_id, emoji)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file; see `Channel.fetch`."""
        return await self._files.fetch(media, most)

    def wrong_backend(self, backend: str) -> None:
        """Somebody with this bot's secret calls from an address that is not configured."""
        called = normal_url(backend)[:200] or "nothing"
        _log.warning("nextcloud_talk.webhook.backend", account=self.name, backend=called)
        self.supervisor.trouble(
            "receiving",
            Health.DEGRADED,
            f"Nextcloud calls itself {called}, but base_url is {self.seat.base_url}: make base_url "
            "and overwrite.cli.url in its config.php the same.",
        )

    def is_here(self, chat: str) -> bool:
        """True when a chat is one of this account's server."""
        return chat == chat_id(self.me, room_token(chat))

    def was_removed(self, chat: str) -> bool:
        """True when Talk said that the bot is no longer in a room."""
        return self._present.get(room_token(chat)) is False

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True when Talk said, with what they write, that a person looks after the room."""
        return self._moderators.get((address.chat, sender), False)

    def drop(self, reason: str) -> None:
        """Count something that becomes no message; the log hears of it ever more rarely."""
        self.supervisor.drop(reason)
        self._dropped[reason] += 1
        count = self._dropped[reason]
        if count == 10 ** (len(str(count)) - 1):
            account = self.name
            _log.info("nextcloud_talk.dropped", account=account, reason=reason, count=count)

    # --- what a call brings ----------------------------------------------------------------------

    async def take(self, payload: object) -> bool:
        """Store what one verified call brings; False when it is nothing Talk would send.

        Raises:
            StorageError: it could not be stored.
            Stopped: the account stops before that.
        """
        await self._recall()
        result = normalise(payload, self.me, system_clock())
        if isinstance(result, Membership):
            await self._moved(result)
        elif isinstance(result, Inbound):
            if self._is_echo(result):
                self.drop("from_bot")
                return True
            await self._arrived(result, is_moderator=moderates(payload))
        elif isinstance(result, Reacted):
            await self._reacted(result)
        else:
            self.drop(result.reason)
            return result.reason != "malformed"
        return True

    async def _reacted(self, reacted: Reacted) -> None:
        """Tell the engine of a reaction.

        Talk tells neither whose message it is below nor, when one is sent, what id it has: the
        bot's own are known by their words.
        """
        found = reacted.reaction
        room = room_token(found.address.chat)
        if await self._rooms.is_direct(room, _user(self.seat, found)):
            found = replace(found, chat_type="direct")
        id_ = self._sender.said.get((room, reacted.words.strip()), found.message_id)
        await self.engine.reacted(replace(found, message_id=id_))

    def _is_echo(self, inbound: Inbound) -> bool:
        """True if this is a file we showed ourselves, as the API user."""
        if not self._has_account and inbound.media:
            return _user(self.seat, inbound) == self.seat.api_user  # another node shows files
        return any(self._files.is_own(file_ref(media.ref)[0]) for media in inbound.media)

    async def _arrived(self, inbound: Inbound, *, is_moderator: bool | None) -> None:
        """Store a message that a call brought, after what was missed before it."""
        room = room_token(inbound.chat)
        self._present[room] = True
        if is_moderator is not None:
            self._moderators[inbound.chat, inbound.sender] = is_moderator
        if self._history is not None:
            try:
                async with asyncio.timeout(self._pace.hold):
                    await self._intake.settled(room)
            except TimeoutError:
                _log.warning("nextcloud_talk.history.slow", account=self.name)
        try:
            await self._briefly(partial(self._store, inbound))
        except StorageError as error:
            name, account = type(error).__name__, self.name
            if self._history is not None:
                _log.error("nextcloud_talk.message.late", account=account, error=name)
                then = "it is read from its conversation once that works."
                self._intake.read_back(room, int(inbound.message_id) - 1, self._pace.first)
            else:
                _log.error("nextcloud_talk.message.lost", account=account, error=name)
                then = "Talk brings it only once, so its writer has to send it again."
            detail = f"A new message could not be stored; {then}"
            self.supervisor.trouble("storing", Health.DEGRADED, detail)
            raise

    async def _store(self, inbound: Inbound) -> None:
        """Store a message with what only its server knows."""
        if await self._rooms.is_direct(room_token(inbound.chat), _user(self.seat, inbound)):
            inbound = replace(inbound, chat_type="direct")
        await self.engine.receive(inbound)
        self.supervisor.well("storing")

    # --- what was missed -------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Read every known room back, from the newest message seen in it; one node does."""
        self._has_account = True
        try:
            self._intake.hold()
            self._intake.release(await self._left_off())
            await self.supervisor.stopping.wait()
        finally:
            self._has_account = False

    async def _left_off(self) -> dict[str, int]:
        """The rooms to read back, with the newest message seen in each."""
        account = self.name
        seen = await self.supervisor.insist(
            "last_seen.failed", lambda: self.engine.last_seen(CHANNEL, account)
        )
        known = dict(seen)
        here = {room_token(chat): number(known, chat) for chat in known if self.is_here(chat)}
        here = {room: after for room, after in here.items() if after}
        found = newest_chats(here)
        if len(found) < len(here):
            _log.warning("nextcloud_talk.history.rooms_cut", account=account, rooms=len(here))
        return found

    async def _read_back(self, room: str, after: int) -> Collection[int]:
        """Store what was said in a room after a message."""
        history, account = self._history, self.name
        if history is None:
            return ()
        try:
            kind = "direct" if await history.kind(room) in DIRECT else "group"
            if not listens(self._config, Where(kind, chat_id(self.me, room))):
                return ()
            missed = await history.missed(
                room, after, lambda said: read(said, room, self.me, system_clock())
            )
            messages = missed.messages()
            if messages and not await history.is_told(room):
                self.drop("switched_off")
                return ()
        except Unreadable as error:
            self.drop(error.reason)
            _log.info("nextcloud_talk.history.unread", account=account, error=str(error))
            return ()
        for reason in missed.ignored.elements():
            self.drop(reason)
        if missed.cut:
            _log.warning("nextcloud_talk.history.cut", account=account, kept=len(messages))
        for message in messages:
            await self._keep(room, message)
        if messages:
            _log.info("nextcloud_talk.history.read", account=account, messages=len(messages))
        return ()

    async def _keep(self, _room: str, inbound: Inbound) -> None:
        """Store a message that was found in its room's record, however often it takes."""
        # Which files we showed ourselves is not known any more, but who did that for us.
        if self._is_echo(inbound) or (
            inbound.media and _user(self.seat, inbound) == self.seat.api_user
        ):
            self.drop("from_bot")
            return
        await self.supervisor.store(partial(self._store, inbound))

    # --- who the bot is, and where ---------------------------------------------------------------

    async def _recall(self) -> None:
        """Know the bot's own id again, if Talk told an earlier run of the program."""
        if self._is_recalled:
            return
        try:
            kept = await self.engine.kept(CHANNEL, self.name)
        except StorageError as error:  # until it works, its name has to do
            name = type(error).__name__
            _log.error("nextcloud_talk.actor.unread", account=self.name, error=name)
            return
        self._is_recalled = True
        if not self.me.actor:
            self.me = replace(self.me, actor=kept.get(ACTOR, ""))

    async def _moved(self, change: Membership) -> None:
        """The bot came into a room or left it.

        Raises:
            StorageError: its id is known, but not after a restart.
        """
        # Without the room's token: whoever knows that of a public room may come in.
        event = "nextcloud_talk.room.joined" if change.joined else "nextcloud_talk.room.left"
        _log.info(event, account=self.name)
        actor, account = change.actor, self.name
        self.heard(change)
        told = {"account": account, **asdict(change)}
        await self.engine.broadcast(CHANNEL, json.dumps(told))
        if actor.startswith("bots/"):
            await self._briefly(lambda: self.engine.keep(CHANNEL, account, ACTOR, actor))

    def heard(self, change: Membership) -> None:
        """One of the nodes was told that the bot came into a room or left it."""
        self._present[change.room] = change.joined
        self._rooms.forget(change.room)
        if change.actor.startswith("bots/"):
            self.me = replace(self.me, actor=change.actor)

    async def _briefly(self, work: Callable[[], Awaitable[None]]) -> None:
        """Store something, tried for as long as Talk waits.

        Raises:
            StorageError: it could not be stored.
        """
        for delay in self._pace.store:
            try:
                return await work()
            except StorageError as error:
                name, account = type(error).__name__, self.name
                _log.error("nextcloud_talk.store.failed", account=account, error=name)
                await asyncio.sleep(delay)
        return await work()


def _user(seat: Seat, inbound: Inbound | Reaction) -> str:
    """The sender's id as their own server has it."""
    return inbound.sender.removeprefix(f"{seat.place}/" if seat.place else "")
