"""A page shows the same on every node, whichever sends, writes or is typed at."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from adapters.web import nodes
from adapters.web.channel import ADDRESS, Web
from bot.channel import Activity, Attachment, HistoryItem, Outbound
from bot.cluster.signals import InlineEvent
from bot.coordination import MOST_MENTIONED, Event
from bot.errors import OutOfSight, StorageError
from bot.testing import RecordingEngine
from tests.fakes.web_pages import Chat
from tests.support import post, until

SAVING = Activity("s.saving", "saving", "begun")


class Node(RecordingEngine):
    """An engine that tells other nodes; with `is_cut_off` they miss it."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[Web] = []  # this one's first
        self.is_cut_off = False
        self.may_tell = asyncio.Event()
        self.may_tell.set()

    async def broadcast(self, channel: str, body: str, *, stored: bool = True) -> None:
        """Have every node hear it."""
        await self.may_tell.wait()
        await super().broadcast(channel, body, stored=stored)
        for page in self.pages[: 1 if self.is_cut_off else None]:
            await page.heard(body)


@pytest.fixture
async def chats(monkeypatch):
    """Two nodes with one database."""
    monkeypatch.setattr(nodes, "INTERVAL", 0.01)
    engines = Node(), Node()
    one, two = (Chat(engine) for engine in engines)
    engines[0].pages, engines[1].pages = [one.web, two.web], [two.web, one.web]
    engines[1].received, engines[1].lines = engines[0].received, engines[0].lines
    async with AsyncExitStack() as stack:
        for chat in (one, two):
            await stack.enter_async_context(chat.served())
        yield one, two


async def test_a_reply_shows_on_the_pages_of_every_node_once(chats):
    one, two = chats
    async with one.page() as here, two.page() as there, two.page(format="text") as terminal:
        await post(one.web, Outbound("o1", ADDRESS, "**hi**", at=7))
        shown = [await page.until("message") for page in (here, there)]
        assert shown[0] == shown[1]
        assert "<strong>hi</strong>" in shown[0]["html"]
        assert (await terminal.until("message"))["html"] == ""
        (_, body) = one.engine.shown[-1]
        await two.web.heard(body)  # told twice
        await two.web.typing(ADDRESS)
        await there.until("typing")
        assert [frame["type"] for frame in there.frames].count("message") == 1


async def test_what_was_not_answered_may_be_asked_again_on_every_node(chats):
    one, two = chats
    async with one.page() as here, two.page() as there:
        await post(one.web, Outbound("o1", ADDRESS, "Nobody is there.", failed=("m1", "m2")))
        for page in (here, there):
            assert (await page.until("message"))["failed"] == ["m1", "m2"]
        await post(two.web, Outbound("o2", ADDRESS, "All is well."))
        for page in (here, there):
            assert "failed" not in await page.until("message")
    failed = HistoryItem("o1", "bot", "Nobody is there.", 7, failed=("m1",))
    one.engine.lines += [failed, replace(failed, text="")]  # the latter was forgotten
    async with two.page() as page:
        items = next(frame for frame in page.frames if frame["type"] == "history")["items"]
        assert [item.get("failed") for item in items] == [["m1"], None]


async def test_what_is_typed_on_one_node_shows_on_the_others(chats):
    one, two = chats
    async with one.page() as here, one.page() as beside, two.page() as there:
        await here.say(type="send", id="m1", text="*hello*")
        await here.until("ack")
        for page in (beside, there):
            line = await page.until("message")
            assert (line["id"], line["role"], line["text"]) == ("m1", "user", "*hello*")
        assert "message" not in {frame["type"] for frame in here.frames}


async def test_what_is_taken_back_on_one_node_goes_from_the_pages_of_every_other(chats):
    one, two = chats
    async with one.page() as here, two.page() as there:
        await here.say(type="send", id="m1", text="hello")
        await here.until("ack")
        await there.until("message")
        await here.say(type="withdraw", id="m1")
        for page in (here, there):
            await page.until("withdrawn", id="m1")
        await here.say(type="withdraw", id="m1")  # it is not there, or being answered
        assert (await here.until("error"))["key"] == "begun"
        assert one.engine.received == []


