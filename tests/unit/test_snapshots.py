"""What sessions begin with: each text stored once, for as long as anything begins with it."""

from __future__ import annotations

from bot.identity import Place
from bot.identity.view import MemoryView
from bot.sessions import compactions, forgetting, store
from bot.sessions.compactions import Snapshot
from bot.storage import Database, Transaction

NOW = 1_795_262_400_000
SAME = Snapshot("be kind " * 500, "[]", (("SOUL.md", 3),), (("MEMORY.md", 4),))


def place(name: str) -> Place:
    return Place(f"agent:main:web:dm:{name}", name, "web", "default", name, "", "direct")


def begin(tx: Transaction, name: str) -> str:
    return store.start(tx, place(name), NOW, by="first")[0].id


def texts(tx: Transaction) -> list[str]:
    return [row[0] for row in tx.execute("SELECT text FROM prefix_texts ORDER BY text")]


async def test_a_text_is_stored_once_and_goes_with_the_last_that_begins_with_it(
    each_database: Database,
):
    database = each_database
    ids = await database.write(lambda tx: [begin(tx, name) for name in ("ada", "bob", "cy")])
    other = Snapshot("be brief", "[]")

    def keep(tx: Transaction) -> None:
        for id_ in ids[:2]:
            compactions.keep(tx, id_, "one", SAME, 1)
        compactions.keep(tx, ids[2], "one", other, 1)
        compactions.keep(tx, ids[2], "one", SAME, 2)  # a later one changes nothing

    await database.write(keep)
    assert await database.read(texts) == ["[]", other.system, SAME.system]
    assert await database.read(lambda tx: compactions.load(tx, ids[1])) == {"one": SAME}
    assert await database.read(lambda tx: compactions.load(tx, ids[2])) == {"one": other}
    await database.write(lambda tx: compactions.remove(tx, [(ids[0], "one"), (ids[2], "one")]))
    assert await database.read(texts) == ["[]", SAME.system]
    assert await database.read(lambda tx: compactions.load(tx, ids[0])) == {}
    await database.write(lambda tx: compactions.drop_old(tx, [(ids[1], "one")]))
    assert await database.read(texts) == []


async def test_a_forgotten_word_goes_from_a_text_that_several_begin_with(each_database: Database):
    database = each_database
    ids = await database.write(lambda tx: [begin(tx, "ada"), begin(tx, "ada"), begin(tx, "bob")])
    known = Snapshot("Ada is allergic to  Peanuts.", "[]")

    def keep(tx: Transaction) -> None:
        compactions.keep(tx, ids[0], "one", known, 1)
        compactions.keep(tx, ids[1], "one", known, 1)
        compactions.keep(tx, ids[2], "one", SAME, 1)

    await database.write(keep)
    held = await database.read(
        lambda tx: compactions.among(tx, compactions.names_of(tx, [place("ada").key]), "to peanuts")
    )
    assert held == sorted((id_, "one") for id_ in ids[:2])
    view = MemoryView("people/ada", (place("ada").key,), private=True, people=("ada",))
    gone = await forgetting.forget(database, view, "to peanuts", NOW)
    assert sorted(gone.prompts) == sorted(ids[:2])
    assert await database.read(texts) == ["[]", SAME.system]
    left = "SELECT session_id FROM prefixes"
    assert await database.read(lambda tx: tx.execute(left)) == [(ids[2],)]
