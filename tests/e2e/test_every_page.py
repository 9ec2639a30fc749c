"""All pages, also those that are added later: for everybody, on every screen, with any names."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    StorageState,
    expect,
)

from bot.agent.models import Usage
from bot.dashboard import pages
from bot.messages import Message, Text
from bot.testing import ScriptedModel
from tests.fakes.brain import Reply
from tests.fakes.npm import install
from tests.fakes.whole_page import HOSTILE, whole_page
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

TOKEN = "0123456789abcdef0123456789abcdef"
MOST_BYTES = 120_000  # of the chat page, with all it loads
AXE = Path(__file__).resolve().parents[1] / "axe"
NOTE = "path=memory/2026-11-20.md"
# Where the ways lead to, and what stands behind one of them.
PATHS = [
    *(way.path for way in pages.menu()),
    *(f"/memory/{page}?{NOTE}" for page in ("file", "edit", "history")),
    *("/memory?order=topic", "/memory?of=all", "/memory/advanced"),
    *("/memory/search?q=alert", "/memory/forget", "/memory/night"),
    *("/conversations?archived", "/conversations?deleted"),
]
# A page is looked at on every other screen of these, which has all sizes; axe-core sees it on the
# smallest and the largest, which are in either scheme and either language.
SCREENS = [
    (360, 740, "light", "en-GB"),
    (360, 740, "dark", "zh-CN"),
    (820, 1180, "dark", "en-GB"),
    (820, 1180, "light", "zh-CN"),
    (1280, 800, "dark", "zh-CN"),
    (1280, 800, "light", "en-GB"),
]
BETWEEN = 820  # px
MOST_TABS = 40  # until the keyboard must have reached what a page is about

# What is drawn in conversations and notes as in the chat; all of it is wide.
RICH = f"""
- [ ] a box
- [x] and another

```python
print({" + ".join(f'"a long line of code {n}"' for n in range(9))})
```

$$\\sum_{{n=1}}^{{\\infty}} {" + ".join(f"x_{{{n}}}^2" for n in range(30))}$$

|{" a heading |" * 12}
|{"---|" * 12}
|{" some words |" * 12}
"""

# What cannot be brought into sight sideways, and what is cut off; what is for readers alone, and
# what scrolls by itself, is neither.
CUT = """() => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  const found = wide > 0 ? [`the page is ${wide} px too wide`] : [];
  const scrolls = (each) => /auto|scroll/.test(getComputedStyle(each).overflowX);
  for (const each of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(each);
    const box = each.getBoundingClientRect();
    if (!each.checkVisibility({ visibilityProperty: true }) || box.width <= 1) continue;
    if (each.closest(".unseen, .skip, [popover], svg *, math *")) continue;
    let around = each.parentElement;
    while (around && !scrolls(around)) around = around.parentElement;
    const name = `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 40)}`;
    const isBeyond = box.right > innerWidth + 1 || box.left < -1;
    if (!around && isBeyond) found.push(`beyond the edge: ${name}`);
    const hides = /hidden|clip/.test(style.overflowX) && each.scrollWidth > each.clientWidth + 1;
    if (hides && each.tagName !== "INPUT") found.push(`cut off: ${name}`);
  }
  return found;
}"""
# Until the keys have scrolled an element; nothing of the page may evaluate a text.
SCROLLED = """each => new Promise((done) => {
  const look = () => (each.scrollLeft > 0 ? done() : requestAnimationFrame(look));
  look();
})"""
HERE = "document.activeElement.closest('main') !== null"
# What reaches beyond the window, unless something around it scrolls by itself or cuts it off.
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def answer() -> ScriptedModel:
    said = Message("assistant", (Text(f"# {HOSTILE}\n\n<script>alert(2)</script>\n{RICH}"),))
    return ScriptedModel(script=lambda _: Reply(said, "end", Usage(3_000, 70, 500)))


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def program(tmp_path_factory):
    """The program, where people with hostile names wrote, and the owner as well."""
    folder = tmp_path_factory.mktemp("pages")
    notes = folder / "workspace" / "memory"
    notes.mkdir(parents=True)
    faded = f"- {HOSTILE} again <!-- agent 2020-01-01 -->"
    note = f"- {HOSTILE}\n{faded}\n- [ ] a task\n\n## Drawn\n{RICH}"
    (notes / "2026-11-20.md").write_text(note, "utf-8")
    agent = {"model": "claude-sonnet-5-5", "timezone": "UTC", "name": HOSTILE}
    limits = {"in_all": {"day_usd": 1.0}}
    dashboard = {"port": 0, "token": TOKEN}
    async with whole_page(
        folder, model=answer(), agent=agent, limits=limits, dashboard=dashboard
    ) as page:
        await page.write("hello", sender=HOSTILE)
        await page.write("hello", sender="ada")
        await page.chat(f"hello {HOSTILE}", token=TOKEN)
        yield page


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def known(browser, program):
    """What a browser keeps that was let in by the form."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(program.url)
    await page.fill("input[type=password]", TOKEN)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#state[data-state=open]")
    state = await context.storage_state()
    await context.close()
    return state


