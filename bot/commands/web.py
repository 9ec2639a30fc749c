"""`/web`: a link to one's own conversations on the page."""

from __future__ import annotations

from collections.abc import Callable

from bot.channel import PAGE_OWNER
from bot.commands.base import Answer, Apply, Call, saying
from bot.config import DashboardConfig
from bot.i18n import text
from bot.sessions import page_logins
from bot.sessions.page_logins import LoginLink
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

PAGE = "web"  # the channel that the page itself is


class WebCommands:
    """`/web`, for whoever may talk to the bot, in a direct chat."""

    def __init__(self, config: Callable[[], DashboardConfig], port: Callable[[], int]) -> None:
        """`config` is what holds now; `port` the one the page really has, 0 where there is none."""
        self._config = config
        self._port = port

    async def web(self, call: Call) -> Apply:
        """Make a link that works once and soon; what the transcript keeps has no link in it."""
        language, port, config = call.language, self._port(), self._config()
        here = f"http://127.0.0.1:{port}"
        if not call.is_direct:
            return saying(text(language, "web.direct_only"))
        if not port:
            return saying(text(language, "web.no_page"))
        if not config.has_token:
            # Without one, whoever can open the page is its owner: there is nobody else to let in.
            key = "web.no_token_owner" if call.conversation.is_owner else "web.no_token"
            return saying(text(language, key, url=here))
        secret, public = page_logins.new_key(), config.public_url
        words = [
            text(language, "web.link", minutes=page_logins.LINK_MS // 60_000),
            f"{public or here}/enter?key={secret}",
        ]
        if not public:
            words.append(text(language, "web.here_only"))

        def apply(unit: UnitOfWork, _session: Session) -> Answer:
            known = page_logins.person_from(unit.tx, call.conversation.seat)
            if known is not None and known.is_out and not call.conversation.is_owner:
                return Answer(text(language, "web.out"))
            page_logins.offer(unit.tx, secret, _made(call))
            return Answer("\n\n".join(words), noted=text(language, "web.noted"))

        return apply


def _made(call: Call) -> LoginLink:
    """The link that somebody asks for: to the owner's page, to one they have, or to a first one."""
    origin, person = call.conversation.origin, ""
    if call.conversation.is_owner:
        person = PAGE_OWNER
    elif origin.channel == PAGE:
        person = origin.sender
    return LoginLink(
        asker=f"chat:{call.person}",
        person=person,
        origin=origin if origin.channel != PAGE else None,
        language=call.language,
        made_at=call.now,
        valid_ms=page_logins.LINK_MS,
    )
