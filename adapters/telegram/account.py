"""One bot: connecting, polling, its menu of commands, and its health."""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import structlog
from cachetools import TTLCache
from telegram.constants import ReactionEmoji
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from adapters.telegram import TelegramConfig, webhook_url
from adapters.telegram.api import READ_TIMEOUT, AiohttpRequest, Json, LeanBot, failure, reason
from adapters.telegram.inbound import ALLOWED_UPDATES, CHANNEL, Identity, update_id
from adapters.telegram.message import chat_id
from adapters.telegram.send import Sender
from adapters.telegram.updates import Updates
from bot.channel import Address, Command, Engine, Health, Media, Piece, reveal
from bot.channel.kit import accounts
from bot.channel.kit.client import download
from bot.channel.kit.intake import Patience
from bot.channel.kit.json_access import integer, mapping, text
from bot.channel.kit.supervisor import Supervisor
from bot.errors import SendLater, SendRefused, StorageError

BATCH = 100  # updates one poll may bring; Telegram's maximum
MAX_COMMANDS = 100  # Telegram's limits of a menu
MAX_DESCRIPTION = 256
MAX_DOWNLOAD = 20_000_000  # bytes; Telegram's limit for bots
FILE_TIMEOUT = 60.0  # seconds for one file
REMEMBERED, ADMIN_KEPT = 4096, 300.0  # answers to who looks after a group, and seconds
PRIVACY = (
    "Privacy mode is on, so in groups it gets only commands, mentions and replies. "
    "@BotFather's /setprivacy changes that; then add it to the group again."
)
# What may stand below a message; some of these signs people also write with a selector.
_SELECTOR = "\ufe0f"
_REACTIONS = {emoji.value.replace(_SELECTOR, ""): emoji.value for emoji in ReactionEmoji}
_COMMAND_NAME = re.compile(r"[a-z0-9_]{1,32}")
_LANGUAGE = re.compile(r"[a-z]{2}")

_log = structlog.get_logger()

Menus = Mapping[str, Sequence[Command]]  # by language


@dataclass(frozen=True, slots=True)
class Pace(Patience):
    """Waits in seconds; tests make them short."""

    first: float = 2.0  # after the first failure, doubled after each further one
    longest: float = 30.0
    rejected: float = 60.0  # after a rejected token, which only a person can mend
    probe: int = 1  # the long poll after a failure, to know soon whether it is over
    look: float = 0.15  # between two looks for further parts
    draft_first: float = 1.0  # before a reply shows while it is being written
    draft: float = 1.0  # between two changes of it


