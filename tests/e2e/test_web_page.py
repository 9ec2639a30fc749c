"""The page in a real browser, against the real server."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from adapters.web.channel import ADDRESS
from bot.channel import Activity, HistoryItem, ModelChoice
from tests.e2e.conftest import Service
from tests.fakes.nginx import PathProxy
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

TOKEN = "0123456789abcdef0123456789abcdef"
DAY = 24 * 3600 * 1000  # ms
RICH = """# A title

Some **bold** text and a [link](https://example.org) and https://example.org/plain too.

```python
print("a line that is much longer than any phone is wide, so that it has to scroll by itself")
```

| one | two | three | four |
|-----|:---:|------:|------|
| a rather long cell | b | c | anotherratherlongcellwithoutanyspaces |

Averyveryveryveryveryveryveryveryveryveryveryveryveryverylongwordwithoutanyplacetobreakitanywhere.
"""
XSS = """<script>window.hacked = 1; alert(1)</script>

<img src=x onerror="window.hacked = 2; alert(2)">

[click](javascript:window.hacked=3) <a href="javascript:window.hacked=4">click</a>

![x](https://tracker.example/pixel.png)

<svg onload="window.hacked=5"></svg><iframe srcdoc="<script>parent.hacked=6</script>"></iframe>

```"><script>window.hacked=7</script>
code
```
"""


async def say(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.keyboard.press("Enter")


def lines(page: Page, role: str) -> Any:
    return page.locator(f"#log .line.{role} .body")


async def until(page: Page, condition: str) -> None:
    """Wait until an expression holds in the page.

    `Page.wait_for_function` asks again from the page's own timers, where the page's policy forbids
    `eval`: it works only when the first look succeeds. Each look here is a call of its own.
    """
    async with asyncio.timeout(60):
        while not await page.evaluate(condition):
            await page.evaluate("new Promise(requestAnimationFrame)")


async def no_sideways_scroll(page: Page) -> bool:
    return await page.evaluate(
        """() => [document.documentElement, document.body, document.getElementById("scroll")]
        .every((node) => node.scrollWidth <= node.clientWidth)"""
    )


# --- chatting -------------------------------------------------------------------------------------


async def test_an_empty_page_says_what_it_is_and_offers_a_start(page, service):
    await expect(page.locator("#empty h2")).to_have_text("Hello. This is a private conversation.")
    await expect(page.locator("#message")).to_be_focused()
    await expect(page.locator("#send")).to_be_disabled()
    await page.get_by_role("button", name="What can you do?").click()
    await expect(page.locator("#message")).to_be_focused()
    await expect(lines(page, "bot")).to_have_text(["You said: What can you do?"])
    await expect(page.locator("#empty")).to_be_hidden()


async def test_a_message_is_answered_and_still_there_after_a_reload(page, service):
    await say(page, "hello\n<b>you</b>")
    await expect(lines(page, "user")).to_have_text(["hello\n<b>you</b>"])
    await expect(lines(page, "bot")).to_have_count(1)
    await expect(page.locator("#log .rule.day")).to_have_text(["Today"])
    await expect(page.locator("#log time")).to_have_count(2)
    await page.reload()
    await expect(lines(page, "user")).to_have_text(["hello\n<b>you</b>"])
    await expect(lines(page, "bot")).to_have_count(1)
    assert len(service.engine.inbounds) == 1
    assert service.engine.inbounds[0].locale == "en-GB"


async def test_shift_enter_starts_a_new_line_and_the_box_grows(page, service):
    box = page.locator("#message")
    before = await box.bounding_box()
    await box.press_sequentially("one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("two")
    await expect(box).to_have_value("one\ntwo")
    after = await box.bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] > before["height"]
    await page.keyboard.press("Enter")
    await expect(lines(page, "user")).to_have_text(["one\ntwo"])
    await expect(box).to_have_value("")


async def test_enter_that_belongs_to_an_input_method_does_not_send(page, service):
    await page.fill("#message", "你好")
    await page.evaluate(
        """() => {
          const event = { key: "Enter", isComposing: true, bubbles: true, cancelable: true };
          document.getElementById("message").dispatchEvent(new KeyboardEvent("keydown", event));
        }"""
    )
    await expect(page.locator("#message")).to_have_value("你好")
    assert service.engine.attempts == []
    await page.keyboard.press("Enter")
    await expect(lines(page, "user")).to_have_text(["你好"])


async def test_a_reply_grows_and_is_replaced_by_the_whole(page, service):
    service.engine.gate = asyncio.Event()
    service.engine.replies["tell me"] = RICH
    await say(page, "tell me")
    draft = page.locator("#tail .draft .body")
    await expect(draft).to_contain_text("A title")
    await expect(lines(page, "bot")).to_have_count(0)
    service.engine.gate.set()
    await expect(lines(page, "bot")).to_have_count(1)
    await expect(draft).to_have_count(0)
    await expect(page.locator("#log .bot .body h3")).to_have_text("A title")


async def test_a_reload_in_the_middle_of_a_reply_shows_it_on(page, service):
    service.engine.gate = asyncio.Event()
    await say(page, "hello")
    await expect(page.locator("#tail .draft")).to_have_count(1)
    await page.reload()
    await expect(page.locator("#tail .draft")).to_have_count(1)
    service.engine.gate.set()
    await expect(lines(page, "bot")).to_have_text(["You said: hello"])
    await expect(page.locator("#tail .draft")).to_have_count(0)


async def test_tabs_stay_in_step(page, context, service):
    other = await context.new_page()
    await other.goto(service.url)
    await other.wait_for_selector("#state[data-state=open]")
    await say(page, "from one")
    await expect(lines(other, "user")).to_have_text(["from one"])
    await say(other, "from the other")
    for tab in (page, other):
        await expect(lines(tab, "user")).to_have_text(["from one", "from the other"])
        await expect(lines(tab, "bot")).to_have_count(2)
    assert len(service.engine.attempts) == 2


async def test_messages_while_away_are_counted_in_the_title_and_the_page_comes_back(page, service):
    await say(page, "hello")
    await expect(lines(page, "bot")).to_have_count(1)
    await page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
    )
    await service.engine.say("psst", "psst")
    await expect(page).to_have_title("(1) Pip & <i>Co</i>")
    await service.stop()
    await page.wait_for_selector("#state[data-state=closed]")
    at = service.engine.lines[-1].at
    service.engine.lines.append(HistoryItem("late", "bot", "said while the page was cut off", at))
    await service.start()
    await expect(page).to_have_title("(2) Pip & <i>Co</i>")
    await page.evaluate(
        """Object.defineProperty(document, 'hidden', { value: false, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"))"""
    )
    await expect(page).to_have_title("Pip & <i>Co</i>")
    await say(page, "after")  # it came back by itself
    await expect(lines(page, "user")).to_have_text(["hello", "after"])


async def test_old_days_and_conversations_are_told_apart(page, service):
    now = time.time_ns() // 1_000_000
    service.engine.lines = [
        HistoryItem("a", "user", "long ago", now - 500 * DAY),
        HistoryItem("b", "user", "yesterday", now - DAY),
        HistoryItem("c", "divider", "New conversation", now),
        HistoryItem("d", "user", "now", now),
    ]
    await page.reload()
    await expect(page.locator("#log .rule.divider")).to_have_text(["New conversation"])
    days = await page.locator("#log .rule.day").all_text_contents()
    assert re.search(r"\d{4}", days[0])
    assert days[1:] == ["Yesterday", "Today"]


async def test_one_reads_back_to_the_first_word(page, service):
    now = time.time_ns() // 1_000_000
    service.engine.lines = [
        HistoryItem(f"m{n}", "user", f"line {n}", now - (700 - n) * 3_600_000, f"s.{n}")
        for n in range(700)
    ]
    await page.reload()
    await expect(lines(page, "user")).to_have_count(200)
    # Coming near the top brings more, and what is read stays where it is.
    where = "[...document.querySelectorAll('#log .line')].find((n) => n.textContent.includes("
    where += "'line 505')).getBoundingClientRect().top"
    top = await page.evaluate(f"document.getElementById('scroll').scrollTop = 300, {where}")
    await expect(lines(page, "user").first).to_have_text("line 400")
    assert abs(await page.evaluate(where) - top) <= 2
    # By the keyboard alone, which keeps its place.
    await page.locator("#older").press("Enter")
    await until(page, "document.querySelectorAll('#log .line').length > 300")
    assert await page.evaluate("document.activeElement.id") == "older"
    # By scrolling, to the first word there is.
    while await page.locator("#older").is_visible():
        await page.evaluate("document.getElementById('scroll').scrollTop = 0")
        await page.evaluate("new Promise(requestAnimationFrame)")
    texts = await lines(page, "user").all_text_contents()
    assert texts == [f"line {n}" for n in range(700)]
    days = await page.locator("#log .rule.day").all_text_contents()
    assert len(days) == len(set(days))
    # Back at the end most of it is let go of, and can be read again.
    await page.evaluate("document.getElementById('scroll').scrollTop = 10 ** 9")
    await expect(page.locator("#older")).to_be_visible()
    assert await lines(page, "user").count() <= 500
    await expect(lines(page, "user").last).to_be_in_viewport()


async def test_another_conversation_takes_the_place_of_the_one_before(page, context, service):
    other = await context.new_page()
    await other.goto(service.url)
    await say(page, "hello")
    await expect(lines(other, "bot")).to_have_count(1)
    service.engine.lines = [
        HistoryItem("c", "divider", "Back in `it`.", service.engine.lines[0].at)
    ]
    await service.engine.say("A new day.", "n1", begins="x")
    for tab in (page, other):
        await expect(lines(tab, "bot")).to_have_text(["A new day."])
        await expect(lines(tab, "user")).to_have_count(0)
        await expect(tab.locator("#log .rule.divider")).to_have_text(["Back in it."])


async def test_a_command_of_which_only_the_answer_counts_leaves_no_bubble(page, context, service):
    other = await context.new_page()
    await other.goto(service.url)
    await say(page, "/think")
    for tab in (page, other):
        await expect(lines(tab, "bot")).to_have_count(1)
    mine = service.engine.lines[0].id
    await service.engine.say("<b>High</b> from now on", "n1", aside=mine)
    for tab in (page, other):
        await expect(lines(tab, "user")).to_have_count(0)
        await expect(tab.locator("#log .rule.divider")).to_have_text(["<b>High</b> from now on"])


async def test_new_messages_do_not_pull_a_reader_down(page, service):
    service.engine.replies["long"] = "\n\n".join(f"paragraph {n}" for n in range(80))
    await say(page, "long")
    await expect(lines(page, "bot")).to_have_count(1)
    await until(
        page,
        "() => { const s = document.getElementById('scroll');"
        " return s.scrollTop + s.clientHeight >= s.scrollHeight - 2 && s.scrollTop > 500 }",
    )
    await page.evaluate("document.getElementById('scroll').scrollTop = 0")
    await until(page, "document.getElementById('scroll').scrollTop === 0")
    await service.engine.say("more", "more")
    await expect(page.locator("#newer")).to_be_visible()
    assert await page.evaluate("document.getElementById('scroll').scrollTop") == 0
    await page.locator("#newer").click()
    await expect(page.locator("#newer")).to_be_hidden()
    await expect(lines(page, "bot").last).to_be_in_viewport()


async def test_code_can_be_copied(page, context, service):
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = 'def tea(n):\n\treturn "<b>" * n  # &amp;\n'
    service.engine.replies["code"] = f"```python\n{code}```"
    await say(page, "code")
    await expect(page.locator("#log .code-bar span")).to_have_text("python")
    copy = page.locator("#log .code-bar button")
    await copy.click()
    await expect(copy).to_have_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == code
    ink = "(n) => getComputedStyle(n).color"
    words = [page.locator(f"#log .code .{kind}").first for kind in "knsc"]
    assert len({await word.evaluate(ink) for word in [page.locator("#log pre"), *words]}) == 5


async def test_formulas_are_drawn_and_stay_within_the_page(page, service):
    wide = " + ".join(f"x_{{{number}}}" for number in range(90))
    service.engine.replies["maths"] = f"It is $\\frac{{a}}{{b}}$, for $5.\n\n$$\n{wide}\n$$"
    await say(page, "maths")
    small, large = (page.locator(f"#log math[display={each}]") for each in ("inline", "block"))
    await expect(large).to_be_visible()
    above, below = [await small.locator("mi").nth(number).bounding_box() for number in range(2)]
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"] + 1  # a over b
    await expect(small).to_have_attribute("alttext", "\\frac{a}{b}")
    await expect(page.locator("#log .bot .body p").first).to_contain_text("for $5.")
    assert await no_sideways_scroll(page)
    await page.locator("#log .maths").focus()
    await expect(page.locator("#log .maths")).to_be_focused()


# --- commands and the keyboard --------------------------------------------------------------------


async def test_commands_are_completed_by_keyboard(page, service):
    options = page.get_by_role("option")
    await page.keyboard.type("/")
    await expect(options).to_have_count(8)
    await expect(options.first).to_have_attribute("aria-selected", "true")
    await page.keyboard.type("st")
    await expect(options).to_have_count(2)
    await page.keyboard.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    chosen = await options.nth(1).get_attribute("id")
    await expect(page.locator("#message")).to_have_attribute("aria-activedescendant", chosen or "")
    await page.keyboard.press("ArrowDown")
    await expect(options.nth(0)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_have_value("/status")
    await expect(page.locator("#completion")).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(lines(page, "user")).to_have_text(["/status"])


async def test_tab_and_a_click_complete_and_escape_closes_the_completion(page, service):
    message, completion = page.locator("#message"), page.locator("#completion")
    await page.keyboard.type("either /new or")  # inside a text it is just a slash
    await expect(completion).to_be_hidden()
    await message.fill("")
    await page.keyboard.type("/mo")
    await page.keyboard.press("Tab")
    await expect(message).to_have_value("/model ")  # with room for what follows
    await expect(message).to_be_focused()
    await expect(completion).to_be_hidden()
    await message.fill("")
    await page.keyboard.type("/")
    await page.get_by_role("option", name="/undo").click()
    await expect(message).to_have_value("/undo")
    await expect(message).to_be_focused()
    await message.fill("")
    await page.keyboard.type("/ne")
    await expect(completion).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(completion).to_be_hidden()
    await page.keyboard.type("w")
    await page.keyboard.press("Enter")
    await expect(lines(page, "user")).to_have_text(["/new"])


async def test_everything_is_reached_by_tab_in_order(page, service):
    await expect(page.locator("#model")).to_be_visible()
    await page.locator(".skip").focus()
    reached: list[str] = []
    while "message" not in reached and len(reached) < 40:
        await page.keyboard.press("Tab")
        reached.append(
            await page.evaluate(
                "document.activeElement.id || document.activeElement.className"
                " || document.activeElement.textContent"
            )
        )
    begin = reached.index("model")
    assert "Conversations" in reached[:begin]  # the menu of pages
    assert reached[begin : begin + 3] == ["model", "temporary-open", "fresh"]
    assert reached[begin + 3 : begin + 5] == ["scroll", "What can you do?"]
    assert reached[begin + 8 :] == ["attach", "message"]
    await page.locator(".skip").focus()
    await expect(page.locator(".skip")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_be_focused()


# --- sizes, colours, languages --------------------------------------------------------------------


@pytest.mark.parametrize("context_options", [{"viewport": {"width": 360, "height": 640}}])
async def test_nothing_overflows_on_a_small_phone(page, service):
    assert await no_sideways_scroll(page)
    service.engine.replies["x" * 400] = RICH
    await say(page, "x" * 400)
    await expect(lines(page, "bot")).to_have_count(1)
    assert await no_sideways_scroll(page)
    await page.keyboard.type("/")
    await expect(page.locator("#completion")).to_be_visible()
    assert await no_sideways_scroll(page)
    await expect(page.locator("#send")).to_be_in_viewport()
    await expect(page.get_by_role("button", name="New conversation")).to_be_in_viewport()


@pytest.mark.parametrize("context_options", [{"color_scheme": "light"}])
async def test_the_theme_is_switched_at_once_and_kept(page, service, context_options):
    dark = page.get_by_role("button", name="Dark")
    await expect(page.get_by_role("button", name="System")).to_have_attribute(
        "aria-pressed", "true"
    )
    async with page.expect_response("**/look"):
        await dark.click()
    assert await luminance(page, "body", "backgroundColor") < 0.1
    await page.reload(wait_until="commit")
    await expect(dark).to_have_attribute("aria-pressed", "true")
    assert await luminance(page, "body", "backgroundColor") < 0.1
    async with page.expect_response("**/look"):
        await page.get_by_role("button", name="System").click()
    assert await luminance(page, "body", "backgroundColor") > 0.8


async def test_the_language_is_switched_and_the_bot_hears_of_it(page, service):
    await page.fill("#message", "a draft")
    await page.get_by_role("button", name="中文").click()
    await expect(page.locator("#hint")).to_have_text(re.compile("Enter 发送"))
    await expect(page.locator("#message")).to_have_value("a draft")
    await expect(page.locator("#ways-list")).to_contain_text("聊天")
    await page.wait_for_selector("#state[data-state=open]")
    await say(page, "你好")
    await expect(lines(page, "bot")).to_have_count(1)
    assert service.engine.inbounds[0].locale == "zh"
    await page.get_by_role("button", name="English").click()
    await expect(page.locator("#hint")).to_have_text(re.compile("Enter sends"))
    await page.wait_for_selector("#state[data-state=open]")
    await say(page, "hello")
    await expect(lines(page, "bot")).to_have_count(2)
    assert service.engine.inbounds[1].locale == "en-GB"


async def test_the_page_follows_the_bots_language_where_none_was_chosen(page, service):
    async def ways(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json=await answer.json() | {"language": speaks})

    speaks = "zh"
    await page.route("**/api/ways", ways)
    await page.reload()
    await expect(page.locator("#hint")).to_have_text(re.compile("Enter 发送"))
    speaks = "auto"
    await page.reload()
    await expect(page.locator("#hint")).to_have_text(re.compile("Enter sends"))
    await page.get_by_role("button", name="English").click()
    speaks = "zh"
    async with page.expect_response("**/api/ways"):
        await page.reload()
    await expect(page.locator("#hint")).to_have_text(re.compile("Enter sends"))


@pytest.mark.parametrize(
    "context_options", sample([{"color_scheme": "dark"}], [{"color_scheme": "light"}])
)
async def test_text_has_contrast_in_both_schemes(page, service, context_options):
    await say(page, "hello")
    await expect(lines(page, "bot")).to_have_count(1)
    paper = await luminance(page, "body", "backgroundColor")
    assert (paper < 0.1) == (context_options["color_scheme"] == "dark")
    pairs = [("#log .bot .body", "body"), ("#log .user .body", "#log .user .body")]
    pairs += [("#log time", "body"), ("#hint", "body"), ("#send", "#send"), ("#fresh", "body")]
    for text, behind in pairs:
        one = await luminance(page, text, "color")
        two = await luminance(page, behind, "backgroundColor")
        assert (max(one, two) + 0.05) / (min(one, two) + 0.05) >= 4.5, text


async def luminance(page: Page, selector: str, style: str) -> float:
    """The relative luminance of a colour, as WCAG defines it."""
    if selector == "#send":
        await page.fill("#message", "x")  # a disabled button is exempt
    value = await page.locator(selector).first.evaluate(
        "(node, style) => getComputedStyle(node)[style]", style
    )
    channels = [int(part) / 255 for part in re.findall(r"\d+", value)[:3]]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("context_options", [{"locale": "zh-CN"}])
async def test_chinese_browsers_get_chinese(page, service):
    await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    await expect(page.locator("#empty h2")).to_have_text("你好，这里是私密对话。")
    await expect(page.locator("#state-text")).to_have_text("已连接")
    await page.keyboard.type("/")
    await expect(page.get_by_role("option").first).to_contain_text("开始新对话")
    await page.fill("#message", "")
    await say(page, "你好")
    await expect(page.locator("#log .rule.day")).to_have_text(["今天"])
    assert service.engine.inbounds[0].locale == "zh-CN"


@pytest.mark.parametrize("context_options", [{"reduced_motion": "reduce"}])
async def test_reduced_motion_is_respected(page, service):
    await page.evaluate("document.getElementById('typing').hidden = false")
    duration = await page.locator(".dots i").first.evaluate(
        "(node) => parseFloat(getComputedStyle(node).animationDuration)"
    )
    assert duration < 0.001


# --- safety ---------------------------------------------------------------------------------------


async def test_attacks_stay_text_and_nothing_is_loaded_from_elsewhere(page, context, service):
    dialogs: list[str] = []
    foreign: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))

    async def watch(route: Route) -> None:
        if not route.request.url.startswith(service.url):
            foreign.append(route.request.url)
        await route.continue_()

    await context.route("**/*", watch)
    service.engine.gate = asyncio.Event()
    service.engine.replies[XSS.strip()] = XSS
    await say(page, XSS)
    await expect(page.locator("#tail .draft")).to_have_count(1)
    service.engine.gate.set()
    await expect(lines(page, "bot")).to_have_count(1)
    await page.reload()
    await expect(lines(page, "bot")).to_have_count(1)
    for link in await page.locator("#log .bot a").all():
        assert await link.get_attribute("rel") == "noopener noreferrer nofollow"
        assert (await link.get_attribute("href") or "").startswith("https://")
    bad = "#log :is(script, img, svg, iframe, [onerror], [onload], [style])"
    assert await page.locator(bad).count() == 0
    assert await page.evaluate("window.hacked") is None
    assert dialogs == []
    assert foreign == []


async def test_the_policy_of_the_page_stops_what_would_get_in_anyway(context, service):
    page = await context.new_page()
    await page.goto(service.url)
    await page.wait_for_selector("#state[data-state=open]")
    await page.evaluate(
        """() => {
            const log = document.getElementById("log");
            log.innerHTML = '<img src="x" onerror="window.hacked = 1"><b style="color:red">x</b>';
            const image = log.querySelector("img");
            return new Promise((done) => image.addEventListener("error", () => done()));
        }"""
    )
    assert await page.evaluate("window.hacked") is None
    colour = await page.locator("#log b").evaluate("(node) => getComputedStyle(node).color")
    assert colour != "rgb(255, 0, 0)"


@pytest.mark.parametrize("token", ["correct-horse-battery-staple"])
async def test_a_token_opens_the_page_once_for_all(context, service, token):
    page = await context.new_page()
    await page.goto(service.url)
    await expect(page).to_have_url(f"{service.url}login")
    await expect(page.get_by_label("Access token")).to_be_focused()
    await page.keyboard.type("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("That is not the access token.")
    await page.get_by_label("Access token").fill(token)
    await page.get_by_role("button", name="Open").click()
    await expect(page).to_have_url(service.url)
    await page.wait_for_selector("#state[data-state=open]")
    await say(page, "hello")
    await expect(lines(page, "bot")).to_have_text(["You said: hello"])
    assert await page.evaluate("document.cookie") == ""
    await context.clear_cookies()
    await service.stop()
    await service.start()
    await page.wait_for_url(f"{service.url}login")


# --- when the connection breaks -------------------------------------------------------------------


async def test_an_unconfirmed_message_is_sent_again_once_after_a_restart(page, service):
    await page.clock.install()
    await service.stop()
    await expect(page.locator("#banner")).to_be_visible()
    # From here on it does not come back by itself.
    await page.clock.pause_at(await page.evaluate("Date.now()") + 60_000)
    await expect(page.locator("#state")).to_have_attribute("data-state", "closed")
    await say(page, "written while away")
    await expect(page.locator("#log .line.user .note")).to_have_text("Waiting to be sent")
    assert service.engine.attempts == []
    await service.start()
    await page.locator("#banner-retry").click()
    await page.clock.resume()
    await expect(lines(page, "bot")).to_have_text(["You said: written while away"])
    await expect(page.locator("#banner")).to_be_hidden()
    await expect(page.locator("#log .line.user .note")).to_be_hidden()
    await page.reload()
    await expect(lines(page, "user")).to_have_text(["written while away"])
    assert len(service.engine.attempts) == 1
    assert await page.evaluate("localStorage.length") == 0


async def test_a_message_outlives_a_reload_before_it_is_confirmed(page, service):
    service.engine.hold = asyncio.Event()
    await say(page, "one")
    await say(page, "two")
    await until(page, "localStorage.length === 2")
    while not service.engine.attempts:
        await page.evaluate("0")  # a turn of the page's own loop
    await page.reload()
    await expect(page.locator(".line.user .body")).to_have_text(["one", "two"])
    service.engine.hold.set()
    await expect(lines(page, "bot")).to_have_text(["You said: one", "You said: two"])
    assert [inbound.text for inbound in service.engine.inbounds] == ["one", "two"]
    await until(page, "localStorage.length === 0")


async def test_a_message_the_bot_cannot_store_is_kept_told_and_sent_again(page, service):
    service.engine.failures = 1
    await say(page, "hello")
    note = page.locator("#log .line.user .note")
    await expect(note).to_contain_text("kept here and will be sent again")
    assert await page.evaluate("localStorage.length") == 1
    await expect(lines(page, "bot")).to_have_text(["You said: hello"])
    await expect(note).to_be_hidden()
    assert len(set(service.engine.attempts)) == 1
    assert len(service.engine.inbounds) == 1


async def test_a_message_too_long_stays_in_the_box_with_a_word(page, service):
    text = "字" * 22_000
    await say(page, text)
    await expect(page.locator("#banner-text")).to_contain_text("too long")
    await expect(page.locator("#message")).to_have_value(text)
    assert service.engine.attempts == []
    await say(page, "short")
    await expect(page.locator("#banner")).to_be_hidden()
    await expect(lines(page, "user")).to_have_text(["short"])


async def test_the_page_quietly_says_that_memory_is_saved_and_then_what(page, service):
    await say(page, "hello")
    await expect(lines(page, "bot")).to_have_text(["You said: hello"])
    activity = page.locator("#activity")
    await expect(activity).to_be_hidden()
    web = service.engine.web
    await web.activity(ADDRESS, Activity("a.saving", "saving", "begun"))
    await expect(activity).to_have_text("Saving what matters…")
    assert await activity.get_attribute("role") == "status"
    await web.activity(ADDRESS, Activity("a.saving", "saving", "done", "memory/2026-11-22.md:4"))
    await expect(activity).to_have_text("Saved: memory/2026-11-22.md:4")
    await web.activity(ADDRESS, Activity("a.summarising", "summarising", "begun"))
    await expect(activity).to_have_text("Summarising the older part…")
    await web.activity(ADDRESS, Activity("a.summarising", "summarising", "done"))
    await expect(activity).to_be_hidden()
    await expect(lines(page, "bot")).to_have_count(1)


async def test_what_the_model_thinks_can_be_unfolded_and_is_gone_when_it_has_thought(page, service):
    web, thinking = service.engine.web, Activity("7.thinking", "thinking", "begun")
    summary, thought = page.locator("#doing summary"), page.locator("#thought")
    await expect(summary).to_be_hidden()
    await web.activity(ADDRESS, thinking)
    await expect(summary).to_have_text("Thinking…")
    await web.activity(ADDRESS, replace(thinking, text="First <b>this</b>.\n" * 40 + "Then that."))
    await expect(thought).to_be_hidden()  # until somebody wants to see it
    await summary.focus()
    await page.keyboard.press("Enter")
    await expect(thought).to_be_visible()
    await expect(thought).to_contain_text("First <b>this</b>.")
    assert await thought.evaluate("(n) => n.scrollTop + n.clientHeight >= n.scrollHeight - 2")
    assert await no_sideways_scroll(page)
    await page.keyboard.press("Tab")
    await expect(thought).to_be_focused()  # so the keyboard can scroll it
    await web.activity(ADDRESS, replace(thinking, state="done"))
    await expect(summary).to_be_hidden()
    await expect(thought).to_have_text("")
    await service.engine.say("The answer.", "m1")
    await expect(lines(page, "bot")).to_have_text(["The answer."])
    await web.activity(ADDRESS, replace(thinking, text="Next."))
    await expect(thought).to_be_visible()  # as it was left
    await service.stop()
    await expect(summary).to_be_hidden()


@pytest.mark.parametrize("context_options", [{"locale": "zh-CN"}])
async def test_the_page_says_so_in_chinese(page, service):
    await service.engine.web.activity(ADDRESS, Activity("a.saving", "saving", "begun"))
    await expect(page.locator("#activity")).to_have_text("正在保存重要的内容…")
    await service.stop()  # whoever cannot see its end does not see it for ever
    await expect(page.locator("#activity")).to_be_hidden()


# --- the model ------------------------------------------------------------------------------------


async def test_the_model_that_answers_stands_there_and_is_changed_by_the_keyboard(page, service):
    button = page.get_by_role("button", name="Model: scripted/one")
    await expect(button).to_have_text("one")
    await expect(button).to_have_attribute("aria-expanded", "false")
    await button.focus()
    await page.keyboard.press("ArrowDown")
    menu = page.get_by_role("menu", name="Models")
    await expect(menu).to_be_visible()
    await expect(page.get_by_role("menuitemradio", name="scripted/one")).to_be_focused()
    await expect(page.get_by_role("menuitemradio", checked=True)).to_have_text("scripted/one")
    costs = page.get_by_role("menuitem", name="Usage & costs")
    await expect(costs).to_have_attribute("href", "/usage")
    await page.keyboard.press("End")
    await expect(costs).to_be_focused()
    await page.keyboard.press("ArrowDown")  # round to the first
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("menuitemradio", name="scripted/two")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu).to_be_hidden()
    await expect(button).to_be_focused()
    service.engine.choice = replace(service.engine.choice, chosen="scripted/two")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(lines(page, "bot")).to_have_text(["You said: /model scripted/two"])
    await expect(page.get_by_role("button", name="Model: scripted/two")).to_have_text("two")


async def test_the_menu_of_models_closes_by_itself_and_an_own_choice_says_nothing(page, service):
    button, menu = page.locator("#model"), page.locator("#models")
    await button.click()
    await page.keyboard.press("Tab")
    await expect(menu).to_be_hidden()
    await button.click()
    await page.locator("#message").click()
    await expect(menu).to_be_hidden()
    await button.click()
    await page.get_by_role("menuitemradio", name="scripted/one").click()
    await expect(menu).to_be_hidden()
    assert service.engine.attempts == []


async def test_of_many_models_some_are_offered_and_the_others_named_by_the_command(page, service):
    many = tuple(f"router/maker/model-{number}" for number in range(40))
    service.engine.choice = ModelChoice("local/x", "router/maker/model-3", many, 12)
    await say(page, "hello")
    button = page.locator("#model")
    await expect(button).to_have_text("maker/model-3")  # it stands in, and answers
    await button.click()
    # What was chosen is there, though the service does not name it.
    await expect(page.get_by_role("menuitemradio", checked=True)).to_have_text("local/x")
    await expect(page.get_by_role("menuitemradio")).to_have_count(41)
    await page.get_by_role("menuitem", name="12 more with /model").click()
    await expect(page.locator("#message")).to_be_focused()
    await expect(page.locator("#message")).to_have_value("/model ")


@pytest.mark.parametrize(
    "context_options",
    sample(
        [{"viewport": {"width": 320, "height": 640}}],
        [{"locale": "zh-CN", "color_scheme": "dark"}],
    ),
)
async def test_the_menu_of_models_fits_a_phone(page, service):
    service.engine.choice = ModelChoice(
        "anthropic/claude-sonnet-5-5",
        offered=(
            "anthropic/claude-sonnet-5-5",
            "router/a-maker-with-a-long-name/a-model-with-a-name-that-is-even-longer-than-that",
        ),
    )
    await say(page, "hello")
    await expect(page.locator("#model-name")).to_have_text("claude-sonnet-5-5")
    await page.locator("#model").click()
    await expect(page.locator("#models")).to_be_visible()
    assert await no_sideways_scroll(page)
    box, size = await page.locator("#models").bounding_box(), page.viewport_size
    assert box is not None
    assert size is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size["width"]


# --- a page to live in ----------------------------------------------------------------------------


async def test_only_the_conversation_scrolls_and_the_page_stays(page, service):
    for number in range(40):
        service.engine.lines.append(HistoryItem(f"l{number}", "bot", "word " * 60, number))
    await page.reload()
    await expect(lines(page, "bot")).to_have_count(40)
    await page.mouse.move(300, 20)
    await page.mouse.wheel(0, 500)
    assert await page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert await page.evaluate("scrollY") == 0


async def test_the_bot_is_called_by_its_name_and_types_until_its_reply(page, service):
    await expect(page.locator("h1")).to_have_text("Pip & <i>Co</i>")
    await expect(page).to_have_title("Pip & <i>Co</i>")
    await say(page, "hello")
    await expect(page.locator("#log .line.bot h2")).to_have_text(["Pip & <i>Co</i>"])
    await service.engine.web.typing(ADDRESS)
    await expect(page.locator("#typing")).to_contain_text("Pip & <i>Co</i> is writing…")
    await service.engine.say("second", "second")
    await expect(page.locator("#typing")).to_be_hidden()
    zone = await page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    assert service.engine.inbounds[0].zone == zone


@pytest.mark.parametrize(
    "context_options",
    [{"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}],
)
async def test_on_a_phone_enter_begins_a_new_line(page, service):
    await page.locator("#message").press_sequentially("one")
    await page.keyboard.press("Enter")
    await page.locator("#message").press_sequentially("two")
    await expect(page.locator("#message")).to_have_value("one\ntwo")
    await page.locator("#send").click()
    await expect(lines(page, "user")).to_have_text(["one\ntwo"])
    assert [inbound.text for inbound in service.engine.inbounds] == ["one\ntwo"]


FORBIDDEN = """for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("no", "SecurityError"); } });
}"""
ODD_LOCALE = """Object.defineProperty(navigator, "language", { get: () => "en-US@posix" });
Object.defineProperty(navigator, "languages", { get: () => ["en-US@posix", "C", "", "a b"] });"""
NO_DATES = """Intl.DateTimeFormat = class { constructor() { throw new RangeError("no"); } };
Intl.getCanonicalLocales = () => { throw new RangeError("no"); };"""


@pytest.mark.parametrize(
    "script", [FORBIDDEN, ODD_LOCALE, NO_DATES], ids=["no storage", "odd locale", "no dates"]
)
async def test_the_page_lives_with_an_odd_browser(context, service, script):
    page, told = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: told.append(str(error)))
    await page.add_init_script(script)
    await page.goto(service.url)
    await page.wait_for_selector("#state[data-state=open]")
    await say(page, "hello")
    await expect(lines(page, "bot")).to_have_count(1)
    await expect(page.locator("#log .line.user[data-state='']")).to_have_count(1)
    await expect(page.locator("#log time").first).to_have_text(re.compile(r"\d:\d\d"))
    await page.goto(f"{service.url}/usage")
    assert told == []


async def test_arabic_and_hebrew_begin_at_the_right(page, service):
    service.engine.replies["مرحبا"] = "- مرحبا بك\n\nand in English\n\nשלום לך"
    await say(page, "مرحبا")
    body = lines(page, "bot").first
    await expect(body).to_contain_text("and in English")
    sides = await page.evaluate(
        """[...document.querySelectorAll("#log .bot .body :is(li, p), #log .user .body")].map(
          (node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            const [words, all] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
            return words.left - all.left > all.right - words.right + 1 ? "right" : "left";
          })"""
    )
    assert sides[1:] == ["right", "left", "right"]
    assert await page.evaluate("getComputedStyle(message).direction") == "ltr"
    await page.fill("#message", "שלום")
    assert await page.evaluate("getComputedStyle(message).direction") == "rtl"


@pytest.mark.parametrize("path", sample(["/outer/confi.dant"], ["/a.b"]))
async def test_the_page_works_below_a_path(browser, path):
    proxy = PathProxy(path)
    service = Service(TOKEN, path=f"{path}/", allowed_origins=[proxy.origin])
    told: list[str] = []
    try:
        await service.start()
        await asyncio.to_thread(proxy.start, int(service.url.rstrip("/").rpartition(":")[2]))
        context = await browser.new_context(locale="en-GB")  # with its worker
        page = await context.new_page()
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("response", lambda answer: told.append(answer.url) if answer.status > 401 else None)
        await page.goto(f"{proxy.origin}{path}/")
        assert page.url == f"{proxy.origin}{path}/login"
        await page.fill("input[type=password]", TOKEN)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#state[data-state=open]")
        assert page.url == f"{proxy.origin}{path}/"
        await say(page, "hello")
        await expect(lines(page, "bot")).to_have_count(1)
        await until(page, "navigator.serviceWorker.controller !== null")
        scope = await page.evaluate("navigator.serviceWorker.ready.then((found) => found.scope)")
        assert scope == f"{proxy.origin}{path}/"
        ways = await page.evaluate("[...document.links].map((link) => link.pathname)")
        assert ways
        assert all(way.startswith(f"{path}/") for way in ways)
        manifest = await page.evaluate(
            "fetch(document.querySelector('link[rel=manifest]').href).then((a) => a.json())"
        )
        assert manifest["start_url"] == f"{path}/"
        assert {icon["src"].rpartition("/assets/")[0] for icon in manifest["icons"]} == {path}
        assert told == []
        await context.close()
    finally:
        proxy.close()
        await service.stop()
