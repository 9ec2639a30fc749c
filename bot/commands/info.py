"""Commands that only tell."""

from __future__ import annotations

from bot.channel import Health
from bot.commands.base import Answer, Apply, Call, Desk, Draft, saying
from bot.commands.menu import menu
from bot.context import report
from bot.delivery import outbox
from bot.i18n import text
from bot.sessions.store import Session


class InfoCommands:
    """`/status`, `/whoami`, `/help`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def status(self, call: Call) -> Apply:
        """How this conversation and the bot are doing."""
        default = self._desk.default_model()
        connections = self._desk.health()
        found = await self._desk.report(call)

        def apply(draft: Draft, session: Session) -> Answer:
            lines = [
                text(call.language, "command.status.model", model=session.model or default),
                text(
                    call.language,
                    "command.status.conversation",
                    turns=session.turns,
                    id=session.id,
                ),
                text(
                    call.language,
                    "command.status.context",
                    bar=report.bar(found.percent),
                    used=report.grouped(found.used),
                    limit=report.grouped(found.budget.compact_above),
                    percent=found.percent,
                ),
                text(
                    call.language,
                    "command.status.tokens",
                    input=session.input_tokens,
                    output=session.output_tokens,
                ),
            ]
            parked = outbox.parked(draft.tx, call.inbound.address)
            if parked:
                lines.append(text(call.language, "command.status.parked", count=parked))
            if call.is_owner and call.is_direct:  # in a room others read it too
                lines.extend(_connection(call.language, *item) for item in connections)
            return Answer("\n".join(f"- {line}" for line in lines))

        return apply

    async def whoami(self, call: Call) -> Apply:
        """How the bot knows the person."""
        known_as = "owner" if call.is_owner else "person"
        answer = text(
            call.language,
            # What else somebody is called is nobody's business in a room.
            f"command.whoami.{known_as if call.is_direct else 'room'}",
            id=f"{call.inbound.channel}:{call.inbound.sender}",
            person=call.person,
            key=call.place.key,
        )
        return saying(answer)

    async def help(self, call: Call) -> Apply:
        """What the bot understands."""
        lines = [
            f"- /{item.name}{f' {item.usage}' if item.usage else ''} — {item.description}"
            for item in menu(call.language)
        ]
        answer = "\n".join((text(call.language, "command.help.intro"), "", *lines))
        return saying(answer)


def _connection(language: str, channel: str, account: str, health: Health, detail: str) -> str:
    name = channel if account == "default" else f"{channel}/{account}"
    state = text(language, f"health.{health.value}")
    shown = f"{state} ({detail})" if detail else state
    return text(language, "command.status.connection", name=name, state=shown)
