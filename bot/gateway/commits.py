"""What a finished turn tells the person, and the one transaction that stores it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from bot.agent import turn
from bot.agent.models import Usage
from bot.agent.prefix import name_of
from bot.agent.prefix import save as save_prefixes
from bot.agent.tools import ToolContext, provenance
from bot.agent.transcript import new_entry
from bot.agent.turn import Meter, TurnResult, spoken
from bot.channel import Button, Channel, Inbound
from bot.channel.kit.text import closed
from bot.clock import Clock
from bot.context.history import Line, size_of
from bot.delivery.outbox import Extra
from bot.errors import LimitReached, ModelError
from bot.gateway import approvals
from bot.gateway.requests import PreparedRequest
from bot.gateway.voice import NOTHING_HEARD, Understood
from bot.i18n import catalog, text
from bot.identity import Conversation
from bot.identity.routing import OWNER
from bot.memory import forgettings
from bot.messages import Message, Text, ToolUse, without_thoughts
from bot.money import allowance
from bot.money import limits as limit_words
from bot.money.counts import Spent
from bot.money.limits import Standing
from bot.money.prices import Prices
from bot.sessions import artifacts, forgetting, inbox, store
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.sessions.store import Session
from bot.sessions.uploads import refs_of
from bot.speech.speakable import speakable
from bot.tool_results import Canned
from bot.unit_of_work import Commit, Committer, UnitOfWork
from bot.upkeep import notices
from bot.upkeep.active_session import Fill
from bot.upkeep.upkeep import Upkeep
from bot.upkeep.usage import footer, report_of

T = TypeVar("T")

TOLD_WAIT = 2.0  # seconds; a shorter time is over when it is read
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a finished turn tells the person.

    `stored` confirms, as a part of the reply, what is in memory now; `notice` is noted beside the
    model's own words. `aloud` are the words to say in a voice message after it. `failed` are the
    ids of the messages that were not answered, if asking the same again may help.
    """

    letter: str
    stored: str = ""
    notice: str = ""
    aloud: str = ""
    failed: tuple[str, ...] = ()


Deliver = Callable[[UnitOfWork, tuple[Message, ...]], None]
"""Says what a turn came to, in its transaction, given its messages with whose words they are."""


