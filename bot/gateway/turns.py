"""Runs a lane's turns: prompt, model, tools, and the one transaction that commits the result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import structlog

from bot.agent import ticks
from bot.agent.models import Message, Text
from bot.agent.recall import Recaller
from bot.agent.select import Models
from bot.agent.tools import ToolContext, TurnMemory
from bot.agent.tools.toolbox import Toolbox
from bot.agent.transcript import new_entry
from bot.agent.turn import Turn, TurnRequest, TurnResult
from bot.channel import Channel, Inbound
from bot.clock import Clock
from bot.config import Config
from bot.context import prompt, tokens
from bot.gateway import inbox
from bot.gateway.inbox import Waiting
from bot.gateway.ledger import Draft, Ledger
from bot.gateway.live import Live, LiveSessions
from bot.gateway.people import People
from bot.gateway.prefix import Prefixes, tools_of
from bot.gateway.prefix import save as save_prefixes
from bot.gateway.presence import Presence
from bot.gateway.running import RunningTurns
from bot.i18n import text
from bot.metrics import Metrics
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.sessions.snapshots import Snapshot

RECALL_SHARE = 4  # what is recalled has at most as many characters as a quarter of the window

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a finished turn tells the person.

    `stored` confirms, as a part of the reply, what is in memory now; `notice` is noted beside the
    model's own words.
    """

    letter: str
    stored: str = ""
    notice: str = ""


