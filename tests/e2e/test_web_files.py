"""Files in the page: chosen, pasted, dropped, taken back, sent."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from playwright.async_api import Page, expect

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