class Account(accounts.Account):
    """One bot of the channel; subclasses say how its messages arrive."""

    def __init__(
        self,
        *,
        name: str,
        config: TelegramConfig,
        token: str,
        engine: Engine,
        session: aiohttp.ClientSession,
        pace: Pace,
        listening: asyncio.Event,
    ) -> None:
        supervisor = Supervisor(
            *(CHANNEL, name, engine),
            waiting="they wait at Telegram",
            first=pace.first,
            longest=pace.longest,
        )
        super().__init__(supervisor)
        self.config = config
        self.listening = listening  # set once webhooks can come
        self.bot = LeanBot(token, config.api_root, session)
        self.drafts = self.sender = Sender(self.bot, supervisor, pace.draft_first, pace.draft)
        self._root, self._files = config.api_root.rstrip("/"), AiohttpRequest(session)
        self._admins = TTLCache[tuple[str, str], bool](REMEMBERED, ADMIN_KEPT)
        # A token begins with the bot's id; the username comes with the first answer.
        own = token.partition(":")[0]
        me = Identity(int(own) if own.isdecimal() else 0)
        self.updates = Updates(supervisor, me=me, sender=self.sender, patience=pace)
        self.backoff = self.supervisor.backoff()
        self.pace = pace
        self._menus: Menus = {}
        self._published = True
        self._online = False

    @property
    def link(self) -> str:
        """The address of its chat."""
        name = self.updates.me.username
        return f"https://t.me/{name}" if name else ""

    async def start(self) -> None:
        """Begin, with the replies that an earlier run left unfinished."""
        await self.sender.recall()
        await super().start()

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self.sender.send(piece)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of what came with a message; see `Channel.fetch`."""
        if not media.ref:
            raise SendRefused("this file has no handle")
        found = mapping(await self.bot.told("getFile", {"file_id": media.ref}))
        path = text(found, "file_path")
        if not path or path.startswith("/") or ".." in path.split("/"):
            # A server of one's own that runs with --local names a file on its own disk.
            raise SendRefused("Telegram does not say where this file is")
        most = min(most, MAX_DOWNLOAD)
        if max(media.size, integer(found, "file_size") or 0) > most:
            raise SendRefused("this file is too large")
        url = f"{self._root}/file/bot{self.bot.token}/{quote(path)}"
        return await download(self._files.get(url, FILE_TIMEOUT), most, "Telegram")

    async def typing(self, address: Address) -> None:
        """Show "typing…" in a chat."""
        parameters: Json = {"chat_id": chat_id(address.chat), "action": "typing"}
        if address.thread.isdecimal():  # here also that of the general topic
            parameters["message_thread_id"] = int(address.thread)
        await self.bot.told("sendChatAction", parameters)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put one of the signs Telegram allows below a message."""
        number = message_id.partition(":")[0]
        sign = _REACTIONS.get(emoji.replace(_SELECTOR, ""), "")
        if number.isdecimal() and (sign or not emoji):
            signs = [{"type": "emoji", "emoji": sign}] if sign else []
            where: Json = {"chat_id": chat_id(address.chat), "message_id": int(number)}
            await self.bot.told("setMessageReaction", where | {"reaction": signs})

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True for an admin of a group; see `Channel.is_admin`."""
        if sender == address.chat:
            return True  # a direct chat is one's own, and only admins speak as their group
        if not address.chat.startswith("-") or not sender.isdecimal():
            return False
        key = address.chat, sender
        if key not in self._admins:
            asked: Json = {"chat_id": chat_id(address.chat), "user_id": int(sender)}
            member = mapping(await self.sender.call("getChatMember", asked))
            self._admins[key] = text(member, "status") in {"creator", "administrator"}
        return self._admins[key]

    def publish(self, menus: Menus) -> None:
        """Register the commands as soon as there is a connection."""
        self._menus = menus
        self._published = False
        if self._online:
            self.supervisor.spawn(self._publish())

    # --- for the two ways of receiving -----------------------------------------------------------

    @abstractmethod
    async def prepare(self) -> None:
        """Tell Telegram how updates are to arrive.

        Raises:
            TelegramError: Telegram cannot be told; it is called again after a while.
        """

    @abstractmethod
    async def receive_updates(self) -> None:
        """Receive until the channel stops.

        Raises:
            TelegramError: the connection is lost; it is called again after a while.
            Stopped: the channel stops.
        """

    @abstractmethod
    async def resume(self) -> None:
        """Go on with what another node was brought and is not whole."""

    # --- connecting ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Connect once, and receive until that ends."""
        await self.supervisor.unless_stopped(self.prepare())
        me = await self.supervisor.unless_stopped(self.bot.get_me())
        self.updates.me = Identity(me.id, me.username or "")
        _log.info("telegram.connected", account=self.name, mode=self.config.mode)
        # Who talks to it in direct chats only has no use for this.
        has_rooms = self.config.group_policy == "open" or bool(self.config.groups)
        is_deaf = has_rooms and me.can_read_all_group_messages is False
        if is_deaf and self.config.group_policy != "disabled":
            _log.info("telegram.privacy_mode.on", account=self.name)
            self.supervisor.trouble("rights", Health.UP, PRIVACY)
        else:
            self.supervisor.well("rights")
        await self.receive_updates()

    async def begin_receiving(self) -> None:
        """This node speaks for the bot now: go on with what is held, and register the commands.

        Raises:
            StorageError: what is held cannot be read.
        """
        await self.updates.resume()
        self._online = True
        if not self._published:
            self.supervisor.spawn(self._publish())

    def failed(self, error: Exception) -> float | None:
        """Log and report what failed; how long to wait, in seconds."""
        if not isinstance(error, TelegramError | StorageError):
            return None
        delay = self.backoff.next()
        again = f"Trying again in {delay:g} s."
        log = _log.bind(account=self.name)
        if isinstance(error, StorageError):
            log.error("telegram.resume.failed", error=type(error).__name__, retry_in=delay)
            self._report(Health.DEGRADED, f"What is stored cannot be read. {again}")
        elif isinstance(error, InvalidToken):
            delay = self.pace.rejected
            log.error("telegram.token.rejected", retry_in=delay)
            self._report(
                Health.DOWN,
                "Telegram does not accept this bot's token. Check it with @BotFather.",
            )
        elif isinstance(error, Conflict):
            log.warning("telegram.poll.conflict", retry_in=delay)
            self._report(
                Health.DEGRADED, f"Another program receives with this bot's token. {again}"
            )
        elif isinstance(error, RetryAfter):
            later = failure(error)
            delay = max(delay, later.seconds) if isinstance(later, SendLater) else delay
            log.warning("telegram.poll.limited", retry_in=delay)
            self._report(Health.DEGRADED, f"Telegram asks to wait {delay:g} s.")
        else:
            said = reason(error, self.bot.token)
            log.warning("telegram.connection.failed", error=said, retry_in=delay)
            self._report(Health.DOWN, f"Telegram cannot be reached. {again}")
        return delay

    def _report(self, health: Health, detail: str) -> None:
        self.supervisor.trouble("receiving", health, detail)

    # --- the menu of commands --------------------------------------------------------------------

    async def _publish(self) -> None:
        menus, self._published = self._menus, True
        for language, commands in menu_pages(menus).items():
            try:
                await self.supervisor.unless_stopped(
                    self.bot.set_my_commands(commands, language_code=language or None)
                )
            except TelegramError as error:
                self._published = False  # the next connect tries again
                said = reason(error, self.bot.token)
                _log.warning("telegram.menu.failed", account=self.name, error=said)
                return


