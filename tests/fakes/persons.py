"""Two people who talk to the bot alone and in a room, and what they must leave behind: nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apsw

from bot.channel import Inbound
from bot.identity.view import folder_name
from bot.sessions.erasing import ASKED
from bot.storage import backup, changes
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite_sql import SqliteTransaction
from tests.support import NOON, Engine, running

OPEN_ROOMS = {"memory": {"group_policy": "open", "groups": {"*": {"allow_from": ["*"]}}}}
ADA, BO = "zqada", "zqbo"  # what only one of them ever said
WORDS = {"ada": ADA, "bo": BO}


async def live(folder: Path) -> None:
    """Make a folder in which both talked, with all that a program keeps there over time."""
    async with running(folder, channels=OPEN_ROOMS) as engine:
        await talk(engine)
    database = folder / DATABASE_NAME
    connection = apsw.Connection(str(database))
    SqliteTransaction(connection).execute(
        "INSERT INTO meta VALUES (?, '{}', 1)", (f"{ASKED}{space_of('ada')}",)
    )
    connection.close()
    backup.make(database, 7, NOON)
    backup.make(database, 7, NOON + 86_400_000)
    backup.keep(database, 12)
    for log in changes.paths(database):
        shutil.copy(log, log.with_name(f"{log.name}.kept-1"))
    for path in [*(folder / "sessions").rglob("*.jsonl")]:
        shutil.copy(path, path.with_name(f"{path.name}.kept-1"))


async def talk(engine: Engine) -> None:
    """Both say, plan and note something alone; in a room each is answered, Bo also about Ada."""
    for sender, word in WORDS.items():
        await engine.ask(f"my word is {word} alone", sender=sender)
        await engine.ask_each(f"/remind in 3 hours {word} the plants", "/new", sender=sender)
        await engine.ask(f"and {word} again", sender=sender)
        space = engine.folder / "workspace" / space_of(sender)
        (space / "memory").mkdir(parents=True, exist_ok=True)
        (space / "MEMORY.md").write_text(f"- likes {word}\n")
        (space / "memory" / "旅行.md").write_text(f"- {word} by train\n")
    for sender, word in WORDS.items():
        await ask_in_room(engine, f"my own words here are {word}", sender)
    await ask_in_room(engine, f"did Ada say my own words here are {ADA} or not", "bo")
    await ask_in_room(engine, f"nothing but {BO} here", "bo")


async def ask_in_room(engine: Engine, text: str, sender: str) -> None:
    before = len(engine.sent_to("den"))
    await engine.channel.push(in_room(engine, text, sender))
    await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) > before)


def in_room(engine: Engine, text: str, sender: str) -> Inbound:
    said = engine.message(text, sender=sender)
    name = sender.title()
    return replace(said, chat="den", chat_type="group", sender_name=name, mentions_bot=True)


def space_of(sender: str) -> str:
    return f"people/{folder_name(f'memory:{sender}')}"


def holding(folder: Path, *words: str) -> list[str]:
    """Every file below a folder that holds one of some words, byte for byte, and every table."""
    wanted = [word.encode() for word in words]
    found = [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (has(path.read_bytes(), wanted) or has(str(path).encode(), wanted))
    ]
    return [*found, *(name for name in _tables(folder / "confidant.db", words))]


def has(data: bytes, wanted: list[bytes]) -> bool:
    folded = data.lower()
    return any(each.lower() in folded for each in wanted)


def _tables(database: Path, words: tuple[str, ...]) -> Iterator[str]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tx = SqliteTransaction(connection)
        for (name,) in tx.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            if not str(name).startswith("entries_text"):  # its words are asked for
                for row in tx.execute(f"SELECT * FROM {name}"):
                    if any(word.lower() in str(row).lower() for word in words):
                        yield f"table {name}"
        for word in words:
            if tx.execute("SELECT 1 FROM entries_text WHERE entries_text MATCH ?", (f'"{word}"',)):
                yield f"words of {word}"
    finally:
        connection.close()
