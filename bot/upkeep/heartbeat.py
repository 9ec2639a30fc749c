"""`[heartbeat]`: looking in on whoever has a HEARTBEAT.md, with nobody having written.

Each such person has a task of the program's own, which `/reminders` lists, pauses and cancels like
any other; it is carried out with their rights and budget, and paused after three failures. One that
they cancelled comes back when they change the file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

import structlog

from bot.clock import moment
from bot.config import HeartbeatConfig
from bot.core import Core
from bot.errors import StorageError
from bot.i18n import text
from bot.identity import Conversation
from bot.identity.routing import agent_of
from bot.memory import layout
from bot.memory.notes import SpaceFiles
from bot.sessions import reminders, repeats, store
from bot.sessions.due_time import shown
from bot.sessions.recurrence import Rule, Series
from bot.sessions.reminders import ReplyTarget
from bot.sessions.repeats import Repeat
from bot.storage import Transaction
from bot.unicode import one_line
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.nights import Chat, chat_of, space_of

LOOK_SECONDS: Final = 600.0
FIRST_SECONDS: Final = 60.0
MOST_CHARACTERS: Final = 8_000  # of the file …
MOST_SHOWN: Final = 100  # … and of what the list of tasks shows of it

log = structlog.stdlib.get_logger(__name__)


def is_awake(config: HeartbeatConfig, now: int, zone: ZoneInfo) -> bool:
    """True in the hours in which somebody may be looked in on."""
    begin, end = config.awake
    hour = moment(now, zone).hour
    return begin <= hour < end if begin < end else not end <= hour < begin


class Heartbeats:
    """Keeps the tasks as the configuration and the files want them."""

    def __init__(self, core: Core, committer: Committer, files: SpaceFiles) -> None:
        self._files = files
        self._core = core
        self._committer = committer

    async def look(self) -> None:
        """See to everybody's; what fails for one is tried again with the next look."""
        if not self._core.is_leader:
            return
        minutes = self._core.resolver.policy.config.heartbeat.minutes
        kept = {*await self._core.database.read(repeats.looked_in_on)}
        for person in await self._core.database.read(store.people) if minutes else sorted(kept):
            try:
                await self._for(person, minutes, has_one=person in kept)
            except StorageError as error:
                log.warning("heartbeat.failed", error=type(error).__name__)

    async def _for(self, person: str, minutes: int, *, has_one: bool) -> None:
        chat, words = await self._wanted(person) if minutes else (None, "")
        now = self._core.clock()
        if chat is None or not words:
            if has_one:
                end = partial(repeats.look_in_no_more, person=person, now=now)
                await self._core.database.write(end)
            return
        rule = Rule("MINUTELY", minutes)
        await self._committer.commit(now, lambda unit: _keep(unit, chat, rule, words))

    async def _wanted(self, person: str) -> tuple[Chat | None, str]:
        """The chat that somebody is looked in on in, and what their file says; the main one first.

        An agent with memory of its own that they wrote to last may have a file as well.
        """
        chat, words = None, ""
        for space in (space_of(person), ""):
            find = partial(chat_of, resolver=self._core.resolver, person=person, space=space)
            chat = await self._core.database.read(find)
            words = await self.words(chat.conversation) if chat is not None else ""
            if words:
                break
        return chat, words

    async def words(self, conversation: Conversation) -> str:
        """The text of somebody's file; empty if there is none, or only headings."""
        return (await self._files.heartbeat(conversation.view))[:MOST_CHARACTERS]

    async def news(self, repeat: Repeat, conversation: Conversation) -> str:
        """The things due until the next time, and what the person wrote since the last one."""
        now = self._core.clock()
        return await self._core.database.read(
            partial(_news, repeat=repeat, here=conversation, now=now)
        )


def _keep(unit: UnitOfWork, chat: Chat, rule: Rule, words: str) -> None:
    """Let somebody have one task, at the times it is due."""
    tx, now, here = unit.tx, unit.now, chat.conversation
    name = f"{layout.HEARTBEAT_FILE}: {one_line(words, MOST_SHOWN)}"
    last = repeats.looking_in_on(tx, here.person)
    if last is not None and last.text == name and agent_of(last.target.key) == here.agent:
        is_kept = last.state in {"waiting", "paused"}
        if not is_kept or last.series.rule == rule:
            return  # they cancelled it and changed nothing since, or it goes on
    repeats.look_in_no_more(tx, here.person, now)
    begins = datetime.fromtimestamp(now / 1000, UTC).replace(tzinfo=None, microsecond=0)
    series = Series(rule, begins)
    target = ReplyTarget(here.key, here.person, here.address, here.language, here.origin)
    due_at = series.after(now, here.zone) or now
    made = Repeat(*(0, target, "program", name, series, str(here.zone), due_at, now, "task"))
    repeats.REPEATS.add(tx, made)


def _news(tx: Transaction, *, repeat: Repeat, here: Conversation, now: int) -> str:
    language, zone = here.language, here.zone
    last = next((run.at for run in repeats.runs(tx, repeat, 2)[1:]), repeat.created_at)
    until = now + repeat.series.rule.seconds * 1000
    coming = (each for each in reminders.of_key(tx, here.key) if each.due_at <= until)
    due = [
        text(
            language,
            "heartbeat.due",
            when=shown(language, moment(each.due_at, zone)),
            text=each.text,
        )
        for each in coming
    ]
    count = store.said_since(tx, here.person, last)
    return "\n".join([*due, text(language, "heartbeat.said", count=count)])
