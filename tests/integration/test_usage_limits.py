"""How much of their limits people have used, in the page: the owner's, and each person's own."""

from __future__ import annotations

import html
import re
from pathlib import Path

from bot.agent.models import Usage
from bot.dashboard import usage
from tests.fakes.page_people import browser, browsers, key_in, serving
from tests.integration.test_usage import PAID, spending

PLAIN = re.compile(r"<[^>]+>")


def rows(page: str) -> list[str]:
    """What each row of the page's tables says."""
    found = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [re.sub("[ \n]+", " ", html.unescape(PLAIN.sub(" ", each))).strip() for each in found]


async def test_the_owner_sees_how_much_of_their_limits_people_have_used(tmp_path: Path):
    caps = {
        "each": {"day_usd": 1, "month_tokens": 1_000_000},
        "people": {"memory:eve": {}, "memory:<b>bob": {"day_usd": 0.5}},
        "exempt_owner": True,
    }
    zones = {"timezones": {"memory:ada": "Asia/Shanghai"}, "owner": ("memory:me",)}
    model = spending(Usage(100_000, 10_000))  # 0.30 dollars
    async with serving(tmp_path, model=model, agent=PAID, limits=caps, session=zones) as engine:
        for sender in ("ada", "eve", "<b>bob", "me"):
            await engine.ask("hello", sender=sender)
        async with browser(engine) as owner:
            await owner.log_in()
            _, page = await owner.get("/usage")
    assert "<b>bob" not in page
    assert "You 1 100\u202f000 0 0 10\u202f000 $0.3000" in rows(page)
    of_limits = [each for each in rows(page) if " a day " in each or " a month " in each]
    assert of_limits == [
        "memory:<b>bob 60 % 60 a day $0.3000 $0.5000 2026-11-22 00:00",
        "memory:ada 30 % 30 a day $0.3000 $1.00 2026-11-21 16:00",
        "memory:ada 11 % 11 a month 110\u202f000 1\u202f000\u202f000 tokens 2026-11-30 16:00",
    ]


async def test_of_many_limits_those_that_are_nearly_used_up_are_shown(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(usage, "MOST_PEOPLE", 2)
    model = spending(Usage(100_000, 10_000))
    caps = {"each": {"day_usd": 1}, "people": {"memory:p1": {"day_usd": 9}}}
    async with serving(tmp_path, model=model, agent=PAID, limits=caps) as engine:
        for number in range(3):
            await engine.ask("hello", sender=f"p{number}")
        async with browser(engine) as owner:
            await owner.log_in()
            _, page = await owner.get("/usage")
    people = [each.split()[0] for each in rows(page) if " a day " in each]
    assert people == ["memory:p0", "memory:p2"]
    assert "Not shown: 1 of which less is used." in page


async def test_people_see_what_they_used_themselves_and_their_own_limits(tmp_path: Path):
    caps = {"each": {"day_usd": 1}, "in_all": {"day_usd": 50}}
    model = spending(Usage(100_000, 10_000))
    async with (
        serving(tmp_path, model=model, agent=PAID, limits=caps) as engine,
        browsers(engine, 2) as (ada, bob),
    ):
        await engine.ask("hello")
        for _ in range(2):
            await engine.ask("hello", sender="bob")
        for sender, page in (("ada", ada), ("bob", bob)):
            await page.post("/enter", key=key_in(await engine.ask("/web", sender=sender)))
        _, adas = await ada.get("/usage")
        _, bobs = await bob.get("/usage")
        assert (await ada.get("/api/usage"))[0] == 403
    assert "What you may use in a day: 30 % ($0.3000 of $1.00)" in adas
    assert "It begins anew 2026-11-22 00:00." in adas
    assert "What you may use in a day: 60 % ($0.6000 of $1.00)" in bobs
    assert "everybody" not in adas.lower()
    assert ("bob" in adas, "ada" in bobs, "0.9000" in adas + bobs) == (False, False, False)
    assert adas.count("<caption>") == 3
    assert "Together 1 100\u202f000 0 0 10\u202f000 $0.3000" in rows(adas)


async def test_whoever_used_nothing_is_told_so(tmp_path: Path):
    async with (
        serving(tmp_path, limits={"each": {"day_usd": 1}}) as engine,
        browsers(engine, 2) as (owner, ada),
    ):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        _, page = await ada.get("/usage")
    assert "Nothing was used yet." in page
    assert "What you may use in a day: 0 % ($0.00 of $1.00)" in page
