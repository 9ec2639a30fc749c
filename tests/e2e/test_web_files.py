"""Files in the page: chosen, pasted, dropped, taken back, sent."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from playwright.async_api import Page, Route, expect

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)>.txt"


def png() -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(held, "PNG")
    return held.getvalue()


async def choose(page: Page, *files: tuple[str, str, bytes]) -> None:
    await page.set_input_files(
        "#files", [{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files]
    )


# What a browser gives to a page when a file is pasted or dropped onto it.
BRING = """([kind, where]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array([1, 2, 3])], `${kind}.bin`));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { ...options, clipboardData: data })
    : new DragEvent(kind, { ...options, dataTransfer: data });
  return document.querySelector(where).dispatchEvent(event);
}"""


async def test_files_are_brought_taken_back_sent_and_there_after_a_reload(page, service):
    attached, send = page.locator("#attached li"), page.locator("#send")
    await expect(page.get_by_role("button", name="Add pictures or files")).to_be_visible()
    await choose(page, ("a.png", "image/png", png()), (HOSTILE, "text/plain", b"words"))
    await expect(page.locator("#attached li.there")).to_have_count(2)
    await expect(attached.locator("img")).to_have_js_property("naturalWidth", 64)
    await expect(attached.nth(1).locator(".name")).to_have_text(HOSTILE)
    assert await page.evaluate(BRING, ["paste", "#message"]) is False
    assert await page.evaluate(BRING, ["dragover", "main"]) is False
    assert await page.evaluate(BRING, ["drop", "main"]) is False
    await expect(page.locator("#attached li.there .name")).to_have_text(
        ["a.png", HOSTILE, "paste.bin", "drop.bin"]
    )
    await page.get_by_role("button", name="Remove paste.bin").click()
    await expect(attached).to_have_count(3)
    await expect(page.locator("#message")).to_be_focused()
    await expect(send).to_be_enabled()
    await page.keyboard.press("Enter")
    await expect(attached).to_have_count(0)
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    [inbound] = service.engine.inbounds
    assert [(each.kind, each.name, each.size) for each in inbound.media] == [
        ("photo", "a.png", len(png())),
        ("document", HOSTILE, 5),
        ("document", "drop.bin", 3),
    ]
    assert len(service.engine.kept) == 3
    for is_reloaded in (False, True):
        if is_reloaded:
            await page.reload()
        shown = page.locator("#log .line.user figure")
        await expect(shown.locator("figcaption a")).to_have_text(["a.png", HOSTILE, "drop.bin"])
        await expect(shown.locator("img")).to_have_js_property("naturalWidth", 64)
    service.engine.kept.clear()
    await page.reload()
    await expect(page.locator("#log .line.user figure").first).to_contain_text("this one is gone")


async def test_what_cannot_be_taken_along_is_said(page, service):
    banner = page.locator("#banner")
    await choose(page, ("none.txt", "text/plain", b""))
    await expect(banner).to_contain_text("none.txt is empty")
    await choose(page, *[(f"{n}.txt", "text/plain", b"x") for n in range(11)])
    await expect(banner).to_contain_text("10 files at most")
    await expect(page.locator("#attached li.there")).to_have_count(10)
    await page.fill("#message", "here")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line.user figure")).to_have_count(10)


# What a browser gives to a page when text is pasted.
PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  const options = { bubbles: true, cancelable: true, clipboardData: data };
  return document.getElementById("message").dispatchEvent(new ClipboardEvent("paste", options));
}"""


async def test_a_long_paste_is_a_file_that_can_be_text_again(page, service):
    attached, box = page.locator("#attached li"), page.locator("#message")
    assert await page.evaluate(PASTE, "x" * 4_000) is True  # the browser puts it in
    assert await page.evaluate(PASTE, "x\n" * 59) is True
    await page.fill("#message", "see: ")
    for text in ("<b>y</b>\n" * 60, "z" * 4_001):
        assert await page.evaluate(PASTE, text) is False
    await expect(page.locator("#attached li.there .name")).to_have_text(["Pasted text.txt"] * 2)
    await attached.first.get_by_role("button", name="Paste as text").click()
    await expect(attached).to_have_count(1)
    await expect(box).to_have_value("see: " + "<b>y</b>\n" * 60)
    await expect(box).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    [inbound] = service.engine.inbounds
    assert [(each.name, each.size) for each in inbound.media] == [("Pasted text.txt", 4_001)]
    assert service.engine.kept[inbound.media[0].ref][1] == b"z" * 4_001


