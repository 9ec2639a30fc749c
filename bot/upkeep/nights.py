"""The nightly tidy-up of everybody's notes, and the report in the morning.

It is night where the person is, and they are told in the direct chat they wrote in last, once, in
the transaction that notes it. Rooms and what is shared with everyone have nobody to tell, so
nothing is changed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final

import structlog

from bot.channel import Button
from bot.clock import moment
from bot.core import Core
from bot.delivery.outbox import Extra
from bot.errors import ModelError, StorageError, ToolError
from bot.i18n import text
from bot.identity import MANY, Conversation, ConversationResolver
from bot.identity.routing import OWNER
from bot.identity.view import MAIN_SPACE, folder_name, main_space
from bot.memory import layout, note_store
from bot.memory.memory import Memory, Spot
from bot.memory.night import record
from bot.memory.night.edits import Edit
from bot.memory.night.keeper import Keeper, TakenBack
from bot.memory.night.proposals import SYSTEM
from bot.memory.night.record import Night
from bot.memory.note_store import Watch
from bot.sessions import store
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.unicode import one_line
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.active_session import ActiveSessions
from bot.upkeep.flush import why_of

TRIES: Final = 3  # looks in which a model may fail until the rules do without it

log = structlog.get_logger(__name__)


LOOK_SECONDS: Final = 1_200.0
FIRST_SECONDS: Final = 300.0  # a start has better things to do
HOURS: Final = 3  # after the hour, in which a night begins; later only when one was missed
MOST_CHATS: Final = 20  # of a person that are looked at, the latest
MOST_SHOWN: Final = 10  # entries that are quoted
MOST_QUOTE: Final = 120  # characters of each
UNDO: Final = "/undo night"


@dataclass(frozen=True, slots=True)
class Chat:
    """The chat somebody is told in, and what they may see there."""

    session: Session
    conversation: Conversation


def chat_of(
    tx: Transaction, resolver: ConversationResolver, person: str, space: str = ""
) -> Chat | None:
    """The direct chat that somebody wrote in last, and may write in; with a `space`, one of it."""
    for session in store.directs(tx, person, MOST_CHATS):
        found = resolver.of(session.origin)
        is_theirs = found.key == session.key and session.sender not in {"", MANY}
        is_own = main_space(found.view.space) == space_of(found.person)
        is_own = is_own and found.view.space == (space or found.view.space)
        if is_theirs and found.is_admitted and found.view.private and is_own:
            return Chat(session, found)
    return None


class Nights:
    """Looks every now and then for whom it is night, and for whom it is morning."""

    def __init__(
        self, core: Core, committer: Committer, memory: Memory, sessions: ActiveSessions
    ) -> None:
        self._sessions = sessions
        self._memory = memory
        self._core = core
        self._committer = committer
        self.keeper = Keeper(memory, core.database, core.clock)

    async def look(self) -> None:
        """Do what is due for everybody; what fails for one is tried again with the next look."""
        if self._core.resolver.policy.config.memory.night.mode == "off" or not self._core.is_leader:
            return
        status = await self._memory.index.status()
        spaces: dict[str, list[str]] = {}
        for space in sorted(status.spaces):
            spaces.setdefault(main_space(space), []).append(space)
        people = await self._core.database.read(store.people)
        for person in people:
            for space in spaces.get(space_of(person), ()):
                await self._for(person, space)

    async def _for(self, person: str, space: str) -> None:
        try:
            chat = await self._core.database.read(
                lambda tx: chat_of(tx, self._core.resolver, person, space)
            )
            if chat is not None:
                await self._keep(chat)
                await self._tell(chat)
        except (StorageError, ToolError) as error:
            log.warning("memory.night_failed", error=type(error).__name__)

    async def _keep(self, chat: Chat) -> None:
        view, config = chat.conversation.view, chat.conversation.config.memory.night
        now = moment(self._core.clock(), chat.conversation.zone)
        known = await self.keeper.of(view.space)
        due = _due(known, now, config.hour)
        if due == "look":
            asked = (chat.session, chat.conversation, "night", SYSTEM)
            may_ask = config.mode == "model" and known.tries < TRIES
            asks = partial(self._sessions.ask_chores, *asked) if may_ask else None
            try:
                await self.keeper.look(view, now.date(), config.most, asks)
            except ModelError as error:
                log.warning("memory.night_model_failed", error=type(error).__name__)
                await self.keeper.failed(view, why_of(error))
        elif due == "skip":
            await self.keeper.skip(view, now.date())

    async def _tell(self, chat: Chat) -> bool:
        async with self._memory.notes.watching(chat.conversation.view) as watch:
            return await self._tell_watching(chat, watch)

    async def _tell_watching(self, chat: Chat, watch: Watch) -> bool:
        """Tell it, unless something is forgotten meanwhile: then with the next look."""
        conversation = chat.conversation
        view, now = conversation.view, self._core.clock()
        night = (await self.keeper.of(view.space)).night
        if night is None or not night.is_untold or not self._is_morning(chat, night):
            return False
        language = conversation.language
        made = await self.keeper.spots(view, night.edits)
        asked = await self.keeper.spots(view, night.questions, asked=True)
        undo = Extra((Button(text(language, "button.undo"), UNDO),))
        told = [(receipt(night, made, language), undo)] if made else []
        told += [(question(asked, language), _answers(night, language))] if asked else []

        def work(unit: UnitOfWork) -> bool:
            if note_store.heard_forgetting(unit.tx, watch):
                return False
            if not record.tell(unit.tx, view.space, night.day, now):
                return False
            current = store.current(unit.tx, chat.session.key)
            session = current if current is not None else chat.session
            for words, extra in told:
                unit.say(
                    conversation.address,
                    words,
                    "notice",
                    language=language,
                    noted_in=session.id,
                    extra=extra,
                )
            unit.refresh(session.id)
            return True

        return (await self._committer.commit(now, work)).result

    def _is_morning(self, chat: Chat, night: Night) -> bool:
        """True when whose notes they are may be told: never before they slept over it."""
        config = chat.conversation.config.memory.night
        now = moment(self._core.clock(), chat.conversation.zone)
        is_begun = night.day < now.date() or config.hour < config.tell_hour
        return is_begun and now.hour >= config.tell_hour


def receipt(night: Night, spots: Sequence[tuple[Edit, Spot]], language: str) -> str:
    """The receipt of a night. Pure."""
    lines = [text(language, "night.head", day=f"{night.day:%Y-%m-%d}"), *quoted(spots, language)]
    return "\n".join([*lines, "", text(language, "night.foot")])


def question(asked: Sequence[tuple[Edit, Spot]], language: str) -> str:
    """The question after a night: what may be struck out. Pure."""
    lines = [text(language, "night.ask.head"), *quoted(asked, language, asks=True)]
    return "\n".join([*lines, "", text(language, "night.ask.foot")])


def _answers(night: Night, language: str) -> Extra:
    said = (("strike", "yes"), ("keep", "no"))
    return Extra(
        tuple(
            Button(text(language, f"button.{key}"), f"/memory night {word} {night.day:%Y-%m-%d}")
            for key, word in said
        )
    )


def quoted(spots: Sequence[tuple[Edit, Spot]], language: str, *, asks: bool = False) -> list[str]:
    """The changes, or questions, in words: a line for each entry."""
    lines: list[str] = []
    for edit, spot in spots[:MOST_SHOWN]:
        key = f"night.ask.{edit.kind}" if asks else f"night.did.{edit.kind}"
        where, words = f"{spot.path}:{spot.line}", short(spot.text)
        told = text(language, key, where=where, words=words, other=other_of(edit))
        lines.append(f"- {told}")
    if len(spots) > MOST_SHOWN:
        lines.append(text(language, "night.more", count=len(spots) - MOST_SHOWN))
    return lines


def other_of(edit: Edit) -> str:
    """The note that says the same, says otherwise, or where an entry was moved; empty for none."""
    return edit.to or next((need.path for need in edit.needs), "")


def undone(language: str, done: TakenBack | None) -> str:
    """The answer once a night was undone. Pure."""
    if done is None:
        return text(language, "night.nothing")
    said = text(language, "night.undone", count=done.back)
    return f"{said} {text(language, 'night.left', count=done.left)}" if done.left else said


def _due(known: record.Record, now: datetime, hour: int) -> str:
    """The step due at a time: "look", "skip" a day that was begun too late, or nothing."""
    today = now.date()
    if known.night is not None and known.night.state in {"begun", "undoing"}:
        return "look"
    if known.looked == today.isoformat() or now.hour < hour:
        return ""
    is_missed = bool(known.looked) and date.fromisoformat(known.looked) < today - timedelta(days=1)
    if now.hour < hour + HOURS or is_missed:
        return "look"
    return "" if known.looked else "skip"


def space_of(person: str) -> str:
    """The space of somebody's notes in the main memory."""
    return MAIN_SPACE if person == OWNER else f"{layout.PEOPLE}/{folder_name(person)}"


def short(words: str) -> str:
    """An entry as it is quoted."""
    return one_line(words, MOST_QUOTE)
