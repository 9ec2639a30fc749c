"""What one does with a conversation: stopping, asking again, copying, finding where it stands."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from adapters.web.channel import ADDRESS
from bot.channel import Activity, ModelChoice
from tests.support import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


def said(service: Any) -> list[str]:
    return [inbound.text for inbound in service.engine.inbounds]


async def say(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.keyboard.press("Enter")


async def test_a_reply_is_stopped_by_its_button_or_the_escape_key(page, service):
    stop, send = page.locator("#stop"), page.locator("#send")
    for number, way in enumerate(("button", "key")):
        await expect(stop).to_be_hidden()
        service.engine.gate = asyncio.Event()
        await say(page, f"tell me {number}")
        await expect(stop).to_be_visible()
        await expect(send).to_be_hidden()
        await page.fill("#message", "meanwhile")
        await expect(send).to_be_enabled()
        await page.fill("#message", "")
        if way == "button":
            await stop.click()
            await expect(page.locator("#message")).to_be_focused()
        else:
            await page.keyboard.press("Escape")
            await page.keyboard.press("Escape")
        await until(lambda count=2 * number + 2: len(said(service)) == count)
        service.engine.gate.set()
        await expect(page.locator("#log .line.bot")).to_have_count(2 * number + 2)
    assert said(service) == ["tell me 0", "/stop", "tell me 1", "/stop"]
    await page.keyboard.press("Escape")
    await say(page, "/st")  # its list of commands is closed by Escape, and nothing is stopped
    assert said(service)[4:] != ["/stop"]


async def test_what_was_asked_is_asked_again_or_changed(page, service):
    await say(page, "when is it?")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    first, reply = page.locator("#log .line.user").first, page.locator("#log .line.bot").first
    await expect(first.get_by_role("button")).to_have_text(["Copy", "Edit"])
    await expect(reply.get_by_role("button")).to_have_text(["Copy", "Try again"])
    await reply.get_by_role("button", name="Try again").click()
    await until(lambda: len(said(service)) == 2)
    await expect(page.locator("#log .line")).to_have_count(2)
    await first.get_by_role("button", name="Edit").click()
    await expect(page.locator("#message")).to_have_value("when is it?")
    await expect(page.locator("#message")).to_be_focused()
    await page.keyboard.type(" and where?")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line.bot")).to_contain_text(["and where?"])
    assert said(service) == ["when is it?", "when is it?", "when is it? and where?"]
    one, two, three = service.engine.inbounds
    assert (two.message_id, two.replaces) == (f"redo-{one.message_id}-1", one.message_id)
    assert three.replaces == two.message_id
    await say(page, "/status")
    command = page.locator("#log .line.user").last
    await expect(command.locator(".body")).to_have_text("/status")
    await expect(command.get_by_role("button")).to_have_text(["Copy"])


async def test_what_was_not_answered_is_asked_again_once_by_a_button(page, context, service):
    beside = await context.new_page()
    button = page.locator(".choices").get_by_role("button", name="Try again")
    await beside.goto(service.url)
    await say(page, "are you *there*?")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    (asked,) = service.engine.inbounds
    await service.engine.say("No model can be reached.", "n1", failed=(asked.message_id,))
    twin = beside.locator(".choices").get_by_role("button", name="Try again")
    for each in (button, twin):
        await expect(each).to_be_visible()
    await page.reload()
    await expect(button).to_be_visible()
    service.engine.hold = asyncio.Event()  # nobody knows yet that it was pressed elsewhere
    await button.evaluate("(b) => { b.focus(); b.click(); b.click(); }")
    await expect(page.locator("#message")).to_be_focused()
    await twin.focus()
    await beside.keyboard.press("Enter")
    await beside.keyboard.press("Enter")
    for each in (button, twin):
        await expect(each).to_have_count(0)
    service.engine.hold.set()
    for each in (page, beside):
        await expect(each.locator("#log .line.bot")).to_have_count(3)
        await expect(each.locator("#log .line.user .body")).to_have_text(["are you *there*?"] * 2)
    assert said(service) == ["are you *there*?"] * 2
    # It fails once more, something else is said meanwhile, and nothing offers to go back.
    await service.engine.say("Not yet.", "n2", failed=("again-n1",))
    await expect(button).to_have_count(1)
    await say(page, "never mind")
    for each in (button, twin):
        await expect(each).to_have_count(0)
    await page.reload()
    await expect(page.locator("#log .line.bot")).to_have_count(5)
    await expect(button).to_have_count(0)
    # What is not on the page cannot be asked.
    await service.engine.say("Failed.", "n3", failed=("long-ago",))
    await expect(page.locator("#log .line.bot")).to_have_count(6)
    await expect(button).to_have_count(0)
    await beside.close()


async def test_a_message_is_copied_as_it_was_written(page, context, service):
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    service.engine.replies["go"] = "**bold** and `MEMORY.md:7`"
    await say(page, "go")
    copy = page.locator("#log .line.bot .actions button").first
    await copy.click()
    await expect(copy).to_have_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == service.engine.replies["go"]


async def test_sources_lead_to_their_line(page, service):
    service.engine.replies["go"] = (
        "Tea (memory/2026-07-01.md:3-5).\n\n✓ Stored in MEMORY.md:7, 人/茶 .md\n\n"
        "```\nMEMORY.md:9\n```\n\n[mine](https://x.example/a.md:1)\n\n`people/a%b/MEMORY.md#L2`\n\n"
    )
    await say(page, "go")
    links = page.locator("#log .bot .body a")
    await expect(links.first).to_be_visible()
    found = await links.evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert found == [
        "/memory/file?path=memory%2F2026-07-01.md#L3",
        "/memory/file?path=MEMORY.md#L7",
        "https://x.example/a.md:1",
        "/memory/file?path=people%2Fa%25b%2FMEMORY.md#L2",
    ]


async def test_what_was_not_sent_yet_outlives_a_reload(page, service):
    await page.fill("#message", "half a\nthought")
    await page.reload()
    await expect(page.locator("#message")).to_have_value("half a\nthought")
    await expect(page.locator("#send")).to_be_enabled()
    await page.locator("#message").press("Enter")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    await page.reload()
    await expect(page.locator("#message")).to_have_value("")


async def test_who_may_connect_a_model_is_led_there_when_none_is(page, service):
    link = page.get_by_role("link", name="No model connected. Connect one")
    service.engine.choice = ModelChoice("offline", "", ("offline",))

    async def ways(route: Route) -> None:
        paths = ["/", "/settings"] if may else ["/"]
        listed = [{"path": path, "label": path} for path in paths]
        body = {"bot": "Pip", "visitor": "owner", "is_owner": may, "ways": listed}
        await route.fulfill(content_type="application/json", body=json.dumps(body))

    async def form(route: Route) -> None:
        body = "<section id=model><p>Connect a model</p></section>" if has_form else ""
        await route.fulfill(content_type="text/html", body=body)

    await page.route("**/api/ways", ways)
    await page.route("**/settings/start", form)
    has_form, may = True, True
    await page.reload()
    await expect(page.locator("#connect")).to_be_visible()
    await expect(link).to_have_count(0)
    has_form = False
    for may in (False, True):
        await page.reload()
        await expect(page.locator("#model")).to_be_visible()
        await expect(link).to_have_count(int(may))
        await expect(page.locator("#connect")).to_be_hidden()
        await expect(page.locator("#no-model-told")).to_be_visible(visible=not may)
    await expect(link).to_have_attribute("href", "/settings")
    service.engine.choice = ModelChoice("anthropic/one", "", ("anthropic/one",))
    await say(page, "hello")
    await expect(link).to_have_count(0)


async def test_what_goes_on_is_one_line_that_opens_and_is_folded_above_its_reply(page, service):
    web, line, now = service.engine.web, page.locator("#doing"), page.locator("#doing-now")
    search = Activity("7.1", "searching", "begun", text="tea <b>habits</b>", draft="7")
    call = Activity("7.2", "calling", "begun", text="memory_write", draft="7")
    thinking = Activity("7.thinking", "thinking", "begun", draft="7")
    await expect(line).to_be_hidden()
    await web.activity(ADDRESS, search)
    await expect(now).to_have_text("Searching for “tea <b>habits</b>”…")
    await expect(page.locator("#stop")).to_be_visible()
    await web.activity(ADDRESS, replace(search, state="done", found=3))
    await expect(now).to_have_text("3 found for “tea <b>habits</b>”")
    await expect(page.locator("#doing-told")).to_have_text("3 found for “tea <b>habits</b>”")
    await web.activity(ADDRESS, replace(thinking, text="So, green."))
    await expect(now).to_have_text("Thinking…")
    await web.activity(ADDRESS, replace(thinking, state="done"))
    await web.activity(ADDRESS, call)
    await expect(now).to_have_text("Using memory_write…")
    steps = line.locator("li")
    await expect(steps.first).to_be_hidden()
    await now.focus()
    await page.keyboard.press("Enter")
    found = "3 found for “tea <b>habits</b>”"
    await expect(steps.first).to_be_visible()
    await expect(steps).to_have_text([found, "Using memory_write…"])
    await page.reload()  # whoever comes in the midst of it sees the same
    await expect(steps).to_have_text([found, "Using memory_write…"])
    await now.focus()
    await web.activity(ADDRESS, replace(call, state="failed"))
    await service.engine.say("Green tea.", "m1", draft="7")
    await expect(line).to_be_hidden()
    await expect(page.locator("#stop")).to_be_hidden()
    summary = page.locator("#log .line.bot summary")
    await expect(summary).to_have_text("2 steps")
    await expect(summary).to_be_focused()  # the keyboard goes on where it was
    kept = page.locator("#log .line.bot .steps li")
    await expect(kept.first).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(kept).to_have_text([found, "memory_write: failed"])
    await expect(kept.first).to_be_visible()
    # The next reply begins anew, and one that never comes leaves nothing.
    other = replace(call, id="8.1", draft="8", state="asked")
    await web.activity(ADDRESS, other)
    await expect(steps).to_have_text(["memory_write: waiting for your approval"])
    await web.draft(ADDRESS, "8", "")
    await expect(line).to_be_hidden()
    await page.reload()  # it was kept nowhere
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    await expect(summary).to_have_count(0)


async def test_tasks_have_boxes(page, service):
    service.engine.replies["go"] = (
        "- [ ] pack\n- [x] **book**\n- [y] none\n- plain [ ]\n\n1. [X] loose"
    )
    await say(page, "go")
    await expect(page.locator("#log .bot .body li")).to_have_text(
        ["☐ pack", "☑ book", "[y] none", "plain [ ]", "☑ loose"]
    )
    await expect(page.locator("#log .bot .body li.task")).to_have_count(3)
