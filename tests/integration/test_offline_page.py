"""What starter chips of the page answer with no key, in their order; what is offered there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from adapters.web import plugin as web
from adapters.web.channel import Web
from bot import i18n
from bot.app import App, Parts
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.page_people import browser
from tests.fakes.web_pages import Page
from tests.support import Engine, FakeClock, make_config

TODAY = "memory/2026-11-21.md"
STRINGS: Mapping[str, Mapping[str, str]] = json.loads(
    resources.files("adapters.web").joinpath("static/strings.json").read_text("utf-8")
)
NOTED = {
    "MEMORY.md": "# Memory\n\n- Ada's sister is called Ines\n",
    "memory/2026-11-19.md": "# 2026-11-19\n\n- 09:10 我对花生过敏 <!-- owner -->\n"
    "- 09:12 buy a car <!-- untrusted -->\n",
}


def says(language: str, key: str, **values: Any) -> str:
    return i18n.text(language, key, **values)


class Chatting:
    """The chat page of the owner's browser, in one language."""

    def __init__(self, page: Page, language: str) -> None:
        self.page, self.language = page, language
        self.ids = map("m{}".format, count())

    async def ask(self, text: str) -> Mapping[str, Any]:
        """Send a text as the page does; what the bot answers, in Markdown."""
        await self.page.say(type="send", id=next(self.ids), text=text, locale=self.language)
        return await self.page.until("message", role="bot")


@asynccontextmanager
async def chatting(folder: Path, language: str) -> AsyncIterator[Chatting]:
    config, plugins = make_config(folder, web, dashboard={"port": 0})
    memory, clock = InMemoryChannel(), FakeClock()
    parts = Parts(clock=clock, channels={"memory": memory, "web": Web()})
    async with App(config, plugins, parts) as app:
        engine = Engine(app, memory, ScriptedModel(), clock, folder)
        async with browser(engine) as owner, owner.client.ws_connect("/chat/ws") as socket:
            page = Page(socket)
            await page.say(type="hello", version=1, locale=language, format="text")
            await page.until("history")
            yield Chatting(page, language)


def write(folder: Path, notes: Mapping[str, str]) -> None:
    for name, text in notes.items():
        path = folder / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


@pytest.mark.parametrize(
    ("language", "tea"), [("en", "I like my tea without sugar."), ("zh", "我喝茶不加糖。")]
)
@pytest.mark.parametrize("notes", [{}, NOTED], ids=["fresh", "noted"])
async def test_each_starter_chip_gets_a_sensible_answer_in_its_order(
    tmp_path: Path, language: str, tea: str, notes: Mapping[str, str]
):
    write(tmp_path, notes)
    chips = [STRINGS[language][f"starter.{number}"] for number in range(1, 5)]
    expected: Sequence[Sequence[str]] = (
        [says(language, f"offline.{key}") for key in ("intro", "can", "key")],
        [
            says(language, "offline.stored", text=tea),
            says(language, "memory.stored", places=f"{TODAY}:3"),
        ],
        [
            says(language, "offline.known"),
            says(language, "offline.noted", where=f"{TODAY}:3", text=f"12:00 {tea}"),
            *(
                ["MEMORY.md:3", "called Ines", "memory/2026-11-19.md:3", "我对花生过敏"]
                * bool(notes)
            ),
        ],
        ["/memory", "/new"],
    )
    async with chatting(tmp_path, language) as chat:
        for chip, parts in zip(chips, expected, strict=True):
            answer = (await chat.ask(chip))["text"]
            assert [part for part in parts if part not in answer] == [], answer
            assert "buy a car" not in answer


@pytest.mark.parametrize(
    ("language", "asked"),
    [
        *(("en", each) for each in ("What do you know about me?", "who am I", "show me my notes")),
        *(("zh", each) for each in ("你知道我什么", "你记得我的哪些事？", "关于我你知道什么？")),
    ],
)
async def test_who_asks_before_anything_is_noted_is_told_how_to_have_it_kept(
    tmp_path: Path, language: str, asked: str
):
    async with chatting(tmp_path, language) as chat:
        assert (await chat.ask(asked))["text"] == says(language, "offline.known_nothing")


@pytest.mark.parametrize(
    ("language", "said", "sentence"),
    [
        ("en", "Hello! My sister Ines lives in Bergen.", "My sister Ines lives in Bergen."),
        ("zh", "你好！我女儿叫小雨。", "我女儿叫小雨。"),
    ],
)
async def test_what_has_a_name_is_offered_once_and_kept_by_its_button(
    tmp_path: Path, language: str, said: str, sentence: str
):
    offer = says(language, "offline.offer", text=sentence)
    stored = says(language, "memory.stored", places=f"{TODAY}:3")
    async with chatting(tmp_path, language) as chat:
        answer = await chat.ask(said)
        assert offer in answer["text"]
        (button,) = answer["buttons"]
        assert button["label"] == says(language, "button.remember")
        assert offer not in (await chat.ask(said))["text"]  # it was said before
        pressed = await chat.ask(button["command"])
        assert stored in pressed["text"]
        again = await chat.ask(button["command"])
        assert again["text"] == says(language, "offline.stored_already", path=TODAY, line=3)
        await chat.ask("/new")
        answer = await chat.ask(said)
        assert offer not in answer["text"]
        assert not answer.get("buttons")
    note = (tmp_path / "workspace" / TODAY).read_text("utf-8")
    assert note.count(sentence) == 1
    assert f"{sentence} <!-- owner" in note


@pytest.mark.parametrize(("language", "yes"), [("en", "Remember that"), ("zh", "记住这个")])
async def test_where_no_button_is_the_words_it_names_keep_it(
    tmp_path: Path, language: str, yes: str
):
    async with chatting(tmp_path, language) as chat:
        assert yes.lower() in (await chat.ask("My flight is on 3 May."))["text"].lower()
        answer = await chat.ask(yes)
        assert says(language, "memory.stored", places=f"{TODAY}:3") in answer["text"]
        assert says(language, "offline.stored", text="My flight is on 3 May.") in answer["text"]
