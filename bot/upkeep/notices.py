"""Telling people how full their conversation is, also when it became so without a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import orjson

from bot import money
from bot.agent.model_limits import ModelLimits
from bot.agent.models import ToolSpec, Usage
from bot.agent.session_cache import name_of, tools_of
from bot.channel import Button
from bot.context import budget, tokens
from bot.context.budget import Part, Report
from bot.context.history import PICTURE_TOKENS, tool_names
from bot.context.prompt import attachments
from bot.core import Core
from bot.delivery.outbox import Extra
from bot.i18n import text
from bot.messages import Message, Opaque, Picture, Quoted, Text, ToolResult, ToolUse
from bot.sessions import store
from bot.sessions.compactions import Snapshot
from bot.sessions.store import Session
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.active_session import ActiveSession, ActiveSessions, Fill

# How full a conversation is, and of what: for `/context`, `/status` and notices.


def report_of(active: ActiveSession, view: str, fill: Fill, said: Sequence[Message] = ()) -> Report:
    """Report what fills a conversation, seen through a view; `said` is what a turn is adding."""
    cached, limits = active.cached, active.limits
    prefix = cached.snapshots.get(cached.snapshot_of(view))
    weighed = _of_prefix(prefix) if prefix is not None else []
    weighed.append(Part("summary", tokens.estimate(cached.history.summary)))
    weighed += _of_messages([*cached.history.shown, *said])
    return Report(
        parts=tuple(_scaled(part, limits.factor) for part in weighed),
        used=fill.used,
        budget=limits.budget,
        window=limits.window,
        model=limits.name,
        measured=cached.history.is_reported,
    )


def footer(language: str, usage: Usage, used: int, limits: ModelLimits, bill: money.Bill) -> str:
    """The line below a reply that says what it cost, where the price is known."""
    line = text(
        language,
        "command.usage.line_cached" if usage.cache_read_tokens else "command.usage.line",
        input=budget.grouped(usage.input_tokens + usage.cache_write_tokens),
        cached=budget.grouped(usage.cache_read_tokens),
        output=budget.grouped(usage.output_tokens),
        percent=budget.percent_full(used, limits.budget),
    )
    if not bill.unpriced:
        line = f"{line} · {money.shown_price(bill.usd)}"
    return f"\n\n_{line}_"


def _of_prefix(prefix: Snapshot) -> list[Part]:
    memory = sum(size for _, size in prefix.remembered)
    tools = tuple((tool.name, _weight(tool)) for tool in tools_of(prefix.tools))
    return [
        Part("persona", tokens.estimate(prefix.system) - memory, prefix.own),
        Part("memory", memory, prefix.remembered),
        Part("tools", tokens.estimate(prefix.tools), tools),
    ]


def _weight(tool: ToolSpec) -> int:
    return tokens.estimate(f"{tool.description}{orjson.dumps(dict(tool.schema)).decode()}")


def _of_messages(messages: Sequence[Message]) -> list[Part]:
    recalled = said = 0
    files, results = Counter[str](), Counter[str]()
    names = tool_names(messages)
    for message in messages:
        for name, block in attachments(message):
            files[name] += _weight_of(block)
        for block in message.blocks:
            match block:
                case Text(words, note=True, value=Quoted()):
                    recalled += tokens.estimate(words)
                case Text() | Picture():
                    said += _weight_of(block)
                case ToolUse(_, name, arguments):
                    said += tokens.estimate(f"{name} {arguments}")
                case ToolResult(id_, words):
                    results[names.get(id_, "?")] += tokens.estimate(words)
                case Opaque():
                    said += tokens.estimate(block.weighed)
    return [
        Part("memory", recalled),
        Part("history", said, tuple(sorted(files.items()))),
        Part("tool_results", results.total(), tuple(sorted(results.items()))),
    ]


def _weight_of(block: Text | Picture) -> int:
    return tokens.estimate(block.text) if isinstance(block, Text) else PICTURE_TOKENS


def _scaled(part: Part, factor: float) -> Part:
    """A part in the model's own tokens."""
    detail = tuple((name, round(size * factor)) for name, size in part.detail)
    return Part(part.name, round(part.tokens * factor), detail)


