"""Commands about how full a conversation is: seeing it, making room, and being told."""

from __future__ import annotations

import asyncio

from bot.channel import Attachment
from bot.commands.base import Answer, Apply, Call, Desk, saying
from bot.context import picture, report
from bot.delivery.outbox import Extra
from bot.i18n import text
from bot.ledger import Draft
from bot.sessions import store
from bot.sessions.store import Session

MAX_FOCUS = 500  # characters


class ContextCommands:
    """`/context`, `/compact`, `/usage`, `/notices`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def context(self, call: Call) -> Apply:
        """What fills the conversation: in a list, in detail, and in a picture."""
        found = await self._desk.report(call)
        lines = report.lines(found, call.language, call.rest.lower() == "detail")
        if not self._desk.shows_pictures(call):
            return saying("\n".join(lines))
        sizes = [(part.name, part.tokens) for part in found.fitted() if part.tokens]
        limit = found.budget.compact_above
        drawn = await asyncio.to_thread(picture.picture, sizes, limit, found.percent)
        names = [text(call.language, f"context.part.{name}") for name, _ in sizes]
        legend = zip(picture.legend(sizes), names, strict=True)
        lines.append("  ".join(f"{square} {name}" for square, name in legend))
        extra = Extra(attachments=(Attachment("context.png", "image/png", drawn),))
        answer = Answer("\n".join(lines), extra=extra)
        return lambda _draft, _session: answer

    async def compact(self, call: Call) -> Apply:
        """Summarise the older part of the conversation, in the background."""
        begun = await self._desk.compact(call, call.rest[:MAX_FOCUS])
        return saying(text(call.language, f"command.compact.{'begun' if begun else 'nothing'}"))

    async def usage(self, call: Call) -> Apply:
        """Show what replies cost, or choose whether each one says so."""
        wish = {"tokens": "tokens", "on": "tokens", "off": "off"}.get(_switch(call), "")

        def apply(draft: Draft, session: Session) -> Answer:
            if not wish:
                return Answer(
                    text(
                        call.language,
                        "command.usage.now",
                        input=report.grouped(session.input_tokens),
                        cached=report.grouped(session.cached_tokens),
                        output=report.grouped(session.output_tokens),
                        turns=session.turns,
                    )
                )
            store.change(draft.tx, session.id, usage="tokens" if wish == "tokens" else "")
            return Answer(
                text(call.language, f"command.usage.{'on' if wish == 'tokens' else 'off'}")
            )

        return apply

    async def notices(self, call: Call) -> Apply:
        """Choose whether to be told that a conversation gets full."""
        wish = _switch(call)
        by_default = self._desk.tells(call)

        def apply(draft: Draft, session: Session) -> Answer:
            if wish not in {"on", "off", "later"}:
                tells = by_default if session.notices in {"", "later"} else session.notices == "on"
                return Answer(
                    text(call.language, f"command.notices.now_{'on' if tells else 'off'}")
                )
            store.change(draft.tx, session.id, notices=wish)
            return Answer(text(call.language, f"command.notices.{wish}"))

        return apply


def _switch(call: Call) -> str:
    """What was chosen, in one language."""
    return {"开": "on", "打开": "on", "关": "off", "关闭": "off"}.get(call.rest, call.rest.lower())
