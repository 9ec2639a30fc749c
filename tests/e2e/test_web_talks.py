"""The conversations beside the chat, in a real browser and with the whole program."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, Route, expect

from bot.sessions import browsing, store
from bot.storage import Transaction
from bot.testing import ScriptedModel
from tests.e2e.test_web_access import faults
from tests.fakes.whole_page import WholePage, whole_page
from tests.support import NOON, FakeClock

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

DAY = 24 * 3600 * 1000  # ms
TOKEN = "0123456789abcdef0123456789abcdef"
WIDE = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
PHONE = {"viewport": {"width": 390, "height": 740}, "locale": "zh-CN", "color_scheme": "dark"}
SESSION = {"owner": ["memory:ada"], "reset": {"mode": "none"}}


@pytest.fixture
def model():
    return ScriptedModel()


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path, model):
    """A talk of yesterday, one of today, and one of another channel."""
    clock = FakeClock()
    async with whole_page(tmp_path, model=model, clock=clock, session=SESSION) as page:
        await page.chat("where do herons nest?")
        await page.chat("/new")
        await page.write("how do I bake bread?", sender="ada")
        clock.advance(days=1)
        await page.chat("which boat is faster?")
        yield page


class Chat:
    """The chat page, and what the browser says is wrong."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.extend([said.text] * (said.type == "error")))

    async def open(self, program: WholePage) -> None:
        await self.page.goto(program.url)
        await self.page.wait_for_selector("#state[data-state=open]")

    def talk(self, words: str) -> Any:
        return self.page.locator("#talks-list a[data-id]", has_text=words)

    def lines(self, role: str) -> Any:
        return self.page.locator(f"#log .line.{role} .body")

    async def says(self, text: str) -> None:
        await self.page.fill("#message", text)
        await self.page.keyboard.press("Enter")


@pytest_asyncio.fixture(loop_scope="session")
async def chat(context: BrowserContext, program: WholePage):
    found = Chat(await context.new_page())
    await found.page.clock.set_fixed_time(datetime.fromtimestamp((NOON + DAY) / 1000, UTC))
    await found.open(program)
    yield found
    assert found.wrong == []


@pytest.mark.parametrize("context_options", [WIDE])
async def test_an_old_conversation_opens_in_the_chat_and_typing_continues_it(chat, model):
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    await expect(chat.talk("which boat")).to_have_attribute("aria-current", "true")
    await chat.talk("herons").click()
    await expect(chat.talk("herons")).to_have_attribute("aria-current", "true")
    await expect(chat.page.locator("#reading-text")).to_contain_text("Your next message continues")
    await expect(chat.lines("user").first).to_have_text("where do herons nest?")
    await expect(chat.page.locator("#log")).not_to_contain_text("which boat")
    await chat.says("and in winter?")
    await expect(chat.lines("bot").last).to_have_text("You said: and in winter?")
    await expect(chat.page.locator("#log")).to_contain_text("Continuing “where do herons nest?”")
    await expect(chat.page.locator("#reading")).to_be_hidden()
    said = [each.text for each in model.requests[-1].messages]
    assert said == ["where do herons nest?", "You said: where do herons nest?", "and in winter?"]


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_conversation_of_another_channel_is_read_and_not_continued(chat, program):
    await chat.talk("bake bread").click()
    await expect(chat.page.locator("#reading-text")).to_contain_text("You can read it here")
    await expect(chat.lines("user")).to_have_text(["how do I bake bread?"])
    await chat.says("and the fastest?")
    await expect(chat.lines("bot").last).to_have_text("You said: and the fastest?")
    await expect(chat.page.locator("#log")).to_contain_text("which boat is faster?")
    await expect(chat.page.locator("#log")).not_to_contain_text("bake bread")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_what_comes_meanwhile_does_not_mix_with_what_is_read(chat, program):
    await chat.talk("herons").click()
    await expect(chat.page.locator("#reading")).to_be_visible()
    await chat.open(program)  # a reload shows the conversation that goes on
    await expect(chat.lines("bot").last).to_have_text("You said: which boat is faster?")
    await chat.talk("herons").click()
    await expect(chat.page.locator("#reading")).to_be_visible()
    await program.chat("a second window asks")
    await expect(chat.talk("which boat")).to_be_visible()
    await expect(chat.page.locator("#log")).not_to_contain_text("a second window asks")
    await chat.page.click("#reading-end")
    await expect(chat.page.locator("#log")).to_contain_text("You said: a second window asks")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_search_finds_conversations_by_what_was_said_and_they_may_not_be_read_now(chat):
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, body="")

    await chat.page.route("**/api/conversations/*", refuse)
    await chat.talk("herons").click()
    await expect(chat.page.locator("#talks-state")).to_contain_text("can't be read just now")
    await expect(chat.page.locator("#log")).to_contain_text("which boat is faster?")
    chat.wrong.clear()  # the browser notes the refusal
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    await chat.page.keyboard.press("Control+k")
    await chat.page.keyboard.type("herons")
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(1)
    await chat.page.keyboard.press("Control+a")
    await chat.page.keyboard.type("<b>nothing</b> like it")
    await expect(chat.page.locator("#talks-state")).to_have_text("Nothing matches these words.")