class TurnRunner:
    """Answers messages of one session together, one call at a time for each key."""

    def __init__(
        self,
        *,
        config: Config,
        people: People,
        models: Models,
        toolbox: Toolbox,
        channels: Mapping[str, Channel],
        running: RunningTurns,
        ledger: Ledger,
        live: LiveSessions,
        prefixes: Prefixes,
        recaller: Recaller,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._people = people
        self._models = models
        self._toolbox = toolbox
        self._channels = channels
        self._running = running
        self._ledger = ledger
        self._live = live
        self._prefixes = prefixes
        self._recaller = recaller
        self._clock = clock
        self._metrics = metrics

    async def run(self, key: str, rows: Sequence[Waiting]) -> None:
        """Answer these messages, all of one session, with one reply."""
        started = time.perf_counter()
        live = await self._live.get(rows[0].session_id)
        inbound = rows[-1].inbound
        language = self._people.language(inbound)
        request, dropped = await self._request(live, [row.inbound for row in rows], language)
        address = inbound.address
        async with Presence(
            self._channels.get(address.channel), address, str(rows[0].id)
        ) as presence:
            turn = Turn(request, self._toolbox, presence.show if presence.shows_text else None)
            task = turn.start()
            self._metrics.running.inc()
            try:
                with self._running.running(key, turn):
                    result = await task
            finally:
                self._metrics.running.dec()
                task.cancel()  # when this lane is cancelled; harmless when it is finished
        stored = ticks.confirmation(language, request.context.memory.written)
        answer = _answer(result, request.model_name, language, stored, dropped=dropped)
        await self._commit(live, rows, result, answer)
        if not answer.letter:
            await presence.clear()
        end = type(result.error).__name__ if result.error else result.stop
        self._metrics.turns.labels("stopped" if result.stopped else end).inc()
        self._metrics.turn_seconds.observe(time.perf_counter() - started)

    async def _request(
        self, live: Live, inbounds: Sequence[Inbound], language: str
    ) -> tuple[TurnRequest, bool]:
        agent = self._config.agent
        model, name = self._models.pick(live.session.model)
        window = await model.window(name)
        max_tokens = min(agent.max_tokens, window.max_output_tokens)
        limit = min(window.max_input_tokens, self._config.context.context_tokens)
        context = self._context(live, inbounds)
        prefix = await self._prefixes.of(live, context.view, language, self._toolbox.specs, limit)
        messages = [_message(inbound, self._people.zone) for inbound in inbounds]
        if not live.conversation.messages:
            messages[0] = await self._with_opening(messages[0], live, context, prefix, limit)
        fixed = tokens.estimate(prefix.system) + tokens.estimate(prefix.tools)
        arriving = sum(_weight(message) for message in messages)
        dropped = live.conversation.fit(limit - min(max_tokens, limit // 4) - fixed - arriving)
        request = TurnRequest(
            model=model,
            model_name=name,
            system=prefix.system,
            tools=tools_of(prefix),
            history=live.conversation.messages,
            messages=tuple(messages),
            context=context,
            language=language,
            max_tokens=max_tokens,
            max_steps=agent.max_steps,
            timeout=agent.turn_timeout,
        )
        return request, dropped > 0

    def _context(self, live: Live, inbounds: Sequence[Inbound]) -> ToolContext:
        replies = (inbound.reply_to for inbound in inbounds)
        others = (reply for reply in replies if reply is not None and not reply.from_bot)
        return ToolContext(
            view=self._people.view(inbounds[-1]),
            session_id=live.session.id,
            now=datetime.fromtimestamp(self._clock() / 1000, self._people.zone),
            memory=TurnMemory(
                words=tuple(inbound.text for inbound in inbounds),
                quoted=tuple(reply.quote or reply.text for reply in others),
            ),
        )

    async def _with_opening(
        self, message: Message, live: Live, context: ToolContext, prefix: Snapshot, limit: int
    ) -> Message:
        """A conversation's first message, with what is recalled for it."""
        opening = await self._recaller.opening(
            context.view,
            live.session,
            message.text,
            context.now,
            known=prefix.system,
            most=limit // RECALL_SHARE,
        )
        context.memory.recalled.extend(opening.passages)
        if not opening.text:
            return message
        return Message(message.role, (Text(opening.text, note=True), *message.blocks))

    async def _commit(
        self, live: Live, rows: Sequence[Waiting], result: TurnResult, answer: _Answer
    ) -> None:
        now = self._clock()
        usage = result.usage
        counted = store.Counted(
            input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            context_tokens=result.context_tokens or _about(live, result),
            turns=1,
        )
        said = result.messages[len(rows) :]
        news = [
            new_entry(message, text=row.inbound.text, source=row.inbound.message_id)
            for message, row in zip(result.messages, rows, strict=False)
        ]
        news += _replies(said, answer)
        if answer.notice:
            news.append(NewEntry("notice", "assistant", answer.notice))
        address = rows[-1].inbound.address
        done = [row.id for row in rows]

        def work(draft: Draft) -> None:
            told = draft.append(live.session.id, news, counted)
            if answer.letter:
                draft.say(address, answer.letter, entry=told)
            save_prefixes(draft.tx, live, now)
            inbox.done(draft.tx, done, now)

        await self._ledger.write(now, work, must=True)
        live.unsaved.clear()
        live.conversation.extend(result.messages)


def _about(live: Live, result: TurnResult) -> int:
    """What the conversation comes to when the model does not report it."""
    return live.conversation.tokens + sum(_weight(message) for message in result.messages)


def _weight(message: Message) -> int:
    """About how many tokens a message is, notes beside it included."""
    return sum(tokens.estimate(block.text) for block in message.blocks if isinstance(block, Text))


def _message(inbound: Inbound, zone: ZoneInfo) -> Message:
    """A person's message as the model sees it: the program's notes, then their words."""
    notes = prompt.notes(inbound, datetime.fromtimestamp(inbound.sent_at / 1000, zone))
    words = inbound.text or prompt.described(inbound.media)
    return Message("user", (Text(notes, note=True), Text(words)))


def _replies(said: Sequence[Message], answer: _Answer) -> list[NewEntry]:
    """The entries of what the model said, the last of its words with what confirms them."""
    texts = [
        ticks.without_ticks(message.text) if message.role == "assistant" else message.text
        for message in said
    ]
    spoken = [number for number, message in enumerate(said) if message.role == "assistant"]
    if answer.stored and spoken:
        last = spoken[-1]
        texts[last] = "\n\n".join(part for part in (texts[last], answer.stored) if part)
    return [new_entry(message, text=words) for message, words in zip(said, texts, strict=True)]


def _answer(
    result: TurnResult, model: str, language: str, stored: str, *, dropped: bool
) -> _Answer:
    reply = ticks.without_ticks(result.reply)
    notices: list[str] = []
    if result.error is not None:
        notices.append(text(language, result.error.key, model=model))
    elif result.stopped:
        if reply:
            notices.append(text(language, "turn.stopped"))
    elif not reply and not stored:
        notices.append(text(language, "turn.empty"))
    elif result.stop == "max_tokens":
        notices.append(text(language, "turn.cut"))
    if dropped:
        notices.append(text(language, "turn.dropped"))
    notice = "\n\n".join(notices)
    letter = "\n\n".join(part for part in (reply, stored, notice) if part)
    return _Answer(letter, stored, notice)