async def test_another_branch_shows_on_the_pages_of_every_node(chats):
    one, two = chats
    async with one.page() as here, two.page() as there, two.page(format="text") as terminal:
        one.engine.lines += [HistoryItem("m2", "user", "better", 7, versions=("m1", "m2"))]
        await here.say(type="send", id="m2", text="better", replaces="m1")
        for page in (here, there):
            shown = (await page.until("switched"))["items"]
            assert [(line["id"], line["versions"]) for line in shown] == [("m2", ["m1", "m2"])]
        assert one.engine.received[-1].replaces == "m1"
        await there.say(type="switch", id="m1")
        for page in (here, there):
            await page.until("switched")
        assert two.engine.switched == ["m1"]
        await terminal.say(type="models")
        await terminal.until("models")
        assert "switched" not in {frame["type"] for frame in terminal.frames}


@pytest.mark.parametrize(
    ("answer", "key"),
    [(OutOfSight(), "gone"), (StorageError(), "switch"), (False, "busy")],
    ids=["gone", "not stored", "busy"],
)
async def test_a_branch_that_cannot_be_shown_is_told_to_whoever_asked(
    chats, monkeypatch, answer, key
):
    async def switch(*_: object) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    one, _ = chats
    monkeypatch.setattr(one.engine, "switch", switch)
    async with one.page() as here:
        await here.say(type="switch", id="m1")
        assert (await here.until("error"))["key"] == key


async def test_a_command_that_was_answered_shows_on_no_page_once_its_answer_does(chats):
    one, two = chats
    async with one.page() as here, two.page() as there:
        answer = Outbound("o1", ADDRESS, "Thinking: high.", at=7, aside="m1")
        await post(one.web, answer)
        assert (await there.until("message"))["aside"] == "m1"
        await here.say(type="send", id="m1", text="/think high")
        await here.say(type="send", id="m2", text="hello")
        assert (await there.until("message"))["id"] == "m2"


async def test_a_draft_grows_everywhere_and_ends_with_its_reply(chats):
    writes, sends = chats
    async with writes.page() as here, sends.page() as there:
        await writes.web.draft(ADDRESS, "7", "half")
        for page in (here, there):
            assert "half" in (await page.until("draft"))["html"]
        await writes.web.draft(ADDRESS, "7", "half a")
        await there.until("draft", id="7", html="<p>half a</p>\n")
        await post(sends.web, Outbound("o1", ADDRESS, "half a reply", draft="7"))
        for page in (here, there):
            assert (await page.until("message"))["replaces"] == ["7"]
        # What was still on its way shows nothing more.
        await writes.web.draft(ADDRESS, "7", "half a re")
        await sends.web.typing(ADDRESS)
        for page in (here, there):
            await page.until("typing")
            assert page.frames[-2]["type"] == "message"


async def test_the_newest_of_many_states_reaches_the_other_node(chats):
    one, two = chats
    async with one.page(), two.page() as there:
        for number in range(200):
            await one.web.draft(ADDRESS, "7", f"text {number}.")
        await there.until("draft", html="<p>text 199.</p>\n")
    assert len(one.engine.shown) < 100


async def test_a_draft_that_is_taken_away_goes_everywhere(chats):
    one, two = chats
    async with one.page() as here, two.page() as there:
        await one.web.draft(ADDRESS, "7", "half")
        for page in (here, there):
            await page.until("draft")
        await one.web.draft(ADDRESS, "7", "")
        for page in (here, there):
            await page.until("draft", html="")


async def test_a_page_opened_on_another_node_sees_what_is_being_written_and_done(chats):
    one, two = chats
    await one.web.draft(ADDRESS, "7", "half")
    await one.web.activity(ADDRESS, SAVING)
    await until(lambda: two.web._pages_of(ADDRESS.chat)._drafts.texts == {"7": "half"})
    async with two.page() as there:
        assert "half" in (await there.until("draft"))["html"]
        assert (await there.until("activity"))["state"] == "begun"
        await one.web.activity(ADDRESS, Activity("s.saving", "saving", "done", "MEMORY.md"))
        assert (await there.until("activity"))["where"] == "MEMORY.md"


async def test_what_a_model_thinks_shows_everywhere_until_it_is_over(chats):
    one, two = chats
    thinking = Activity("7.thinking", "thinking", "begun", draft="7")
    async with one.page() as here, two.page() as there:
        await one.web.activity(ADDRESS, thinking)
        for number in range(200):
            await one.web.activity(ADDRESS, replace(thinking, text=f"thought {number}."))
        for page in (here, there):
            await page.until("activity", text="thought 199.")
        async with two.page() as later:
            assert (await later.until("activity"))["text"] == "thought 199."
            await one.web.activity(ADDRESS, replace(thinking, state="done"))
            for page in (here, there, later):
                await page.until("activity", state="done", text="")
        await one.web.activity(ADDRESS, thinking)  # and once more
        await there.until("activity", state="begun", text="")
        assert len(one.engine.shown) < 100  # only the newest is told, at a calm pace
        assert "thought " not in "".join(one.engine.stored)


