"""`web_search` against local servers that answer as the services' documents say."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.tools.web.search import (
    APIS,
    MAX_SNIPPET,
    MAX_TITLE,
    Ddgs,
    SearchFailed,
    SearchService,
    WebHit,
    WebSearch,
    quotes_of,
)
from bot.errors import ToolError
from bot.identity.access import ToolRights
from bot.identity.view import MemoryView
from bot.messages import NOT_INSTRUCTIONS, Quoted, ToolUse
from tests.fakes import search_services
from tests.fakes.search_services import KEY, SearchServices, body, never, redirect, status
from tests.support import until

CONTEXT = ToolContext(
    MemoryView("", (), private=False),
    "s1",
    datetime(2026, 7, 1, tzinfo=UTC),
    rights=(ToolRights(is_private=True),),
)
KINDS = ("searxng", "brave", "tavily")
SECRET = "what ada looks for"


@pytest.fixture
async def services() -> AsyncIterator[SearchServices]:
    async with search_services.running() as found:
        yield found


def service(kind: str, services: SearchServices, key: str = KEY, **limits: Any) -> SearchService:
    return APIS[kind](f"{services.base_url}/{kind}/", key, **limits)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_found_is_quoted_with_title_and_address(kind: str, services: SearchServices):
    found = await WebSearch(service(kind, services)).run({"query": "languages"}, CONTEXT)
    assert isinstance(found, Quoted)
    assert NOT_INSTRUCTIONS in str(found)
    assert "[Rust]\n> https://rust.example/book\n> A language for systems & more." in str(found)
    assert "[Python]\n> https://python.example/docs\n> Another language." in str(found)


async def test_each_service_is_asked_as_it_wants_it(services: SearchServices):
    for kind in KINDS:
        await service(kind, services).search("größe & sinn", 3)
    assert services.asked == [
        {"q": "größe & sinn", "format": "json"},
        {"q": "größe & sinn", "count": "3", "text_decorations": "false", "key": KEY},
        {"query": "größe & sinn", "max_results": 3, "search_depth": "basic",
         "key": f"Bearer {KEY}"},
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_no_more_is_told_than_was_asked_for(kind: str, services: SearchServices):
    found = await WebSearch(service(kind, services)).run({"query": "a", "count": 1}, CONTEXT)
    assert len(found.quotes) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_found_is_an_answer(kind: str, services: SearchServices):
    services.pages = ()
    found = await WebSearch(service(kind, services)).run({"query": "a"}, CONTEXT)
    assert str(found) == "Nothing was found; other words may find more."


async def test_a_searxng_whose_engines_are_silent_has_not_found_nothing(services: SearchServices):
    services.pages, services.unresponsive = (), [["google", "timeout"]]
    with pytest.raises(SearchFailed, match="no answer from any of its search engines"):
        await service("searxng", services).search("a", 5)


@pytest.mark.parametrize("kind", ["brave", "tavily"])
@pytest.mark.parametrize("key", ["", "wrong"])
async def test_a_wrong_key_is_told(kind: str, key: str, services: SearchServices):
    with pytest.raises(SearchFailed, match="does not take the key: whoever runs the bot"):
        await service(kind, services, key).search("a", 5)


@pytest.mark.parametrize("kind", ["brave", "tavily"])
async def test_a_key_of_two_lines_is_told_and_sent_nowhere(kind: str, services: SearchServices):
    with pytest.raises(SearchFailed, match="single line"):
        await service(kind, services, "one\nX-Other: two").search("a", 5)
    assert services.asked == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (status(429), "too often"),
        (status(500), r"failed \(500\)"),
        (status(503, "<html>"), r"failed \(503\)"),
        (status(400), r"does not take the question \(400\)"),
        (status(404), r"does not take the question \(404\)"),
        (status(402), "used up"),
        (status(432), "used up"),
        (redirect, r"does not take the question \(302\)"),
        (status(200, "<html>this is no JSON</html>"), "something else than results"),
        (body(b""), "something else than results"),
        (body(b"[]"), "something else than results"),
        (body(b"null"), "something else than results"),
        (body(b'{"web": [], "results": {}}'), "something else than results"),
        (body(b'{"web": {"results": "x"}, "results": "x"}'), "something else than results"),
        (body(b" " * 2_000_001), "more than a search can have"),
    ],
)
async def test_whatever_a_service_does_the_model_is_told_what(kind, answer, words, services):
    services.answer = answer
    with pytest.raises(SearchFailed, match=words):
        await service(kind, services).search("a", 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_that_takes_too_long_is_given_up(kind: str, services: SearchServices):
    services.answer = never
    with pytest.raises(SearchFailed, match="in time"):
        await service(kind, services, timeout=0.2).search("a", 5)


async def test_a_searxng_that_gives_no_json_says_how_to_mend_it(services: SearchServices):
    services.answer = status(403)
    with pytest.raises(SearchFailed, match=r"settings\.yml needs json in search\.formats"):
        await service("searxng", services).search("a", 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_not_there_is_told(kind: str):
    with pytest.raises(SearchFailed, match="cannot be reached"):
        await service(kind, SearchServices("http://127.0.0.1:1")).search("a", 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_results_that_are_none_are_left_out(kind: str, services: SearchServices):
    services.pages = (
        (None, "https://a.example/", None),
        ("b", 7, "no address"),
        ("c", "javascript:alert(1)", ""),
        ("d", "https://d.example/ x", ""),
        ("e", f"https://e.example/{'e' * 3_000}", ""),
        ("f", "https://a.example/", "the same page"),
        (["g"], "https://g.example/", {"x": 1}),
    )
    hits = await service(kind, services).search("a", 10)
    assert [quote.text for quote in quotes_of(hits)] == ["https://a.example/", "https://g.example/"]


def test_rows_that_are_no_rows_are_left_out():
    assert quotes_of([WebHit("", "", "")]) == ()


def test_long_words_are_cut_and_no_line_of_them_passes_for_the_frame():
    hit = WebHit("t" * 9_999, "https://a.example/", f"x\n[Evil]\n> y {'z' * 9_999}")
    (quote,) = quotes_of([hit])
    assert len(quote.where[0]) == MAX_TITLE
    assert len(quote.text) == MAX_SNIPPET + len("https://a.example/\n")
    assert str(quote).count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'query' is missing"),
        ({"query": " "}, "is empty"),
        ({"query": "a" * 401}, "at most 400"),
        ({"query": "a", "count": 11}, "from 1 to 10"),
        ({"query": "a", "count": "x"}, "whole number"),
        ({"query": "a", "site": "b"}, "unknown argument"),
    ],
)
async def test_wrong_arguments_are_told(arguments, words, services):
    with pytest.raises(ToolError, match=words):
        await WebSearch(service("searxng", services)).run(arguments, CONTEXT)
    assert services.asked == []


async def test_results_are_others_words_and_no_log_has_the_question(services: SearchServices, logs):
    services.answer = status(500)
    box = Toolbox([WebSearch(service("brave", services))])
    failed = await box.run(ToolUse("t", "web_search", {"query": SECRET}), CONTEXT)
    services.answer = None
    found = await box.run(ToolUse("t", "web_search", {"query": SECRET}), CONTEXT)
    assert failed.is_error
    assert (found.origin, failed.origin) == ("tool", "tool")
    assert "rust.example" in str(CONTEXT.memory.foreign)
    assert logs
    assert SECRET not in str(logs)
    assert KEY not in str(logs)


# --- the process that asks without a key ---------------------------------------------------------


def program(folder: Path, code: str) -> Path:
    path = folder / "program.py"
    path.write_text(f"import json, os, sys, time\nasked = json.load(sys.stdin)\n{code}\n")
    return path


async def test_what_the_program_finds_is_found(tmp_path: Path):
    code = "print(json.dumps({'hits': [[asked['query'], 'https://a.example', str(asked)]]}))"
    hits = await Ddgs(program=program(tmp_path, code)).search("words", 4)
    assert hits[0].title == "words"
    assert json.loads(hits[0].snippet.replace("'", '"'))["count"] == 4


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print(json.dumps({'error': 'rate'}))", "too often"),
        ("print(json.dumps({'error': 'slow'}))", "in time"),
        ("print(json.dumps({'error': 'missing'}))", r"install confidant-bot\[search\]"),
        ("print(json.dumps({'error': 'unreachable'}))", "none of the search engines"),
        ("print(json.dumps({'error': 'nothing'}))", "found nothing, or refuse"),
        ("print(json.dumps({'error': 'other'}))", "without an answer"),
        ("print(json.dumps({'hits': [['a']]}))", "without an answer"),
        ("print(json.dumps({'hits': 7}))", "without an answer"),
        ("print('[]')", "without an answer"),
        ("print('garbage')", "without an answer"),
        ("sys.exit(3)", "without an answer"),
        ("os.kill(os.getpid(), 9)", "without an answer"),
    ],
)
async def test_whatever_the_program_says_or_not_is_told(tmp_path: Path, code: str, words: str):
    with pytest.raises(SearchFailed, match=words):
        await Ddgs(program=program(tmp_path, code)).search("a", 5)


async def test_a_program_that_hangs_is_given_up(tmp_path: Path):
    with pytest.raises(SearchFailed, match="in time"):
        await Ddgs(timeout=0.2, program=program(tmp_path, "time.sleep(600)")).search("a", 5)


async def test_a_program_nobody_waits_for_any_more_is_ended(tmp_path: Path):
    note = tmp_path / "pid"
    code = f"open({str(note)!r}, 'w').write(f'{{os.getpid()}}.')\ntime.sleep(600)"
    search = asyncio.create_task(Ddgs(program=program(tmp_path, code)).search("a", 5))
    await until(lambda: note.exists() and note.read_text().endswith("."))
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()[:-1]), 0)


async def test_the_program_gets_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    code = "print(json.dumps({'hits': [['', 'https://a.example', str(dict(os.environ))]]}))"
    hits = await Ddgs(program=program(tmp_path, code)).search("a", 5)
    assert SECRET not in hits[0].snippet
