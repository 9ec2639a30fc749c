"""The Discord channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from adapters.discord import DiscordConfig
from adapters.discord.account import Account, Pace
from adapters.discord.api import (
    Rest,
    TooLong,
    TooSlow,
    identity,
    is_id,
    new_session,
    number_in,
    reason,
)
from adapters.discord.inbound import CHANNEL
from adapters.discord.interactions import is_registered, sync
from adapters.discord.sdk import discord
from adapters.discord.send import LIMIT, messages
from bot.channel import (
    Address,
    Capabilities,
    Channel,
    Command,
    Engine,
    Finding,
    Media,
    Outbound,
    Piece,
    Trial,
    reveal,
)
from bot.channel.kit.json_access import children, integer, label, mapping, text
from bot.channel.kit.supervisor import Accounts
from bot.errors import ChannelError

# Checking every bot's token, and whether Discord lets it read and be spoken to.

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
    tokens = config.tokens()
    found = [
        Finding.of("error", "discord.no_token", name, portal=_PORTAL)
        for name in config.accounts
        if name not in tokens
    ]
    for name, token in tokens.items():
        found += await _account(name, reveal(token).strip(), config.account(name), menus)
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
        section = config.account(name)
        async with new_session(reveal(config.proxy)) as session:
            rest = Rest(reveal(token).strip(), section.api_root, session)
            try:
                application = mapping(await rest.call("GET", "/applications/@me"))
                await sync(rest, identity(application, "id"), menus)
            except discord.DiscordException as error:
                raise ChannelError(f"Discord ({name}): {reason(error)}") from error


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


class Discord(Channel):
    """Direct messages and servers in Discord, with one or more bots."""

    name = CHANNEL
    capabilities = Capabilities(
        max_length=LIMIT,
        length_unit="utf16",
        typing=True,
        drafts=True,
        command_menu=True,
        buttons=True,
        attachments=True,
        voice=True,
        files=True,
        reactions=True,
    )

    def __init__(self, config: DiscordConfig, pace: Pace | None = None) -> None:
        self._config = config
        self._pace = pace or Pace()
        self._accounts: Accounts[Account] = Accounts(CHANNEL, "Discord")
        self._menus: dict[str, Sequence[Command]] = {}

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self._accounts.lack(engine, missing, "This account has no token.")
        for name, token in tokens.items():
            self._accounts[name] = Account(
                name=name,
                config=self._config.account(name),
                token=reveal(token).strip(),
                engine=engine,
                pace=self._pace,
            )
        for account in self._accounts.values():
            account.publish(self._menus)
            account.start()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text in Discord's Markdown, and its files; see `Channel.render`."""
        return messages(outbound)

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self._accounts.named(piece.address).sender.send(piece)

    async def typing(self, address: Address) -> None:
        """Show "is typing…" in a chat, if that works."""
        account = self._accounts.get(address.account)
        if account is not None and is_id(address.chat):
            await account.sender.typing(address.chat)

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply while it is being written; an empty text takes it away."""
        account = self._accounts.get(address.account)
        if account is not None and is_id(address.chat) and not account.supervisor.stopping.is_set():
            await account.drafts.show(address.chat, draft_id, text)
            await account.drafts.shown(address.chat)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message, if that works."""
        account = self._accounts.get(address.account)
        number = number_in(message_id) if message_id[:1].isdecimal() else ""
        if account is not None and number and is_id(address.chat):
            await account.sender.react(address.chat, number, emoji)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of what came with a message; see `Channel.fetch`."""
        return await self._accounts.named(address).shelf.fetch(media, most)

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may manage the server a room belongs to."""
        account = self._accounts.get(address.account)
        if account is None or not is_id(address.chat) or not is_id(sender):
            return False
        return await account.is_admin(address, sender)

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands with every bot; one that is not connected does it then."""
        self._menus = menus
        for account in self._accounts.values():
            account.publish(menus)

    async def examine(self) -> Sequence[Finding]:
        """What is right and wrong with every bot; see `Channel.examine`."""
        return await examine(self._config, self._menus)

    async def register(self) -> None:
        """Register the commands with every bot; see `Channel.register`."""
        await register(self._config, self._menus)

    def invitation(self, account: str) -> str:
        """The address at which a server takes it along; see `Channel.invitation`."""
        found = self._accounts.get(account)
        return invitation(found.application) if found is not None and found.application else ""

    async def tried(self, option: str) -> Trial:
        """What Discord says of a secret; see `Channel.tried`."""
        return await tried(self._config, option)

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        await asyncio.gather(*(account.stop() for account in self._accounts.take()))
