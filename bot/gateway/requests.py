"""The model request of a turn: its messages, with all that stands before and beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bot.agent.models.speed import ANSWER
from bot.agent.recall import Recaller, Shown
from bot.agent.session_cache import CachedSession, Prefixes, cites, is_short, tools_of
from bot.agent.tools import ToolContext, TurnMemory, passages, provenance
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import TurnRequest
from bot.channel import ReplyTo
from bot.clock import Clock, moment
from bot.config import TURN_SECONDS
from bot.context import prompt, sentences
from bot.context.history import prune_results, pruning_is_due, size_of
from bot.errors import ModelError, WindowTooSmall
from bot.gateway.lanes import is_plain
from bot.gateway.media import NOTHING_CAME, Contents, MediaReader, came
from bot.identity import MANY
from bot.memory.note_store import Watch
from bot.messages import Message, Quoted, Text, ToolResult, Whose
from bot.money import Allowance, Balance, BillingAccount, LimitReached, Spent, spent_of
from bot.sessions.compactions import Snapshot
from bot.sessions.inbox import QueuedMessage
from bot.sessions.reminders import ReplyTarget
from bot.upkeep.active_session import ActiveSession, Fill
from bot.upkeep.upkeep import Upkeep

MAX_BEFORE = 200  # characters of each message before that help to find what a short one is about


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A turn's request, and how full the conversation is that it was made from.

    `version` is the history's: what the model reports is about that one. `came` is
    what came with its messages, `balance` what may still be used, and `account` pays for its calls.
    """

    active: ActiveSession
    request: TurnRequest
    fill: Fill
    arriving: int
    version: int
    came: Sequence[Contents]
    balance: Balance
    account: BillingAccount

    def spent(self) -> tuple[Spent, ...]:
        """The usage of its calls so far, counted for whoever wrote last."""
        person, session_id = self.active.conversation.person, self.active.cached.session.id
        return spent_of(self.account, person, session_id, "chat")

    @property
    def refusal(self) -> ModelError | None:
        """Why the model is not asked at all, if it is not."""
        if self.active.limits.window.is_too_small:
            return WindowTooSmall()
        refused = self.balance.refused
        return LimitReached(refused) if refused is not None else None


