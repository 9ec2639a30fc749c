"""Commands that only tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.agent.models import Usage
from bot.agent.models.registry import Models
from bot.agent.models.speed import Speed
from bot.channel import Command, Health
from bot.clock import moment
from bot.commands.base import Answer, Apply, Call, saying, switched
from bot.commands.context import ContextCommands
from bot.context import report
from bot.context.report import grouped
from bot.delivery import outbox
from bot.i18n import text
from bot.identity import ConversationResolver
from bot.memory.night import record
from bot.money import counts, limits, prices
from bot.money.allowance import Allowance
from bot.money.limits import Period, period
from bot.money.prices import Bill
from bot.sessions import search, store, unsaved
from bot.sessions.due_time import shown
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.unit_of_work import UnitOfWork
from bot.upkeep import policy, resets
from bot.upkeep.flush import told


class InfoCommands:
    """`/status`, `/whoami`, `/help`."""

    def __init__(
        self,
        *,
        models: Models,
        context: ContextCommands,
        resolver: ConversationResolver,
        connections: Callable[[], Sequence[tuple[str, str, Health, str]]],
        menu: Callable[[str], Sequence[Command]],
    ) -> None:
        """`connections` gives channel, account, health and detail of each one.

        `menu` has the commands in a language.
        """
        self._models = models
        self._context = context
        self._resolver = resolver
        self._connections = connections
        self._menu = menu

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
                lines += not_saved(call, unit)
            speed = self._models.speed(self._models.full(session.model))
            if speed != Speed():
                lines.append(
                    text(
                        call.language,
                        "command.status.speed",
                        prompt=f"{speed.prompt:.0f}" if speed.prompt else "?",
                        output=f"{speed.output:.0f}" if speed.output else "?",
                    )
                )
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
            for item in self._menu(call.language)
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


def not_saved(call: Call, unit: UnitOfWork) -> list[str]:
    """What is told of conversations that could not be saved so far, and of a night that failed."""
    found = unsaved.failing(unit.tx, search.keys_of(unit.tx, call.view))
    lines = [told(call.language, *each, call.conversation.zone) for each in found[:MOST_UNSAVED]]
    if call.view.private and (why := record.of_space(unit.tx, call.view.space).why):
        because = text(call.language, f"unsaved.why.{why}")
        lines.append(text(call.language, "unsaved.night", why=because))
    return lines


def _notices(call: Call, session: Session, *, by_default: bool) -> str:
    tells = session.notices == "on" if session.notices else by_default
    return text(call.language, f"command.status.notices_{'on' if tells else 'off'}")


def _connection(language: str, channel: str, account: str, health: Health, detail: str) -> str:
    name = channel if account == "default" else f"{channel}/{account}"
    state = text(language, f"health.{health.value}")
    shown = f"{state} ({detail})" if detail else state
    return text(language, "command.status.connection", name=name, state=shown)


MOST_UNSAVED = 3
LISTED = 5  # conversations that are told apart: those that cost most


@dataclass(frozen=True, slots=True)
class _Used:
    """What somebody used today, this month, and in the conversations of this month."""

    today: Bill
    month: Bill
    sessions: Sequence[tuple[Session, Bill]]
    others: int


class UsageCommands:
    """`/usage`."""

    def __init__(
        self, database: Database, resolver: ConversationResolver, allowance: Allowance
    ) -> None:
        self._database = database
        self._resolver = resolver
        self._allowance = allowance
        self._prices = allowance.prices

    async def usage(self, call: Call) -> Apply:
        """Show what replies cost, or choose whether each one says so."""
        wish = {"tokens": "tokens", "on": "tokens", "off": "off"}.get(switched(call), "")
        if wish:
            return lambda unit, session: _chosen(call, unit, session, wish)
        # What somebody uses elsewhere is nobody's business in a room.
        own = await self._own(call) if call.is_direct else [_said(call, "elsewhere")]

        def apply(_unit: UnitOfWork, session: Session) -> Answer:
            return Answer("\n".join((_here(call, session), *own)))

        return apply

    async def _own(self, call: Call) -> list[str]:
        """What the caller used everywhere."""
        zone = self._resolver.now.zone_of(call.person)
        day, month = period("day", call.now, zone), period("month", call.now, zone)
        used = await self._database.read(lambda tx: self._used(tx, call.person, day, month))
        lines = [
            _said(call, "today", what=_what(call, used.today)),
            _said(call, "month", what=_what(call, used.month)),
        ]
        if used.others or len(used.sessions) > 1:
            lines.append(_said(call, "sessions"))
            for session, bill in used.sessions:
                when = shown(call.language, moment(session.started_at, zone))
                what = _what(call, bill)
                lines.append(_said(call, "session", when=when, place=session.channel, what=what))
        if used.others:
            lines.append(_said(call, "others", count=used.others))
        balance = await self._allowance.of(call.conversation)
        lines += [
            f"- {limits.line(call.language, each, zone)}"
            for each in balance.standings
            if each.limit.whose == "person" or call.conversation.is_owner
        ]
        lines.append(_said(call, "how", date=prices.LOOKED_UP))
        if call.conversation.is_owner:
            lines.append(_said(call, "everybody"))
        return lines

    def _used(self, tx: Transaction, person: str, day: Period, month: Period) -> _Used:
        today = counts.sums(tx, ("model",), day.start, day.end, person=person)
        found: dict[str, dict[str, Usage]] = {}
        groups = ("session_id", "model")
        for each in counts.sums(tx, groups, month.start, month.end, person=person):
            session_id, model = map(str, each.keys)
            found.setdefault(session_id, {})[model] = each.usage
        bills = sorted(
            ((id_, self._prices.bill(models)) for id_, models in found.items()),
            key=lambda each: (-each[1].usd, -each[1].usage.context_tokens, each[0]),
        )
        of_month: dict[str, Usage] = {}
        for models in found.values():
            for model, usage in models.items():
                of_month[model] = of_month.get(model, Usage()) + usage
        known = ((store.get(tx, id_), bill) for id_, bill in bills[:LISTED])
        return _Used(
            self._prices.bill({str(each.keys[0]): each.usage for each in today}),
            self._prices.bill(of_month),
            [(session, bill) for session, bill in known if session is not None],
            max(0, len(bills) - LISTED),
        )


def _chosen(call: Call, unit: UnitOfWork, session: Session, wish: str) -> Answer:
    store.change(unit.tx, session.id, usage="tokens" if wish == "tokens" else "")
    return Answer(_said(call, "on" if wish == "tokens" else "off"))


def _here(call: Call, session: Session) -> str:
    return _said(
        call,
        "now",
        input=grouped(session.input_tokens),
        cached=grouped(session.cached_tokens),
        output=grouped(session.output_tokens),
        turns=session.turns,
    )


def _what(call: Call, bill: Bill) -> str:
    """Tokens and what they cost, as far as that is known."""
    usage, some = bill.usage, ", ".join(f"`{model}`" for model in bill.unpriced)
    tokens = _said(
        call,
        "what",
        input=grouped(usage.input_tokens + usage.cache_write_tokens),
        cached=grouped(usage.cache_read_tokens),
        output=grouped(usage.output_tokens),
    )
    if bill.unpriced and not bill.usd:
        return _said(call, "unpriced", what=tokens, models=some)
    key = "priced_in_part" if bill.unpriced else "priced"
    return _said(call, key, what=tokens, usd=prices.shown(bill.usd), models=some)


def _said(call: Call, key: str, **values: object) -> str:
    return text(call.language, f"command.usage.{key}", **values)
