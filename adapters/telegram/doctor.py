"""Checking every bot's token, whether groups will hear it, and how its messages arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp
from pydantic import SecretStr
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
from adapters.telegram.api import LeanBot, new_session, reason, redact
from bot.channel import Finding, Trial, confidant, reveal
from bot.channel.kit.json_access import integer, label, mapping, text

PRIVACY = (
    "To let it read along: in @BotFather, /setprivacy, choose the bot, Disable; then take the bot "
    "out of each group and add it again. Or make it an admin of the group."
)

# First match wins: the SDK counts what was answered to a request as a fault of the network.
_WHY: Final[tuple[tuple[type[TelegramError], Trial], ...]] = (
    (BadRequest, Trial("strange")),
    (RetryAfter, Trial("busy")),
    (TimedOut, Trial("slow")),
    (NetworkError, Trial("unreachable")),
)


async def examine(config: TelegramConfig) -> Sequence[Finding]:
    """What is right and wrong with every account."""
    tokens: Mapping[str, SecretStr] = config.tokens()
    found = [
        Finding("error", "this account has no token", "Ask @BotFather for one.", name)
        for name in config.accounts
        if name not in tokens
    ]
    async with new_session() as session:
        for name, token in tokens.items():
            found += await _account(name, reveal(token), config, session)
    return found


async def tried(config: TelegramConfig, option: str) -> Trial:
    """Ask Telegram whose the section's own token is; a webhook's secret is nobody's to judge."""
    if option != "token":
        return Trial("untried")
    async with new_session() as session:
        try:
            bot = LeanBot(reveal(config.token), config.api_root, session)
            me = mapping(await bot.call("getMe", {}))
        except InvalidToken:
            return Trial("refused")
        except TelegramError as error:
            return next((each for kind, each in _WHY if isinstance(error, kind)), Trial("strange"))
    username = label(text(me, "username"))
    return Trial("known", f"@{username}") if username else Trial("strange")


async def _account(
    name: str, token: str, config: TelegramConfig, session: aiohttp.ClientSession
) -> Sequence[Finding]:
    section = config.account(name)
    section = section if isinstance(section, TelegramConfig) else config
    bot = LeanBot(token, section.api_root, session)
    try:
        me = mapping(await bot.call("getMe", {}))
    except InvalidToken:
        fix = "Copy it from @BotFather again."
        return [Finding("error", "Telegram does not accept this bot's token", fix, name)]
    except TelegramError as error:
        words = f"Telegram cannot be asked: {reason(error, token)}"
        return [Finding("error", words, "Check the network, the proxy and api_root.", name)]
    found = [Finding("ok", f"the token is that of @{me.get('username', '?')}", account=name)]
    if me.get("can_join_groups") is False:
        words, fix = "it cannot be added to groups", "In @BotFather: /setjoingroups, Enable."
        found.append(Finding("warning", words, fix, name))
    elif me.get("can_read_all_group_messages") is True:
        words = "privacy mode is off: in groups it reads along and knows what was said before"
        found.append(Finding("ok", words, account=name))
    else:
        words = (
            "privacy mode is on: in groups Telegram brings it only commands, mentions and replies"
        )
        found.append(Finding("warning", words, PRIVACY, name))
    listed = [chat for chat in section.groups if chat != "*"]
    if section.group_policy != "disabled":
        found += [await _room(bot, name, chat, integer(me, "id") or 0) for chat in listed]
    if section.mode == "webhook":
        found += await _webhook(bot, name, section)
    return found


async def _room(bot: LeanBot, name: str, chat: str, me: int) -> Finding:
    """Whether the bot is in a group or channel that is listed."""
    if not chat.removeprefix("-").isdecimal():
        fix = "Rooms are listed by their numbers; /whoami says one there."
        return Finding("error", f"groups.{label(chat)} is no id", fix, name)
    try:
        asked = {"chat_id": int(chat), "user_id": me}
        member = mapping(await bot.call("getChatMember", asked))
    except ChatMigrated as error:
        words = f"the group {chat} has another id now: {error.new_chat_id}"
        return Finding("warning", words, f"Write groups.{error.new_chat_id} instead.", name)
    except TelegramError as error:
        words = f"the bot cannot see the room {chat}: {reason(error, bot.token)}"
        return Finding("warning", words, "Add it there, or take the room out of groups.", name)
    status = text(member, "status")
    if status in {"left", "kicked", ""}:
        return Finding("warning", f"the bot is not in the room {chat}", "Add it there.", name)
    as_what = "as an admin, so it reads along" if status == "administrator" else "as a member"
    return Finding("ok", f"it is in the room {chat} {as_what}", account=name)


async def _webhook(bot: LeanBot, name: str, section: TelegramConfig) -> Sequence[Finding]:
    """Whether Telegram's calls arrive, as Telegram sees it."""
    try:
        info = mapping(await bot.call("getWebhookInfo", {}))
    except TelegramError as error:
        return [Finding("warning", f"its webhook is unknown: {reason(error, bot.token)}", "", name)]
    wanted = webhook_url(section, name)
    if text(info, "url") != wanted:
        words, fix = (
            f"Telegram does not call {wanted} yet",
            f"Start {confidant('run')}: it says so.",
        )
        return [Finding("warning", words, fix, name)]
    said = redact(label(text(info, "last_error_message"), 200), bot.token)
    waiting = integer(info, "pending_update_count") or 0
    if said and waiting:
        fix = f"Start {confidant('run')}; then check the proxy in front of webhook_port."
        return [Finding("error", f"{wanted} fails, {waiting} wait: {said}", fix, name)]
    return [Finding("ok", f"Telegram calls {wanted}", account=name)]