@pytest.mark.parametrize("context_options", [PHONE])
async def test_on_a_phone_the_list_is_in_the_drawer_which_closes_behind_a_choice(chat):
    await expect(chat.page.locator("#talks-list")).to_be_hidden()
    await chat.page.click(".opens")
    await expect(chat.page.locator("#talks-list p")).to_have_text(["今天", "昨天"])
    await chat.talk("herons").click()
    await expect(chat.page.locator("#ways")).to_be_hidden()
    await expect(chat.page.locator("#reading-text")).to_contain_text("发送下一条消息就会继续它")
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await chat.page.evaluate(wide)


# --- the menu of one of them ---


HOSTILE_TITLE = "<b onmouseover=alert(1)>Herons</b> & co"


async def menu_of(chat: Chat, words: str) -> Any:
    """Open the menu of a conversation by the keyboard."""
    row = chat.page.locator("#talks-list li", has_text=words)
    await row.locator("button").press("ArrowDown")
    menu = chat.page.locator("#talk-menu")
    await expect(menu.get_by_role("menuitem").first).to_be_focused()
    return menu


async def choose(chat: Chat, words: str, choice: str) -> None:
    await (await menu_of(chat, words)).get_by_role("menuitem", name=choice, exact=True).click()


def headings(chat: Chat) -> Any:
    return chat.page.locator("#talks-list > p")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_conversation_is_renamed_in_its_place_and_markup_is_text(chat):
    await choose(chat, "herons", "Rename")
    await expect(chat.page.get_by_label("Name of the conversation")).to_be_focused()
    await chat.page.keyboard.type("Not this")
    await chat.page.keyboard.press("Escape")
    await expect(chat.talk("where do herons nest?")).to_be_focused()
    await choose(chat, "herons", "Rename")
    await chat.page.keyboard.type(HOSTILE_TITLE)
    await chat.page.keyboard.press("Enter")
    await expect(chat.talk(HOSTILE_TITLE)).to_be_focused()
    await expect(chat.page.locator("#talks-list b")).to_have_count(0)
    await chat.page.reload()
    await expect(chat.talk(HOSTILE_TITLE)).to_be_visible()
    await choose(chat, HOSTILE_TITLE, "Rename")  # without a name, its first words come back
    await chat.page.keyboard.press("Delete")
    await chat.page.keyboard.press("Enter")
    await expect(chat.talk("where do herons nest?")).to_be_visible()


@pytest.mark.parametrize("context_options", [WIDE])
async def test_pinned_conversations_stand_first_until_they_are_unpinned(chat):
    await expect(headings(chat)).to_have_text(["Today", "Yesterday"])
    await choose(chat, "herons", "Pin")
    await expect(headings(chat)).to_have_text(["Pinned", "Today", "Yesterday"])
    pinned = chat.page.locator("#talks-list ul").first
    await expect(pinned).to_contain_text("where do herons nest?")
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    await choose(chat, "herons", "Unpin")
    await expect(headings(chat)).to_have_text(["Today", "Yesterday"])


