"""`/context`: how full somebody's own conversation is, and making room in it."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest

from bot.agent.models import Usage
from bot.messages import Message, Text
from bot.testing import ScriptedModel
from tests.fakes.brain import Reply, query
from tests.fakes.whole_page import whole_page
from tests.support import until

ONCE = re.compile(r'name="once" value="([0-9a-f]{32})"')


def using(tokens: int) -> ScriptedModel:
    said = Message("assistant", (Text("All right."),))
    return ScriptedModel(script=lambda _: Reply(said, "end", Usage(tokens, 10)))


async def test_it_shows_what_fills_the_conversation_and_the_buttons_say_commands(tmp_path: Path):
    async with whole_page(tmp_path, model=using(30_000)) as page, aiohttp.ClientSession() as client:
        url, origin = f"{page.url}context", {"Origin": page.url.rstrip("/")}
        async with client.get(url) as answer:
            assert "Nothing was said here yet" in await answer.text()
        await page.chat("my words are mine")
        async with client.get(url) as answer:
            shown = await answer.text()
        assert "% full: 30\u202f010 of " in shown
        assert 'aria-label="' in shown
        assert re.search(r"<title>everything else: [\d\u202f]+</title>", shown)
        assert '<th scope="row">what we said</th>' in shown
        assert "my words are mine" not in shown
        async with client.get(url, headers={"Accept-Language": "zh"}) as answer:
            assert "<h1>这段对话</h1>" in await answer.text()
        once = ONCE.search(shown)
        assert once is not None
        form = {"do": "new", "once": once[1]}
        for _ in range(2):  # the same form twice is one message
            async with client.post(url, data=form, headers=origin, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/")
        await until(lambda: len(query(tmp_path, "SELECT id FROM sessions")) == 2)
        async with client.post(
            url, data={"do": "compact", "once": "0" * 32}, headers=origin, allow_redirects=False
        ) as answer:
            assert answer.status == 303
        said = "SELECT count(*) FROM inbox WHERE message_id LIKE 'page-%'"
        assert query(tmp_path, said) == [(2,)]


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"do": "new"},
        {"do": "/new", "once": "0" * 32},
        {"do": "new", "once": "../" + "0" * 29},
        {"do": "new", "once": "0" * 33},
    ],
)
async def test_what_no_button_says_is_refused(tmp_path: Path, form: dict[str, str]):
    async with whole_page(tmp_path) as page, aiohttp.ClientSession() as client:
        url, origin = f"{page.url}context", page.url.rstrip("/")
        async with client.post(url, data=form, headers={"Origin": origin}) as answer:
            assert answer.status == 400
        async with client.post(url, data=form, headers={"Origin": "http://evil.test"}) as answer:
            assert answer.status == 403
    assert query(tmp_path, "SELECT count(*) FROM inbox") == [(0,)]
