"""Commands about the state of a conversation: context, status, usage, tools, approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from bot import money
from bot.agent.models import ToolSpec
from bot.agent.models.registry import Models
from bot.agent.models.speed import Speed
from bot.agent.session_cache import Prefixes, is_short, name_of
from bot.agent.tools.mcp.servers import McpServers, ServerState
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import call_of
from bot.channel import Attachment, Channel, Command, Health
from bot.commands.base import Apply, Call, CommandAnswer, command, saying, switched
from bot.context import budget
from bot.context.budget import Report, grouped
from bot.delivery import outbox
from bot.delivery.outbox import Extra
from bot.i18n import catalog, text
from bot.identity import Conversation, ConversationResolver
from bot.identity.access import Permission
from bot.memory.night import record
from bot.money import Bill, LimitReached, unsummarised
from bot.sessions import approvals, browsing, store, unsaved
from bot.sessions.approvals import Question
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep import active_session, resets
from bot.upkeep.flush import told
from bot.upkeep.notices import report_of
from bot.upkeep.upkeep import Upkeep
from bot.views.usage import UsageViews

# Commands about how full a conversation is: seeing it, making room, and being told.

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
        """Report what fills the caller's conversation."""
        return await self.report_of(await self._current(call), call.conversation)

    async def report_of(self, session: Session, conversation: Conversation) -> Report:
        """Report what fills a session, as its person is shown it."""
        active = await self._upkeep.sessions.of(session.id, conversation)
        limit, view = active.limits.window.tokens, conversation.view
        short = is_short(active.cached, active.limits)
        tools = self._toolbox.offered((conversation.rights,), view, short=short)
        await self._prefixes.of(active.cached, conversation, tools, limit)
        return report_of(active, name_of(view), active.fill())

    @command(is_private=True)
    async def context(self, call: Call) -> Apply:
        """Show what fills the conversation: as a list, in detail, and as a picture."""
        found = await self.report(call)
        lines = budget.lines(found, call.language, call.rest.lower())
        channel = self._channels.get(call.inbound.channel)
        if channel is None or not channel.capabilities.attachments:
            return saying("\n".join(lines))
        sizes = [(part.name, part.tokens) for part in found.fitted() if part.tokens]
        limit = found.budget.compact_above
        drawn = await asyncio.to_thread(budget.draw, sizes, limit, found.percent)
        names = [call.text(f"context.part.{name}") for name, _ in sizes]
        legend = zip(budget.legend(sizes), names, strict=True)
        lines.append("  ".join(f"{square} {name}" for square, name in legend))
        extra = Extra(attachments=(Attachment("context.png", "image/png", drawn),))
        answer = CommandAnswer("\n".join(lines), extra=extra)
        return lambda _unit, _session: answer

    @command()
    async def compact(self, call: Call) -> Apply:
        """Summarise the older part of the conversation, in the background."""
        session, focus = await self._current(call), call.rest[:MAX_FOCUS]
        try:
            begun = await self._upkeep.compact(session, call.conversation, focus)
        except LimitReached as error:
            return saying(unsummarised(call.language, error.limit, call.conversation))
        return saying(call.text(f"command.compact.{'begun' if begun else 'nothing'}"))

    @command()
    async def notices(self, call: Call) -> Apply:
        """Turn warnings about a full conversation on or off."""
        wish = switched(call)
        by_default = active_session.is_told(call.conversation)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            if wish not in {"on", "off", "later"}:
                tells = by_default if session.notices in {"", "later"} else session.notices == "on"
                return CommandAnswer(call.text(f"command.notices.now_{'on' if tells else 'off'}"))
            store.change(unit.tx, session.id, notices=wish)
            return CommandAnswer(call.text(f"command.notices.{wish}"))

        return apply

    async def _current(self, call: Call) -> Session:
        commit = await self._committer.commit(call.now, lambda unit: unit.current(call.place))
        return commit.result[0]


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

    @command(is_private=True)
    async def status(self, call: Call) -> Apply:
        """Show the status of this conversation and of the bot."""
        connections = self._connections()
        found = await self._context.report(call)
        tells = active_session.is_told(call.conversation)

        def model_of(session: Session) -> str:
            return self._models.full(session.model, call.conversation.config.agent.model)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            lines = [
                call.text("command.status.model", model=model_of(session)),
                call.text("command.status.conversation", turns=session.turns, id=session.id),
                call.text(
                    "command.status.context",
                    bar=budget.bar(found.percent),
                    used=budget.grouped(found.used),
                    limit=budget.grouped(found.budget.compact_above),
                    percent=found.percent,
                ),
                call.text(
                    "command.status.tokens",
                    input=budget.grouped(session.input_tokens),
                    cached=budget.grouped(session.cached_tokens),
                    output=budget.grouped(session.output_tokens),
                ),
                call.text("command.status.summaries", count=session.compaction_count),
                _notices(call, session, by_default=tells),
                self._next_start(call, unit, session),
            ]
            if call.view.space:
                lines.append(last_save(call, unit))
                lines += not_saved(call, unit)
            speed = self._models.speed(model_of(session))
            if speed != Speed():
                lines.append(
                    call.text(
                        "command.status.speed",
                        prompt=f"{speed.prompt:.0f}" if speed.prompt else "?",
                        output=f"{speed.output:.0f}" if speed.output else "?",
                    )
                )
            parked = outbox.parked(unit.tx, call.inbound.address)
            if parked:
                lines.append(call.text("command.status.parked", count=parked))
            if call.conversation.is_owner and call.is_direct:  # in a room others read it too
                lines.extend(_connection(call.language, *item) for item in connections)
            return CommandAnswer("\n".join(f"- {line}" for line in lines))

        return apply

    def _next_start(self, call: Call, unit: UnitOfWork, session: Session) -> str:
        """Say when the next conversation begins by itself."""
        if session.ended_by:
            return call.text("command.status.ends_now")
        since = store.taken_up_at(unit.tx, session.key)
        found = resets.ends_at(self._resolver.now, session, since)
        if found is None:
            return call.text("command.status.ends_never")
        at, why = found
        when = call.when(at)
        return call.text(f"command.status.ends_{why}", when=when)

    @command(is_private=True)
    async def whoami(self, call: Call) -> Apply:
        """Show the person's id and identity."""
        known_as = "owner" if call.conversation.is_owner else "person"
        answer = call.text(  # What else somebody is called is nobody's business in a room.
            f"command.whoami.{known_as if call.is_direct else 'room'}",
            id=f"{call.inbound.channel}:{call.inbound.sender}",
            person=call.person,
            key=call.place.key,
        )
        return saying(answer)

    @command(is_private=True)
    @command("start", is_listed=False)  # what Telegram sends first
    async def help(self, call: Call) -> Apply:
        """List the commands."""
        lines = [
            f"- /{item.name}{f' {item.usage}' if item.usage else ''} — {item.description}"
            for item in self._menu(call.language)
        ]
        answer = "\n".join((call.text("command.help.intro"), "", *lines))
        return saying(answer)