@pytest.mark.parametrize("context_options", [WIDE])
async def test_an_archived_conversation_leaves_the_list_is_found_and_brought_back(chat, program):
    await choose(chat, "herons", "Archive")
    await expect(chat.page.locator("#talks-state")).to_have_text(
        "“where do herons nest?” is archived."
    )
    await expect(chat.talk("herons")).to_have_count(0)
    await chat.page.click("#talks-undo")
    await expect(chat.talk("herons")).to_be_visible()
    await choose(chat, "herons", "Archive")
    await expect(chat.talk("herons")).to_have_count(0)
    await chat.page.fill("#talks-words", "herons")  # it is still searched
    await expect(chat.talk("herons")).to_be_visible()
    other = await chat.page.context.new_page()
    await other.goto(f"{program.url}conversations?archived")
    await other.click("text=where do herons nest?")
    await other.click("text=Move out of the archive")
    await chat.page.fill("#talks-words", "")
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)


@pytest.mark.parametrize("context_options", [WIDE])
async def test_archiving_the_current_conversation_begins_a_new_one_and_a_message_brings_it_back(
    chat,
):
    await choose(chat, "which boat", "Archive")
    await expect(chat.talk("which boat")).to_have_count(0)
    await chat.says("something else")
    await expect(chat.talk("something else")).to_have_attribute("aria-current", "true")
    await chat.says("/continue which boat")
    await expect(chat.page.locator("#log")).to_contain_text("Continuing")
    await chat.says("and the slowest?")
    await expect(chat.talk("which boat")).to_have_attribute("aria-current", "true")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_change_that_cannot_be_made_says_so_and_loses_nothing(chat):
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    await chat.page.route("**/conversations/*/*", lambda route: route.abort())
    state = chat.page.locator("#talks-state")
    for choice in ("Pin", "Archive"):
        await choose(chat, "herons", choice)
        await expect(state).to_have_text(
            "That didn't work, so nothing was changed. Please try again."
        )
        await expect(headings(chat)).to_have_text(["Today", "Yesterday"])
    await choose(chat, "herons", "Rename")
    await chat.page.keyboard.type("Of herons")
    await chat.page.keyboard.press("Enter")
    await expect(state).to_contain_text("didn't work")
    name = chat.page.get_by_label("Name of the conversation")
    await expect(name).to_have_value("Of herons")  # what was typed is kept, also when more is said
    await chat.page.unroute("**/conversations/*/*")
    await name.press("Enter")
    await expect(chat.talk("Of herons")).to_be_visible()
    chat.wrong.clear()  # the browser notes what was refused


@pytest.mark.parametrize("context_options", [PHONE])
async def test_on_a_phone_the_menu_opens_above_the_drawer_and_esc_closes_it_alone(chat):
    await chat.page.click(".opens")
    row = chat.page.locator("#talks-list li", has_text="herons")
    await row.locator("button").click()
    menu = chat.page.locator("#talk-menu")
    await expect(menu.get_by_role("menuitem", name="归档")).to_be_visible()
    await chat.page.keyboard.press("Escape")
    await expect(menu).to_be_hidden()
    await expect(row.locator("button")).to_be_focused()
    await expect(chat.page.locator("#ways")).to_be_visible()
    await row.locator("button").click()
    await menu.get_by_role("menuitem", name="重命名").click()
    await chat.page.keyboard.type("苍鹭")
    await chat.page.keyboard.press("Escape")
    await expect(chat.talk("where do herons nest?")).to_be_visible()
    await expect(chat.page.locator("#ways")).to_be_visible()
    await row.locator("button").click()
    await menu.get_by_role("menuitem", name="置顶").click()
    await expect(headings(chat)).to_have_text(["已置顶", "今天", "昨天"])


# --- deleting one of them ---


async def delete(chat: Chat, words: str) -> None:
    await choose(chat, words, "Delete")
    await chat.page.locator("#talk-delete").get_by_role("button", name="Delete").click()


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_deleted_conversation_is_gone_at_once_and_undo_brings_it_back(chat):
    await choose(chat, "herons", "Delete")
    dialog = chat.page.locator("#talk-delete")
    await expect(dialog).to_contain_text("where do herons nest?")
    await chat.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(chat.talk("herons")).to_be_visible()
    await delete(chat, "herons")
    await expect(chat.page.locator("#talks-state")).to_have_text(
        "“where do herons nest?” is deleted."
    )
    await expect(chat.talk("herons")).to_have_count(0)
    await expect(chat.page.locator("#talks-undo")).to_be_focused()
    await chat.page.keyboard.press("Enter")
    await expect(chat.talk("herons")).to_be_visible()


