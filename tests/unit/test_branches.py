"""Branches: what is in sight is one path of the tree, whatever is edited and gone back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import Address
from bot.delivery import outbox
from bot.identity import Place
from bot.identity.view import MemoryView
from bot.sessions import branches, browsing, compactions, entries, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import NewEntry
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.storage.sqlite_sql import SqliteTransaction
from tests.support import NOON, in_memory

PLACE = Place("key", "ada", "web", "page", "ada", "", "direct")
ADDRESS = Address("web", "page", "ada")
VIEW = MemoryView("people/ada", (), private=True)
STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "edit", "edit", "go", "sum"]), st.integers(0, 99)),
    max_size=20,
)


@dataclass
class Tree:
    """What a conversation has to be, as plain lists: turns, each with all its versions."""

    path: list[str] = field(default_factory=list[str])  # the messages in sight
    forks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    left: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # what came with each

    def edit(self, old: str, new: str) -> None:
        at = self.path.index(old)
        self.left[old], self.path[at:] = self.path[at:], [new]
        fork = self.forks.get(old) or [old]
        fork.append(new)
        self.forks |= dict.fromkeys(fork, fork)

    def go(self, to: str) -> bool:
        shown = next((each for each in self.forks[to] if each in self.path), None)
        if shown is None:
            return False  # another version leads there
        if shown == to:
            return True
        at = self.path.index(shown)
        self.left[shown], self.path[at:] = self.path[at:], self.left[to]
        return True


def begun(tx: Transaction, key: str) -> Session:
    return store.start(tx, replace(PLACE, key=key), NOON, by="first")[0]


def say(tx: Transaction, session_id: str, name: str) -> None:
    asked = NewEntry("message", "user", f"ask {name}", source=name)
    store.append(tx, session_id, [asked, NewEntry("message", "assistant", f"so {name}")], NOON)


def now(tx: Transaction, id_: str) -> Session:
    found = store.get(tx, id_)
    assert found is not None
    return found


def seen(tx: Transaction, id_: str) -> list[str]:
    return [each.text for each in store.messages(tx, id_, 1000)]


def check(tx: Transaction, id_: str, tree: Tree, summary: str | None) -> None:
    """The window, the page and the export show the path; the tree of the file leads along it."""
    wanted = [text for name in tree.path for text in (f"ask {name}", f"so {name}")]
    session = now(tx, id_)
    assert seen(tx, id_) == wanted
    said, gone = browsing.whole(tx, session)
    assert [each.text for each in said if each.kind == "message"] == wanted
    assert not gone
    assert session.last_entry == (said[-1].id if said else None)
    exported = [
        orjson.loads(line)["message"]["text"] for line in browsing.everything(tx, session, 0)[0]
    ]
    assert exported == [each.text for each in said]
    by_id = {each.id: each for each in map(entries.parse, store.lines(tx, id_)[1:])}
    path, at = list[str](), session.last_entry
    while at is not None:
        path.append(at)
        at = by_id[at].parent_id
    assert path[::-1] == [each.id for each in said]
    assert session.compaction == summary
    assert branches.versions_of(tx, id_) == {name: tuple(f) for name, f in tree.forks.items()}


def live(tx: Transaction, key: str, steps: Sequence[tuple[str, int]]) -> None:
    session, tree = begun(tx, key), Tree()
    summaries: dict[str, str] = {}  # made after a message was answered
    for number, (what, chance) in enumerate(steps):
        name = f"m{number}"
        summary = next((summaries[each] for each in reversed(tree.path) if each in summaries), None)
        if what == "say" or not tree.path:
            say(tx, session.id, name)
            tree.path.append(name)
        elif what == "edit":
            old = tree.path[chance % len(tree.path)]
            assert branches.begin(tx, now(tx, session.id), old, name)
            say(tx, session.id, name)
            tree.edit(old, name)
        elif what == "go" and tree.forks:
            to = sorted(tree.forks)[chance % len(tree.forks)]
            assert branches.switch(tx, now(tx, session.id), to) is tree.go(to)
        elif what == "sum":
            first = store.messages(tx, session.id, 1)[0].id
            made = Compaction(f"sum {number}", first, 9, 1, summary)
            (id_,) = store.append(tx, session.id, [compactions.entry_of(made)], NOON).ids
            compactions.apply(tx, session.id, id_, 5)
            summaries[tree.path[-1]] = id_
        summary = next((summaries[each] for each in reversed(tree.path) if each in summaries), None)
        check(tx, session.id, tree, summary)
    store_seen = {text for text in seen(tx, session.id) if text.startswith("ask")}
    for number in range(len(steps)):
        found = {
            hit.text
            for hit in browsing.find(tx, replace(VIEW, keys=(key,), people=()), f"m{number}", 9)
        }
        assert found <= {*seen(tx, session.id)}
        assert (f"ask m{number}" in found) is (f"ask m{number}" in store_seen)


@given(STEPS)
def test_what_is_in_sight_is_one_path_of_any_tree(steps):
    connection = in_memory()
    live(SqliteTransaction(connection), "key", steps)
    connection.close()


@pytest.fixture
async def database(each_database: Database) -> Database:
    """Of either engine."""
    return each_database


async def test_both_engines_show_the_same_path(database):
    steps = [(what, n) for n, what in enumerate(("say", "sum", "edit", "say", "go", "edit") * 4)]
    await database.write(lambda tx: live(tx, "key", steps))


async def test_what_is_written_about_another_branch_meanwhile_is_known_to_be_out_of_date(database):
    def work(tx: Transaction) -> None:
        id_ = begun(tx, "key").id
        seen_before: list[int] = []
        versions: list[int] = []
        for name in ("one", "two"):
            say(tx, id_, name)
        for act in (
            lambda: branches.begin(tx, now(tx, id_), "two", "new"),
            lambda: say(tx, id_, "new"),
            lambda: branches.switch(tx, now(tx, id_), "two"),
            lambda: branches.switch(tx, now(tx, id_), "new"),
        ):
            seen_before.append(store.hidden_count(tx, id_))
            versions.append(now(tx, id_).version)
            act()
        counts = [*seen_before, store.hidden_count(tx, id_)]
        assert counts[0] < counts[1] == counts[2] < counts[3] < counts[4]
        assert versions == sorted(set(versions))

    await database.write(work)


async def test_a_reply_of_another_branch_that_was_not_sent_yet_is_not_sent(database):
    def work(tx: Transaction) -> None:
        id_ = begun(tx, "key").id
        sent: list[int] = []
        for name in ("one", "two"):
            ids = store.append(
                tx,
                id_,
                [
                    NewEntry("message", "user", name, source=name),
                    NewEntry("message", "assistant", f"so {name}"),
                ],
                NOON,
            ).ids
            letter = outbox.add(tx, ADDRESS, f"so {name}", NOON, kind="reply", entry=ids[-1])
            sent.append(letter.id)
        assert branches.begin(tx, now(tx, id_), "two", "new")
        outbox.withdraw_of(tx, id_, NOON, where="unseen")
        assert [outbox.is_there(tx, letter) for letter in sent] == [True, False]

    await database.write(work)


async def test_only_a_message_in_sight_is_replaced(database):
    def work(tx: Transaction) -> None:
        id_ = begun(tx, "key").id
        say(tx, id_, "one")
        store.append(tx, id_, [NewEntry("command", "user", "/model x", source="cmd")], NOON)
        say(tx, id_, "two")
        before = store.lines(tx, id_), now(tx, id_)
        for wrong in ("", "cmd", "%", "o_e", "three", 'two"', f"{id_}.2"):
            assert not branches.begin(tx, now(tx, id_), wrong, "new"), wrong
            assert not branches.switch(tx, now(tx, id_), wrong), wrong
        assert (store.lines(tx, id_), now(tx, id_)) == before
        assert branches.begin(tx, now(tx, id_), "two", "new")
        assert not branches.begin(tx, now(tx, id_), "two", "newer")
        # Nothing was stored of the new one yet: there is a way back all the same.
        assert branches.switch(tx, now(tx, id_), "two")
        assert not branches.switch(tx, now(tx, id_), "new")
        assert seen(tx, id_)[-1] == "so two"

    await database.write(work)


async def test_a_summary_that_was_taken_back_stays_so_in_a_new_branch(database):
    def work(tx: Transaction) -> None:
        id_ = begun(tx, "key").id
        for name in ("one", "two"):
            say(tx, id_, name)
        made = Compaction("of one", store.messages(tx, id_, 1)[0].id, 9, 2)
        (entry,) = store.append(tx, id_, [compactions.entry_of(made)], NOON).ids
        compactions.apply(tx, id_, entry, 5)
        compactions.undo(tx, now(tx, id_))
        say(tx, id_, "three")
        assert branches.begin(tx, now(tx, id_), "three", "new")
        assert now(tx, id_).compaction is None

    await database.write(work)


async def test_what_was_not_saved_to_memory_is_looked_at_again_when_it_is_back(database):
    def work(tx: Transaction) -> None:
        id_ = begun(tx, "key").id
        for name in ("one", "two"):
            say(tx, id_, name)
        store.change(tx, id_, flushed_to=2, memory_flush_compaction_count=0)
        assert branches.begin(tx, now(tx, id_), "two", "new")
        assert not now(tx, id_).is_flushed
        assert now(tx, id_).flushed_to == 2
        say(tx, id_, "new")
        store.change(tx, id_, flushed_to=6)
        assert branches.switch(tx, now(tx, id_), "two")
        assert now(tx, id_).flushed_to == 2

    await database.write(work)
