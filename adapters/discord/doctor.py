"""Checking every bot's token, and whether Discord lets it read and be spoken to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from adapters.discord import DiscordConfig
from adapters.discord.api import Rest, TooLong, TooSlow, new_session, reason
from adapters.discord.ids import identity
from adapters.discord.sdk import discord
from bot.channel import Finding, Trial, reveal
from bot.channel.kit.json_access import children, integer, label, mapping, text

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


async def examine(config: DiscordConfig) -> Sequence[Finding]:
    """What is right and wrong with every account."""
    tokens: Mapping[str, SecretStr] = config.tokens()
    found = [
        Finding("error", "this account has no token", f"Copy one from {_PORTAL}.", name)
        for name in config.accounts
        if name not in tokens
    ]
    for name, token in tokens.items():
        section = config.account(name)
        if isinstance(section, DiscordConfig):
            found += await _account(name, reveal(token).strip(), section)
    return found


async def tried(config: DiscordConfig, option: str) -> Trial:
    """Ask Discord whose the section's own token is."""
    if option != "token":
        return Trial("untried")
    async with new_session() as session:
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


async def _account(name: str, token: str, config: DiscordConfig) -> Sequence[Finding]:
    async with new_session() as session:
        rest = Rest(token, config.api_root, session)
        try:
            return await _look(name, rest, config)
        except discord.HTTPException as error:
            if error.status == 401:
                words = "Discord does not accept this bot's token"
                fix = f"Reset it on the Bot page of {_PORTAL} and copy it again."
                return [Finding("error", words, fix, name)]
            words = f"Discord will not tell: {reason(error)}"
            return [Finding("error", words, "Check api_root, and try again.", name)]
        except discord.DiscordException as error:
            words = f"Discord cannot be asked: {reason(error)}"
            return [Finding("error", words, "Check the network, the proxy and api_root.", name)]


async def _look(name: str, rest: Rest, config: DiscordConfig) -> Sequence[Finding]:
    me = mapping(await rest.call("GET", "/users/@me"))
    application = mapping(await rest.call("GET", "/applications/@me"))
    servers = {
        identity(guild, "id")
        for guild in children({"found": await rest.call("GET", "/users/@me/guilds")}, "found")
    }
    who = label(text(me, "username")) or "?"
    found = [Finding("ok", f"the token is that of {who}", account=name)]
    if (integer(application, "flags") or 0) & _CONTENT:
        found.append(Finding("ok", "it may read what messages say", account=name))
    else:
        fix = f"On the Bot page of {_PORTAL}, switch on Message Content Intent."
        found.append(Finding("error", "it may not read what messages say", fix, name))
    if text(application, "interactions_endpoint_url"):
        words = "slash commands and buttons go to a web address instead of here"
        fix = f"On the General page of {_PORTAL}, clear Interactions Endpoint URL."
        found.append(Finding("error", words, fix, name))
    link = invitation(identity(application, "id") or identity(me, "id"))
    if not servers:
        words = "it is in no server: people can only write to it once they share one with it"
        found.append(Finding("warning", words, f"Add it to a server: {link}", name))
    missing = sorted(config.guilds.keys() - servers - {"*"})
    return found + [
        Finding("warning", f"it is not in server {server}", f"Add it: {link}", name)
        for server in missing
    ]