class TurnRecorder:
    """Stores turns with what they say, and begins what is due for their conversation then."""

    def __init__(
        self,
        committer: Committer,
        upkeep: Upkeep,
        channels: Mapping[str, Channel],
        clock: Clock,
        prices: Prices,
    ) -> None:
        self._committer = committer
        self._upkeep = upkeep
        self._channels = channels
        self._clock = clock
        self._prices = prices

    @asynccontextmanager
    async def counting(self, prepared: PreparedRequest) -> AsyncGenerator[Meter]:
        """For turns: what they use counts, also if they fail or are cancelled within this."""
        meter = Meter()
        active, purpose = prepared.active, prepared.request.purpose
        async with self._committer.counting(self._clock, lambda: active.spent(purpose, meter.used)):
            yield meter

    async def commit(
        self,
        rows: Sequence[QueuedMessage],
        prepared: PreparedRequest,
        result: TurnResult,
        answer: Answer,
        shown_as: str,
        *,
        deliver: Deliver | None = None,
    ) -> None:
        """Store a turn and what it says; `shown_as` is the id its reply was shown under.

        Of a turn that nobody waits for, `deliver` sees to what is said, and where. When it is not
        stored, such as by a node whose lane another one has, what it used is counted all the same.
        """
        now = self._clock()
        cached, limits, inbound = prepared.active.cached, prepared.active.limits, rows[-1].inbound
        kept = without_thoughts(result.messages, but_of_calls=True)
        spoken = provenance.spoken_by_bot(kept, prepared.request.context.memory)
        # What was reported counts only for what the next request will carry too.
        is_same = prepared.version == cached.history.version and not result.was_cut
        reported = result.context_tokens if is_same else 0
        used = self._used(prepared, spoken, reported, by=result.model)
        counted = store.Counted(
            input_tokens=result.usage.input_tokens + result.usage.cache_write_tokens,
            cached_tokens=result.usage.cache_read_tokens,
            output_tokens=result.usage.output_tokens,
            context_tokens=used,
            turns=1,
        )
        news = [
            replace(
                new_entry(
                    message,
                    text=row.inbound.shown,
                    source=row.inbound.message_id,
                    said_at=row.inbound.sent_at,
                ),
                files=refs_of(row.inbound),
            )
            for message, row in zip(spoken, rows, strict=False)
        ]
        stand_in = standing_in(result, prepared)
        level = self._upkeep.due(prepared.active, used).notice
        notice = self._notice(prepared, level, used, spoken) if level else None
        language = prepared.request.language
        spent = prepared.active.spent(prepared.request.purpose, result.used)
        bill = self._prices.bill(result.used)
        usd = None if bill.unpriced else bill.usd
        near = self._near(prepared, result.used)
        below = footer(language, result.usage, used, limits, usd) if cached.session.usage else ""
        news += _replies(spoken[len(rows) :], answer, below)

        def work(unit: UnitOfWork) -> tuple[tuple[str, ...], Session, bool]:
            is_whole = self._upkeep.sessions.cache.is_up_to_date(unit.tx, cached)
            ids = unit.append(cached.session.id, news, counted)
            unit.count(spent)
            _forget_again(unit, cached.session, prepared.request.context, ids)
            if deliver is not None:
                deliver(unit, spoken)
            elif answer.letter:
                extra = Extra(_offered(spoken, ids, language), draft=shown_as, failed=answer.failed)
                _say(unit, inbound, answer, below, extra, language=language, entry=ids[-1])
            if result.asked is not None:
                approvals.put(
                    unit,
                    inbound,
                    result.asked,
                    session_id=cached.session.id,
                    entry=ids[_place_of(result.asked, spoken)],
                    language=language,
                )
            for each in near:
                self._tell_limit(unit, prepared.active.conversation, each)
            if notice is not None:
                store.change(unit.tx, cached.session.id, told=notice.level)
                unit.say(
                    inbound.address,
                    notice.words,
                    "notice",
                    language=language,
                    noted_in=cached.session.id,
                    asker=inbound.asker,
                    extra=notice.extra,
                )
            unit.change(
                cached.session.id,
                stand_in=cached.session.stand_in if stand_in is None else stand_in,
                sender=prepared.active.sender,
                locale=inbound.locale,
                parent=inbound.parent,
                server=inbound.server,
                last_turn_at=now,
            )
            # Else it may begin with what was forgotten meanwhile.
            if self._upkeep.sessions.cache.holds(cached):
                save_prefixes(unit.tx, cached, now)
            inbox.done(unit.tx, [row.id for row in rows], now)
            return ids, unit.sessions[cached.session.id], is_whole

        commit = await self._stored(now, work, spent)
        ids, cached.session, is_whole = commit.result
        cached.unsaved.clear()
        cached.called_at = now
        lines = [Line(id_, now, message) for id_, message in zip(ids, spoken, strict=False)]
        is_same = prepared.version == cached.history.version
        cached.history.extend(lines, reported if is_same else 0)
        self._upkeep.sessions.cache.settle(cached, is_whole=is_whole)
        # By the row as it is now: what was taken back meanwhile must not be done again.
        self._upkeep.begin_due(prepared.active, self._upkeep.due(prepared.active, used))

    async def _stored(
        self, now: int, work: Callable[[UnitOfWork], T], spent: Sequence[Spent]
    ) -> Commit[T]:
        """Commit a turn; what is not stored, `work` itself has not counted."""
        try:
            return await self._committer.commit(now, work, until_stored=True)
        except Exception:
            await self._committer.count(now, spent)
            raise

    def _near(self, prepared: PreparedRequest, used: Mapping[str, Usage]) -> tuple[Standing, ...]:
        """The limits of which most is used after a turn; a refusal has told of its own."""
        if prepared.balance.refused is not None:
            return ()
        return prepared.balance.after(used, self._prices).near

    def _tell_limit(self, unit: UnitOfWork, here: Conversation, limit: Standing) -> None:
        """Tell whoever a limit concerns, alone, that most of it is used, once in its period."""
        whom = OWNER if limit.limit.whose == "all" else here.person
        if not allowance.is_first(unit.tx, whom, limit, unit.now):
            return
        zone = here.snapshot.zone_of(whom)
        if here.is_direct and here.person == whom:
            words = limit_words.notice(here.language, limit, zone)
            unit.say(here.address, words, "notice", language=here.language)
        elif (chat := store.latest_direct(unit.tx, whom)) is not None:
            there = self._upkeep.sessions.resolver.of(chat.origin)
            words = limit_words.notice(there.language, limit, zone)
            unit.say(there.address, words, "notice", language=there.language)

    def _notice(
        self, prepared: PreparedRequest, level: int, used: int, said: Sequence[Message]
    ) -> notices.Notice:
        """What is told about how full the conversation is, once for each level."""
        channel = self._channels.get(prepared.active.conversation.address.channel)
        view = name_of(prepared.request.context.view)
        return notices.notice(
            report_of(prepared.active, view, Fill(used, prepared.fill.fixed), said),
            prepared.request.language,
            level=level,
            buttons=channel is not None and channel.capabilities.buttons,
            remembers=bool(prepared.request.context.view.space),
        )

    def _used(
        self, prepared: PreparedRequest, spoken: Sequence[Message], reported: int, *, by: str
    ) -> int:
        """How many tokens the window holds after a turn.

        What the service reports is learned, if it was `by` the conversation's own model.
        """
        limits = prepared.active.limits
        weight = sum(size_of(message, limits.count) for message in spoken)
        if not reported:
            return prepared.active.fill().used + round(weight * limits.factor)
        estimated = prepared.fill.fixed + prepared.active.cached.history.estimated + weight
        if by in {"", limits.name}:
            self._upkeep.sessions.limits.learn(limits.name, estimated, reported)
        return reported