@pytest.mark.parametrize("context_options", [WIDE])
async def test_deleting_the_current_conversation_begins_a_new_one(chat, model):
    await delete(chat, "which boat")
    await expect(chat.talk("which boat")).to_have_count(0)
    await expect(chat.page.locator("#log")).not_to_contain_text("which boat")
    await chat.says("hello again")
    await expect(chat.lines("bot").last).to_have_text("You said: hello again")
    assert [each.text for each in model.requests[-1].messages] == ["hello again"]


@pytest.mark.parametrize("context_options", [WIDE])
async def test_undo_is_there_when_the_last_one_has_left_the_list(chat):
    for words in ("herons", "bake bread", "which boat"):
        await choose(chat, words, "Archive")
        await expect(chat.talk(words)).to_have_count(0)
    await expect(chat.page.locator("#talks-undo")).to_be_visible()
    await chat.page.click("#talks-undo")
    await expect(chat.talk("which boat")).to_be_visible()


@pytest.mark.parametrize("context_options", [WIDE])
async def test_one_deleted_in_a_tab_and_written_to_in_another_begins_a_new_one(
    chat, program, model
):
    other = Chat(await chat.page.context.new_page())
    await other.open(program)
    await other.talk("herons").click()
    await expect(other.page.locator("#reading-text")).to_contain_text("next message continues it")
    await other.page.fill("#message", "and in winter?")  # half written
    await delete(chat, "herons")
    await expect(other.page.locator("#reading-text")).to_have_text(
        "This conversation was deleted. Your next message begins a new one."
    )
    await expect(other.page.locator("#log")).not_to_contain_text("herons")
    await expect(other.page.locator("#message")).to_have_value("and in winter?")
    await other.page.press("#message", "Enter")
    await expect(other.lines("bot").last).to_have_text("You said: and in winter?")
    await expect(other.page.locator("#log")).to_contain_text("was deleted, so this is a new one")
    assert [each.text for each in model.requests[-1].messages] == ["and in winter?"]
    other.wrong = [each for each in other.wrong if "404" not in each]
    assert other.wrong == []


@pytest.mark.parametrize("context_options", [WIDE])
async def test_notes_of_a_deleted_conversation_are_listed_as_text_and_kept(chat, program):
    await chat.says("Remember that my boat is called <b>Stork</b>.")
    await expect(chat.lines("bot").last).to_contain_text("✓")
    await choose(chat, "which boat", "Delete")
    dialog = chat.page.locator("#talk-delete")
    await expect(dialog.get_by_role("checkbox")).not_to_be_checked()
    await expect(dialog).to_contain_text("<b>Stork</b>")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(chat.talk("which boat")).to_have_count(0)
    notes = "".join(each.read_text() for each in program.folder.rglob("memory/*.md"))
    assert "Stork" in notes


@pytest.mark.parametrize("context_options", [WIDE])
async def test_one_that_cannot_be_deleted_or_restored_now_says_so(chat):
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    state = chat.page.locator("#talks-state")
    await chat.page.route("**/delete", lambda route: route.abort())
    await delete(chat, "herons")
    await expect(state).to_contain_text("nothing was changed")
    await expect(chat.talk("herons")).to_be_visible()
    await chat.page.unroute("**/delete")
    await delete(chat, "herons")
    await expect(chat.talk("herons")).to_have_count(0)
    await chat.page.route("**/restore", lambda route: route.abort())
    await chat.page.click("#talks-undo")
    await expect(state).to_contain_text("Please try again")
    await chat.page.unroute("**/restore")
    await chat.page.click("#talks-undo")
    await expect(chat.talk("herons")).to_be_visible()
    chat.wrong.clear()  # the browser notes what was refused


