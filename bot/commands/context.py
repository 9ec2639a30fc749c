"""Commands about how full a conversation is: seeing it, making room, and being told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bot.agent.prefix import Prefixes, is_short, name_of
from bot.agent.tools.toolbox import Toolbox
from bot.channel import Attachment, Channel
from bot.commands.base import Answer, Apply, Call, saying, switched
from bot.context import report
from bot.context.report import Report
from bot.delivery.outbox import Extra
from bot.i18n import text
from bot.identity import Conversation
from bot.sessions import store
from bot.sessions.store import Session
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep import policy
from bot.upkeep.upkeep import Upkeep
from bot.upkeep.usage import report_of

MAX_FOCUS = 500  # characters


class ContextCommands:
    """`/context`, `/compact`, `/notices`."""

    def __init__(
        self,
        *,
        committer: Committer,
        upkeep: Upkeep,
        prefixes: Prefixes,
        toolbox: Toolbox,
        channels: Mapping[str, Channel],
    ) -> None:
        self._committer = committer
        self._upkeep = upkeep
        self._prefixes = prefixes
        self._toolbox = toolbox
        self._channels = channels

    async def report(self, call: Call) -> Report:
        """What fills the caller's conversation."""
        return await self.report_of(await self._current(call), call.conversation)

    async def report_of(self, session: Session, conversation: Conversation) -> Report:
        """What fills a session, as its conversation's person is shown it."""
        active = await self._upkeep.sessions.of(session.id, conversation)
        limit, view = active.limits.window.tokens, conversation.view
        short = is_short(active.cached, active.limits)
        tools = self._toolbox.offered((conversation.rights,), short=short)
        await self._prefixes.of(active.cached, view, conversation.language, tools, limit)
        return report_of(active, name_of(view), active.fill())

    async def context(self, call: Call) -> Apply:
        """What fills the conversation: in a list, in detail, and in a picture."""
        found = await self.report(call)
        lines = report.lines(found, call.language, call.rest.lower() == "detail")
        channel = self._channels.get(call.inbound.channel)
        if channel is None or not channel.capabilities.attachments:
            return saying("\n".join(lines))
        sizes = [(part.name, part.tokens) for part in found.fitted() if part.tokens]
        limit = found.budget.compact_above
        drawn = await asyncio.to_thread(report.draw, sizes, limit, found.percent)
        names = [text(call.language, f"context.part.{name}") for name, _ in sizes]
        legend = zip(report.legend(sizes), names, strict=True)
        lines.append("  ".join(f"{square} {name}" for square, name in legend))
        extra = Extra(attachments=(Attachment("context.png", "image/png", drawn),))
        answer = Answer("\n".join(lines), extra=extra)
        return lambda _unit, _session: answer

    async def compact(self, call: Call) -> Apply:
        """Summarise the older part of the conversation, in the background."""
        session, focus = await self._current(call), call.rest[:MAX_FOCUS]
        begun = await self._upkeep.compact(session, call.conversation, focus)
        return saying(text(call.language, f"command.compact.{'begun' if begun else 'nothing'}"))

    async def notices(self, call: Call) -> Apply:
        """Choose whether to be told that a conversation gets full."""
        wish = switched(call)
        by_default = policy.is_told(call.conversation)

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            if wish not in {"on", "off", "later"}:
                tells = by_default if session.notices in {"", "later"} else session.notices == "on"
                return Answer(
                    text(call.language, f"command.notices.now_{'on' if tells else 'off'}")
                )
            store.change(unit.tx, session.id, notices=wish)
            return Answer(text(call.language, f"command.notices.{wish}"))

        return apply

    async def _current(self, call: Call) -> Session:
        commit = await self._committer.commit(call.now, lambda unit: unit.current(call.place))
        return commit.result[0]
