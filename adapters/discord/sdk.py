"""discord.py, as much of it as is used: importing it needs some care."""

from __future__ import annotations

import logging
import warnings

with warnings.catch_warnings():
    # It imports a module that Python deprecates, for voice, which is not used here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord

from discord.gateway import DiscordClientWebSocketResponse, DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient, Route

__all__ = [
    "DiscordClientWebSocketResponse",
    "DiscordWebSocket",
    "HTTPClient",
    "ReconnectWebSocket",
    "Route",
    "discord",
]

# At debug level it logs whole messages, and without voice it warns that there is none.
logging.getLogger("discord").setLevel(logging.INFO)
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