@pytest.mark.parametrize("each", ["\a", "\\", '"', "\u6c49", "\U0001f600", "a"])
async def test_of_a_long_thought_the_end_is_told_as_far_as_it_fits(chats, each):
    one, two = chats
    thought = Activity("7.thinking", "thinking", "begun", text=each * 4_000 + "end", draft="7")
    async with two.page() as there:
        await one.web.activity(ADDRESS, thought)
        assert (await there.until("activity"))["text"].endswith("end")
    ((_, body),) = one.engine.shown
    told = InlineEvent("n" * 100, Event("show", "web", body))
    assert len(told.payload().encode()) < MOST_MENTIONED


async def test_what_is_done_for_a_reply_shows_everywhere_and_stays_with_it(chats):
    one, two = chats
    search = Activity("7.1", "searching", "begun", text="tea", draft="7")
    call = Activity("7.2", "calling", "begun", text="memory_write", draft="7")
    async with one.page() as here, two.page() as there:
        await one.web.activity(ADDRESS, search)
        await one.web.activity(ADDRESS, replace(search, state="done", found=3))
        await one.web.activity(ADDRESS, call)
        for page in (here, there):
            await page.until("activity", id="7.2", state="begun")
        async with two.page() as later:  # whoever comes now sees all of it
            shown = [await later.until("activity") for _ in range(2)]
            assert [(each["id"], each["found"]) for each in shown] == [("7.1", 3), ("7.2", 0)]
        await one.web.activity(ADDRESS, replace(call, state="failed"))
        await post(two.web, Outbound("o1", ADDRESS, "Green.", draft="7"))
        for page in (here, there):
            line = await page.until("message")
            assert (line["draft"], line["steps"]) == (
                "7",
                [
                    {"what": "searching", "state": "done", "text": "tea", "found": 3},
                    {"what": "calling", "state": "failed", "text": "memory_write", "found": 0},
                ],
            )
        await one.web.activity(ADDRESS, replace(call, state="done"))  # it comes too late
        async with two.page() as later:
            await two.web.typing(ADDRESS)
            await later.until("typing")
            assert {"activity", "steps"}.isdisjoint(json.dumps(later.frames).split('"'))


async def test_what_was_done_for_nothing_goes_everywhere(chats):
    one, two = chats
    async with one.page() as here, two.page() as there:
        await one.web.activity(ADDRESS, Activity("7.1", "calling", "done", text="t", draft="7"))
        for page in (here, there):
            await page.until("activity")
        await one.web.draft(ADDRESS, "7", "")  # the model has nothing to say
        for page in (here, there):
            await page.until("draft", id="7", html="")
        async with two.page() as later:
            await one.web.typing(ADDRESS)
            await later.until("typing")
            assert "activity" not in {frame["type"] for frame in later.frames}


async def test_what_goes_on_shows_on_no_page_of_anybody_else(chats):
    one, two = chats
    step = Activity("7.1", "searching", "begun", text="secret", draft="7")
    thought = Activity("7.thinking", "thinking", "begun", text="secret", draft="7")
    async with two.page(person="eve") as eve, two.page() as there:
        for each in (step, thought, replace(step, state="done")):
            await one.web.activity(ADDRESS, each)
        await there.until("activity", state="done")
        await post(one.web, Outbound("o1", ADDRESS, "hi", draft="7"))
        await there.until("message")
        async with two.page(person="eve") as later:
            for page in (eve, later):
                await two.web.typing(replace(ADDRESS, chat="eve"))
                await page.until("typing")
                assert "secret" not in json.dumps(page.frames)


async def test_of_very_many_steps_the_first_are_known(chats):
    one, two = chats
    async with two.page() as there:
        for turn in range(40):
            for number in range(100):
                step = Activity(f"{turn}.{number}", "calling", "done", text="t", draft=str(turn))
                one.web._pages_of(ADDRESS.chat)._show_activity(step)
        await one.web.activity(ADDRESS, step)
        await post(one.web, Outbound("o1", ADDRESS, "hi", draft="39"))
        assert len((await there.until("message"))["steps"]) == 1
    pages = one.web._pages_of(ADDRESS.chat)
    assert {len(steps) for steps in pages._steps.values()} == {64}
    assert len(pages._steps) < 16