LATELY_MS = 7 * 86_400_000  # who wrote before that is told with their next turn


@dataclass(frozen=True, slots=True)
class Notice:
    """The notice of a conversation that gets full; `level` is the percentage it has passed."""

    level: int
    words: str
    extra: Extra


def notice(made: Report, language: str, *, level: int, buttons: bool, remembers: bool) -> Notice:
    """The notice for a level; commands are spelled out where there are no buttons.

    It says what a new conversation would begin with, where it `remembers` anything.
    """
    words = text(
        language,
        "notice.full",
        percent=made.percent,
        used=budget.grouped(made.used),
        limit=budget.grouped(made.budget.compact_above),
        parts=budget.brief(made, language),
    )
    along = text(language, "notice.along" if remembers else "notice.along_nothing")
    words = f"{words}\n\n{along}"
    if not buttons:
        words = f"{words} {text(language, 'notice.full_how')}"
    commands = {"compact": "/compact", "new": "/new", "later": "/notices later"}
    pressed = (Button(text(language, f"button.{k}"), command) for k, command in commands.items())
    return Notice(level, words, Extra(tuple(pressed)))


class NoticeSweep:
    """Tells of conversations that became nearly full without a turn, once for each level.

    That is when their model got a smaller window, or another model answers them.
    """

    def __init__(self, core: Core, committer: Committer, sessions: ActiveSessions) -> None:
        self._sessions = sessions
        self._core = core
        self._committer = committer

    async def sweep(self, now: int) -> int:
        """Tell everybody who is to be told at `now` (ms since the epoch); how many there were.

        Raises:
            StorageError: the disk did not take it; the next sweep tells the rest.
        """
        count, config = 0, self._sessions.resolver.policy.config.context
        levels = sorted((level for level in config.notice_percent if level > 0), reverse=True)
        agents = self._sessions.resolver.policy.agents
        chosen = await self._core.database.read(store.open_models) if levels else ()
        for (name, agent), model in product(agents.items(), chosen):
            limits = await self._sessions.limits.of(model, agent.agent)
            for level in levels:
                used = -(-level * limits.budget.compact_above // 100)
                ask = partial(store.filling, agent=name, model=model, used=used, level=level)
                found = await self._core.database.read(partial(ask, since=now - LATELY_MS))
                for session in found:
                    count += await self._tell(session, level, now)
        return count

    async def _tell(self, session: Session, level: int, now: int) -> bool:
        active = await self._sessions.resumed(session)
        channel = self._core.channels.get(session.channel)
        if channel is None or not self._may_tell(active):
            return False
        conversation, language = active.conversation, active.conversation.language
        fill = Fill(session.context_tokens, active.fill().fixed)
        made = notice(
            report_of(active, name_of(conversation.view), fill),
            language,
            level=level,
            buttons=channel.capabilities.buttons,
            remembers=bool(conversation.view.space),
        )

        def work(unit: UnitOfWork) -> bool:
            current = store.current(unit.tx, session.key)
            if current is None or current.id != session.id or current.ended_by:
                return False
            # A turn that ended meanwhile has told of it, or has made room.
            if current.told >= level or current.context_tokens != session.context_tokens:
                return False
            store.change(unit.tx, session.id, told=level)
            unit.say(
                conversation.address,
                made.words,
                "notice",
                noted_in=session.id,
                extra=made.extra,
                language=language,
            )
            unit.refresh(session.id)
            return True

        return (await self._committer.commit(now, work)).result

    def _may_tell(self, active: ActiveSession) -> bool:
        """True when it is still whose it was, may be answered there, and its person wants it."""
        conversation = active.conversation
        if not active.cached.session.sender or not active.is_theirs:
            return False
        if conversation.is_direct and not conversation.is_admitted:
            return False
        return conversation.is_answered and active.is_told
