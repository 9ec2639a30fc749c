"""The reply of a finished turn, and the one transaction that stores it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import orjson

from bot import money
from bot.agent import turn
from bot.agent.session_cache import name_of
from bot.agent.session_cache import save as save_prefixes
from bot.agent.tools import DecidedCall, provenance, shown_call
from bot.agent.turn import TurnResult, call_of, spoken
from bot.channel import Attachment, Button, Inbound
from bot.channel.kit.text import closed
from bot.context.history import HistoryMessage, new_entry, size_of
from bot.core import Core
from bot.delivery.outbox import Extra, words_of
from bot.errors import ModelError
from bot.gateway.lanes import TurnWithdrawn
from bot.gateway.media import NOTHING_HEARD, Understood
from bot.gateway.reminders import say, say_now
from bot.gateway.requests import PreparedRequest
from bot.i18n import catalog, text
from bot.identity import Conversation
from bot.identity.routing import OWNER
from bot.memory import note_store
from bot.messages import Canned, Message, Text, ToolUse, without_thoughts
from bot.money import LimitReached, LimitStatus, Prices
from bot.sessions import approvals, artifacts, browsing, forgetting, inbox, store
from bot.sessions.approvals import VALID_MS
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.sessions.reminders import Reminder
from bot.sessions.store import Session
from bot.sessions.uploads import refs_of
from bot.speech.api import speakable
from bot.storage import Transaction, fulltext
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep import notices
from bot.upkeep.active_session import Fill
from bot.upkeep.notices import footer, report_of
from bot.upkeep.upkeep import Upkeep

# What a person has to allow first: asking them, and beginning what they allowed.

MINUTE_MS = 60_000


class Approvals:
    """Begins calls that must not be made twice, whatever happens to the program then.

    They are what was allowed, and what no one has to allow and is not `repeatable`.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def begin(self, rows: Sequence[QueuedMessage]) -> tuple[DecidedCall, ...]:
        """The calls that these messages decide about, marked as begun before any of them is run.

        Those that an earlier turn of these messages began are behind them.

        Raises:
            StorageError: that could not be noted, or another node answers these messages now.
            TurnWithdrawn: some of the messages were forgotten, and nothing was decided yet.
        """
        answers = [row for row in rows if row.inbound.answers]
        asked, now = {row.id for row in rows} - {0}, self._core.clock()  # a task is no message

        def work(tx: Transaction) -> list[DecidedCall]:
            found = [_decided(tx, row, now) for row in answers]
            return [each for each in found if each is not None]

        def look(tx: Transaction) -> tuple[list[DecidedCall], set[int]]:
            return _begun(tx, rows), asked - inbox.still_waiting(tx, [*asked])

        decided = await self._core.database.write(work) if answers else []
        begun, withdrawn = await self._core.database.read(look)
        if withdrawn and not decided:
            raise TurnWithdrawn
        return (*decided, *begun)

    async def start(self, row: QueuedMessage, use: ToolUse) -> None:
        """Note that a call of a message's turn begins.

        Raises:
            StorageError: that could not be noted.
        """
        call = orjson.dumps({"name": use.name, "input": dict(use.input)}).decode()
        now = self._core.clock()
        await self._core.database.write(lambda tx: approvals.start(tx, row.id, call, now))


def _begun(tx: Transaction, rows: Sequence[QueuedMessage]) -> list[DecidedCall]:
    """The calls that an earlier turn of these messages began, and of which nothing is known."""
    return [
        DecidedCall(
            ToolUse(f"begun_{row.id}_{number}", call["name"], call["input"]),
            "begun",
            (row.conversation.rights,),
        )
        for row in rows
        for number, call in enumerate(map(orjson.loads, approvals.started(tx, row.id)))
    ]


