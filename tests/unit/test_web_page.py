"""The page's own files: every word is in the catalog, and nothing comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import adapters.web
from adapters.web import protocol
from adapters.web.pages import STEPS
from bot.channel import Activity
from bot.commands.menu import menu

STATIC = Path(adapters.web.__file__).parent / "static"
FILES = {path.name: path.read_text("utf-8") for path in STATIC.iterdir()}
BUILT = ("state.", "error.", "activity.", "step.")  # keys put together at run time


def test_every_word_the_page_asks_for_is_in_the_catalog() -> None:
    known = set(protocol._catalogs()["en"])
    asked = set(re.findall(r'data-t(?:-\w+)?="([^"]+)"', FILES["index.html"]))
    for name, text in FILES.items():
        if name.endswith(".js"):
            asked |= set(re.findall(r'\bt\("([^"]+)"', text))
    assert asked <= known


def test_every_word_in_the_catalog_is_used() -> None:
    page = "".join(text for name, text in FILES.items() if name != "strings.json")
    unused = {
        key
        for key in protocol._catalogs()["en"]
        if not key.startswith(BUILT) and f'"{key}"' not in page
    }
    assert unused == set()


def test_every_step_has_a_sentence_however_it_ended() -> None:
    states = get_args(get_type_hints(Activity)["state"])
    wanted = {f"step.{kind}.{state}" for kind in STEPS for state in states}
    assert wanted == {key for key in protocol._catalogs()["en"] if key.startswith("step.")}


def test_every_error_the_server_names_has_a_sentence() -> None:
    code = "".join(path.read_text("utf-8") for path in STATIC.parent.glob("*.py"))
    named = set(re.findall(r'(?:BadFrame|protocol\.error)\("(\w+)"', code))
    assert named
    assert {f"error.{key}" for key in named} <= set(protocol._catalogs()["en"])


def test_the_page_says_the_same_before_its_words_are_loaded() -> None:
    english = protocol._catalogs()["en"]
    for key, text in re.findall(r'data-t="([^"]+)">([^<]+)<', FILES["index.html"]):
        assert text == english[key]
    for key, text in re.findall(
        r'data-t-(?:label|placeholder)="([^"]+)"[^>]*?(?:aria-label|placeholder)="([^"]+)"',
        FILES["index.html"],
    ):
        assert text == english[key]


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    html = FILES["index.html"]
    assert "<style" not in html
    assert not re.search(r"\sstyle=|\son\w+=", html)
    assert re.findall(r"<script(?![^>]*\ssrc=)", html) == []
    for name, text in FILES.items():
        urls = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert urls == set(), name


def test_server_and_page_agree_on_version_and_size() -> None:
    assert f"const VERSION = {protocol.VERSION};" in FILES["connection.js"]
    assert protocol.MAX_TEXT == 64 * 1024
    assert "const LONGEST = 64 * 1024;" in FILES["main.js"]


def test_in_the_menu_of_commands_every_description_begins_in_the_same_column() -> None:
    column = re.search(r"minmax\((\d+)rem, auto\) 1fr", FILES["app.css"])
    assert column is not None
    for locale in ("en", "zh"):
        for command in menu(locale):
            shown = f"/{command.name} {command.usage}".strip()
            widths = (1 if letter.isascii() else 2 for letter in shown)
            assert sum(widths) * 0.9 * 0.602 <= int(column[1]), shown  # 0.9 rem, monospaced
