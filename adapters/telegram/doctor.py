"""Checking every bot's token, whether groups will hear it, and how its messages arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

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
from adapters.telegram.account import Menus, menu_pages
from adapters.telegram.api import LeanBot, new_session, reason, redact
from adapters.telegram.webhook import set_webhook
from bot.channel import Finding, Trial, reveal
from bot.channel.kit.json_access import Json, children, integer, label, mapping, text
from bot.errors import ChannelError

# First match wins: the SDK counts what was answered to a request as a fault of the network.
_WHY: Final[tuple[tuple[type[TelegramError], Trial], ...]] = (
    (BadRequest, Trial("strange")),
    (RetryAfter, Trial("busy")),
    (TimedOut, Trial("slow")),
    (NetworkError, Trial("unreachable")),
)


async def examine(config: TelegramConfig, menus: Menus) -> Sequence[Finding]:
    """What is right and wrong with every account; `menus` are the commands, as far as known."""
    tokens = config.tokens()
    found = [
        Finding.of("error", "telegram.no_token", name)
        for name in config.accounts
        if name not in tokens
    ]
    async with new_session(reveal(config.proxy)) as session:
        for name, token in tokens.items():
            found += await _account(name, token, config, session, menus)
    return found


async def tried(config: TelegramConfig, option: str) -> Trial:
    """Ask Telegram whose the section's own token is; a webhook's secret is nobody's to judge."""
    if option != "token":
        return Trial("untried")
    async with new_session(reveal(config.proxy)) as session:
        try:
            bot = LeanBot(reveal(config.token).strip(), config.api_root, session)
            me = mapping(await bot.call("getMe", {}))
        except InvalidToken:
            return Trial("refused")
        except TelegramError as error:
            return next((each for kind, each in _WHY if isinstance(error, kind)), Trial("strange"))
    username = label(text(me, "username"))
    return Trial("known", f"@{username}") if username else Trial("strange")


async def register(config: TelegramConfig, menus: Menus) -> None:
    """Tell Telegram once more where to bring updates and which commands there are.

    Raises:
        ChannelError: it does not take it; the message says why.
    """
    async with new_session(reveal(config.proxy)) as session:
        for name, token in config.tokens().items():
            section = config.account(name)
            bot = LeanBot(token, section.api_root, session)
            try:
                if section.mode == "webhook":
                    await set_webhook(bot, section, name)
                for language, commands in menu_pages(menus).items():
                    await bot.set_my_commands(commands, language_code=language or None)
            except TelegramError as error:
                raise ChannelError(f"Telegram ({name}): {reason(error, bot.token)}") from error


async def _account(
    name: str,
    token: str,
    config: TelegramConfig,
    session: aiohttp.ClientSession,
    menus: Menus,
) -> Sequence[Finding]:
    section = config.account(name)
    bot = LeanBot(token, section.api_root, session)
    try:
        me = mapping(await bot.call("getMe", {}))
    except InvalidToken:
        return [Finding.of("error", "telegram.refused_token", name)]
    except TelegramError as error:
        return [Finding.of("error", "telegram.unreachable", name, why=reason(error, token))]
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
    """Whether Telegram shows the commands there are, in each language; nothing without any."""
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
    """Whether the bot is in a group or channel that is listed."""
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
    """Whether Telegram's calls arrive, as Telegram sees it."""
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