async def test_a_node_that_missed_a_reply_shows_it_to_whoever_comes_back(chats):
    one, two = chats
    one.engine.is_cut_off = True
    async with two.page() as there:
        await post(one.web, Outbound("o1", ADDRESS, "missed", at=7))
        await two.web.typing(ADDRESS)
        await there.until("typing")
        assert "message" not in {frame["type"] for frame in there.frames}
    one.engine.lines.append(HistoryItem("o1", "bot", "missed", 7))
    async with two.page() as there:
        (history,) = (frame for frame in there.frames if frame["type"] == "history")
        assert [item["text"] for item in history["items"]] == ["missed"]


async def test_a_page_whose_node_is_gone_goes_on_at_another(chats):
    one, two = chats
    async with one.page() as page:
        await page.say(type="send", id="m1", text="before")
        await page.until("ack")
        await one.web.stop()
        await page.closed()
    async with two.page() as page:
        await page.say(type="send", id="m2", text="after")
        await page.until("ack")
        await post(two.web, Outbound("o1", ADDRESS, "hi"))
        await page.until("message", text="hi")
    assert [inbound.text for inbound in one.engine.received] == ["before", "after"]


async def test_pictures_come_along_unless_they_are_large(chats):
    one, two = chats
    async with two.page() as there:
        for number, size in enumerate((10, nodes.MAX_BODY)):
            file = Attachment("a.png", "image/png", b"x" * size)
            await post(one.web, Outbound(f"o{number}", ADDRESS, "see", attachments=(file,)))
        small, large = [(await there.until("message"))["attachments"][0] for _ in range(2)]
    assert small["data"].startswith("data:image/png;base64,")
    assert (large["data"], large["size"]) == ("", nodes.MAX_BODY)


@pytest.mark.parametrize("body", ["x {}", 'x {"show": "of a newer version"}', "x []"])
async def test_what_a_newer_version_says_is_passed_over(chats, body):
    await chats[0].web.heard(body)


async def test_alone_it_shows_everything_once(chats):
    one, _ = chats
    one.engine.pages = [one.web]
    async with one.page() as page:
        await one.web.typing(ADDRESS)
        await post(one.web, Outbound("o1", ADDRESS, "hi"))
        await one.web.activity(ADDRESS, SAVING)
        await page.until("activity")
        kinds = [frame["type"] for frame in page.frames]
    assert kinds[-3:] == ["typing", "message", "activity"]


async def test_what_is_seen_on_one_node_is_told_nobody_by_the_one_that_sent_it(chats, monkeypatch):
    monkeypatch.setattr(nodes, "SEEN_SECONDS", 0.2)
    one, two = chats
    async with two.page() as there:
        await post(one.web, Outbound("o1", ADDRESS, "seen"))
        await there.until("message", id="o1")
        await there.say(type="seen", id="o1")
        await post(one.web, Outbound("o2", ADDRESS, "in the background"))
        await there.until("message", id="o2")
        await there.say(type="seen", id="o-of-nobody")
        await until(lambda: bool(one.engine.reached))
    assert one.engine.reached == [(ADDRESS, "in the background")]
    assert two.engine.reached == []
    assert "o-of-nobody" not in str(two.engine.shown)


async def test_what_is_seen_before_the_other_nodes_were_told_of_it_is_told_nobody(chats):
    one, _ = chats
    async with one.page() as page:
        one.engine.may_tell.clear()  # the database takes its time
        sending = asyncio.create_task(post(one.web, Outbound("o1", ADDRESS, "hi")))
        await page.until("message", id="o1")
        await page.say(type="seen", id="o1")
        await page.say(type="models")
        await page.until("models")  # so the frame before that was heard
        one.engine.may_tell.set()
        await sending
    assert not one.web._people["owner"]._away._waiting


@pytest.mark.parametrize("kind", ["seen", "withdraw", "switch"])
@pytest.mark.parametrize("bad", [None, 7, "x" * 201, {"a": 1}])
async def test_what_is_about_something_that_is_no_id_is_refused(chats, kind, bad):
    one, _ = chats
    async with one.page() as page:
        await page.say(type=kind, id=bad)
        assert (await page.until("error"))["key"] == "malformed"
