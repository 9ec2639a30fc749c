"""Whose pages they are: what the engine knows of a visitor, worked out once for each request."""

from __future__ import annotations

from aiohttp import web

from bot.channel import DEFAULT_ACCOUNT
from bot.channel.visitor import visitor_of
from bot.identity import Conversation, ConversationResolver
from bot.identity.values import MessageOrigin

CHANNEL = "web"


class Visits:
    """Resolves a request to the conversation that its visitor has in the page.

    So every page takes person, view, rights, language and zone from where the chat takes them.
    """

    def __init__(self, resolver: ConversationResolver) -> None:
        self._resolver = resolver

    def of(self, request: web.Request) -> Conversation:
        """The conversation of whoever asks."""
        locale = request.headers.get("Accept-Language", "").partition(",")[0]
        return self._resolver.of(origin_of(visitor_of(request).name, locale))


def origin_of(name: str, locale: str = "") -> MessageOrigin:
    """Where a visitor of this name writes from: their chat in the page."""
    return MessageOrigin(CHANNEL, DEFAULT_ACCOUNT, name, "direct", name, locale=locale)