def last_save(call: Call, unit: UnitOfWork) -> str:
    """Say when a conversation was last saved to the caller's memory, and where."""
    found = browsing.last_save(unit.tx, call.view)
    if found is None:
        return call.text("memory.never_saved")
    at, where = found
    when = call.when(at)
    key = "memory.saved" if where else "memory.saved_nothing"
    return call.text(key, when=when, where=where)


def not_saved(call: Call, unit: UnitOfWork) -> list[str]:
    """Lines about conversations that could not be saved yet, and about a failed night."""
    found = unsaved.failing(unit.tx, browsing.keys_of(unit.tx, call.view))
    lines = [told(call.language, *each, call.conversation.zone) for each in found[:MOST_UNSAVED]]
    if call.view.private and (why := record.of_space(unit.tx, call.view.space).why):
        because = call.text(f"unsaved.why.{why}")
        lines.append(call.text("unsaved.night", why=because))
    return lines


def _notices(call: Call, session: Session, *, by_default: bool) -> str:
    tells = session.notices == "on" if session.notices else by_default
    return call.text(f"command.status.notices_{'on' if tells else 'off'}")


def _connection(language: str, channel: str, account: str, health: Health, detail: str) -> str:
    name = channel if account == "default" else f"{channel}/{account}"
    state = text(language, f"health.{health.value}")
    shown = f"{state} ({detail})" if detail else state
    return text(language, "command.status.connection", name=name, state=shown)


