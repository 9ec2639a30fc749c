"""Commands that only tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.agent.models.registry import Models
from bot.channel import Health
from bot.clock import moment
from bot.commands.base import Answer, Apply, Call, saying
from bot.commands.context import ContextCommands
from bot.commands.menu import menu
from bot.context import report
from bot.delivery import outbox
from bot.i18n import text
from bot.identity import ConversationResolver
from bot.sessions import search, store
from bot.sessions.due_time import shown
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork
from bot.upkeep import policy, resets


class InfoCommands:
    """`/status`, `/whoami`, `/help`."""

    def __init__(
        self,
        *,
        models: Models,
        context: ContextCommands,
        resolver: ConversationResolver,
        connections: Callable[[], Sequence[tuple[str, str, Health, str]]],
    ) -> None:
        """`connections` gives channel, account, health and detail of each one."""
        self._models = models
        self._context = context
        self._resolver = resolver
        self._connections = connections

    async def status(self, call: Call) -> Apply:
        """How this conversation and the bot are doing."""
        connections = self._connections()
        found = await self._context.report(call)
        tells = policy.is_told(call.conversation)

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            lines = [
                text(call.language, "command.status.model", model=self._models.full(session.model)),
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
                    input=report.grouped(session.input_tokens),
                    cached=report.grouped(session.cached_tokens),
                    output=report.grouped(session.output_tokens),
                ),
                text(call.language, "command.status.summaries", count=session.compaction_count),
                _notices(call, session, by_default=tells),
                self._next_start(call, unit, session),
            ]
            if call.view.space:
                lines.append(last_save(call, unit))
            parked = outbox.parked(unit.tx, call.inbound.address)
            if parked:
                lines.append(text(call.language, "command.status.parked", count=parked))
            if call.conversation.is_owner and call.is_direct:  # in a room others read it too
                lines.extend(_connection(call.language, *item) for item in connections)
            return Answer("\n".join(f"- {line}" for line in lines))

        return apply

    def _next_start(self, call: Call, unit: UnitOfWork, session: Session) -> str:
        """When the next conversation begins by itself."""
        if session.ended_by:
            return text(call.language, "command.status.ends_now")
        since = store.taken_up_at(unit.tx, session.key)
        found = resets.ends_at(self._resolver.now, session, since)
        if found is None:
            return text(call.language, "command.status.ends_never")
        at, why = found
        when = shown(call.language, moment(at, call.conversation.zone))
        return text(call.language, f"command.status.ends_{why}", when=when)

    async def whoami(self, call: Call) -> Apply:
        """How the bot knows the person."""
        known_as = "owner" if call.conversation.is_owner else "person"
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


def last_save(call: Call, unit: UnitOfWork) -> str:
    """When a conversation was last saved to the caller's memory, and to where."""
    found = search.last_save(unit.tx, call.view)
    if found is None:
        return text(call.language, "memory.never_saved")
    at, where = found
    when = shown(call.language, moment(at, call.conversation.zone))
    key = "memory.saved" if where else "memory.saved_nothing"
    return text(call.language, key, when=when, where=where)


def _notices(call: Call, session: Session, *, by_default: bool) -> str:
    tells = session.notices == "on" if session.notices else by_default
    return text(call.language, f"command.status.notices_{'on' if tells else 'off'}")


def _connection(language: str, channel: str, account: str, health: Health, detail: str) -> str:
    name = channel if account == "default" else f"{channel}/{account}"
    state = text(language, f"health.{health.value}")
    shown = f"{state} ({detail})" if detail else state
    return text(language, "command.status.connection", name=name, state=shown)