class Requests:
    """Makes the request of a turn, and the one after its conversation was compacted."""

    def __init__(
        self,
        *,
        toolbox: Toolbox,
        prefixes: Prefixes,
        recaller: Recaller,
        media: MediaReader,
        upkeep: Upkeep,
        allowance: Allowance,
        clock: Clock,
    ) -> None:
        self._toolbox = toolbox
        self._prefixes = prefixes
        self._recaller = recaller
        self._media = media
        self._upkeep = upkeep
        self._allowance = allowance
        self._clock = clock

    async def of(
        self, rows: Sequence[QueuedMessage], watch: Watch, *, bare: bool = False
    ) -> PreparedRequest:
        """The request for messages of one session, all answered together.

        A `bare` one, which is not sent, has what people wrote, and nothing that takes long.
        """
        active = await self._upkeep.sessions.of(rows[0].session_id, rows[-1].conversation)
        agent, limits, cached = active.conversation.config.agent, active.limits, active.cached
        limit, language = limits.window.tokens, active.conversation.language
        context = self._context(active, rows, watch)
        short = is_short(cached, limits)
        tools = self._toolbox.offered(context.rights, context.view, short=short)
        prefix = await self._prefixes.of(cached, active.conversation, tools, limit)
        balance = await self._allowance.of(active.conversation, limits.name)
        contents = [
            NOTHING_CAME
            if bare
            else await self._media.read(row.inbound, row.session_id, limit, row.conversation)
            for row in rows
        ]
        messages = [
            self._message(row, came, cached.history.shown)
            for row, came in zip(rows, contents, strict=True)
        ]
        if not bare and balance.refused is None:
            recalled = await self._recalled(rows, cached, context, prefix, limit, short=short)
            messages[0] = Message("user", (*recalled, *messages[0].blocks))
        history = cached.history.messages
        if active.sender == MANY:
            # In a direct chat that several people share, none of it is said by who writes now.
            history = provenance.as_others(history)
        context.memory.seen = (*history, *messages)
        arriving = round(sum(size_of(m, limits.count) for m in messages) * limits.factor)
        fill = active.fill()
        if self._prune(active, fill.used + arriving):
            fill = active.fill()
        request = TurnRequest(
            limits=limits,
            system=prefix.system,
            tools=tools_of(prefix.tools),
            history=cached.history.messages,
            folding=cached.history.folding,
            messages=tuple(messages),
            context=context,
            language=language,
            cite=cites(active.conversation),
            thinking=cached.session.thinking,
            max_steps=agent.max_steps,
            timeout=limits.seconds(
                agent.turn_timeout, TURN_SECONDS, prompt=fill.used + arriving, answer=2 * ANSWER
            ),
            used=fill.used,
            on_context=lambda used: self._upkeep.flush_within_turn(active, used),
            unasked=not active.conversation.is_direct,
        )
        version = cached.history.version
        account = self._allowance.account(active.conversation)
        return PreparedRequest(active, request, fill, arriving, version, contents, balance, account)

    async def after_compaction(
        self, prepared: PreparedRequest, messages: tuple[Message, ...]
    ) -> PreparedRequest | None:
        """The same once its conversation was compacted; None when that made no room."""
        active = await self._upkeep.sessions.now(prepared.active)
        if not await self._upkeep.compact_now(active):
            return None
        active = await self._upkeep.sessions.now(prepared.active)
        history, fill = active.cached.history, active.fill()
        request = replace(
            prepared.request,
            history=history.messages,
            messages=messages,
            limits=active.limits,
            used=fill.used,
        )
        version = history.version
        return replace(prepared, active=active, request=request, fill=fill, version=version)

    def _prune(self, active: ActiveSession, used: int) -> bool:
        """Shorten old tool results, where that may be done in a request of so many tokens.

        True when any was.
        """
        config, history = active.conversation.config.context.pruning, active.cached.history
        full, idle_ms = active.limits.budget.compact_above, self._clock() - active.cached.called_at
        if not pruning_is_due(used, full, idle_ms=idle_ms, ttl_minutes=config.ttl_minutes):
            return False
        pruned = prune_results(
            history.shown,
            history.sizes,
            window=active.limits.window.tokens,
            config=config,
        )
        history.shorten(pruned)
        return bool(pruned)

    def _context(
        self, active: ActiveSession, rows: Sequence[QueuedMessage], watch: Watch
    ) -> ToolContext:
        here = active.conversation
        return ToolContext(
            view=here.view,
            session_id=active.cached.session.id,
            now=datetime.fromtimestamp(self._clock() / 1000, here.zone),
            window=active.limits.window.tokens,
            memory=TurnMemory(
                words=tuple(row.inbound.text for row in rows),
                came=tuple((x.inbound.address, each) for x in rows for each, _ in came(x.inbound)),
            ),
            target=ReplyTarget(
                key=active.cached.session.key,
                person=here.person,
                address=here.address,
                language=here.language,
                origin=here.origin,
            ),
            watch=watch,
            name=rows[-1].inbound.sender_name,
            # Where several people are answered together, nobody's rights are another's.
            rights=tuple(dict.fromkeys(row.conversation.rights for row in rows)),
        )

    async def _recalled(
        self,
        rows: Sequence[QueuedMessage],
        cached: CachedSession,
        context: ToolContext,
        prefix: Snapshot,
        limit: int,
        *,
        short: bool,
    ) -> Sequence[Text]:
        """The memory recalled before these messages."""
        when = context.view.recall or rows[-1].conversation.config.memory.recall
        is_begun = _is_begun(cached)
        if is_plain(rows) or when == "off" or (is_begun and when == "start"):
            return ()
        words = "\n".join(row.inbound.shown for row in rows)
        shown = _shown(cached) if is_begun else Shown()
        shown = replace(shown, prompt=prefix.system, window=limit, short=short)
        note = await self._recaller.recall(context.view, cached.session, words, context.now, shown)
        if note is None:
            return ()
        if isinstance(note.value, Quoted):
            context.memory.recalled.extend(passages(note.value))
        return (note,)

    def _message(self, row: QueuedMessage, came: Contents, shown: Sequence[Message]) -> Message:
        """A person's message as the model sees it: notes, what came with it, their words.

        `shown` is what the conversation holds already.
        """
        inbound = row.inbound
        sent = moment(inbound.sent_at, row.conversation.zone)
        named = f"{prompt.described(inbound.media)}\n" if inbound.media else ""
        said_before = [each for each in inbound.heard if not each.reaction]
        reactions = [each for each in inbound.heard if each.reaction]
        notes: list[tuple[str, Whose]] = [
            (prompt.heard(said_before, sent.tzinfo) if said_before else "", "heard"),
            (prompt.reacted(reactions) if reactions else "", "name"),
            (prompt.notes(inbound, sent), "program"),
            ("" if shown else prompt.titled(inbound.title), "name"),
            *([_answered(inbound.reply_to, shown)] if inbound.reply_to is not None else ()),
            (named, "name"),
            *((prompt.passed_on(part), part.kind) for part in inbound.foreign),
        ]
        beside = (Text(words, note=True, origin=origin) for words, origin in notes if words)
        said = (Text(inbound.text, origin="person"),) if inbound.text else ()
        return Message("user", (*beside, *came.blocks, *said))


def _shown(cached: CachedSession) -> Shown:
    """The part of a conversation the model is shown before the next message."""
    texts = [cached.history.summary]
    spoken: list[str] = []  # the last thing that each side said
    for message in reversed(cached.history.shown):
        texts += [block.text for block in message.blocks if isinstance(block, Text | ToolResult)]
        if len(spoken) < 2 and message.text.strip():
            spoken.append(message.text[:MAX_BEFORE])
    entries = [line.entry for line in cached.history.lines]
    return Shown(texts=texts, entries=entries, before="\n".join(reversed(spoken)))


def _is_begun(cached: CachedSession) -> bool:
    """True when something was said to the bot in a session.

    What the program itself noted there, such as what a task came to, begins no conversation.
    """
    return cached.session.compaction is not None or any(
        not (isinstance(block, Text) and block.note and block.origin == "program")
        for message in cached.history.messages
        if message.role == "user"
        for block in message.blocks
    )


def _answered(reply: ReplyTo, shown: Sequence[Message]) -> tuple[str, Whose]:
    """The note of what a message answers, with whose words it quotes.

    What the bot said in this conversation is its own; what it said in any other may have been
    somebody else's.
    """
    quoted = sentences.words(reply.quote or reply.text)
    own = (sentences.words(message.text) for message in shown if message.role == "assistant")
    is_bots = reply.from_bot and any(quoted <= words for words in own)
    return prompt.answered(reply), "bot" if is_bots else "reply"
