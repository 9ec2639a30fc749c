"""The Telegram channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import aiohttp
from telegram.error import (
    BadRequest,
    ChatMigrated,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from adapters.telegram import TelegramConfig, webhook_url
from adapters.telegram.account import (
    Account,
    Menus,
    Pace,
    PollingAccount,
    menu_pages,
    set_webhook,
)
from adapters.telegram.api import LeanBot, new_session, reason, redact
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.render import LIMIT, messages
from bot.channel import (
    Capabilities,
    Engine,
    Finding,
    Outbound,
    Piece,
    Trial,
    reveal,
)
from bot.channel.kit.accounts import AccountChannel
from bot.channel.kit.json_access import Json, children, integer, label, mapping, text
from bot.errors import ChannelError

if TYPE_CHECKING:
    from adapters.telegram.webhook import TelegramWebhook


# First match wins: the SDK counts what was answered to a request as a fault of the network.
_WHY: Final[tuple[tuple[type[TelegramError], Trial], ...]] = (
    (BadRequest, Trial("strange")),
    (RetryAfter, Trial("busy")),
    (TimedOut, Trial("slow")),
    (NetworkError, Trial("unreachable")),
)


class Telegram(AccountChannel[Account]):
    """Direct chats, groups and channels in Telegram, with one or more bots."""

    name, title = CHANNEL, "Telegram"
    capabilities = Capabilities(
        max_length=LIMIT,
        length_unit="utf16",
        typing=True,
        command_menu=True,
        buttons=True,
        attachments=True,
        voice=True,
        drafts=True,
        files=True,
        reactions=True,
    )

    def __init__(self, config: TelegramConfig, pace: Pace | None = None) -> None:
        super().__init__()
        self._config, self._pace = config, pace or Pace()
        self._session: aiohttp.ClientSession | None = None
        self._listening = asyncio.Event()
        self._webhooks: TelegramWebhook | None = None

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        self._session = session = new_session(reveal(self._config.proxy))
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self.lack(engine, missing, "This account has no token.")
        made = {name: self._account(name, token, engine, session) for name, token in tokens.items()}
        self._serve(made)
        await self.start_all(made)

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text with Telegram's entities, and its files; see `Channel.render`."""
        return messages(outbound)

    async def heard(self, body: str) -> None:
        """A node was brought something for this account that is not whole; see `Channel.heard`."""
        account = self._accounts.get(body)
        if account is not None:
            account.supervisor.spawn(account.resume())

    async def examine(self) -> Sequence[Finding]:
        """Check every bot: its token, its privacy in groups, its menu."""
        tokens = self._config.tokens()
        found = [
            Finding.of("error", "telegram.no_token", name)
            for name in self._config.accounts
            if name not in tokens
        ]
        async with new_session(reveal(self._config.proxy)) as session:
            for name, token in tokens.items():
                section = self._config.account(name)
                bot = LeanBot(token, section.api_root, session)
                found += await _findings(bot, name, section, self._menus)
        return found

    async def register(self) -> None:
        """Register webhooks and commands with every bot; see `Channel.register`."""
        async with new_session(reveal(self._config.proxy)) as session:
            for name, token in self._config.tokens().items():
                section = self._config.account(name)
                bot = LeanBot(token, section.api_root, session)
                try:
                    if section.mode == "webhook":
                        await set_webhook(bot, section, name)
                    for language, commands in menu_pages(self._menus).items():
                        await bot.set_my_commands(commands, language_code=language or None)
                except TelegramError as error:
                    raise ChannelError(f"Telegram ({name}): {reason(error, token)}") from error

    async def tried(self, option: str) -> Trial:
        """Try a secret with Telegram; a webhook's cannot be tried."""
        if option != "token":
            return Trial("untried")
        async with new_session(reveal(self._config.proxy)) as session:
            token = reveal(self._config.token).strip()
            try:
                bot = LeanBot(token, self._config.api_root, session)
                me = mapping(await bot.call("getMe", {}))
            except InvalidToken:
                return Trial("refused")
            except TelegramError as error:
                found = (trial for kind, trial in _WHY if isinstance(error, kind))
                return next(found, Trial("strange"))
        username = label(text(me, "username"))
        return Trial("known", f"@{username}") if username else Trial("strange")

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        if self._webhooks is not None:
            await self._webhooks.stop()
        await super().stop()
        if self._session is not None:
            await self._session.close()

    def _account(
        self, name: str, token: str, engine: Engine, session: aiohttp.ClientSession
    ) -> Account:
        section, kind = self._config.account(name), PollingAccount
        if section.mode == "webhook":
            from adapters.telegram.webhook import WebhookAccount  # noqa: PLC0415  # see _serve

            kind = WebhookAccount
        return kind(
            name=name,
            config=section,
            token=token,
            engine=engine,
            session=session,
            pace=self._pace,
            listening=self._listening,
        )

    def _serve(self, accounts: Mapping[str, Account]) -> None:
        """Start the webhook server, if an account wants one."""
        if all(account.config.mode == "polling" for account in accounts.values()):
            return
        from adapters.telegram.webhook import TelegramWebhook, WebhookAccount  # noqa: PLC0415  # aiohttp.web takes 0.2 s

        served = {n: a for n, a in accounts.items() if isinstance(a, WebhookAccount)}
        host, port = self._config.webhook_host, self._config.webhook_port
        self._webhooks = TelegramWebhook(served, host, port, self._listening)
        self._webhooks.start()