class PollingAccount(Account):
    """A bot that asks Telegram for its messages.

    An update is acknowledged by the next poll's offset, after it was stored.
    """

    _offset = 0  # the first update not yet stored; Telegram keeps it across restarts
    _held = 0.0  # seconds until messages that wait for further parts may be whole
    _probing = False  # whether the last poll failed

    async def run(self) -> None:
        """Poll on one node at a time."""
        begin = self.sender.recall
        await self.supervisor.listen(self.serve, self.failed, begin=begin, end=self._end)

    async def resume(self) -> None:
        """Nothing: no other node is brought anything."""

    def _end(self) -> None:
        """Forget what is another one's now; what that leaves is known by what it kept."""
        self._offset, self._held, self._probing, self._online = 0, 0.0, False, False
        self.updates.forget()
        self.sender.clear()

    async def prepare(self) -> None:
        """Take away a webhook of an earlier run: Telegram refuses polls while there is one."""
        await self.bot.delete_webhook()

    async def receive_updates(self) -> None:
        """Poll until the channel stops."""
        await self.begin_receiving()
        if not self._probing:
            self.supervisor.well("receiving")
        while True:
            held = self._held > 0
            if held:
                await self.supervisor.pause(min(self._held, self.pace.look))
            probing, self._probing = self._probing, True
            wait = self.pace.probe if probing else self.config.poll_timeout
            updates = await self._poll(0 if held else wait)
            self._probing, self._held = False, 0.0
            if updates:
                if all(update_id(update) is None for update in updates):
                    raise TelegramError("Invalid server response")
                self.backoff.reset()
                taken = await self.updates.take(updates)
                self._offset, self._held = taken.offset, taken.wait
            elif not probing:
                self.backoff.reset()
            if probing or updates:
                self.supervisor.well("receiving")

    async def _poll(self, wait: int) -> list[object]:
        parameters: Json = {
            "timeout": wait,
            "limit": BATCH,
            "allowed_updates": list(ALLOWED_UPDATES),
        }
        if self._offset > 0:
            parameters["offset"] = self._offset
        # The raw answer: the SDK's own method loses the whole batch over one update it can't read.
        result: Any = await self.supervisor.unless_stopped(
            self.bot.call("getUpdates", parameters, read_timeout=wait + READ_TIMEOUT)
        )
        if not isinstance(result, list):
            raise TelegramError("Invalid server response")
        return cast("list[object]", result)


async def set_webhook(bot: LeanBot, config: TelegramConfig, name: str) -> None:
    """Tell Telegram where to bring an account's updates.

    Raises:
        TelegramError: it does not take it.
    """
    await bot.set_webhook(
        webhook_url(config, name),
        allowed_updates=ALLOWED_UPDATES,
        secret_token=reveal(config.webhook_secret),
    )


def menu_pages(menus: Menus) -> dict[str, list[tuple[str, str]]]:
    """Menus as Telegram takes them: two-letter languages, valid names, short descriptions."""
    pages: dict[str, list[tuple[str, str]]] = {}
    for tag, commands in menus.items():
        language = tag.partition("-")[0].lower()
        if language in pages or (language and not _LANGUAGE.fullmatch(language)):
            _log.warning("telegram.menu.skipped", language=tag)
            continue
        page = pages[language] = list[tuple[str, str]]()
        for command in commands:
            if not _COMMAND_NAME.fullmatch(command.name) or len(page) >= MAX_COMMANDS:
                _log.warning("telegram.menu.skipped", command=command.name)
                continue
            description = command.description.strip() or command.name
            page.append((command.name, description[:MAX_DESCRIPTION]))
    return pages
