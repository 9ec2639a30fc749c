"""Browsers without a database: whoever logged in with the token, and whom a test lets in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.channel.http import Visitor
from bot.dashboard.browsers import Browsers, Entered, OpenSockets
from bot.identity import MessageOrigin
from bot.sessions.page_logins import LoginLink, PagePerson


async def nobody(_cookie: str) -> Visitor | None:
    return None


class BrowsersInMemory(Browsers):
    """Knows a cookie until the end of the test; `guest` says whose any other one is."""

    def __init__(
        self, guest: Callable[[str], Awaitable[Visitor | None]] = nobody
    ) -> None:  # it has neither a database nor a clock
        self.sockets = OpenSockets()
        self._guest = guest
        self._begun: dict[str, Visitor] = {}

    async def find(self, cookie: str) -> Visitor | None:
        return self._begun.get(cookie) or await self._guest(cookie)

    def found_lately(self, cookie: str) -> Visitor | None:
        return self._begun.get(cookie)

    async def begin(
        self, person: str, cookie: str, agent: str, origin: MessageOrigin | None = None
    ) -> None:
        self._begun[cookie] = Visitor(person, f"login-{len(self._begun)}")

    async def person(self, name: str) -> PagePerson | None:
        return None

    async def offered(self, key: str) -> LoginLink | None:
        return None

    async def enter(self, key: str) -> Entered | None:
        return None
