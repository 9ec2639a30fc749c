"""Runs a lane's turns: prompt, model, tools, and the one transaction that commits the result."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bot.agent import replies
from bot.agent.live import Live
from bot.agent.prefix import Prefixes, name_of, tools_of
from bot.agent.prefix import save as save_prefixes
from bot.agent.recall import Recaller
from bot.agent.replies import spoken
from bot.agent.tools import ToolContext, TurnMemory, passages, provenance
from bot.agent.tools.artifacts import reference_of
from bot.agent.tools.toolbox import Toolbox
from bot.agent.transcript import new_entry
from bot.agent.turn import RunningTurns, Turn, TurnRequest, TurnResult
from bot.channel import Channel, Inbound, Media, ReplyTo
from bot.clock import Clock, moment
from bot.config import Config
from bot.context import extract, prompt, pruning
from bot.context.conversation import Line, size_of
from bot.delivery.outbox import Extra
from bot.errors import ModelError, ModelTooLarge, WindowTooSmall
from bot.gateway import media
from bot.gateway.attempts import Attempts, is_plain
from bot.gateway.media import MediaReader
from bot.gateway.presence import Presence
from bot.i18n import catalog, text
from bot.identity import MANY
from bot.ledger import Draft, Ledger
from bot.memory.forgetting import Watch
from bot.memory.notes import Notes
from bot.messages import Message, Text, Whose
from bot.metrics import Metrics
from bot.sessions import artifacts, inbox, search, store
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import Waiting
from bot.sessions.reminders import Origin
from bot.sessions.snapshots import Snapshot
from bot.sessions.store import Session
from bot.upkeep import notices, policy
from bot.upkeep.talk import Fill, Talk
from bot.upkeep.upkeep import Upkeep
from bot.upkeep.usage import footer, report_of

TOLD_WAIT = 2.0  # seconds; a shorter time is over when it is read
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
RECALL_SHARE = 4  # what is recalled has at most as many characters as a quarter of the window


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a finished turn tells the person.

    `stored` confirms, as a part of the reply, what is in memory now; `notice` is noted beside the
    model's own words.
    """

    letter: str
    stored: str = ""
    notice: str = ""


@dataclass(slots=True)
class _Asked:
    """A turn's request, and how full the conversation is that it was made from.

    `version` is the conversation's: what the model reports is about that one. `unseen` are
    the files the model is not shown.
    """

    talk: Talk
    request: TurnRequest
    fill: Fill
    arriving: int
    version: int
    unseen: Sequence[tuple[Media, str]] = ()

    @property
    def is_over(self) -> bool:
        """Whether it does not fit into the window."""
        return self.fill.used + self.arriving > self.talk.shares.hard


