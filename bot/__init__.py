"""Confidant's engine: everything between a channel's message and its reply.

Channels live in `adapters` and know only `bot.channel`; `bot.app` wires the two together.
"""

__version__ = "0.1.0"
