"""`/usage`: what replies cost: in this conversation, today, this month, and below each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.agent.models import Usage
from bot.clock import moment
from bot.commands.base import Answer, Apply, Call, switched
from bot.context.report import grouped
from bot.i18n import text
from bot.identity import ConversationResolver
from bot.money import counts, prices, words
from bot.money.allowance import Allowance
from bot.money.periods import Period, period
from bot.money.prices import Bill
from bot.sessions import store
from bot.sessions.due_time import shown
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.unit_of_work import UnitOfWork

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
            f"- {words.line(call.language, each, zone)}"
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
