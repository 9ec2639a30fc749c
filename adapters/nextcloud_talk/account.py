"""One bot: how it speaks, and its health; `calls` is what it does with what Talk brings."""

from __future__ import annotations

import aiohttp
import structlog
from yarl import URL

from adapters.nextcloud_talk import Seat, normal_url
from adapters.nextcloud_talk.api import TalkApi
from adapters.nextcloud_talk.calls import Calls, Pace
from adapters.nextcloud_talk.files import Fetcher, Sharer
from adapters.nextcloud_talk.history import History
from adapters.nextcloud_talk.inbound import CHANNEL
from adapters.nextcloud_talk.rich import Rooms
from adapters.nextcloud_talk.send import NotAccepted, Sender
from bot.channel import Address, ChannelConfig, Engine, Health, Media, Piece
from bot.channel.kit.supervisor import Supervisor
from bot.errors import SendRefused, SendTransient, SendUnreachable

_log = structlog.get_logger()


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
        self.supervisor = Supervisor(
            CHANNEL,
            seat.account,
            engine,
            waiting="each is read from its conversation once that works",
            first=pace.first,
            longest=pace.longest,
        )
        api = TalkApi(seat, session)
        sharer = Sharer(seat.account, api, seat.api_user)
        rooms = Rooms(seat.account, api, seat.api_user)
        self._sender = Sender(seat.account, api, sharer)
        self._files = Fetcher(api, seat.api_user, URL(seat.base_url).path.rstrip("/"))
        self.calls = Calls(
            self.supervisor,
            seat=seat,
            config=config,
            rooms=rooms,
            history=History(self.supervisor, api, rooms) if api.has_login else None,
            sharer=sharer,
            said=self._sender.said,
            pace=pace,
        )

    async def start(self) -> None:
        """Begin to look for what was missed, if there is an account that can."""
        self.supervisor.trouble("listening", Health.STARTING)
        await self.calls.start()

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        chat = piece.address.chat
        if not self.calls.is_here(chat):
            raise SendRefused("this is no conversation on this account's server")
        if self.calls.was_removed(chat):
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
        if not self.calls.was_removed(address.chat):
            await self._sender.react(address, message_id, emoji)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file; see `Channel.fetch`."""
        return await self._files.fetch(media, most)

    def wrong_backend(self, backend: str) -> None:
        """Somebody with this bot's secret calls from an address that is not configured."""
        called = normal_url(backend)[:200] or "nothing"
        _log.warning("nextcloud_talk.webhook.backend", account=self.seat.account, backend=called)
        self.supervisor.trouble(
            "receiving",
            Health.DEGRADED,
            f"Nextcloud calls itself {called}, but base_url is {self.seat.base_url}: make base_url "
            "and overwrite.cli.url in its config.php the same.",
        )
