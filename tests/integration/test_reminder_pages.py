"""Reminders and tasks in the page and by buttons: each person sees and changes their own."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import pytest_asyncio

from bot.channel import Button
from tests.fakes.brain import query
from tests.integration.test_memory_pages import House, house
from tests.support import Engine, pause

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "<script>alert(1)</script>"
SESSION = {"owner": ("memory:ada",)}


@pytest_asyncio.fixture(loop_scope="module")
async def it(tmp_path):
    async with house(tmp_path, session=SESSION) as found:
        yield found


def rows(page: str) -> list[tuple[str, str]]:
    """What waits: its id, and all that is shown of it."""
    listed = re.findall(r"<li>\n<div.*?</li>\n(?=<li>|</ul>)", page, re.DOTALL)
    found = ((re.search(r'name="id" value="([^"]*)"', row), row) for row in listed)
    return [(id_[1], row) for id_, row in found if id_ is not None]


def buttons(engine: Engine) -> Sequence[Button]:
    return engine.channel.sent[-1].buttons


async def remind(it: House, *words: str, sender: str = "ada") -> None:
    for each in words:
        told = await it.engine.ask(f"/remind {each}", sender=sender)
        assert "remind you" in told, told


async def due(it: House, hours: int, words: str) -> None:
    it.engine.clock.advance(hours=hours)
    await it.engine.app.engine.reminders.wake()
    await it.engine.channel.wait_until(lambda _: words in it.engine.sent_to("ada")[-1])


async def test_each_person_sees_what_is_theirs_when_it_comes_and_what_came_of_it(it):
    await remind(
        it, f"tomorrow 9:00 {HOSTILE}", "every day at 15:00 water the plants", "in 1 hour x"
    )
    await remind(it, "tomorrow 10:00 eves alone", sender="eve")
    await due(it, 4, "water the plants")
    async with it.browser() as owner, it.browser("bob") as bob:
        page = await owner.seen("reminders")
        while "): sent" not in page:  # it was said, and that is noted just after
            await pause(0.02)
            page = await owner.seen("reminders")
        assert "<script>alert" not in page
        assert "eves alone" not in page
        assert [id_[0] for id_, _ in rows(page)] == ["r", "e"]
        (_, once), (_, daily) = rows(page)
        assert "Sun 2026-11-22 09:00 (UTC) · Memory" in once
        assert "every day at 15:00, next on Sun 2026-11-22 15:00 (UTC)" in daily
        assert "Last due Sat 2026-11-21 15:00 (UTC): sent" in daily
        assert "Sent 2026-11-21 16:00" in page
        assert "Nothing is planned" in await bob.seen("reminders")
        for id_, _ in rows(page):  # as if it were not there
            for change in ("cancel", "pause"):
                _, where, _ = await bob.post("reminders/change", id=id_, change=change)
                assert where == "/reminders?told=gone"
            _, where, _ = await bob.post("reminders/edit", id=id_, text="x", when="")
            assert where == "/reminders?told=gone"
        assert len(rows(await owner.seen("reminders"))) == 2
    async with it.browser(language="zh") as owner:
        page = await owner.seen("reminders")
        assert "每天 15:00，下次 周日 2026-11-22 15:00 (UTC)" in page
        assert "2026-11-21 16:00 已发送" in page


async def test_one_is_paused_resumed_edited_and_cancelled_and_a_second_tab_is_told(it):
    await remind(it, "tomorrow 9:00 tea", "every day at 15:00 water the plants")
    async with it.browser() as owner:
        (daily, _), (once, _) = rows(await owner.seen("reminders"))

        async def change(id_: str, what: str) -> str:
            _, where, _ = await owner.post("reminders/change", id=id_, change=what)
            return where.partition("told=")[2]

        assert await change(daily, "pause") == "pause"
        assert await change(daily, "pause") == "gone"
        assert "every day at 15:00, paused" in await owner.seen("reminders")
        assert await change(daily, "resume") == "resume"
        assert await change(once, "pause") == "gone"
        for odd in ("", "delete", "cancel;"):
            assert (await owner.post("reminders/change", id=once, change=odd))[0] == 400

        form = await owner.seen("reminders/edit", id=once)
        assert 'type="datetime-local" value="2026-11-22T09:00"' in form
        sent = {"id": once, "text": f"tea & {HOSTILE}", "when": "2026-11-23T10:30"}
        _, where, page = await owner.post("reminders/edit", **sent)
        assert where == "/reminders?told=edit"
        assert "tea &amp; &lt;script&gt;" in page
        assert "Mon 2026-11-23 10:30 (UTC)" in page
        for when, why in (
            ("2026-11-21T11:00", "That time has passed."),
            ("2099-01-01T10:00", "more than five years away"),
            ("soon", "no such day or time"),
        ):
            status, _, page = await owner.post("reminders/edit", **{**sent, "when": when})
            assert (status, why in page, f'value="{when}"' in page) == (409, True, True)
        for text in ("", "x" * 1_001):
            assert (await owner.post("reminders/edit", **{**sent, "text": text}))[0] == 400

        sent = {"id": daily, "text": "water them", "when": "every weekday at 8"}
        _, where, page = await owner.post("reminders/edit", **sent)
        assert where == "/reminders?told=edit"
        assert "every weekday at 08:00, next on Mon 2026-11-23 08:00 (UTC)" in page
        for when in ("tomorrow at 8", "every day at 8 sing", "now and then"):
            status, _, page = await owner.post("reminders/edit", **{**sent, "when": when})
            assert status == 409
        await owner.post("reminders/edit", id=daily, text="water all", when="")
        assert "water all" in await it.engine.ask("/reminders")
        assert "every weekday at 08:00" in await it.engine.ask("/reminders")
        assert await change(once, "cancel") == "cancel"
        assert await change(once, "cancel") == "gone"
        assert await change(daily, "cancel") == "cancel"
        page = await owner.seen("reminders")
        assert rows(page) == []
        assert "Cancelled 2026-11-21 12:00" in page
        await it.engine.ask_each("/memory forget water all", "/memory forget yes")
        assert "water all" not in await owner.seen("reminders")


async def test_one_that_waits_for_a_topic_is_listed_and_cancelled_but_has_no_time_to_edit(it):
    await remind(it, "next time I talk about Berlin: book the hotel")
    async with it.browser() as owner:
        page = await owner.seen("reminders")
        ((id_, row),) = rows(page)
        assert "when you next talk about Berlin" in row
        assert f"edit?id={id_}" not in page
        _, where, _ = await owner.post("reminders/edit", id=id_, text="x", when="2027-01-01T10:00")
        assert where == "/reminders?told=gone"
        _, where, _ = await owner.post("reminders/change", id=id_, change="cancel")
        assert where == "/reminders?told=cancel"
        assert "Nothing is planned" in await owner.seen("reminders")


async def test_what_was_edited_comes_at_its_new_time_and_no_more_at_the_old(it):
    await remind(it, "in 3 hours bread")
    async with it.browser() as owner:
        ((id_, _),) = rows(await owner.seen("reminders"))
        await owner.post("reminders/edit", id=id_, text="cake", when="2026-11-21T13:00")
        await due(it, 1, "⏰ cake")
        await due(it, 4, "⏰ cake")
        assert "Sent 2026-11-21 13:00" in await owner.seen("reminders")


async def test_buttons_under_the_list_do_it_whatever_its_number_is_by_then(it):
    await remind(it, "tomorrow 9:00 tea", "tomorrow 10:00 cake", "every day at 15:00 plants")
    await it.engine.ask("/reminders")
    found = {each.label: each.command for each in buttons(it.engine)}
    assert list(found) == ["Pause 1", "Cancel 1", "Cancel 2", "Cancel 3"]
    assert "Cancelled: tea" in await it.engine.ask(found["Cancel 2"])
    assert "Cancelled: cake" in await it.engine.ask(found["Cancel 3"])
    assert "no longer waiting" in await it.engine.ask(found["Cancel 2"])
    assert "no longer waiting" in await it.engine.ask(found["Cancel 1"], sender="eve")
    assert "Paused: plants" in await it.engine.ask(found["Pause 1"])
    await it.engine.ask("/reminders 1", locale="zh")
    assert [each.label for each in buttons(it.engine)] == ["继续第 1 条", "取消第 1 条"]
    await it.engine.ask(buttons(it.engine)[0].command)
    assert query(it.engine.folder, "SELECT state FROM repeats") == [("waiting",)]


async def test_it_is_the_same_on_postgresql(tmp_path, postgres_url):
    storage = {"url": postgres_url}  # whose clock is the server's
    async with house(tmp_path, session=SESSION, storage=storage) as it, it.browser() as owner:
        await remind(it, "in 3 days tea", "every day at 15:00 plants")
        ids = {id_[0]: id_ for id_, _ in rows(await owner.seen("reminders"))}
        for kind, change in (("e", "pause"), ("e", "resume"), ("r", "cancel")):
            _, where, _ = await owner.post("reminders/change", id=ids[kind], change=change)
            assert where == f"/reminders?told={change}"
        sent = {"id": ids["e"], "text": "all", "when": "every day at 8"}
        _, where, page = await owner.post("reminders/edit", **sent)
        assert where == "/reminders?told=edit"
        assert "every day at 08:00, next on" in page
        assert "tea" in page.partition("Earlier")[2]
