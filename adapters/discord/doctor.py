"""Checking every bot's token, and whether Discord lets it read and be spoken to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from adapters.discord import DiscordConfig
from adapters.discord.api import Rest, TooLong, TooSlow, new_session, reason
from adapters.discord.ids import identity
from adapters.discord.menu import is_registered, sync
from adapters.discord.sdk import discord
from bot.channel import Command, Finding, Trial, reveal
from bot.channel.kit.json_access import children, integer, label, mapping, text
from bot.errors import ChannelError

Menus = Mapping[str, Sequence[Command]]

_CONTENT = (1 << 18) | (1 << 19)  # flags of an application that may read what messages say
_PORTAL = "https://discord.com/developers/applications"

# View channels, send messages, embed links, attach files, read history, react, write in threads.
PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 6 | 1 << 38


def invitation(application: str) -> str:
    """The address at which somebody adds the bot to their server."""
    return (
        f"https://discord.com/oauth2/authorize?client_id={application}"
        f"&scope=bot+applications.commands&permissions={PERMISSIONS}"
    )


async def examine(config: DiscordConfig, menus: Menus) -> Sequence[Finding]:
    """What is right and wrong with every account; `menus` are the commands, as far as known."""
    tokens: Mapping[str, SecretStr] = config.tokens()
    found = [
        Finding.of("error", "discord.no_token", name, portal=_PORTAL)
        for name in config.accounts
        if name not in tokens
    ]
    for name, token in tokens.items():
        section = config.account(name)
        if isinstance(section, DiscordConfig):
            found += await _account(name, reveal(token).strip(), section, menus)
    return found


async def tried(config: DiscordConfig, option: str) -> Trial:
    """Ask Discord whose the section's own token is."""
    if option != "token":
        return Trial("untried")
    async with new_session(reveal(config.proxy)) as session:
        rest = Rest(reveal(config.token).strip(), config.api_root, session)
        try:
            me = mapping(await rest.call("GET", "/users/@me"))
        except discord.DiscordException as error:
            return _not_told(error)
    name = label(text(me, "username"))
    return Trial("known", name) if name and identity(me, "id") else Trial("strange")


def _not_told(error: discord.DiscordException) -> Trial:
    """Why Discord did not say whose a token is."""
    if isinstance(error, discord.HTTPException):
        if error.status == 401:
            return Trial("refused")
        return Trial("moved" if 300 <= error.status < 400 else "strange")
    if isinstance(error, discord.RateLimited):
        return Trial("busy")
    if isinstance(error, TooLong):
        return Trial("strange")
    return Trial("slow" if isinstance(error, TooSlow) else "unreachable")


async def register(config: DiscordConfig, menus: Menus) -> None:
    """Tell Discord once more which commands there are.

    Raises:
        ChannelError: it does not take it; the message says why.
    """
    for name, token in config.tokens().items():
        section = _section(config, name)
        async with new_session(reveal(config.proxy)) as session:
            rest = Rest(reveal(token).strip(), section.api_root, session)
            try:
                application = mapping(await rest.call("GET", "/applications/@me"))
                await sync(rest, identity(application, "id"), menus)
            except discord.DiscordException as error:
                raise ChannelError(f"Discord ({name}): {reason(error)}") from error


def _section(config: DiscordConfig, name: str) -> DiscordConfig:
    found = config.account(name)
    return found if isinstance(found, DiscordConfig) else config


async def _account(name: str, token: str, config: DiscordConfig, menus: Menus) -> Sequence[Finding]:
    async with new_session(reveal(config.proxy)) as session:
        rest = Rest(token, config.api_root, session)
        try:
            return await _look(name, rest, config, menus)
        except discord.HTTPException as error:
            if error.status == 401:
                return [Finding.of("error", "discord.refused_token", name, portal=_PORTAL)]
            return [Finding.of("error", "discord.not_told", name, why=reason(error))]
        except discord.DiscordException as error:
            return [Finding.of("error", "discord.unreachable", name, why=reason(error))]


async def _look(name: str, rest: Rest, config: DiscordConfig, menus: Menus) -> Sequence[Finding]:
    me = mapping(await rest.call("GET", "/users/@me"))
    application = mapping(await rest.call("GET", "/applications/@me"))
    servers = {
        identity(guild, "id")
        for guild in children({"found": await rest.call("GET", "/users/@me/guilds")}, "found")
    }
    who = label(text(me, "username")) or "?"
    found = [Finding.of("ok", "discord.token", name, who=who)]
    if (integer(application, "flags") or 0) & _CONTENT:
        found.append(Finding.of("ok", "discord.reads", name))
    else:
        found.append(Finding.of("error", "discord.may_not_read", name, portal=_PORTAL))
    if text(application, "interactions_endpoint_url"):
        found.append(Finding.of("error", "discord.elsewhere", name, portal=_PORTAL))
    number = identity(application, "id") or identity(me, "id")
    link = invitation(number)
    if not servers:
        found.append(Finding.of("warning", "discord.no_server", name, link=link))
    found += [
        Finding.of("warning", "discord.not_in_server", name, server=server, link=link)
        for server in sorted(config.guilds.keys() - servers - {"*"})
    ]
    if not menus:
        return found
    if await is_registered(rest, number, menus):
        return [*found, Finding.of("ok", "discord.has_menu", name)]
    return [*found, Finding.of("warning", "discord.menu", name, "register")]
