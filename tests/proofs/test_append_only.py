"""Whatever people do and whenever the program ends: nothing is lost, changed or answered twice.

A state machine drives a real engine: people write, give commands, the clock jumps, the program is
stopped or killed. A kill is the state of the disk at one moment, taken over by a new engine.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bot.agent.models import Request
from bot.channel import Piece
from bot.sessions import entries, store
from bot.sessions.entries import Entry
from bot.sessions.mirror import Mirror, all_transcripts
from bot.storage import Transaction, fulltext
from bot.storage.postgres_sql import PostgresTransaction, Signals
from bot.storage.sqlite_sql import SqliteTransaction
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes import postgres
from tests.proofs.rounds import lengths
from tests.support import Engine, FakeClock, beside, running

T = TypeVar("T")
PEOPLE = st.sampled_from(["ada", "bob", "eve"])
WAIT = 10.0  # seconds until a missing answer counts as lost
MOST_OPEN = 8  # messages without an answer; more would be answered together


def answer(request: Request) -> str:
    return f"{request.messages[-1].text} is answered"


class Conversations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.lives = 0
        self.crashes = 0
        self.number = 0
        self.delivered: list[Piece] = []  # by engines that are gone
        self.accepted: dict[str, str] = {}  # message id → what a transcript must hold
        self.owed: Counter[str] = Counter()  # replies each person must get
        self.written: dict[str, list[str]] = {}  # session → its lines when last looked at
        self.open = 0
        self.folder = Path(self.home.name) / "0"
        self.storage: dict[str, object] = {}
        self.prepare()
        self.start()

    def prepare(self) -> None:
        """Before the first start."""

    # --- the engine's life ---

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, WAIT))

    def start(self) -> None:
        self.model = ScriptedModel(script=answer)
        self.channel = InMemoryChannel()
        self.running: AbstractAsyncContextManager[Engine] = running(
            self.folder,
            model=self.model,
            clock=self.clock,
            channel=self.channel,
            storage=self.storage,
        )
        self.engine = self.run(self.running.__aenter__())

    def end(self) -> None:
        self.run(self.running.__aexit__(None, None, None))

    def replies(self) -> dict[str, list[str]]:
        """What each person was answered, without the repeats of what was in flight at a crash."""
        unique = {piece.id: piece for piece in (*self.delivered, *self.channel.sent)}
        found: dict[str, list[str]] = {person: [] for person in self.owed}
        for piece in unique.values():
            if piece.kind == "reply":
                found[piece.address.chat].append(piece.text)
        return found

    def look(self) -> tuple[dict[str, list[str]], dict[str, str], Counter[str]]:
        """From outside: the lines of every session, the pointers, and what waits in the inbox."""
        connection = apsw.Connection(str(self.folder / "confidant.db"))
        try:
            with connection:
                return _look(SqliteTransaction(connection))
        finally:
            connection.close()

    # --- what people do ---

    def say(self, person: str, text: str, *, answers: int = 1) -> str:
        inbound = self.run(self.engine.say(text, sender=person))
        self.accepted[inbound.message_id] = text
        self.owed[person] += answers
        self.open += answers
        return inbound.message_id

    def next_text(self) -> str:
        self.number += 1
        return f"m{self.number}"

    @precondition(lambda self: self.open < MOST_OPEN)
    @rule(person=PEOPLE, steps=st.integers(0, 40))
    def someone_writes(self, person: str, steps: int) -> None:
        self.say(person, self.next_text())
        self.run(_steps(steps))

    @precondition(lambda self: self.open < MOST_OPEN)
    @rule(
        person=PEOPLE,
        command=st.sampled_from(["/new", "/undo", "/model scripted-two", "/status", "/nonsense"]),
        steps=st.integers(0, 40),
    )
    def someone_gives_a_command_in_the_midst(self, person: str, command: str, steps: int) -> None:
        self.say(person, command)
        self.run(_steps(steps))

    @precondition(lambda self: self.open < MOST_OPEN)
    @rule(person=PEOPLE, steps=st.integers(0, 40))
    def someone_begins_anew_with_a_message(self, person: str, steps: int) -> None:
        self.say(person, f"/new {self.next_text()}", answers=2)
        self.run(_steps(steps))

    @rule(person=PEOPLE)
    def someone_begins_anew_and_it_is_pointed_at(self, person: str) -> None:
        self.everything_is_answered()
        before = self.pointer(person)
        is_untouched = before is not None and self.is_untouched(before)
        self.say(person, "/new")
        self.everything_is_answered()
        after = self.pointer(person)
        assert after is not None
        assert (after == before) == is_untouched
        assert is_untouched or before is None or self.previous(after) == before

    @rule(person=PEOPLE)
    def someone_goes_back_and_it_is_pointed_at(self, person: str) -> None:
        self.everything_is_answered()
        before = self.pointer(person)
        self.say(person, "/undo")
        self.everything_is_answered()
        if before is not None:
            assert self.pointer(person) == (self.previous(before) or before)

    @rule(person=PEOPLE)
    def someone_stops_a_reply(self, person: str) -> None:
        self.everything_is_answered()
        self.model.started.clear()
        self.model.gate = asyncio.Event()
        self.say(person, self.next_text())
        self.run(_event(self.model.started))
        self.say(person, "/stop")
        self.model.gate = None
        self.everything_is_answered()
        assert "Stopped." in self.replies()[person][-2:]

    @rule(hours=st.integers(-60, 90), person=PEOPLE)
    def the_clock_jumps_and_someone_writes(self, hours: int, person: str) -> None:
        self.everything_is_answered()
        before = self.pointer(person)
        self.clock.advance(hours=hours)
        self.say(person, self.next_text())
        self.everything_is_answered()
        after = self.pointer(person)
        assert after is not None
        assert before in (None, after, self.previous(after))

    # --- what happens to the program ---

    @rule()
    def it_is_stopped_and_started(self) -> None:
        self.end()
        self.delivered += self.channel.sent
        self.run(self.mirror_is_the_database())
        self.start()

    @rule(steps=st.integers(0, 25))
    def it_is_killed_and_started(self, steps: int) -> None:
        self.run(_steps(steps))
        self.crashes += 1
        self.lives += 1
        copy = Path(self.home.name) / str(self.lives)
        holder = apsw.Connection(str(self.folder / "confidant.db"))
        try:
            holder.set_busy_timeout(5_000)
            holder.execute("BEGIN IMMEDIATE")  # so that the copy is of one moment
            sent = list(self.channel.sent)
            _copy(self.folder, copy)
            holder.execute("ROLLBACK")
        finally:
            holder.close()
        self.end()  # the old one goes on to its own end; nobody looks at it any more
        self.delivered += sent
        self.folder = copy
        self.start()

    @rule()
    def everything_is_answered(self) -> None:
        self.run(self.channel.wait_until(lambda _: self.all_have_been_answered()))
        self.open = 0
        replies = self.replies()
        for person, count in self.owed.items():
            assert len(replies[person]) == count
        lines, _, waiting = self.look()
        assert not waiting
        said = _sources(lines)
        assert said == Counter(list(self.accepted))
        for id_, text in self.accepted.items():
            if text.startswith("m"):
                mine = [
                    reply for person in replies for reply in replies[person] if _is_for(reply, text)
                ]
                assert len(mine) == 1, f"{id_} was answered {len(mine)} times"

    def all_have_been_answered(self) -> bool:
        replies = self.replies()
        return all(len(replies[person]) >= count for person, count in self.owed.items())

    # --- what must always be true ---

    @invariant()
    def nothing_is_lost_and_nothing_changes(self) -> None:
        lines, pointers, waiting = self.look()
        for session, before in self.written.items():
            assert lines[session][: len(before)] == before
        self.written = lines
        for session, found in lines.items():
            _check_chain(session, [entries.parse(line) for line in found[1:]])
        said = _sources(lines)
        for id_ in self.accepted:
            assert said[id_] + waiting[id_] == 1
        assert set(pointers.values()) <= set(lines)
        repeated = len(self.delivered) + len(self.channel.sent)
        repeated -= len({piece.id for piece in (*self.delivered, *self.channel.sent)})
        assert repeated <= self.crashes * max(1, len(self.owed))

    def pointer(self, person: str) -> str | None:
        return self.look()[1].get(f"agent:main:memory:dm:{person}")

    def previous(self, session: str) -> str | None:
        return json.loads(self.look()[0][session][0])["previous"]

    def is_untouched(self, session: str) -> bool:
        """True when somebody began it by /new and has said nothing to the model in it."""
        kinds = {entries.parse(line).kind for line in self.look()[0][session][1:]}
        return self.previous(session) is not None and "message" not in kinds

    async def mirror_is_the_database(self) -> None:
        async with beside(self.folder) as database:
            mirror = Mirror(database, self.folder / "sessions")
            await mirror.start()
            await mirror.repair()
            await mirror.stop()
        wanted = {
            id_: "".join(f"{line}\n" for line in lines) for id_, lines in self.look()[0].items()
        }
        found = {
            path.stem: path.read_text("utf-8") for path in all_transcripts(self.folder / "sessions")
        }
        assert found == wanted

    def teardown(self) -> None:
        try:
            try:
                self.everything_is_answered()
            finally:
                self.end()
            self.run(self.mirror_is_the_database())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.home.cleanup()


class ConversationsOnPostgres(Conversations):
    """The same over PostgreSQL: of two nodes one is there at a time, and connections are cut.

    The clock is the server's there, so nobody can let it jump.
    """

    admin_url = template = ""
    the_clock_jumps_and_someone_writes = None

    def prepare(self) -> None:
        self.database = postgres.a_database(self.admin_url, self.template)
        self.url = self.database.__enter__()
        self.storage = {"url": self.url, "node_timeout": 2}

    def look(self) -> tuple[dict[str, list[str]], dict[str, str], Counter[str]]:
        with psycopg.connect(self.url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # of one moment
            return _look(PostgresTransaction(connection, Signals(), fulltext.Words()))

    @rule(steps=st.integers(0, 25))
    def it_is_killed_and_started(self, steps: int) -> None:
        """Every connection is cut, in the middle of whatever it is doing."""
        self.run(_steps(steps))
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        self.crashes += 1

    async def mirror_is_the_database(self) -> None:
        """There is none."""

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.database.__exit__(None, None, None)


def _look(tx: Transaction) -> tuple[dict[str, list[str]], dict[str, str], Counter[str]]:
    lines = {each.id: store.lines(tx, each.id) for each in store.all_sessions(tx)}
    waiting = tx.execute("SELECT message_id FROM inbox WHERE state IN ('waiting', 'command')")
    return lines, store.pointers(tx), Counter(str(row[0]) for row in waiting)


def _copy(source: Path, target: Path) -> None:
    """What is on the disk now; a file that is being replaced meanwhile is there before or after."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir():
            _copy(path, target / path.name)
        elif not path.name.endswith(("-shm", ".lock", ".tmp")):
            with suppress(FileNotFoundError):  # the index was just swapped for a new one
                shutil.copyfile(path, target / path.name)


