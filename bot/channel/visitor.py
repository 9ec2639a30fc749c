"""Who looks at a page: what the guard found out, for whatever serves the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from bot.channel.values import PAGE_OWNER


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody with a browser, or a program of theirs.

    `name` is the id of their account in the web channel: "owner", or the one they were let in by.
    `login` is the id of what their browser is known by, or empty; `key` that of what a
    `program` is known by. With `is_apart` each conversation of the program is one of its own. An
    event that it reports is told by `template`.
    """

    name: str = PAGE_OWNER
    login: str = ""
    key: str = ""
    program: str = ""
    is_apart: bool = False
    template: str = ""

    @property
    def is_owner(self) -> bool:
        """True for whoever owns the bot; settings and people are theirs alone."""
        return self.name == PAGE_OWNER


VISITOR = web.RequestKey("visitor", Visitor)


def visitor_of(request: web.Request) -> Visitor:
    """The visitor of a request; only one that passed the guard has it.

    Raises:
        KeyError: the guard has not seen the request.
    """
    return request[VISITOR]


class SharedRoute(web.RouteDef):
    """A route that every visitor may use, for what is theirs; any other is the owner's alone."""


def shared(routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
    """Open routes to every visitor; each of them shows a visitor nothing but their own."""
    return [SharedRoute(each.method, each.path, each.handler, each.kwargs) for each in routes]