MOST_UNSAVED = 3


class UsageCommands:
    """`/usage`."""

    def __init__(self, views: UsageViews) -> None:
        self._views = views

    @command(is_private=True)
    async def usage(self, call: Call) -> Apply:
        """Show what replies cost, or choose whether each one says so."""
        wish = {"tokens": "tokens", "on": "tokens", "off": "off"}.get(switched(call), "")
        if wish:
            return lambda unit, session: _chosen(call, unit, session, wish)
        # What somebody uses elsewhere is nobody's business in a room.
        own = await self._own(call) if call.is_direct else [_said(call, "elsewhere")]

        def apply(_unit: UnitOfWork, session: Session) -> CommandAnswer:
            return CommandAnswer("\n".join((_here(call, session), *own)))

        return apply

    async def _own(self, call: Call) -> list[str]:
        """Lines about everything the caller used."""
        used, zone = await self._views.month_of(call.conversation, call.now), call.conversation.zone
        lines = [
            _said(call, "today", what=_what(call, used.today)),
            _said(call, "month", what=_what(call, used.month)),
        ]
        if used.others or len(used.sessions) > 1:
            lines.append(_said(call, "sessions"))
            for session, bill in used.sessions:
                when = call.when(session.started_at)
                what = _what(call, bill)
                lines.append(_said(call, "session", when=when, place=session.channel, what=what))
        if used.others:
            lines.append(_said(call, "others", count=used.others))
        lines += [f"- {money.line(call.language, each, zone)}" for each in used.limits]
        lines.append(_said(call, "how", date=money.PRICES_LOOKED_UP))
        if call.conversation.is_owner:
            lines.append(_said(call, "everybody"))
        return lines


def _chosen(call: Call, unit: UnitOfWork, session: Session, wish: str) -> CommandAnswer:
    store.change(unit.tx, session.id, usage="tokens" if wish == "tokens" else "")
    return CommandAnswer(_said(call, "on" if wish == "tokens" else "off"))


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
    return _said(call, key, what=tokens, usd=money.shown_price(bill.usd), models=some)


def _said(call: Call, key: str, **values: object) -> str:
    return call.text(f"command.usage.{key}", **values)


# `/tools`: what the model may use here, and for the owner why something is missing.

MAX_SHOWN = 60  # tools that are named, of those that are there and of those that are not
MAX_DESCRIPTION = 100  # characters


class ToolCommands:
    """`/tools`."""

    def __init__(self, toolbox: Toolbox, servers: McpServers) -> None:
        self._toolbox = toolbox
        self._servers = servers

    @command()
    async def tools(self, call: Call) -> Apply:
        """List the tools the sender may use here.

        Only the owner is told about others: in a direct chat by name and with the rule that denies
        them, in a room, where others read it, by their number.
        """
        rights = call.conversation.rights
        given: list[ToolSpec] = []
        refused: list[tuple[str, Permission]] = []
        for spec in self._toolbox.specs:
            if spec.of_memory and not call.view.space:
                continue
            found = rights.of(spec.name, built_in=spec.built_in)
            if found.is_given:
                given.append(spec)
            else:
                refused.append((spec.name, found))
        lines = [call.text("command.tools.intro" if given else "command.tools.none")]
        lines += [_line(call.language, spec) for spec in given[:MAX_SHOWN]]
        lines += _more(call.language, given)
        if call.conversation.is_owner:
            missing = _missing(call, refused) if refused else []
            if call.is_direct:
                missing += [_server(call.language, each) for each in self._servers.states()]
                missing += _left_out(call.language, self._toolbox.left_out)
            lines += ["", *missing] if missing else []
        return saying("\n".join(lines))