class Visit:
    """One browser window that notes what goes wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        self.size = 0
        self._url = url
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self._dialog(dialog.message))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.wrong.append(f"console: {said.text}")

    def _request(self, request: Request) -> None:
        asked = urlsplit(request.url)
        if asked.scheme not in {"data", "blob"} and asked.netloc != urlsplit(self._url).netloc:
            self.wrong.append(f"asks {request.url}")

    def _dialog(self, message: str) -> None:
        self.wrong.append(f"dialog: {message}")

    async def open(self, path: str) -> None:
        await self.page.goto(f"{self._url.rstrip('/')}{path}")
        await self.page.wait_for_load_state("load")
        if path == "/":
            await self.page.wait_for_selector("#state[data-state=open]")

    async def look(self) -> list[str]:
        """What is wrong with what is shown."""
        return await self.layout() + await self._faults() + self.wrong

    async def layout(self) -> list[str]:
        """What is wrong without axe-core."""
        found, page = list[str](), self.page
        wide = await page.evaluate(TOO_WIDE)
        if wide > 0:
            found.append(f"{wide} px too wide")
        if await page.locator("img[src='x'], main script").count():
            found.append("a name became an element")
        if await page.locator("h1").count() == 0 or not await page.title():
            found.append("no title")
        return found

    async def _faults(self) -> list[str]:
        """What axe-core finds; the page's own policy stays in force."""
        source = await asyncio.to_thread(
            (AXE / "node_modules" / "axe-core" / "axe.min.js").read_text, "utf-8"
        )
        session: Any = await self.page.context.new_cdp_session(self.page)
        run = "axe.run({resultTypes: ['violations']})"
        await session.send("Runtime.evaluate", {"expression": source})
        said: dict[str, Any] = await session.send(
            "Runtime.evaluate",
            {
                "expression": f"{run}.then(found => found.violations.flatMap("
                "each => each.nodes.map(node => `${each.id}: ${node.html}`)))",
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        await session.detach()
        return said["result"]["value"]

    async def by_keyboard(self) -> list[str]:
        """Whether the first thing is a way past the menu, and Tab alone reaches the content."""
        page, found = self.page, list[str]()
        has_any = await page.locator("main :is(a, button, input, summary, [tabindex='0'])").count()
        for _ in range(MOST_TABS if has_any else 0):
            if await page.evaluate(HERE):
                break
            await page.keyboard.press("Tab")
        else:
            found += ["Tab does not reach the content"] if has_any else []
        skip = page.locator(":is(a, button, input, summary, [tabindex]):not([tabindex='-1'])").first
        if not await skip.evaluate("each => each.matches('.skip')"):
            return [*found, "the first thing is no skip link"]
        await skip.focus()
        await page.keyboard.press("Enter")
        wanted = await skip.evaluate("each => each.hash")
        if not await page.evaluate("where => document.activeElement.matches(where)", wanted):
            found.append("the skip link does not lead to the content")
        return found


async def window(
    browser: Browser, screen: tuple[int, int, str, str], state: StorageState | None = None
) -> BrowserContext:
    width, height, scheme, locale = screen
    return await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        locale=locale,
        storage_state=state,
        service_workers="block",  # so that each page is the program's own
    )


@pytest.mark.parametrize(
    "screen",
    sample(SCREENS[2:4], SCREENS[:2] + SCREENS[4:]),
    ids=lambda each: "-".join(map(str, each)),
)
async def test_every_page_is_for_everybody(browser, program, known, screen):
    await asyncio.to_thread(install, AXE)
    context = await window(browser, screen, known)
    wrong: dict[str, list[str]] = {}
    visit = Visit(await context.new_page(), program.url)
    for number, path in enumerate(PATHS):
        if (number + SCREENS.index(screen)) % 2:
            continue
        visit.wrong = []
        await visit.open(path)
        if screen[0] == BETWEEN:
            wrong[path] = await visit.layout() + visit.wrong
        else:
            wrong[path] = await visit.look() + await visit.by_keyboard()
    await context.close()
    stranger = await window(browser, screen)
    visit = Visit(await stranger.new_page(), program.url)
    await visit.open("/login")
    wrong["/login"] = await visit.look()
    await stranger.close()
    assert {path: each for path, each in wrong.items() if each} == {}


@pytest.mark.proof
@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
async def test_every_page_can_be_read_when_all_is_drawn_four_times_as_large(
    browser, program, known, locale
):
    """As WCAG 1.4.10 has it: 1280 by 1024 px at 400 %, which is as much as 640 by 512 at 200 %."""
    context = await browser.new_context(
        viewport={"width": 320, "height": 256},
        device_scale_factor=4,
        locale=locale,
        storage_state=known,
    )
    visit = Visit(await context.new_page(), program.url)
    wrong: dict[str, list[str]] = {}
    await visit.open("/conversations")
    talk = await visit.page.locator("main li a").first.get_attribute("href")
    for path in (*PATHS, str(talk), "/memory/shared/edit?path=shared/a.md", "/settings/start"):
        await visit.open(path)
        await visit.page.evaluate(
            "document.querySelectorAll('main details').forEach((each) => { each.open = true; })"
        )
        if cut := await visit.page.evaluate(CUT):
            wrong[path] = cut
    await context.close()
    assert wrong == {}


# A page of each kind, the way that is marked there, and how.
WAYS = "a:not(#talks a)"  # to the other pages; the chat has its conversations above them
MARKED = [
    ("/", "/", "page"),
    ("/usage", "/usage", "page"),
    (f"/memory/file?{NOTE}", "/memory", "true"),
    ("/settings/start", "/settings", "true"),
]


@pytest.mark.parametrize(
    "screen", sample([(320, 640, "dark", "zh-CN")], [(1000, 700, "light", "en-GB")])
)
async def test_where_there_is_no_room_a_button_opens_the_menu(browser, program, known, screen):
    await asyncio.to_thread(install, AXE)
    context = await window(browser, screen, known)
    visit = Visit(await context.new_page(), program.url)
    page = visit.page
    menu, button = page.locator("#ways"), page.locator(".opens")
    for path, way, mark in MARKED:
        await visit.open(path)
        await expect(menu).to_be_hidden()
        await button.press("Enter")
        await expect(menu).to_be_visible()
        await expect(menu.locator(WAYS)).to_have_count(len(pages.menu()))
        here = menu.locator(f"{WAYS}[aria-current]")
        await expect(here).to_have_attribute("href", way)
        await expect(here).to_have_attribute("aria-current", mark)
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.closest('#ways') !== null")
        assert await visit.look() == []
        await page.keyboard.press("Escape")
        await expect(menu).to_be_hidden()
        await expect(button).to_be_focused()
    await context.close()


async def test_where_there_is_room_the_menu_stands_beside_the_page(browser, program, known):
    context = await window(browser, SCREENS[-1], known)
    visit = Visit(await context.new_page(), program.url)
    for path, way, mark in MARKED:
        await visit.open(path)
        await expect(visit.page.locator(".opens")).to_be_hidden()
        here = visit.page.locator(f"#ways {WAYS}[aria-current]")
        await expect(here).to_be_visible()
        await expect(here).to_have_attribute("href", way)
        await expect(here).to_have_attribute("aria-current", mark)
    await context.close()


async def test_the_menu_needs_no_script(browser, program, known):
    context = await browser.new_context(
        viewport={"width": 390, "height": 800}, java_script_enabled=False, storage_state=known
    )
    page = await context.new_page()
    await page.goto(f"{program.url}memory")
    await page.locator(".opens").click()
    await page.locator("#ways a[href='/account']").click()
    await page.wait_for_url("**/account")
    await page.locator(".opens").click()
    settings = page.locator("#ways a[href='/settings']")
    await expect(settings).to_be_hidden()
    await page.get_by_text("Administration").click()
    await settings.click()
    await page.wait_for_url("**/settings")
    await page.locator(".opens").click()
    await expect(settings).to_be_visible()  # the gear is open where one is behind it
    await context.close()


async def test_theme_and_language_are_switched_without_a_script(browser, program, known):
    context = await browser.new_context(
        viewport={"width": 1280, "height": 800}, java_script_enabled=False, storage_state=known
    )
    page = await context.new_page()
    await page.goto(f"{program.url}memory/file?{NOTE}")
    await page.get_by_role("button", name="Dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.url == f"{program.url}memory/file?{NOTE}"
    await page.get_by_role("button", name="中文").click()
    await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    await page.goto(f"{program.url}usage")
    await expect(page.get_by_role("button", name="深色")).to_have_attribute("aria-pressed", "true")
    await context.close()


async def test_the_numbers_of_a_picture_are_a_table_for_whoever_cannot_hover(
    browser, program, known
):
    await asyncio.to_thread(install, AXE)
    context = await window(browser, SCREENS[-1], known)
    visit = Visit(await context.new_page(), program.url)
    page = visit.page
    await visit.open("/usage")
    figure = page.locator("figure.picture").first
    name = await figure.locator("h2").inner_text()
    await expect(page.get_by_role("img", name=name)).to_be_visible()
    table = page.get_by_role("table", name=name)
    await expect(table).to_have_count(0)
    await figure.locator("summary").press("Enter")
    await expect(table).to_be_visible()
    await page.keyboard.press("Tab")  # what scrolls is scrolled by the keyboard
    await expect(figure.locator(".scroll")).to_be_focused()
    today, *hovered = (await figure.locator("g > title").last.text_content() or "").split("\n")
    row = table.get_by_role("row").filter(has_text=today)
    for each in hovered:
        await expect(row).to_contain_text(each.rpartition(": ")[2])
    assert await visit.look() == []
    await context.close()


async def test_a_name_is_shown_as_it_is(browser, program, known):
    context = await window(browser, SCREENS[-1], known)
    page = await context.new_page()
    await page.goto(f"{program.url}usage")
    assert HOSTILE in await page.locator("main").inner_text()
    await context.close()


async def test_a_note_is_changed_and_the_change_taken_back(browser, program, known):
    context = await window(browser, SCREENS[0], known)
    visit = Visit(await context.new_page(), program.url)
    page = visit.page
    await visit.open(f"/memory/edit?{NOTE}")
    before = await page.input_value("#text")
    assert HOSTILE in before
    await page.fill("#text", f"{before}- boats\n")
    await page.get_by_role("button", name="Save").click()
    await page.wait_for_url("**/memory/file?*")
    assert "boats" in await page.locator(".note").inner_text()
    await page.get_by_role("button", name="Undo").click()
    await page.locator(".note", has_not_text="boats").wait_for()
    await visit.open(f"/memory/edit?{NOTE}")
    assert await page.input_value("#text") == before
    await visit.open(f"/memory/file?{NOTE}#L1")
    assert await page.locator(".block:has(:target)").count() == 1
    assert visit.wrong == []
    await context.close()


@pytest.mark.parametrize("screen", [0, 1])
async def test_an_entry_is_edited_and_struck_out_without_scripts(browser, program, known, screen):
    width, height, scheme, locale = SCREENS[screen]
    word, save = ("blue", "Save") if locale == "en-GB" else ("蓝色", "保存")
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        locale=locale,
        color_scheme=scheme,
        java_script_enabled=False,
        storage_state=known,
    )
    page = await context.new_page()
    await page.goto(f"{program.url}memory")
    await page.locator("#entry").fill(f"the {word} boat is slow")
    await page.locator("form[action='/memory/add'] button").click()
    entry = page.locator(".kept li", has_text=f"the {word} boat")
    await entry.locator("a.button").click()
    await expect(page.locator("#text")).to_have_value(f"the {word} boat is slow")
    await page.locator("#text").fill(f"the {word} boat is fast & <b>red</b>")
    await page.get_by_role("button", name=save).click()
    await expect(page.locator(".done")).to_be_visible()
    await expect(entry.locator(".words")).to_have_text(f"the {word} boat is fast & <b>red</b>")
    await entry.locator("form[action='/memory/wrong'] button").click()
    await expect(page.locator(".done")).to_be_visible()
    await expect(entry).to_have_count(0)
    await context.close()


@pytest.mark.parametrize("screen", [0, 1])
async def test_reminders_are_edited_paused_and_cancelled(browser, program, known, screen):
    context = await window(browser, SCREENS[screen], known)
    visit = Visit(await context.new_page(), program.url)
    page = visit.page
    await program.chat(f"/remind every day at 15:00 water plant {screen}", token=TOKEN)
    await program.chat(f"/remind in 3 days {HOSTILE} {screen}", token=TOKEN)
    await visit.open("/reminders")
    plant = page.locator(".kept li", has_text=f"water plant {screen}").first
    await plant.locator("form:has([value=pause]) button").click()
    await expect(page.get_by_role("status")).to_be_visible()
    await plant.locator("form:has([value=resume]) button").click()
    await expect(plant.locator("form:has([value=pause])")).to_be_visible()
    assert await visit.look() == []
    await page.locator(".kept li", has_text=f"{HOSTILE} {screen}").locator("a").click()
    await expect(page.locator("#text")).to_have_value(f"{HOSTILE} {screen}")
    await page.fill("#text", f"boats {screen}")
    await page.fill("#when", "2001-01-01T10:00")
    assert await visit.look() == []
    await page.locator("main form button").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert visit.wrong == [
        "console: Failed to load resource: the server responded with a status of 409 (Conflict)"
    ]
    visit.wrong.clear()
    await page.fill("#when", f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%dT10:00}")
    await page.locator("main form button").click()
    boats = page.locator(".kept li", has_text=f"boats {screen}").first
    await boats.locator("form:has([value=cancel]) button").click()
    await expect(page.locator(".kept").last).to_contain_text(f"boats {screen}")
    assert await visit.look() == []
    await context.close()


async def test_conversations_and_notes_are_drawn_as_the_chat_is(browser, program, known):
    context = await window(browser, SCREENS[0], known)
    visit = Visit(await context.new_page(), program.url)
    page = visit.page
    await visit.open("/conversations")
    await page.locator("main li a").first.click()
    await page.wait_for_selector("article")
    for path in ("", f"/memory/file?{NOTE}"):
        if path:
            await visit.open(path)
        main = page.locator("main")
        await expect(main.locator(".code .s").first).to_be_visible()
        await expect(main.locator("math").first).to_be_visible()
        await expect(main.get_by_text("☑ and another")).to_be_visible()
        assert "☐ a box" in await main.inner_text()
        for wide in (".code pre", ".maths", ".table"):
            frame = main.locator(wide).first
            await frame.focus()
            assert await frame.evaluate("each => each.scrollWidth > each.clientWidth")
            await page.keyboard.press("ArrowRight")
            await frame.evaluate(SCROLLED)
        assert await visit.look() == []
    assert "☐ a task" in await page.locator("main").inner_text()
    await context.close()


async def test_the_chat_page_is_small(browser, program, known):
    context = await window(browser, SCREENS[0], known)
    page = await context.new_page()
    session: Any = await context.new_cdp_session(page)
    sizes: dict[str, float] = {}
    await session.send("Network.enable")

    def loaded(event: dict[str, Any]) -> None:
        sizes[event["requestId"]] = event["encodedDataLength"]

    session.on("Network.loadingFinished", loaded)
    visit = Visit(page, program.url)
    await visit.open("/")
    await page.wait_for_load_state("networkidle")
    await context.close()
    assert 0 < sum(sizes.values()) <= MOST_BYTES
