"""The Discord channel: every account of the section behind one `Channel`."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.discord import DiscordConfig
from adapters.discord.account import Account, Pace, invitation
from adapters.discord.api import Answered, Rest, identity, new_session
from adapters.discord.inbound import CHANNEL
from adapters.discord.interactions import Menus, is_registered, sync
from adapters.discord.render import LIMIT, messages
from bot.channel import Capabilities, Engine, Finding, Outbound, Piece, Trial, reveal
from bot.channel.kit.accounts import AccountChannel
from bot.channel.kit.client import TooLong, TooSlow, Unreachable
from bot.channel.kit.json_access import children, integer, label, mapping, text
from bot.errors import ChannelError, SendLater

# Checking every bot's token, and whether Discord lets it read and be spoken to.

_CONTENT = (1 << 18) | (1 << 19)  # flags of an application that may read what messages say
_PORTAL = "https://discord.com/developers/applications"


def _not_told(error: ChannelError) -> Trial:
    """Why Discord did not say whose a token is."""
    match error:
        case Answered(status=401):
            return Trial("refused")
        case Answered():
            return Trial("moved" if 300 <= error.status < 400 else "strange")
        case SendLater():
            return Trial("busy")
        case TooLong():
            return Trial("strange")
        case _:
            return Trial("slow" if isinstance(error, TooSlow) else "unreachable")


def _why(error: ChannelError) -> str:
    return error.reason if isinstance(error, Unreachable) else str(error).removeprefix("Discord: ")


async def _findings(
    name: str, rest: Rest, config: DiscordConfig, menus: Menus
) -> Sequence[Finding]:
    """Check one bot; `menus` are the commands, as far as known."""
    try:
        return await _look(name, rest, config, menus)
    except Answered as error:
        if error.status == 401:
            return [Finding.of("error", "discord.refused_token", name, portal=_PORTAL)]
        return [Finding.of("error", "discord.not_told", name, why=_why(error))]
    except ChannelError as error:
        return [Finding.of("error", "discord.unreachable", name, why=_why(error))]


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


class Discord(AccountChannel[Account]):
    """Direct messages and servers in Discord, with one or more bots."""

    name, title = CHANNEL, "Discord"
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
        super().__init__()
        self._config, self._pace = config, pace or Pace()

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self.lack(engine, missing, "This account has no token.")
        await self.start_all(
            {
                name: Account(
                    name=name,
                    config=self._config.account(name),
                    token=token,
                    engine=engine,
                    pace=self._pace,
                )
                for name, token in tokens.items()
            }
        )

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text in Discord's Markdown, and its files; see `Channel.render`."""
        return messages(outbound)

    async def examine(self) -> Sequence[Finding]:
        """Check every bot; see `Channel.examine`."""
        tokens = self._config.tokens()
        found = [
            Finding.of("error", "discord.no_token", name, portal=_PORTAL)
            for name in self._config.accounts
            if name not in tokens
        ]
        for name, token in tokens.items():
            config = self._config.account(name)
            async with new_session(reveal(config.proxy)) as session:
                rest = Rest(token, config.api_root, session)
                found += await _findings(name, rest, config, self._menus)
        return found

    async def register(self) -> None:
        """Register the commands with every bot; see `Channel.register`."""
        for name, token in self._config.tokens().items():
            async with new_session(reveal(self._config.proxy)) as session:
                rest = Rest(token, self._config.account(name).api_root, session)
                try:
                    application = mapping(await rest.call("GET", "/applications/@me"))
                    await sync(rest, identity(application, "id"), self._menus)
                except ChannelError as error:
                    raise ChannelError(f"Discord ({name}): {_why(error)}") from error

    async def tried(self, option: str) -> Trial:
        """Try a secret with Discord; see `Channel.tried`."""
        if option != "token":
            return Trial("untried")
        async with new_session(reveal(self._config.proxy)) as session:
            rest = Rest(reveal(self._config.token).strip(), self._config.api_root, session)
            try:
                me = mapping(await rest.call("GET", "/users/@me"))
            except ChannelError as error:
                return _not_told(error)
        name = label(text(me, "username"))
        return Trial("known", name) if name and identity(me, "id") else Trial("strange")
