"""One bot: connecting, polling, its menu of commands, and its health."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import structlog
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from adapters.telegram import TelegramConfig
from adapters.telegram.api import READ_TIMEOUT, Json, LeanBot, reason
from adapters.telegram.drafts import TelegramDrafts
from adapters.telegram.inbound import ALLOWED_UPDATES, CHANNEL, Identity, Membership, update_id
from adapters.telegram.send import Allowance, Fetcher, Members, Sender, failure
from adapters.telegram.updates import Presses, Updates
from bot.channel import Command, Engine, Health
from bot.channel.kit.reassembly import Patience
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.errors import SendLater, StorageError

BATCH = 100  # updates one poll may bring; Telegram's maximum
MAX_COMMANDS = 100  # Telegram's limits of a menu
MAX_DESCRIPTION = 256
PRIVACY = (
    "Privacy mode is on, so in groups it gets only commands, mentions and replies. "
    "@BotFather's /setprivacy changes that; then add it to the group again."
)
_COMMAND_NAME = re.compile(r"[a-z0-9_]{1,32}")
_LANGUAGE = re.compile(r"[a-z]{2}")

_log = structlog.get_logger()


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


class Account(ABC):
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
        self.name = name
        self.config = config
        self.listening = listening  # set once webhooks can come
        self.supervisor = Supervisor(
            CHANNEL,
            name,
            engine,
            waiting="they wait at Telegram",
            first=pace.first,
            longest=pace.longest,
        )
        self.bot = LeanBot(token, config.api_root, session)
        allowance = Allowance()
        self.fetcher = Fetcher(self.bot, config.api_root, session)
        self.members = Members(name, self._call)
        self.drafts = TelegramDrafts(
            account=name,
            engine=engine,
            call=self._call,
            spawn=self.supervisor.spawn,
            allowance=allowance,
            first=pace.draft_first,
            every=pace.draft,
        )
        self.sender = Sender(self.bot, allowance, self.drafts)
        # A token begins with the bot's id; the username comes with the first answer.
        own = token.partition(":")[0]
        me = Identity(int(own) if own.isdecimal() else 0)
        self.updates = Updates(
            self.supervisor,
            me=me,
            presses=Presses(name, self._call, self.supervisor.spawn),
            hear=self.drafts.hear,
            member=self._member,
            patience=pace,
        )
        self.backoff = self.supervisor.backoff()
        self.pace = pace
        self._menus: dict[str, Sequence[Command]] = {}
        self._published = True
        self._online = False

    def start(self) -> None:
        """Begin in a task of its own."""
        self.supervisor.trouble("receiving", Health.STARTING)
        self.supervisor.keep(f"{CHANNEL}/{self.name}", self.run)

    async def stop(self) -> None:
        """Give up what waits for Telegram, and wait for what is being stored."""
        self.supervisor.close()
        self.drafts.close()
        await self.supervisor.stop()

    def publish(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands as soon as there is a connection."""
        self._menus = menus
        self._published = False
        if self._online:
            self.supervisor.spawn(self._publish())

    # --- for the two ways of receiving -----------------------------------------------------------

    @abstractmethod
    async def run(self) -> None:
        """Have `serve` connect and receive until the channel stops."""

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

    def _member(self, change: Membership) -> None:
        """The bot was added to a chat, taken out of it, or blocked."""
        _log.info(
            "telegram.membership",
            account=self.name,
            chat_type=change.chat_type,
            chat=change.chat if change.chat_type != "direct" else "",
            status=change.status,
        )

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

    async def _call(self, method: str, parameters: Json) -> Any:
        """Call a method of the Bot API, unless the channel stops.

        Raises:
            TelegramError: as the call, or the channel stops.
        """
        try:
            return await self.supervisor.unless_stopped(self.bot.call(method, parameters))
        except Stopped:
            raise TelegramError("the channel stops") from None


class PollingAccount(Account):
    """A bot that asks Telegram for its messages.

    An update is acknowledged by the next poll's offset, after it was stored.
    """

    _offset = 0  # the first update not yet stored; Telegram keeps it across restarts
    _held = 0.0  # seconds until messages that wait for further parts may be whole
    _probing = False  # whether the last poll failed

    async def run(self) -> None:
        """Poll on one node at a time."""
        begin = self.drafts.recall
        await self.supervisor.listen(self.serve, self.failed, begin=begin, end=self._end)

    async def resume(self) -> None:
        """Nothing: no other node is brought anything."""

    def _end(self) -> None:
        """Forget what is another one's now; what that leaves is known by what it kept."""
        self._offset, self._held, self._probing, self._online = 0, 0.0, False, False
        self.updates.forget()
        self.drafts.clear()

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


def menu_pages(menus: dict[str, Sequence[Command]]) -> dict[str, list[tuple[str, str]]]:
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