class TurnRunner:
    """Answers messages of one session together, one call at a time for each key."""

    def __init__(
        self,
        *,
        config: Config,
        toolbox: Toolbox,
        channels: Mapping[str, Channel],
        running: RunningTurns,
        ledger: Ledger,
        attempts: Attempts,
        prefixes: Prefixes,
        recaller: Recaller,
        notes: Notes,
        upkeep: Upkeep,
        media: MediaReader,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._toolbox = toolbox
        self._channels = channels
        self._running = running
        self._ledger = ledger
        self._attempts = attempts
        self._prefixes = prefixes
        self._recaller = recaller
        self._notes = notes
        self._upkeep = upkeep
        self._media = media
        self._clock = clock
        self._metrics = metrics

    async def run(self, key: str, rows: Sequence[Waiting]) -> None:
        """Answer these messages, all of one session, with one reply."""
        async with self._notes.watching(rows[-1].conversation.view) as watch:
            await self._run(key, rows, watch)

    async def _run(self, key: str, rows: Sequence[Waiting], watch: Watch) -> None:
        started = time.perf_counter()
        conversation = rows[-1].conversation
        talk = await self._upkeep.talks.of(rows[0].session_id, conversation)
        address = conversation.address
        async with Presence(
            self._channels.get(address.channel),
            address,
            str(rows[0].id),
            streams=conversation.settings.streaming,
        ) as presence:
            async with self._attempts.preparing(rows):
                asked = await self._request(talk, rows, watch)
            self._metrics.running.inc()
            try:
                result = await self._answered(key, asked, presence)
            finally:
                self._metrics.running.dec()
        stored = replies.confirmation(asked.request.language, asked.request.context.memory.written)
        unseen = media.told(asked.unseen, asked.request.language)
        answer = _answer(result, talk.room.name, asked.request.language, stored, unseen)
        used = await self._commit(rows, asked, result, answer, presence.draft)
        self._upkeep.look(asked.talk, used)
        if not answer.letter:
            await presence.clear()
        end = type(result.error).__name__ if result.error else result.stop
        self._metrics.turns.labels("stopped" if result.stopped else end).inc()
        self._metrics.turn_seconds.observe(time.perf_counter() - started)

    async def _answered(self, key: str, asked: _Asked, presence: Presence) -> TurnResult:
        """The turn's result; when the window overflows, room is made once and it goes on."""
        request, talk = asked.request, asked.talk
        if talk.room.window.is_too_small:
            return TurnResult(request.messages, "", error=WindowTooSmall())
        if asked.is_over and await self._upkeep.make_room(talk):
            request = await self._again(asked, request.messages)
        result = await self._turn(key, request, presence)
        if not isinstance(result.error, ModelTooLarge):
            return result
        if not await self._upkeep.make_room(talk):
            return result
        # What tools have done is done: go on after their results. Half a reply is begun anew.
        last = max(n for n, message in enumerate(result.messages) if message.role == "user")
        messages = result.messages[: last + 1]
        again = await self._turn(key, await self._again(asked, messages), presence)
        said = [_read(m) for m in messages[len(request.messages) :] if m.role == "assistant"]
        reply = "\n\n".join(part for part in (*said, again.reply) if part)
        silent = again.silent and not reply
        return replace(again, reply=reply, silent=silent, usage=result.usage + again.usage)

    async def _turn(self, key: str, request: TurnRequest, presence: Presence) -> TurnResult:
        turn = Turn(request, self._toolbox, presence.show if presence.shows_text else None)
        task = turn.start()
        try:
            with self._running.running(key, turn):
                return await task
        finally:
            task.cancel()  # when this lane is cancelled; harmless when it is finished

    async def _request(self, talk: Talk, rows: Sequence[Waiting], watch: Watch) -> _Asked:
        agent, room, live = self._config.agent, talk.room, talk.live
        limit, language = room.window.tokens, talk.conversation.language
        inbounds = [row.inbound for row in rows]
        context = self._context(talk, inbounds, watch)
        prefix = await self._prefixes.of(live, context.view, language, self._toolbox.specs, limit)
        contents = [await self._contents(row, limit) for row in rows]
        messages = [
            self._message(row, came, live.conversation.shown)
            for row, came in zip(rows, contents, strict=True)
        ]
        if not live.conversation and not is_plain(rows):
            words = "\n".join(inbound.shown for inbound in inbounds)
            opened = await self._opening(words, live, context, prefix, limit)
            messages[0] = Message("user", (*opened, *messages[0].blocks))
        context.memory.seen = (*_history(talk), *messages)
        arriving = round(sum(size_of(m, room.count) for m in messages) * room.factor)
        self._prune(talk, talk.fill().used + arriving)
        fill = talk.fill()
        request = TurnRequest(
            model=room.model,
            model_name=room.name,
            system=prefix.system,
            tools=tools_of(prefix),
            history=live.conversation.messages,
            messages=tuple(messages),
            context=context,
            language=language,
            cite=self._prefixes.cites(context.view),
            max_tokens=talk.shares.output,
            max_steps=agent.max_steps,
            timeout=agent.turn_timeout,
            used=fill.used,
            room=talk.shares.hard,
            factor=room.factor,
            count=room.count,
            on_context=lambda used: self._upkeep.look_within(talk, used),
        )
        unseen = [file for came in contents for file in came.unseen]
        return _Asked(talk, request, fill, arriving, live.conversation.version, unseen)

    async def _again(self, asked: _Asked, messages: tuple[Message, ...]) -> TurnRequest:
        """The request after the conversation was compacted."""
        asked.talk = await self._upkeep.talks.now(asked.talk)
        conversation = asked.talk.live.conversation
        asked.fill = asked.talk.fill()
        asked.version = conversation.version
        return replace(
            asked.request,
            history=conversation.messages,
            messages=messages,
            max_tokens=asked.talk.shares.output,
            used=asked.fill.used,
            room=asked.talk.shares.hard,
        )

    def _prune(self, talk: Talk, used: int) -> None:
        """Shorten old tool results, when that breaks no warm prompt cache or there is no room."""
        config, conversation = self._config.context.pruning, talk.live.conversation
        cold = pruning.is_cold(talk.live.called_at or None, self._clock(), config.ttl_minutes)
        if policy.should_prune(used, talk.room.budget, is_cold=cold):
            conversation.shorten(
                pruning.prune(
                    conversation.shown,
                    conversation.sizes,
                    window=talk.room.window.tokens,
                    config=config,
                    reference=reference_of,
                )
            )

    def _notice(self, asked: _Asked, used: int, said: Sequence[Message]) -> notices.Notice | None:
        """What is to be told about how full the conversation is, once for each level."""
        level = self._upkeep.level(asked.talk, used)
        if level is None:
            return None
        channel = self._channels.get(asked.talk.conversation.address.channel)
        view = name_of(asked.request.context.view)
        return notices.notice(
            report_of(asked.talk, view, Fill(used, asked.fill.fixed), said),
            asked.request.language,
            level=level,
            buttons=channel is not None and channel.capabilities.buttons,
            remembers=bool(asked.request.context.view.space),
        )

    def _context(self, talk: Talk, inbounds: Sequence[Inbound], watch: Watch) -> ToolContext:
        here = talk.conversation
        return ToolContext(
            view=here.view,
            session_id=talk.session.id,
            now=datetime.fromtimestamp(self._clock() / 1000, here.zone),
            window=talk.room.window.tokens,
            memory=TurnMemory(words=tuple(inbound.text for inbound in inbounds)),
            origin=Origin(
                key=talk.session.key,
                person=here.person,
                address=here.address,
                language=here.language,
            ),
            watch=watch,
        )

    async def _opening(
        self, words: str, live: Live, context: ToolContext, prefix: Snapshot, limit: int
    ) -> Sequence[Text]:
        """What is recalled for a conversation's first words."""
        opening = await self._recaller.opening(
            context.view,
            live.session,
            words,
            context.now,
            known=prefix.system,
            most=limit // RECALL_SHARE,
        )
        if opening is None:
            return ()
        context.memory.recalled.extend(passages(opening.quoted))
        return (opening.note,)

    async def _contents(self, row: Waiting, window: int) -> media.Contents:
        """The files of a message, as far as the model can take them."""
        if not row.inbound.media:
            return media.Contents()
        person = row.conversation.person
        return await self._media.read(row.inbound, row.session_id, window, person)

    def _message(self, row: Waiting, came: media.Contents, shown: Sequence[Message]) -> Message:
        """A person's message as the model sees it: notes, what came with it, their words.

        `shown` is what the conversation holds already.
        """
        inbound = row.inbound
        sent = moment(inbound.sent_at, row.conversation.zone)
        named = f"{prompt.described(inbound.media)}\n" if inbound.media else ""
        notes: list[tuple[str, Whose]] = [
            (prompt.heard(inbound.heard, sent.tzinfo), "heard"),
            (prompt.notes(inbound, sent), "program"),
            *_answered(inbound.reply_to, shown),
            (named, "name"),
            *((prompt.passed_on(part), part.kind) for part in inbound.foreign),
        ]
        beside = (Text(words, note=True, origin=origin) for words, origin in notes if words)
        said = (Text(inbound.text, origin="person"),) if inbound.text else ()
        return Message("user", (*beside, *came.blocks, *said))

    async def _commit(
        self,
        rows: Sequence[Waiting],
        asked: _Asked,
        result: TurnResult,
        answer: _Answer,
        shown_as: str,
    ) -> int:
        """Store the turn and what it says; how many tokens the window holds then."""
        now = self._clock()
        live, room, inbound = asked.talk.live, asked.talk.room, rows[-1].inbound
        usage = result.usage
        spoken = provenance.spoken_by_bot(result.messages, asked.request.context.memory)
        # What was reported counts only for what the next request will carry too.
        is_same = asked.version == live.conversation.version and not result.was_cut
        reported = result.context_tokens if is_same else 0
        used = self._used(asked, spoken, reported)
        counted = store.Counted(
            input_tokens=usage.input_tokens + usage.cache_write_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
            context_tokens=used,
            turns=1,
        )
        news = [
            new_entry(message, text=row.inbound.shown, source=row.inbound.message_id)
            for message, row in zip(spoken, rows, strict=False)
        ]
        news += _replies(spoken[len(rows) :], answer)
        if answer.notice:
            news.append(NewEntry("notice", "assistant", answer.notice))
        notice = self._notice(asked, used, spoken)
        language = asked.request.language
        below = footer(language, usage, used, room) if live.session.usage else ""

        def work(draft: Draft) -> tuple[tuple[str, ...], Session]:
            ids = draft.append(live.session.id, news, counted)
            _forget_again(draft, live.session, asked.request.context, ids)
            if answer.letter:
                draft.say(
                    inbound.address,
                    answer.letter + below,
                    language=language,
                    asker=inbound.asker,
                    entry=ids[-1],
                    reply_to=inbound.to_answer,
                    extra=Extra(draft=shown_as),
                )
            if notice is not None:
                store.change(draft.tx, live.session.id, told=notice.level)
                draft.tell(
                    live.session.id,
                    inbound.address,
                    notice.words,
                    "notice",
                    language=language,
                    asker=inbound.asker,
                    extra=notice.extra,
                )
            store.change(
                draft.tx,
                live.session.id,
                sender=asked.talk.conversation.sender_after(live.session.sender),
                locale=inbound.locale,
                parent=inbound.parent,
                server=inbound.server,
                last_turn_at=now,
            )
            draft.touch(live.session.id)
            if self._upkeep.talks.live.holds(
                live
            ):  # else it may begin with what was forgotten meanwhile
                save_prefixes(draft.tx, live, now)
            inbox.done(draft.tx, [row.id for row in rows], now)
            return ids, draft.sessions[live.session.id]

        ids, live.session = (await self._ledger.write(now, work, must=True)).result
        live.unsaved.clear()
        live.called_at = now
        lines = [Line(id_, now, message) for id_, message in zip(ids, spoken, strict=False)]
        is_same = asked.version == live.conversation.version
        live.conversation.extend(lines, reported if is_same else 0)
        self._upkeep.talks.live.settle(live)
        return used

    def _used(self, asked: _Asked, spoken: Sequence[Message], reported: int) -> int:
        """How many tokens the window holds after a turn; what the service reports is learned."""
        room = asked.talk.room
        weight = sum(size_of(message, room.count) for message in spoken)
        if not reported:
            return asked.talk.fill().used + round(weight * room.factor)
        estimated = asked.fill.fixed + asked.talk.live.conversation.estimated + weight
        self._upkeep.talks.windows.learn(room.name, estimated, reported)
        return reported


def _history(talk: Talk) -> Sequence[Message]:
    """What the model was shown before.

    In a direct chat that several people share, none of it counts as said by who writes now.
    """
    messages = talk.live.conversation.messages
    is_shared = talk.conversation.sender_after(talk.session.sender) == MANY
    return provenance.as_others(messages) if is_shared else messages


def _forget_again(draft: Draft, session: Session, context: ToolContext, ids: Sequence[str]) -> None:
    """Hide what was forgotten while a turn ran in what the turn says too."""
    for words in context.watch.words:
        search.forget(draft.tx, context.view, words, draft.now, ids)
        artifacts.drop(draft.tx, (session.key,), words)
        draft.reload(session.id)


def _answered(reply: ReplyTo | None, shown: Sequence[Message]) -> list[tuple[str, Whose]]:
    """The note of what a message answers, with whose words it quotes.

    What the bot said in this conversation is its own; what it said in any other may have been
    somebody else's.
    """
    if reply is None:
        return []
    quoted = extract.words(reply.quote or reply.text)
    own = (extract.words(message.text) for message in shown if message.role == "assistant")
    is_bots = reply.from_bot and any(quoted <= words for words in own)
    return [(prompt.answered(reply), "bot" if is_bots else "reply")]


def _replies(said: Sequence[Message], answer: _Answer) -> list[NewEntry]:
    """The entries of what the model said, the last of its words with what confirms them."""
    texts = [_read(message) for message in said]
    spoken = [number for number, message in enumerate(said) if message.role == "assistant"]
    if answer.stored and spoken:
        last = spoken[-1]
        texts[last] = "\n\n".join(part for part in (texts[last], answer.stored) if part)
    return [new_entry(message, text=words) for message, words in zip(said, texts, strict=True)]


def _read(message: Message) -> str:
    """A message as a person reads it."""
    if message.role == "user":
        return message.text
    return replies.without_ticks(spoken(message.text))


def _answer(result: TurnResult, model: str, language: str, stored: str, unseen: str) -> _Answer:
    reply = replies.without_ticks(result.reply)
    notice = ""
    if result.error is not None:
        notice = _failure(language, result.error, model)
    elif result.stopped:
        notice = text(language, "turn.stopped") if reply else ""
    elif result.exhausted:
        notice = text(language, "turn.exhausted")
    elif not reply and not stored and not result.silent:
        notice = text(language, "turn.empty")
    elif result.stop == "max_tokens":
        notice = text(language, "turn.cut")
    notice = "\n\n".join(part for part in (notice, unseen) if part)
    letter = "\n\n".join(part for part in (reply, stored, notice) if part)
    return _Answer(letter, stored, notice)


def _failure(language: str, error: ModelError, model: str) -> str:
    """What is told of a failure, with when to try again if the service said so."""
    if error.wait < TOLD_WAIT or f"{error.key}_until" not in catalog(language):
        return text(language, error.key, model=model)
    unit, seconds = next(each for each in _UNITS if error.wait >= each[1] * 2)
    wait = text(language, f"wait.{unit}", count=math.ceil(error.wait / seconds))
    return text(language, f"{error.key}_until", wait=wait)
