"""Folders of documents (`[memory.folders]`): who finds what in them; they are never written."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import docx
import pytest

from bot.agent.models import Request
from bot.config import Settings
from bot.doctor import checks
from bot.errors import NotVisible
from bot.identity.view import MemoryView
from bot.memory import chunking, folders, note_store
from bot.memory.folders import Folder, front_matter
from bot.memory.index import note_files
from bot.memory.memory import Memory
from bot.memory.note_store import Seen
from bot.messages import Text, ToolResult
from bot.testing import ScriptedModel, calls
from tests.documents import docx_of, pdf_of
from tests.support import Engine, FakeClock, make_config, running, until, write_file

BERLIN = """---
title: Journey
aliases: [Spree week, "柏林之行"]
tags:
  - travel
date: 2026-05-03
---
# Plans
The pension is called [[Haus Linde|the linden house]].
"""
OWNER = MemoryView("main", ("k",), private=True, people=("main",), folders=("vault",))
OTHERS = MemoryView("people/eve", ("e",), private=True, people=("eve",))


async def read(name: str, data: bytes) -> tuple[str, str]:
    return (data.decode().removeprefix("%PDF "), "") if b"%PDF" in data else ("", "not readable")


@asynccontextmanager
async def opened(folder: Path, **sections: Any) -> AsyncIterator[Memory]:
    """A memory whose vault was brought up to date once."""
    vault = folder / "vault"
    vault.mkdir(exist_ok=True)
    named = sections.pop("folders", {"vault": {"path": vault}})
    config = make_config(folder / "data", memory={"folders": named, **sections})[0]
    memory = Memory.from_settings(Settings(config), FakeClock(), read=read)
    await memory.index.start()
    try:
        await memory.folders.sync()
        yield memory
    finally:
        await memory.close()


async def found(memory: Memory, words: str, view: MemoryView = OWNER) -> list[str]:
    hits = (await memory.index.search(words, view.partitions)).hits
    return [f"{hit.space.removeprefix('folders/')}/{hit.path}:{hit.start_line}" for hit in hits]


async def test_words_links_aliases_tags_and_every_kind_of_file_are_found_with_their_place(tmp_path):
    vault = tmp_path / "vault"
    write_file(vault / "trips/Berlin.md", BERLIN)
    write_file(vault / "plain.TXT", "first\n\nthe boiler is in the cellar\n")
    write_file(vault / "bill.pdf", "%PDF the invoice of the plumber")
    write_file(vault / "picture.png", "the boiler")
    write_file(vault / ".obsidian/hidden.md", "the boiler")
    async with opened(tmp_path) as memory:
        for words in ("linden house", "Haus Linde", "Spree week", "柏林之行", "travel", "journey"):
            assert await found(memory, words) == ["vault/trips/Berlin.md:1"], words
        assert await found(memory, "boiler") == ["vault/plain.TXT:1"]
        assert await found(memory, "invoice") == ["vault/bill.pdf:1"]
        assert await found(memory, "boiler", OTHERS) == []
        shown = await memory.files.read(OWNER, "vault/trips/Berlin.md", 8, 2)
        assert shown.text.startswith("# Plans\nThe pension")
        assert (shown.first, shown.last) == (8, 9)
        assert (await memory.files.read(OWNER, "vault/bill.pdf")).text.endswith("plumber")
        for view, path in (
            (OTHERS, "vault/plain.TXT"),
            (OWNER, "vault/picture.png"),
            (OWNER, "vault/../data/workspace/MEMORY.md"),
            (OWNER, "vault"),
            (OWNER, "other/plain.TXT"),
        ):
            with pytest.raises(NotVisible):
                await memory.files.read(view, path)
        with pytest.raises(NotVisible):
            await memory.notes.forget(OWNER, "vault/plain.TXT", "boiler")
        overview = await memory.overview(OWNER)
        assert overview.files == 0
        (state,) = overview.folders
        assert (state.name, state.files, state.left, state.fault) == ("vault", 3, 0, "")
        assert state.changed_at == pytest.approx(time.time() * 1000, abs=600_000)
        assert not (await memory.overview(OTHERS)).folders


async def test_only_what_changed_is_read_again_and_what_is_gone_is_found_no_more(
    tmp_path, monkeypatch
):
    vault = tmp_path / "vault"
    for name in ("one", "two", "three"):
        write_file(vault / f"{name}.md", f"the {name} boiler")
    async with opened(tmp_path) as memory:
        reads: list[str] = []
        content = folders.Folders._content

        async def counted(self, root, seen):
            reads.append(seen.path)
            return await content(self, root, seen)

        monkeypatch.setattr(folders.Folders, "_content", counted)
        await memory.folders.sync()
        assert reads == []
        write_file(vault / "two.md", "the second stove")
        (vault / "three.md").unlink()
        await memory.folders.sync()
        assert reads == ["two.md"]
        assert await found(memory, "stove") == ["vault/two.md:1"]
        assert await found(memory, "boiler") == ["vault/one.md:1"]


async def test_a_folder_that_vanishes_or_is_emptied_is_named_and_still_found(tmp_path):
    vault = tmp_path / "vault"
    write_file(vault / "one.md", "the boiler")
    async with opened(tmp_path) as memory:
        vault.rename(tmp_path / "away")
        await memory.folders.sync()
        assert memory.folders.state("vault").fault == "No such file or directory"
        assert await found(memory, "boiler") == ["vault/one.md:1"]
        assert (await memory.files.read(OWNER, "vault/one.md")).text == "the boiler"
        vault.mkdir()
        await memory.folders.sync()
        assert memory.folders.state("vault").fault == folders.EMPTY
        assert await found(memory, "boiler") == ["vault/one.md:1"]
        vault.rmdir()
        (tmp_path / "away").rename(vault)
        await memory.folders.sync()
        assert memory.folders.state("vault") == Folder(
            "vault", 1, memory.folders.state("vault").changed_at
        )


async def test_what_cannot_be_read_is_named_once_and_the_rest_is_found(tmp_path, monkeypatch):
    vault = tmp_path / "vault"
    write_file(vault / "good.md", "the boiler")
    write_file(vault / "good.sync-conflict-20260101.md", "the wrong boiler")
    write_file(vault / "torn.md", "<<<<<<< ours\nthe boiler\n=======\nthe stove\n>>>>>>> theirs\n")
    write_file(vault / "binary.txt", b"boiler\0\1\2")
    write_file(vault / "broken.docx", "boiler")
    write_file(vault / "latin.txt", "the boiler of Jos\u00e9".encode("latin-1"))
    write_file(vault / "utf16.txt", "the heater".encode("utf-16"))
    os.truncate(write_file(vault / "huge.md", ""), note_files.MAX_BYTES + 1)
    os.truncate(write_file(vault / "huge.pdf", ""), folders.MAX_DOCUMENT + 1)
    (vault / "loop").symlink_to(vault, target_is_directory=True)
    (vault / "link.md").symlink_to(vault / "good.md")
    os.mkfifo(vault / "pipe.md")
    async with opened(tmp_path) as memory:
        assert {*await found(memory, "boiler")} == {
            f"vault/{name}:1" for name in ("good.md", "torn.md", "latin.txt")
        }
        assert await found(memory, "heater") == ["vault/utf16.txt:1"]
        told = {line.partition(": ")[0] for line in (await memory.overview(OWNER)).degraded}
        assert told - {"not started"} == {
            f"vault/{name}"
            for name in (
                *("good.sync-conflict-20260101.md", "torn.md", "binary.txt", "broken.docx"),
                *("latin.txt", "utf16.txt", "huge.md", "huge.pdf"),
            )
        }
        assert not (await memory.overview(OTHERS)).folders
        await memory.folders.sync()
        status = await memory.index.status()
        assert len(status.problems) == 8

        data_of = note_files.data_of
        write_file(vault / "changing.md", "the new boiler")

        def changing(notes, seen, *most: int):
            if seen.path == "changing.md":
                raise note_files.Changed
            return data_of(notes, seen, *most)

        with monkeypatch.context() as patch:
            patch.setattr(note_files, "data_of", changing)
            await memory.folders.sync()
        assert "vault/changing.md:1" not in await found(memory, "boiler")
        await memory.folders.sync()
        assert "vault/changing.md:1" in await found(memory, "boiler")


async def test_notes_in_a_subfolder_that_cannot_be_opened_for_now_stay_found(tmp_path, monkeypatch):
    write_file(tmp_path / "vault/one.md", "the stove")
    write_file(tmp_path / "vault/cellar/heating.md", "the boiler")
    async with opened(tmp_path) as memory:
        open_folder = note_store.open_folder

        def refuses(parent, name):
            if name == "cellar":
                raise OSError(errno.EIO, "input/output error")
            return open_folder(parent, name)

        with monkeypatch.context() as patch:
            patch.setattr(note_store, "open_folder", refuses)
            await memory.folders.sync()
            assert "cannot be read: 1" in memory.folders.state("vault").fault
            assert await found(memory, "boiler") == ["vault/cellar/heating.md:1"]
        (tmp_path / "vault/cellar/heating.md").unlink()
        await memory.folders.sync()
        assert memory.folders.state("vault").fault == ""
        assert await found(memory, "boiler") == []


@pytest.mark.parametrize("inside", [True, False])
async def test_a_folder_with_the_bots_own_storage_is_not_read(tmp_path, inside):
    path = tmp_path / "data" / "workspace" if inside else tmp_path
    write_file(tmp_path / "data/workspace/people/ada/MEMORY.md", "the boiler of Ada")
    async with opened(tmp_path, folders={"vault": {"path": path}}) as memory:
        assert memory.folders.state("vault").fault == folders.OUR_OWN
        assert await found(memory, "boiler") == []


async def test_a_folder_that_is_no_longer_configured_is_found_no_more(tmp_path):
    write_file(tmp_path / "vault/one.md", "the boiler")
    async with opened(tmp_path) as memory:
        assert await found(memory, "boiler")
    async with opened(tmp_path, folders={}) as memory:
        assert await found(memory, "boiler") == []


async def test_forgetting_and_a_rebuild_leave_a_folder_as_it_is(tmp_path):
    write_file(tmp_path / "vault/one.md", "the boiler")
    async with opened(tmp_path) as memory:
        write_file(tmp_path / "data/workspace/MEMORY.md", "- the boiler leaks\n")
        await memory.index.sync("test")
        cleared = await memory.forget(OWNER, "boiler")
        assert cleared.files == (("MEMORY.md", 1),)
        assert await found(memory, "boiler") == ["vault/one.md:1"]
    (tmp_path / "data/index/index.db").unlink()
    async with opened(tmp_path) as memory:
        assert await found(memory, "boiler") == ["vault/one.md:1"]
    assert (tmp_path / "vault/one.md").read_text() == "the boiler"


async def test_a_folder_that_is_away_is_found_though_the_embedder_and_the_cut_change(
    tmp_path, monkeypatch
):
    vault = tmp_path / "vault"
    write_file(vault / "one.md", "the boiler")
    async with opened(tmp_path):
        pass
    write_file(vault / "two.md", "the stove")
    vault.rename(tmp_path / "away")
    monkeypatch.setattr(chunking, "VERSION", chunking.VERSION + 1)
    async with opened(tmp_path, embedder={"provider": "none"}) as memory:
        await memory.index.sync("test")
        assert await found(memory, "boiler") == ["vault/one.md:1"]
        vault.rmdir()
        (tmp_path / "away").rename(vault)
        reads: list[str] = []
        whole = folders.Folders._item

        async def item(self: folders.Folders, name: str, root: Any, seen: Seen) -> Any:
            reads.append(seen.path)
            return await whole(self, name, root, seen)

        monkeypatch.setattr(folders.Folders, "_item", item)
        await memory.folders.sync()
        assert reads == ["one.md", "two.md"]  # the first is cut again
        assert await found(memory, "boiler stove") == ["vault/one.md:1", "vault/two.md:1"]


@pytest.mark.parametrize(
    ("text", "names", "day"),
    [
        (BERLIN, ("Journey", "Spree week", "柏林之行", "travel"), "2026-05-03"),
        ("---\nalias: one\nother: two\n- three\n---\n", ("one",), None),
        ("---\ntags: [#a, b]\r\n...\n", ("a", "b"), None),
        ("---\ntitle: never closed\n", (), None),
        ("text\n---\ntitle: no\n---\n", (), None),
        ("---\ntitle: " + "x" * 9_000 + "\n---\n", ("x" * 60,), None),
        ("---\ntags:\n" + "".join(f"- t{n}\n" for n in range(90)) + "---\n", None, None),
        ("", (), None),
    ],
)
def test_front_matter_is_what_a_note_is_called(text, names, day):
    found_names, found_day = front_matter(text)
    assert names is None or found_names == names
    assert len(found_names) <= folders.MAX_NAMES
    assert (f"{found_day}" if found_day else None) == day


# --- in the whole program -------------------------------------------------------------------------


def tools(request: Request) -> Any:
    """Do what is said ("tool NAME ARGUMENT"), or answer with all that was shown."""
    for block in request.messages[-1].blocks:
        if isinstance(block, ToolResult):
            return block.text
    shown = "\n".join(each.text for each in request.messages[-1].blocks if isinstance(each, Text))
    said = request.messages[-1].text.rpartition("\n")[2]
    if not said.startswith("tool "):
        return shown
    _, tool, words = said.split(" ", 2)
    return calls(tool, **{"path" if tool == "memory_get" else "query": words})


@asynccontextmanager
async def with_vault(folder: Path, *who: str, **sections: Any) -> AsyncIterator[Engine]:
    write_file(folder / "vault/boiler.md", "# House\n\n- The boiler is in the cellar\n")
    letter = docx.Document()
    letter.add_paragraph("The plumber is called Anselm")
    write_file(folder / "vault/letter.docx", docx_of(letter))
    write_file(folder / "vault/bill.pdf", pdf_of("Invoice of the chimney sweep"))
    memory = {"folders": {"vault": {"path": folder / "vault", **({"who": who} if who else {})}}}
    sections.setdefault("session", {"owner": ("memory:boss",)})
    model = ScriptedModel(tools)
    async with running(folder / "data", model=model, memory=memory, **sections) as engine:
        state = engine.app.agent.memory.folders.state
        await until(lambda: state("vault").files == 3 and not state("vault").left)
        yield engine


async def test_the_model_finds_and_reads_pdf_word_and_markdown(tmp_path):
    async with with_vault(tmp_path) as engine:
        for words, place, text in (
            ("boiler", "vault/boiler.md:1-3", "in the cellar"),
            ("plumber", "vault/letter.docx:1", "Anselm"),
            ("chimney", "vault/bill.pdf:1", "sweep"),
        ):
            answer = await engine.ask(f"tool memory_search {words}", sender="boss")
            assert place in answer
            assert text in answer
            path = place.partition(":")[0]
            assert text in await engine.ask(f"tool memory_get {path}", sender="boss")
        assert "vault/boiler.md:1" in await engine.ask("/memory search boiler", sender="boss")
        assert "cellar" in await engine.ask("/memory show vault/boiler.md", sender="boss")
        assert "Folder vault: 3 files" in await engine.ask("/memory status", sender="boss")
        asked = await engine.ask("/memory forget boiler", sender="boss")
        assert "1 folder of documents I only read" in asked


async def test_it_is_recalled_unasked_with_its_place(tmp_path):
    async with with_vault(tmp_path) as engine:
        assert "vault/boiler.md:1" in await engine.ask("Where is the boiler?", sender="boss")
        await engine.ask("/new", sender="boss")
        await engine.ask("Good morning", sender="boss")
        said = await engine.ask("Where is the boiler?", sender="boss")
        assert "The boiler is in the cellar" in said


@pytest.mark.parametrize(
    ("who", "shown"),
    [
        ((), {("boss", ""): True, ("ada", ""): False, ("boss", "den"): False}),
        (("owner",), {("ada", ""): False}),
        (
            ("memory:ada",),
            {("ada", ""): True, ("boss", ""): True, ("eve", ""): False, ("ada", "den"): False},
        ),
        (("memory:den",), {("ada", "den"): True, ("den", ""): True}),
        (("memory:Ada",), {("ada", ""): False}),
        (("everyone",), {("eve", ""): True, ("eve", "den"): True}),
    ],
)
async def test_a_folder_is_for_whom_it_is_configured(tmp_path, who, shown):
    scope = {"default": "allow"}
    channels = {"memory": {"group_policy": "open", "require_mention": False}}
    tries = (
        *("Where is the boiler?", "tool memory_search boiler"),
        *("tool memory_get vault/boiler.md", "/memory show vault/boiler.md"),
    )
    async with with_vault(tmp_path, *who, scope=scope, channels=channels) as engine:
        for (sender, room), sees in shown.items():
            where = {"chat": room, "chat_type": "group"} if room else {}
            at = room or sender
            for said in tries:
                await engine.say(said, sender=sender, **where)
                await engine.channel.wait_until(lambda _, at=at: bool(engine.sent_to(at)))
                assert ("in the cellar" in engine.sent_to(at)[-1]) is sees, (sender, room, said)
                engine.channel.sent.clear()


async def test_an_edit_is_found_at_once_and_nothing_is_written_there(tmp_path):
    memory = {"watch": True}
    write_file(tmp_path / "vault/one.md", "the stove")
    named = {"vault": {"path": tmp_path / "vault"}}
    config = make_config(tmp_path / "data", memory={**memory, "folders": named})[0]
    opened_memory = Memory.from_settings(Settings(config), FakeClock(), read=read)
    await opened_memory.open()
    try:
        state = opened_memory.folders.state
        await until(lambda: state("vault").files == 1)
        await asyncio.sleep(0)
        write_file(tmp_path / "vault/two.md", "the heater")
        await until(lambda: state("vault").files == 2 and not state("vault").left)
        assert await found(opened_memory, "heater") == ["vault/two.md:1"]
    finally:
        await opened_memory.close()
    assert {path.name for path in (tmp_path / "vault").iterdir()} == {"one.md", "two.md"}


async def test_the_doctor_tells_of_each_folder(tmp_path):
    write_file(tmp_path / "vault/one.md", "the stove")
    named = {"vault": {"path": tmp_path / "vault"}, "drive": {"path": tmp_path / "gone"}}
    config = make_config(tmp_path / "data", memory={"folders": named})[0]
    found_of = {name: checks._folder(folders.look(config, name, {}).state) for name in named}
    assert found_of["vault"].level == "ok"
    assert found_of["vault"].values["count"] == 1
    assert found_of["drive"].level == "warning"
    assert found_of["drive"].values["why"] == "No such file or directory"