def _decided(tx: Transaction, row: QueuedMessage, now: int) -> DecidedCall | None:
    found = approvals.begin(tx, row.inbound.answers, now)
    if found is None or found[0].session_id != row.session_id:
        return None
    question, verdict = found
    use = call_of(tx, question)
    if use is None:  # forgotten meanwhile
        return None
    return DecidedCall(
        replace(use, id=f"approved_{question.id}"), verdict, (row.conversation.rights,)
    )


def put_approval(
    unit: UnitOfWork, inbound: Inbound, use: ToolUse, *, session_id: str, entry: str, language: str
) -> None:
    """Ask whoever wrote a message whether a call may be made; part of the turn's transaction."""
    asker = (inbound.channel, inbound.account, inbound.sender)
    question = approvals.ask(
        unit.tx, asker, unit.now, session_id=session_id, entry=entry, call=use.id
    )
    words = text(
        language,
        "approval.question",
        tool=use.name,
        arguments=shown_call(use.input),
        id=question.id,
        minutes=VALID_MS // MINUTE_MS,
    )
    buttons = tuple(
        Button(text(language, f"approval.{command}"), f"/{command} {question.id}")
        for command in ("allow", "deny")
    )
    unit.say(
        inbound.address,
        words,
        "notice",
        language=language,
        noted_in=session_id,
        asker=inbound.asker,
        reply_to=inbound.to_answer,
        extra=Extra(buttons=buttons),
    )


T = TypeVar("T")