async def test_a_long_message_of_ones_own_folds(page, service):
    await page.fill("#message", "short\n" * 14 + "end")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    await expect(page.locator(".unfold")).to_have_count(0)
    await page.fill("#message", "<b>long</b>\n" * 100)
    await page.keyboard.press("Enter")
    body, more = page.locator("#log .line.user .body").nth(1), page.locator(".unfold")
    height = "node => node.clientHeight"
    folded = await body.evaluate(height)
    assert folded <= 240
    await page.get_by_role("button", name="Show more").click()
    assert await body.evaluate(height) > 5 * folded
    await expect(more).to_have_attribute("aria-expanded", "true")
    await page.get_by_role("button", name="Show less").click()
    assert await body.evaluate(height) == folded


async def test_a_file_dragged_over_the_page_is_told_where_it_goes(page, service):
    drop = page.get_by_text("Drop files here to attach them")
    await expect(drop).to_be_hidden()
    await page.evaluate(BRING, ["dragover", "main"])
    await expect(drop).to_be_visible()
    await page.evaluate(BRING, ["dragleave", "body"])
    await expect(drop).to_be_hidden()


async def test_what_was_not_sent_is_there_after_a_reload_and_nobody_elses(page, context, service):
    there = page.locator("#attached li.there .name")
    await choose(page, ("a.png", "image/png", png()), (HOSTILE, "text/plain", b"words"))
    await page.evaluate(PASTE, "z" * 4_001)
    names = ["a.png", HOSTILE, "Pasted text.txt"]
    await expect(there).to_have_text(names)
    first = set(service.engine.kept)
    other = await context.new_page()  # another tab begins with none
    await other.goto(service.url)
    await other.wait_for_selector("#state[data-state=open]")
    await expect(other.locator("#attached li")).to_have_count(0)
    await page.reload()
    await expect(there).to_have_text(names, use_inner_text=True)
    await expect(page.locator("#attached img")).to_have_js_property("naturalWidth", 64)
    assert not first & set(service.engine.kept)
    await page.get_by_role("button", name="Remove a.png").click()
    while await page.evaluate(KEPT) != 2:
        await page.evaluate("new Promise(requestAnimationFrame)")
    await page.reload()
    await expect(there).to_have_text(names[1:])
    await page.route("**/api/ways", as_ada)
    await page.reload()
    await page.wait_for_selector("#state[data-state=open]")
    await expect(page.locator("#attached li")).to_have_count(0)
    await page.unroute_all(behavior="wait")


KEPT = """new Promise((done) => {
  const opened = indexedDB.open("confidant", 1);
  opened.onsuccess = () => {
    const store = opened.result.transaction("unsent").objectStore("unsent");
    store.count().onsuccess = ({ target }) => (opened.result.close(), done(target.result));
  };
})"""


async def as_ada(route: Route) -> None:
    answer = await route.fetch()
    await route.fulfill(response=answer, json=await answer.json() | {"visitor": "ada"})


async def test_files_are_sent_where_the_browser_keeps_nothing(context, service):
    page = await context.new_page()
    told: list[str] = []
    page.on("pageerror", lambda error: told.append(str(error)))
    await page.add_init_script(
        """for (const name of ["localStorage", "sessionStorage", "indexedDB"]) {
          Object.defineProperty(window, name, { get() { throw new DOMException("no"); } });
        }"""
    )
    await page.goto(service.url)
    await page.wait_for_selector("#state[data-state=open]")
    await choose(page, ("a.txt", "text/plain", b"words"))
    await expect(page.locator("#attached li.there")).to_have_count(1)
    await page.locator("#message").press("Enter")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    assert len(service.engine.inbounds[0].media) == 1
    assert told == []