def _say(
    unit: UnitOfWork,
    inbound: Inbound,
    answer: Answer,
    below: str,
    extra: Extra,
    *,
    language: str,
    entry: str,
) -> None:
    """Answer a message, with `below` the text, and after it aloud if that is to be."""
    words = closed(answer.letter) + below if below else answer.letter
    said = [(words, entry, extra)]
    if answer.aloud:
        said.append(("", "", Extra(aloud=answer.aloud)))
    for words, tells, beside in said:
        unit.say(
            inbound.address,
            words,
            language=language,
            asker=inbound.asker,
            entry=tells,
            reply_to=inbound.to_answer,
            extra=beside,
        )


def _offered(said: Sequence[Message], ids: Sequence[str], language: str) -> tuple[Button, ...]:
    """What keeps a sentence of a turn's message that the offline model offers to keep."""
    values = (b.value for each in said for b in each.blocks if isinstance(b, Text))
    return tuple(
        Button(text(language, "button.remember"), f"/memory keep {ids[each.offers]}")
        for each in values
        if isinstance(each, Canned) and each.offers is not None
    )


def answer_of(
    result: TurnResult, prepared: PreparedRequest, heard: Understood = NOTHING_HEARD
) -> Answer:
    """What a turn's result tells, after what was understood of its voice messages."""
    language, model = prepared.request.language, prepared.active.limits.name
    stored = turn.confirmation(language, prepared.request.context.memory.written)
    unseen = "\n".join(words for came in prepared.came if (words := came.told(language)))
    reply = turn.without_confirmations(result.reply)
    notice, is_failure = "", False
    if isinstance(result.error, LimitReached) and prepared.balance.refused is not None:
        notice = _refusal(prepared, prepared.balance.refused)
    elif result.error is not None:
        notice = _failure(language, result.error, model)
        is_failure = not isinstance(result.error, LimitReached)
    elif result.stopped:
        notice = text(language, "turn.stopped") if reply else ""
    elif result.exhausted:
        notice = text(language, "turn.exhausted")
    elif not reply and not stored and not result.silent and result.asked is None:
        notice = text(language, "turn.only_thought" if result.only_thought else "turn.empty")
        is_failure = True
    elif result.stop == "max_tokens":
        notice = text(language, "turn.cut")
    stood_in = _stood_in(language, result, prepared)
    notice = "\n\n".join(part for part in (notice, unseen, stood_in) if part)
    parts = [
        part for part in (closed(reply) if stored or notice else reply, stored, notice) if part
    ]
    letter = "\n\n".join((*heard.told, *parts)) if parts else ""
    is_whole = result.error is None and not result.stopped
    aloud = speakable(reply, language) if heard.answers_aloud and is_whole else ""
    return Answer(letter, stored, notice, aloud, _asked(heard.rows) if is_failure else ())