TOLD_WAIT = 2.0  # seconds; a shorter time is over when it is read
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply of a finished turn.

    `stored` confirms, as a part of the reply, what is in memory now; `notice` is noted beside the
    model's own words. `aloud` are the words to say in a voice message after it. `failed` are the
    ids of the messages that were not answered, if asking the same again may help. `stand_in` is the
    model that stands in for the conversation's own from now on, empty for none; None: as before.
    `stopped` says that the notice tells so. `files` go out with it.
    """

    letter: str
    stored: str = ""
    notice: str = ""
    aloud: str = ""
    failed: tuple[str, ...] = ()
    stand_in: str | None = None
    stopped: bool = False
    files: tuple[Attachment, ...] = ()


Deliver = Callable[[UnitOfWork, tuple[Message, ...]], None]
"""Says what a turn came to, in its transaction, given its messages with whose words they are."""


class TurnRecorder:
    """Stores turns with what they say, and begins what is due for their conversation then."""

    def __init__(self, core: Core, committer: Committer, upkeep: Upkeep, prices: Prices) -> None:
        self._committer = committer
        self._upkeep = upkeep
        self._core = core
        self._prices = prices

    def counting(self, prepared: PreparedRequest) -> AbstractAsyncContextManager[None]:
        """Count what a turn uses, also if it fails or is cancelled within this."""
        return self._committer.counting(self._core.clock, prepared.spent)

    async def commit(
        self,
        rows: Sequence[QueuedMessage],
        prepared: PreparedRequest,
        result: TurnResult,
        answer: Answer,
        shown_as: str,
        *,
        deliver: Deliver | None = None,
        topics: Sequence[Reminder] = (),
    ) -> None:
        """Store a turn and what it says; `shown_as` is the id its reply was shown under.

        Reminders that waited for its `topics` are said beside it.

        Of a turn that nobody waits for, `deliver` sees to what is said, and where. When it is not
        stored, such as by a node whose lane another one has, what it used is counted all the same.

        Raises:
            TurnWithdrawn: some of its messages were forgotten, or whoever wrote them is not served
                any more; nothing of it is stored.
        """
        now = self._core.clock()
        cached, limits, inbound = prepared.active.cached, prepared.active.limits, rows[-1].inbound
        kept = without_thoughts(result.messages, but_of_calls=True)
        spoken = provenance.spoken_by_bot(kept, prepared.request.context.memory)
        # What was reported counts only for what the next request will carry too.
        is_same = prepared.version == cached.history.version and not result.was_cut
        reported = result.context_tokens if is_same else 0
        used, usage = self._used(prepared, spoken, reported, by=result.model), result.usage
        counted = store.TurnCounts(
            input_tokens=usage.input_tokens + usage.cache_write_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
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
        notice, language = self._notice(prepared, used, spoken), prepared.request.language
        spent = prepared.spent()
        tells = prepared.balance.standings and not isinstance(
            result.error, LimitReached
        )  # it told its own
        near = prepared.balance.after(result.used, self._prices).near if tells else ()
        below = (
            footer(language, usage, used, limits, self._prices.bill(result.used))
            if cached.session.usage
            else ""
        )
        news += _replies(spoken[len(rows) :], answer, below)

        def work(unit: UnitOfWork) -> tuple[tuple[str, ...], Session, bool]:
            self._must_be_wanted(unit.tx, rows)
            is_whole = self._upkeep.sessions.cache.is_up_to_date(unit.tx, cached)
            ids = unit.append(cached.session.id, news, counted)
            unit.count(spent)
            said = _unforgotten(unit, prepared, ids, answer, is_awaited=deliver is None)
            if deliver is not None:
                deliver(unit, spoken)
            elif said.letter or said.files:
                extra = Extra(
                    _offered(spoken, ids, language),
                    said.files,
                    draft=shown_as,
                    failed=said.failed,
                    sources=len(browsing.quotes(news)),
                    stopped=said.stopped,
                    answers=tuple(row.inbound.message_id for row in rows),
                )
                _say(unit, inbound, said, below, extra, language=language, entry=ids[-1])
            if result.asked is not None:
                put_approval(
                    unit,
                    inbound,
                    result.asked,
                    session_id=cached.session.id,
                    # The last one with that call: ids may come again.
                    entry=ids[max(n for n, m in enumerate(spoken) if result.asked in m.blocks)],
                    language=language,
                )
            self._tell_others(unit, prepared, near, topics if said.letter else ())
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
                stand_in=cached.session.stand_in if answer.stand_in is None else answer.stand_in,
                sender=prepared.active.sender,
                locale=inbound.locale,
                parent=inbound.parent,
                server=inbound.server,
                last_turn_at=now,
            )
            # Else it may begin with what was forgotten meanwhile.
            if self._upkeep.sessions.cache.holds(cached):
                save_prefixes(unit.tx, cached, now)
            _done(unit.tx, rows, now, result)
            return ids, unit.sessions[cached.session.id], is_whole

        try:
            commit = await self._committer.commit(now, work, until_stored=True)
        except Exception:  # what is not stored, `work` itself has not counted
            await self._committer.count(now, spent)
            raise
        ids, cached.session, is_whole = commit.result
        cached.unsaved.clear()
        cached.called_at = now
        lines = [
            HistoryMessage(id_, now, message) for id_, message in zip(ids, spoken, strict=False)
        ]
        is_same = prepared.version == cached.history.version
        cached.history.extend(lines, reported if is_same else 0)
        self._upkeep.sessions.cache.settle(cached, is_whole=is_whole)
        # By the row as it is now: what was taken back meanwhile must not be done again.
        self._upkeep.begin_due(prepared.active, self._upkeep.due(prepared.active, used))

    async def must_be_served(
        self, rows: Sequence[QueuedMessage], prepared: PreparedRequest
    ) -> None:
        """Look before anything is written for a turn; what it used is counted in any case.

        Raises:
            TurnWithdrawn: whoever wrote these messages is not served any more.
        """
        if not self._serves(rows):
            await self._committer.count(self._core.clock(), prepared.spent())
            raise TurnWithdrawn

    def _must_be_wanted(self, tx: Transaction, rows: Sequence[QueuedMessage]) -> None:
        asked = {row.id for row in rows} - {0}  # a task is no message
        if asked - inbox.still_waiting(tx, [*asked]) or not self._serves(rows):
            raise TurnWithdrawn

    def _serves(self, rows: Sequence[QueuedMessage]) -> bool:
        resolver = self._upkeep.sessions.resolver
        return all(resolver.is_served(row.conversation) for row in rows)

    def _tell_others(
        self,
        unit: UnitOfWork,
        prepared: PreparedRequest,
        near: Sequence[LimitStatus],
        topics: Sequence[Reminder],
    ) -> None:
        """Tell whom limits concern, say what waited for a topic, write to other places."""
        if topics:
            say_now(unit, topics)
        for each in near:
            self._tell_limit(unit, prepared.active.conversation, each)
        context, resolver = prepared.request.context, self._upkeep.sessions.resolver
        for target, words in context.memory.elsewhere:
            forgotten = note_store.heard_forgetting(unit.tx, context.watch)
            is_served = target.origin is not None and resolver.of(target.origin).is_served
            if is_served and not fulltext.holds_any(words, forgotten):
                say(unit, target, words)

    def _tell_limit(self, unit: UnitOfWork, here: Conversation, limit: LimitStatus) -> None:
        """Tell whoever a limit concerns, alone, that most of it is used, once in its period."""
        whom = OWNER if limit.limit.whose == "all" else here.person
        if not money.is_first(unit.tx, whom, limit, unit.now):
            return
        zone = here.snapshot.zone_of(whom)
        if here.is_direct and here.person == whom:
            words = money.notice(here.language, limit, zone)
            unit.say(here.address, words, "notice", language=here.language)
        elif (chat := store.latest_direct(unit.tx, whom)) is not None:
            there = self._upkeep.sessions.resolver.of(chat.origin)
            words = money.notice(there.language, limit, zone)
            unit.say(there.address, words, "notice", language=there.language)

    def _notice(
        self, prepared: PreparedRequest, used: int, said: Sequence[Message]
    ) -> notices.Notice | None:
        """The notice of how full the conversation is, once for each level."""
        level = self._upkeep.due(prepared.active, used).notice
        if not level:
            return None
        channel = self._core.channels.get(prepared.active.conversation.address.channel)
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
        """The number of tokens the window holds after a turn.

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