def _line(language: str, spec: ToolSpec) -> str:
    """A tool with what it does: in the person's language if it is one of the program's own."""
    own = f"tool.{spec.name}"
    words = " ".join(spec.description.split())
    if own in catalog(language):
        words = text(language, own)
    elif len(words) > MAX_DESCRIPTION:
        words = f"{words[: MAX_DESCRIPTION - 1].rstrip()}…"
    return f"- `{spec.name}`: {words}" if words else f"- `{spec.name}`"


def _missing(call: Call, refused: Sequence[tuple[str, Permission]]) -> list[str]:
    """Lines for the owner about tools that may not be used here."""
    if not call.is_direct:
        return [call.text("command.tools.more_in_room", count=len(refused))]
    lines = [
        call.text("command.tools.denied", name=name, rule=permission.rule)
        for name, permission in refused[:MAX_SHOWN]
    ]
    return [*lines, *_more(call.language, refused)]


def _server(language: str, server: ServerState) -> str:
    """The status of a tool server, and which of its tools are missing."""
    lines = [text(language, f"tools.server.{server.state}", name=server.name, count=server.tools)]
    if server.unusable:
        lines.append(text(language, "tools.server.unusable", count=server.unusable))
    if server.left:
        lines.append(text(language, "tools.server.left", count=server.left))
    return f"- {' '.join(lines)}"


def _left_out(language: str, names: Sequence[str]) -> list[str]:
    """Lines about tools that are left out because another one has their name."""
    if not names:
        return []
    shown = ", ".join(f"`{name}`" for name in names[:MAX_SHOWN])
    return [f"- {text(language, 'tools.left_out', names=shown)}", *_more(language, names)]


def _more(language: str, tools: Sequence[object]) -> list[str]:
    left = len(tools) - MAX_SHOWN
    return [text(language, "command.tools.more", count=left)] if left > 0 else []


class ApprovalCommands:
    """`/allow [ID]`, `/deny [ID]`: what the buttons of a question give."""

    @command(is_listed=False)
    async def allow(self, call: Call) -> Apply:
        """Allow the call; the turn of this message makes it."""
        return self._decide(call, is_allowed=True)

    @command(is_listed=False)
    async def deny(self, call: Call) -> Apply:
        """Deny the call; the model is told."""
        return self._decide(call, is_allowed=False)

    def _decide(self, call: Call, *, is_allowed: bool) -> Apply:
        inbound = call.inbound
        asker = (inbound.channel, inbound.account, inbound.sender)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            found = _question(unit.tx, call, session, asker)
            if isinstance(found, str):
                return CommandAnswer(call.text(found))
            use = call_of(unit.tx, found)
            if use is None:
                return CommandAnswer(call.text("approval.closed"))
            approvals.answer(unit.tx, found, call.now, is_allowed=is_allowed)
            said = "allowed" if is_allowed else "denied"
            return CommandAnswer(
                call.text(f"approval.{said}", tool=use.name),
                message=call.text(f"approval.said_{said}", tool=use.name),
                question=found.id,
            )

        return apply


def _question(
    tx: Transaction, call: Call, session: Session, asker: approvals.Asker
) -> Question | str:
    """The question that is being answered, or the key of the reason why there is none."""
    id_ = call.rest.strip().lower()
    if not id_:
        waiting = approvals.open_in(tx, session.id, asker, call.now)
        return waiting[0] if len(waiting) == 1 else f"approval.{'which' if waiting else 'none'}"
    found = approvals.of_id(tx, id_)
    if found is None or found.session_id != session.id:
        return "approval.closed"
    if found.asker != asker:
        return "approval.not_yours"
    return found if found.is_open(call.now) else "approval.closed"