@pytest.mark.proof
@pytest.mark.parametrize("context_options", [PHONE])
async def test_on_a_phone_a_conversation_is_deleted_from_the_drawer(chat):
    await chat.page.click(".opens")
    await chat.page.locator("#talks-list li", has_text="herons").locator("button").click()
    await chat.page.get_by_role("menuitem", name="删除").click()
    dialog = chat.page.locator("#talk-delete")
    await expect(dialog).to_contain_text("要删除这段对话吗？")
    await dialog.get_by_role("button", name="删除").click()
    await expect(chat.talk("herons")).to_have_count(0)
    await expect(chat.page.locator("#talks-undo")).to_be_visible()


# --- for everybody, and however many there are ---


@pytest.mark.parametrize("context_options", [{**WIDE, "bypass_csp": True}])
async def test_the_menu_the_name_and_the_question_can_be_used_by_everybody(chat):
    await chat.says("Remember that my boat is called Stork.")
    await expect(chat.lines("bot").last).to_contain_text("✓")
    await chat.page.locator(".gear summary").click()
    await choose(chat, "herons", "Pin")
    await expect(headings(chat).first).to_have_text("Pinned")
    await menu_of(chat, "which boat")
    assert await faults(chat.page) == []
    await chat.page.keyboard.press("Escape")
    await choose(chat, "herons", "Rename")
    assert await faults(chat.page) == []
    await chat.page.keyboard.press("Escape")
    await choose(chat, "which boat", "Delete")
    await expect(chat.page.get_by_role("checkbox")).to_be_visible()
    assert await faults(chat.page) == []
    id_ = await chat.talk("which boat").get_attribute("data-id")
    await chat.page.goto(f"{chat.page.url}conversations/{id_}/delete")
    assert await faults(chat.page) == []


@pytest.mark.parametrize("context_options", [WIDE])
async def test_of_five_thousand_conversations_the_column_has_a_part(chat, program):
    def fill(tx: Transaction) -> None:
        (one,) = browsing.listed(tx, ("main",), 1)
        session = store.get(tx, one.id)
        assert session is not None
        for number in range(5_000):
            id_ = f"20250101-000000-{number:010x}"
            store.insert(tx, replace(session, id=id_, key=f"copy {number}", last_turn_at=1))

    await program.app.core.database.write(fill)
    await chat.page.reload()
    links = chat.page.locator("#talks-list a[data-id]")
    await expect(links).to_have_count(40)
    await links.first.evaluate("(link) => { link.kept = true; }")
    groups = await headings(chat).all_inner_texts()
    await chat.page.click("#talks-more")
    await expect(links).to_have_count(80)
    assert await links.first.evaluate("(link) => link.kept")  # what was there is not drawn again
    assert await headings(chat).all_inner_texts() == groups
    ids = "[...document.querySelectorAll('#talks-list p')].map(({ id }) => id)"
    assert len(set(await chat.page.evaluate(ids))) == len(groups)
    await choose(chat, "herons", "Pin")
    await expect(headings(chat).first).to_have_text("Pinned")
    await expect(links).to_have_count(41)


async def test_what_one_person_sees_another_one_in_the_same_browser_does_not_change(
    context, tmp_path
):
    dashboard = {"port": 0, "token": TOKEN}
    async with whole_page(tmp_path, session=SESSION, dashboard=dashboard) as program:
        await program.chat("of the owner alone", token=TOKEN)
        chat = Chat(await context.new_page())
        await chat.page.goto(program.url)
        await chat.page.get_by_label("Access token").fill(TOKEN)
        await chat.page.keyboard.press("Enter")
        await expect(chat.talk("of the owner alone")).to_be_visible()
        other = await context.new_page()
        await other.goto(f"{program.url}logins")
        await other.fill("input[name=name]", "dora")
        await other.keyboard.press("Enter")
        link = await other.locator("#link").input_value()
        await other.goto(link)
        await other.locator("form button").click()
        await other.wait_for_selector("#state[data-state=open]")
        await expect(other.locator("#talks")).to_be_hidden()
        await choose(chat, "of the owner", "Archive")  # in a tab of the one before
        await expect(chat.page.locator("#talks")).not_to_contain_text("is archived")
        await program.chat("and again", token=TOKEN)
        found_by_owner = await program.app.core.database.read(
            lambda tx: [each.shelf for each in browsing.listed(tx, ("main",), 9)]
        )
        assert found_by_owner == [""]