def _done(tx: Transaction, rows: Sequence[QueuedMessage], now: int, result: TurnResult) -> None:
    failed = type(result.error).__name__ if result.error else ""
    inbox.done(tx, [row.id for row in rows], now, "stopped" if result.stopped else failed)
    for row in rows:
        approvals.forget_started(tx, row.id)


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
    """Buttons that keep or forget the words that the offline model offers to keep or forget."""
    values = [b.value for each in said for b in each.blocks if isinstance(b, Text)]
    canned = [each for each in values if isinstance(each, Canned)]
    kept = [("remember", f"keep {ids[x.offers]}") for x in canned if x.offers is not None]
    gone = [("forgetting", f"forget {x.forgets}") for x in canned if x.forgets]
    return tuple(Button(text(language, f"button.{k}"), f"/memory {c}") for k, c in (*kept, *gone))


def answer_of(
    result: TurnResult,
    prepared: PreparedRequest,
    heard: Understood = NOTHING_HEARD,
    unkept: str = "",
) -> Answer:
    """The reply for a turn's result, after what was understood of its voice messages.

    `unkept` is what there is to say of what was to be kept, and was not.
    """
    language, model = prepared.request.language, prepared.active.limits.name
    stored = turn.confirmation(language, prepared.request.context.memory.written)
    unseen = "\n".join(words for came in prepared.came if (words := came.told(language)))
    reply = turn.without_confirmations(result.reply)
    notice, is_failure = "", False
    if isinstance(result.error, LimitReached):
        notice = _refusal(prepared, result.error.limit)
    elif result.error is not None:
        notice, is_failure = _failure(prepared, result.error, model), True
    elif result.stopped:
        notice = text(language, "turn.stopped") if reply else ""
    elif result.exhausted:
        notice = text(language, "turn.exhausted")
    elif not reply and not stored and not result.silent and result.asked is None:
        notice = text(language, "turn.only_thought" if result.only_thought else "turn.empty")
        is_failure = True
    elif result.stop == "max_tokens":
        notice = text(language, "turn.cut")
    stand_in, stood_in = standing_in(result, prepared), ""
    if stand_in is not None:
        key = "turn.stand_in" if stand_in else "turn.back"
        stood_in = text(language, key, model=model, other=stand_in)
    lacks = (
        text(language, f"turn.left_out.{each}", model=result.model or model)
        for each in result.left_out
    )
    notice = "\n\n".join(part for part in (notice, unkept, unseen, *lacks, stood_in) if part)
    parts = [
        part for part in (closed(reply) if stored or notice else reply, stored, notice) if part
    ]
    letter = "\n\n".join((*heard.told, *parts)) if parts else ""
    is_whole = result.error is None and not result.stopped
    aloud = speakable(reply, language) if heard.answers_aloud and is_whole else ""
    failed = _asked(heard.rows) if is_failure else ()
    is_stopped = result.error is None and result.stopped and bool(reply)
    files = tuple(prepared.request.context.memory.files)
    return Answer(letter, stored, notice, aloud, failed, stand_in, is_stopped, files)


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