async def _steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _event(event: asyncio.Event) -> None:
    await event.wait()


def _sources(lines: dict[str, list[str]]) -> Counter[str]:
    """The messages people sent, by the platform's id, in every transcript."""
    found: Counter[str] = Counter()
    for session in lines.values():
        for entry in map(entries.parse, session[1:]):
            if entry.role == "user" and entry.source:
                found[entry.source] += 1
    return found


def _is_for(reply: str, text: str) -> bool:
    return reply.split("\n", maxsplit=1)[0] in (f"{text} is answered", text)


def _check_chain(session: str, found: list[Entry]) -> None:
    parent = None
    for number, entry in enumerate(found, start=1):
        assert entry.id == entries.entry_id(session, number)
        assert entry.parent_id == parent
        parent = entry.id


@pytest.mark.slow
@lengths("lives", 1, 25, 6)
def test_nothing_is_lost_changed_or_answered_twice(monkeypatch, lives):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.01)
    run_state_machine_as_test(
        Conversations,
        settings=settings(max_examples=lives, stateful_step_count=30, deadline=None),
    )


@pytest.mark.slow
@lengths("lives", 1, 6, 2)
def test_nothing_is_lost_changed_or_answered_twice_on_postgres(
    monkeypatch, postgres_admin_url, postgres_template, lives
):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.01)
    monkeypatch.setattr(ConversationsOnPostgres, "admin_url", postgres_admin_url)
    monkeypatch.setattr(ConversationsOnPostgres, "template", postgres_template)
    run_state_machine_as_test(
        ConversationsOnPostgres,
        settings=settings(max_examples=lives, stateful_step_count=20, deadline=None),
    )
