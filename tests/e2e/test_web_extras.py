"""Buttons, pictures and files on the page, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from bot.channel import Attachment, Button
from bot.context.budget import draw, legend
from tests.e2e.test_web_page import lines, luminance, no_sideways_scroll, say
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

PARTS = [("Files", 12_000), ("Tools", 3_000), ("Memory", 20_000), ("History", 53_000)]
PICTURE = Attachment("context.png", "image/png", draw(PARTS, 120_000, 73))
CAPTION = "**Nearly full: 73 %**\n\n" + "\n".join(
    f"- {square} {name} {tokens:,}"
    for square, (name, tokens) in zip(legend(PARTS), PARTS, strict=True)
)
CHOICES = (
    Button("Compact", "/compact"),
    Button("Start fresh", "/new"),
    Button("Not now", "/notices later"),
)


def choice(page: Page, label: str) -> Any:
    return page.locator("#log .choices").get_by_role("button", name=label)


async def notice(service: Any, message_id: str = "n1", **extra: Any) -> None:
    await service.engine.say(CAPTION, message_id, **{"buttons": CHOICES, **extra})


# --- buttons --------------------------------------------------------------------------------------


async def test_a_press_sends_the_command_once_and_ends_the_choice(page, service):
    await notice(service)
    group = page.get_by_role("group", name="Options")
    await expect(group.get_by_role("button")).to_have_text(["Compact", "Start fresh", "Not now"])
    await choice(page, "Not now").click()
    await expect(lines(page, "user")).to_have_text(["/notices later"])
    for label in ("Compact", "Start fresh", "Not now"):
        await expect(choice(page, label)).to_be_disabled()
    await expect(page.locator("#log .chosen")).to_have_text(["Not now (selected)"])
    await choice(page, "Compact").click(force=True)
    await choice(page, "Not now").click(force=True)
    await say(page, "and then")
    await expect(lines(page, "user")).to_have_text(["/notices later", "and then"])
    got = service.engine.inbounds
    assert [(inbound.text, inbound.message_id) for inbound in got[:1]] == [
        ("/notices later", "press-n1")
    ]
    assert len(got) == 2


async def test_buttons_are_pressed_from_the_keyboard_and_keep_its_place(page, service):
    await notice(service)
    await choice(page, "Compact").focus()
    await page.keyboard.press("Tab")
    await expect(choice(page, "Start fresh")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(lines(page, "user")).to_have_text(["/new"])
    await expect(choice(page, "Start fresh")).to_be_focused()
    await page.keyboard.press("Space")
    await expect(lines(page, "bot")).to_have_count(2)
    assert len(service.engine.attempts) == 1


async def test_a_press_in_one_tab_ends_the_choice_in_all(page, context, service):
    other = await context.new_page()
    await other.goto(service.url)
    await other.wait_for_selector("#state[data-state=open]")
    await notice(service)
    await choice(other, "Compact").click()
    await expect(choice(page, "Start fresh")).to_be_disabled()
    await expect(page.locator("#log .chosen")).to_have_text(["Compact (selected)"])
    assert len(service.engine.inbounds) == 1


async def test_buttons_outlive_a_reload_and_a_restart_and_so_does_the_press(page, service):
    await notice(service)
    await page.reload()
    await expect(choice(page, "Compact")).to_be_enabled()
    await service.stop()
    await service.start()
    await expect(page.locator("#state")).to_have_attribute("data-state", "open")
    await expect(choice(page, "Compact")).to_be_enabled()
    await choice(page, "Compact").click()
    await expect(lines(page, "user")).to_have_text(["/compact"])
    await service.stop()
    await service.start()
    await expect(page.locator("#state")).to_have_attribute("data-state", "open")
    await expect(choice(page, "Compact")).to_be_disabled()
    await page.reload()  # neither the bot nor the page remembers: the words stay
    await expect(lines(page, "bot").first).to_contain_text("Nearly full")
    await expect(page.locator("#log .choices")).to_have_count(0)
    assert {inbound.message_id for inbound in service.engine.inbounds} == {"press-n1"}


async def test_a_press_without_a_connection_waits_and_arrives_once(page, service):
    await notice(service)
    await expect(choice(page, "Compact")).to_be_visible()
    await service.stop()
    await expect(page.locator("#state")).to_have_attribute("data-state", "closed")
    await choice(page, "Compact").click()
    await expect(choice(page, "Start fresh")).to_be_disabled()
    await expect(page.locator("#log .line.user .note")).to_have_text("Waiting to be sent")
    await service.start()
    await page.reload()
    await expect(lines(page, "user")).to_have_text(["/compact"])
    await expect(page.locator("#log .line.user .note")).to_be_hidden()
    assert service.engine.attempts == ["press-n1"]


async def test_labels_are_text_whatever_is_in_them(page, service):
    evil = "<img src=x onerror=window.hacked=1>"
    await notice(service, buttons=(Button(evil, "/new"), Button("x" * 300, "/x")))
    await expect(choice(page, evil)).to_be_visible()
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("#log .choices img").count() == 0
    assert await no_sideways_scroll(page)


# --- pictures and files ---------------------------------------------------------------------------


async def test_a_picture_shows_with_a_text_for_those_who_do_not_see_it(page, service):
    await notice(service, attachments=(PICTURE,))
    image = page.get_by_role("img", name="Picture: context.png")
    await expect(image).to_be_visible()
    assert await image.evaluate("(node) => node.decode().then(() => node.naturalWidth)") == 880
    await expect(page.locator("#log figcaption")).to_have_text([f"context.png{kb(PICTURE)}"])
    await page.reload()
    await expect(image).to_be_visible()


def kb(file: Attachment) -> str:
    return f"{round(len(file.data) / 1000)} kB"


async def test_a_picture_outlives_a_restart_as_long_as_the_page_is_open(page, service):
    await notice(service, attachments=(PICTURE,))
    image = page.get_by_role("img", name="Picture: context.png")
    await expect(image).to_be_visible()
    await service.stop()
    await service.start()
    await expect(page.locator("#state")).to_have_attribute("data-state", "open")
    await expect(image).to_be_visible()
    await page.reload()
    await expect(lines(page, "bot")).to_contain_text(["History 53,000"])
    await expect(image).to_have_count(0)


async def test_a_file_can_be_taken_along(page, service, tmp_path):
    files = (
        Attachment("notes.txt", "text/html", b"<script>window.hacked = 1</script>"),
        Attachment("drawing.svg", "image/svg+xml", b"<svg onload='window.hacked=2'/>"),
    )
    await notice(service, buttons=(), attachments=files)
    await expect(page.locator("#log .files img")).to_have_count(0)
    for file in files:
        async with page.expect_download() as waiting:
            await page.get_by_role("link", name=file.name).click()
        download = await waiting.value
        assert download.suggested_filename == file.name
        await download.save_as(tmp_path / file.name)
        assert (tmp_path / file.name).read_bytes() == file.data
    assert await page.evaluate("window.hacked") is None


async def test_what_is_too_large_is_named(page, service):
    huge = Attachment("huge.png", "image/png", b"x" * 2_000_001)
    await notice(service, attachments=(huge, PICTURE))
    await expect(page.locator("#log figcaption").first).to_have_text(
        "huge.png2.0 MB, too large for this page"
    )
    await expect(page.locator("#log .files img")).to_have_count(1)


async def test_a_picture_that_is_none_shows_its_text(page, service):
    await notice(service, attachments=(Attachment("odd.png", "image/png", b"nothing"),))
    await expect(page.get_by_role("img", name="Picture: odd.png")).to_have_count(1)
    await expect(page.get_by_role("link", name="odd.png")).to_be_visible()


# --- sizes and colours ----------------------------------------------------------------------------


SIZES = [
    {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    for width, height in ((390, 844), (1280, 800))
    for scheme in ("light", "dark")
]


@pytest.mark.parametrize(
    "context_options",
    sample(SIZES[1:3], SIZES[::3]),
    ids=lambda options: f"{options['color_scheme']}-{options['viewport']['width']}",
)
async def test_everything_fits_and_can_be_read(page, service, context_options):
    await say(page, "/context")
    await notice(service, attachments=(PICTURE,))
    await expect(choice(page, "Compact")).to_be_visible()
    assert await no_sideways_scroll(page)
    await expect(choice(page, "Compact")).to_be_in_viewport()
    for label in ("Compact", "Start fresh", "Not now"):
        box = await choice(page, label).bounding_box()
        assert box is not None
        assert box["height"] >= 40
    await choice(page, "Not now").click()
    await expect(page.locator("#log .chosen")).to_be_visible()
    await notice(service, "n2", attachments=(Attachment("notes.txt", "text/plain", b"x"),))
    await expect(lines(page, "bot")).to_have_count(4)
    # What can no longer be pressed is exempt, but what was chosen has to be read.
    pairs = [(".choices button:not([aria-disabled])",) * 2, (".chosen",) * 2]
    pairs += [(".files figcaption span", ".files figure"), (".files a", ".files figure")]
    for text, behind in pairs:
        one = await luminance(page, text, "color")
        two = await luminance(page, behind, "backgroundColor")
        assert (max(one, two) + 0.05) / (min(one, two) + 0.05) >= 4.5, text