async def _findings(
    bot: LeanBot, name: str, section: TelegramConfig, menus: Menus
) -> Sequence[Finding]:
    """Check one bot; `menus` are the commands, as far as known."""
    try:
        me = mapping(await bot.call("getMe", {}))
    except InvalidToken:
        return [Finding.of("error", "telegram.refused_token", name)]
    except TelegramError as error:
        return [Finding.of("error", "telegram.unreachable", name, why=reason(error, bot.token))]
    who = label(text(me, "username")) or "?"
    found = [Finding.of("ok", "telegram.token", name, who=who)]
    if me.get("can_join_groups") is False:
        found.append(Finding.of("warning", "telegram.no_groups", name))
    elif me.get("can_read_all_group_messages") is True:
        found.append(Finding.of("ok", "telegram.reads_along", name))
    else:
        found.append(Finding.of("warning", "telegram.privacy", name))
    listed = [chat for chat in section.groups if chat != "*"]
    if section.group_policy != "disabled":
        found += [await _room(bot, name, chat, integer(me, "id") or 0) for chat in listed]
    if section.mode == "webhook":
        found += await _webhook(bot, name, section)
    return [*found, *await _menu(bot, name, menu_pages(menus))]


async def _menu(
    bot: LeanBot, name: str, wanted: Mapping[str, Sequence[tuple[str, str]]]
) -> Sequence[Finding]:
    """Check that Telegram shows the commands in each language; nothing if there are none."""
    try:
        for language, commands in wanted.items():
            asked: Json = {"language_code": language} if language else {}
            answer: object = await bot.call("getMyCommands", asked)
            shown = children({"shown": answer}, "shown")
            if [(text(one, "command"), text(one, "description")) for one in shown] != [*commands]:
                return [Finding.of("warning", "telegram.menu", name, "register")]
    except TelegramError:  # a Bot API server of one's own may not know them
        return []
    return [Finding.of("ok", "telegram.has_menu", name)] if wanted else []


async def _room(bot: LeanBot, name: str, chat: str, me: int) -> Finding:
    """Check that the bot is in a listed group or channel."""
    if not chat.removeprefix("-").isdecimal():
        return Finding.of("error", "telegram.no_room", name, chat=label(chat))
    try:
        asked = {"chat_id": int(chat), "user_id": me}
        member = mapping(await bot.call("getChatMember", asked))
    except ChatMigrated as error:
        moved = str(error.new_chat_id)
        return Finding.of("warning", "telegram.room_moved", name, chat=chat, moved=moved)
    except TelegramError as error:
        why = reason(error, bot.token)
        return Finding.of("warning", "telegram.room_unseen", name, chat=chat, why=why)
    status = text(member, "status")
    if status in {"left", "kicked", ""}:
        return Finding.of("warning", "telegram.not_in_room", name, chat=chat)
    as_what = "admin" if status == "administrator" else "member"
    return Finding.of("ok", f"telegram.room_{as_what}", name, chat=chat)


async def _webhook(bot: LeanBot, name: str, section: TelegramConfig) -> Sequence[Finding]:
    """Check that Telegram's calls arrive, as Telegram sees it."""
    try:
        info = mapping(await bot.call("getWebhookInfo", {}))
    except TelegramError as error:
        why = reason(error, bot.token)
        return [Finding.of("warning", "telegram.webhook_unknown", name, why=why)]
    wanted = webhook_url(section, name)
    if text(info, "url") != wanted:
        return [Finding.of("warning", "telegram.no_webhook", name, "register", url=wanted)]
    said = redact(label(text(info, "last_error_message"), 200), bot.token)
    waiting = integer(info, "pending_update_count") or 0
    if said and waiting:
        values = {"url": wanted, "count": waiting, "why": said}
        return [Finding("error", account=name, id="telegram.webhook_fails", values=values)]
    return [Finding.of("ok", "telegram.webhook", name, url=wanted)]