def display_text(message: Message) -> str:
    """A message as a person reads it."""
    if message.role == "user":
        return message.text
    return turn.without_confirmations(spoken(message.text))


def _unforgotten(
    unit: UnitOfWork,
    prepared: PreparedRequest,
    ids: Sequence[str],
    answer: Answer,
    *,
    is_awaited: bool,
) -> Answer:
    """Hide what was forgotten while a turn ran in its entries; what it may still say.

    Raises:
        TurnWithdrawn: its words were forgotten, and nobody waits for them.
    """
    session, context = prepared.active.cached.session, prepared.request.context
    forgotten = note_store.heard_forgetting(unit.tx, context.watch)
    for words in forgotten:
        if words:
            forgetting.forget_in(unit.tx, context.view, words, unit.now, ids)
            artifacts.drop(unit.tx, (session.key,), words)
        else:  # another node forgot something so long ago that nobody knows what it was
            forgetting.forget_all(unit.tx, ids, unit.now)
        unit.stale.add(session.id)
    files = [each for each in answer.files if not fulltext.holds_any(words_of(each), forgotten)]
    answer = replace(answer, files=tuple(files))
    if not answer.letter or not fulltext.holds_any(answer.letter, forgotten):
        return answer
    if not is_awaited:
        raise TurnWithdrawn
    return Answer(text(prepared.request.language, "memory.forget_withheld"))


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
        entries.append(replace(told, mark="stopped" if answer.stopped else ""))
    return entries


def _refusal(prepared: PreparedRequest, limit: LimitStatus) -> str:
    """Why there is no answer; what others use is told to the owner alone, and none in a room."""
    here = prepared.active.conversation
    knows = here.is_direct and (here.is_owner or limit.limit.whose == "person")
    zone = here.snapshot.zone_of(here.person)
    return money.refusal(prepared.request.language, limit, zone, tells_amounts=knows)


def _failure(prepared: PreparedRequest, error: ModelError, model: str) -> str:
    """The message for a failure, with when to try again if the service said so.

    What the service itself said is the owner's to read, where nobody else does.
    """
    language, here = prepared.request.language, prepared.active.conversation
    if error.wait < TOLD_WAIT or f"{error.key}_until" not in catalog(language):
        words = text(language, error.key, model=model)
    else:
        unit, seconds = next(each for each in _UNITS if error.wait >= each[1] * 2)
        wait = text(language, f"wait.{unit}", count=math.ceil(error.wait / seconds))
        words = text(language, f"{error.key}_until", wait=wait)
    if error.told and here.is_owner and here.is_direct:
        return f"{words}\n\n{text(language, 'error.model.told', words=error.told)}"
    return words