def _asked(rows: Sequence[QueuedMessage]) -> tuple[str, ...]:
    """The messages of a turn that can be asked again; an answer about a tool cannot."""
    if any(row.inbound.answers for row in rows):
        return ()
    return tuple(row.inbound.message_id for row in rows)


def standing_in(result: TurnResult, prepared: PreparedRequest) -> str | None:
    """The model that stands in for the conversation's own now, empty for none; None: as before.

    It is told once when that changes, and a turn without a reply tells nothing.
    """
    if result.silent or not result.model or result.error is not None:
        return None
    now = "" if result.model == prepared.active.limits.name else result.model
    return None if now == prepared.active.cached.session.stand_in else now


def _stood_in(language: str, result: TurnResult, prepared: PreparedRequest) -> str:
    model, now = prepared.active.limits.name, standing_in(result, prepared)
    if now is None:
        return ""
    if now:
        return text(language, "turn.stand_in", model=model, other=now)
    return text(language, "turn.back", model=model)


def display_text(message: Message) -> str:
    """A message as a person reads it."""
    if message.role == "user":
        return message.text
    return turn.without_confirmations(spoken(message.text))


def _place_of(use: ToolUse, said: Sequence[Message]) -> int:
    """Which message asks for a tool: the last one with that call, as ids may come again."""
    return max(n for n, each in enumerate(said) if use in each.blocks)


def _forget_again(
    unit: UnitOfWork, session: Session, context: ToolContext, ids: Sequence[str]
) -> None:
    """Hide what was forgotten while a turn ran in what the turn says too."""
    for words in forgettings.heard(unit.tx, context.watch):
        if words:
            forgetting.forget_in(unit.tx, context.view, words, unit.now, ids)
            artifacts.drop(unit.tx, (session.key,), words)
        else:  # another node forgot something so long ago that nobody knows what it was
            forgetting.forget_all(unit.tx, ids, unit.now)
        unit.stale.add(session.id)


def _replies(said: Sequence[Message], answer: Answer, below: str) -> list[NewEntry]:
    """The entries of what the model said, the last of its words with what confirms them.

    A notice comes after them. What is shown `below` a letter stands under the last entry of it,
    which a notice would be.
    """
    texts = [  # of a turn that says nothing, nothing was said
        display_text(message) if answer.letter or message.role == "user" else "" for message in said
    ]
    spoken = [number for number, message in enumerate(said) if message.role == "assistant"]
    if answer.stored and spoken:
        last = spoken[-1]
        texts[last] = "\n\n".join(part for part in (closed(texts[last]), answer.stored) if part)
    entries = [new_entry(message, text=words) for message, words in zip(said, texts, strict=True)]
    if below and spoken and answer.letter and not answer.notice:
        last = spoken[-1]
        entries[last] = replace(entries[last], text=closed(texts[last]), below=below)
    if answer.notice:
        told = NewEntry("notice", "assistant", answer.notice, below=below, failed=answer.failed)
        entries.append(told)
    return entries


def _refusal(prepared: PreparedRequest, limit: Standing) -> str:
    """Why there is no answer; what others use is told to the owner alone, and none in a room."""
    here = prepared.active.conversation
    knows = here.is_direct and (here.is_owner or limit.limit.whose == "person")
    zone = here.snapshot.zone_of(here.person)
    return limit_words.refusal(prepared.request.language, limit, zone, tells_amounts=knows)


def _failure(language: str, error: ModelError, model: str) -> str:
    """What is told of a failure, with when to try again if the service said so."""
    if error.wait < TOLD_WAIT or f"{error.key}_until" not in catalog(language):
        return text(language, error.key, model=model)
    unit, seconds = next(each for each in _UNITS if error.wait >= each[1] * 2)
    wait = text(language, f"wait.{unit}", count=math.ceil(error.wait / seconds))
    return text(language, f"{error.key}_until", wait=wait)
