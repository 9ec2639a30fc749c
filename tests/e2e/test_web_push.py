"""Being told while away, in a real browser: the switch, the worker that shows it, and a click."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Worker, expect

from adapters.web import nodes
from bot.dashboard.guard import COOKIE
from bot.dashboard.pages import WayPages
from bot.push import pusher
from bot.push.encryption import BrowserKeys, sealed
from bot.push.pusher import PUBLIC
from tests.e2e.test_web_install import installed
from tests.fakes.push_service import PushService
from tests.integration.test_push import ADAS, HERON, Program
from tests.support import PATIENCE, beside

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

LOOKS = 300  # at what is shown, a frame each, before it is pushed again
NOTE = {"title": "Heron has written to you", "lang": "en", "body": "<b>first</b> words"}
# What Chromium 156 gave for a key of the bot's, recorded on 2026-11-27. Whether a browser registers
# depends on its version and its maker's services, so no test lets one do so.
RECORDED = {
    "endpoint": "https://jmt17.google.com/fcm/send/given-by-the-tests-2",
    "expirationTime": None,
    "keys": {
        "p256dh": "BFGixro51_H0xfjR8GG0VdaWMAZkYnNqP7Hg0r4I5gy3Qkvt_pcwh0jaRSOeVbC4nzeZ"
        "JBpKWdBY6YHeW1CcmWU",
        "auth": "o8pBk3sZOxzjjoPdJEEZhw",
    },
}
# Stands in for registering; like a browser, it refuses a key that is no point of the curve.
SUBSCRIPTION = """(given) => {
    const bytes = (text) => Uint8Array.from(
        atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0)
    );
    const curve = { name: "ECDSA", namedCurve: "P-256" };
    let mine = sessionStorage.getItem("subscribed") ? given : null;
    window.asked = 0;
    const as = (found) => found && {
        endpoint: found.endpoint,
        toJSON: () => found,
        unsubscribe: async () => {
            sessionStorage.removeItem("subscribed");
            mine = null;
            return true;
        },
    };
    PushManager.prototype.getSubscription = async () => as(mine);
    PushManager.prototype.subscribe = async (options) => {
        window.wanted = options;
        const key = bytes(options.applicationServerKey);
        await crypto.subtle.importKey("raw", key, curve, true, ["verify"]);
        sessionStorage.setItem("subscribed", "1");
        return as(mine = given);
    };
    const ask = Notification.requestPermission.bind(Notification);
    Notification.requestPermission = async () => { window.asked += 1; return ask(); };
}"""


CLICKS = """() => {
    self.went = [];
    clients.openWindow = async (path) => { went.push(`opened ${path}`); };
    self.told = [];
    const show = registration.showNotification.bind(registration);
    registration.showNotification = (title, note) => {
        told.push(title);
        return show(title, note);
    };
    self.asked = 0; // pushes that looked whether a conversation can be seen
    const every = clients.matchAll.bind(clients);
    clients.matchAll = async (which) => {
        const found = await every(which);
        asked += 1;
        return found;
    };
    WindowClient.prototype.focus = async function () { went.push(`focused ${this.url}`); };
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "SEEN_SECONDS", 0.5)
    async with beside(tmp_path) as database, PushService().served() as service:
        program = Program(database, service)
        program.pages.append(WayPages(HERON))
        async with program.served():
            yield program


@asynccontextmanager
async def opened(
    browser: Browser,
    program: Program,
    person: str = "owner",
    given: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[BrowserContext, Page]]:
    context = await browser.new_context(**{"locale": "en-GB", **options})
    cookie = {"name": COOKIE, "value": f"{person}-1", "url": program.url}
    await context.add_cookies([cookie])
    await context.grant_permissions(["notifications"], origin=program.url.rstrip("/"))
    page = await context.new_page()
    if given is not None:
        await page.add_init_script(f"({SUBSCRIPTION})({json.dumps(given)})")
    await page.goto(program.url)
    await page.wait_for_selector("#state[data-state=open]")
    yield context, page
    await context.close()


async def test_the_switch_asks_only_when_pressed_and_what_it_says_holds(browser, program):
    given = program.service.browser("one")
    async with opened(browser, program, given=given.subscription()) as (_, page):
        switch = page.get_by_role("switch", name="Notifications")
        words = page.get_by_role("switch", name="Show the first words")
        await expect(switch).not_to_be_checked()
        await expect(words).to_be_hidden()
        assert await page.evaluate("window.asked") == 0
        await switch.press("Enter")
        await expect(page.locator("#away-state")).to_contain_text("while you're away")
        await expect(switch).to_be_checked()
        await expect(words).not_to_be_checked()
        assert await page.evaluate("window.asked") == 1
        assert await page.evaluate("window.wanted.userVisibleOnly") is True
        signature = await program.pusher.signature()
        assert await page.evaluate("window.wanted.applicationServerKey") == signature.public
        await words.click()
        await expect(words).to_be_checked()
        await page.reload()
        await expect(switch).to_be_checked()
        await expect(words).to_be_checked()
        # What stands on a page that can be seen is told nobody; what nobody sees is.
        await program.say("you can see this", "o1")
        await expect(page.locator("#log .line.bot")).to_have_count(1)
        await page.goto("about:blank")
        await program.say("you cannot see this", "o2")
        (pushed,) = await program.service.until(1)
        assert given.note(pushed)["body"] == "you cannot see this"
        await page.goto(program.url)
        await switch.click()
        await expect(page.locator("#away-state")).to_contain_text("no longer notifies")
        await expect(words).to_be_hidden()
        assert await program.known() == []


async def test_what_a_browser_gives_is_taken_for_the_bots_own_key(browser, tmp_path):
    async with beside(tmp_path) as database, PushService().served() as service:
        program = Program(database, service, PUBLIC)
        program.pages.append(WayPages(HERON))
        async with program.served(), opened(browser, program, given=RECORDED) as (_, page):
            switch = page.get_by_role("switch", name="Notifications")
            await switch.click()
            await expect(page.locator("#away-state")).to_contain_text("while you're away")
            (found,) = await database.read(lambda tx: pusher.subscriptions_of(tx, "owner"))
            assert found.endpoint == RECORDED["endpoint"]
            keys = BrowserKeys.of(found.p256dh, found.auth)
            assert len(sealed(b"a note", keys)) > 1_000
            await page.reload()
            await expect(switch).to_be_checked()  # it is the one the bot knows
            await switch.click()
            await expect(page.locator("#away-state")).to_contain_text("no longer notifies")
            assert await program.known() == []


async def test_who_comes_after_somebody_else_ends_what_they_were_told(browser, program):
    given = program.service.browser("shared").subscription()
    async with opened(browser, program, given=given) as (context, page):
        switch = page.get_by_role("switch", name="Notifications")
        await switch.click()
        await expect(switch).to_be_checked()
        cookie = {"name": COOKIE, "value": "ada-1", "url": program.url}
        await context.add_cookies([cookie])
        await page.reload()
        await expect(switch).not_to_be_checked()
        assert await page.evaluate("sessionStorage.getItem('subscribed')") is None
        await switch.click()
        await expect(switch).to_be_checked()
        await page.goto("about:blank")
        await program.say("for ada", "o1", ADAS)
        await program.say("for the owner", "o2")
        await program.service.until(1)
        assert (await program.known(), await program.known("ada")) == ([], ["shared"])


async def test_a_browser_that_may_not_says_so(browser, program):
    given = program.service.browser("one").subscription()
    async with opened(browser, program, given=given, locale="zh-CN") as (context, page):
        await context.clear_permissions()
        switch = page.get_by_role("switch", name="通知")
        await page.evaluate("Notification.requestPermission = async () => 'denied'")
        await switch.click()
        await expect(page.locator("#away-state")).to_contain_text("浏览器不允许")
        await expect(switch).not_to_be_checked()
    assert await program.known() == []


@pytest.mark.proof
async def test_the_worker_shows_what_is_pushed_and_a_click_opens_the_page(whole_browser, program):
    async with opened(whole_browser, program) as (context, page):
        found: list[str] = []
        client = await context.new_cdp_session(page)
        client.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda event: found.extend(each["registrationId"] for each in event["registrations"]),
        )
        await client.send("ServiceWorker.enable")
        await installed(page)
        worker = context.service_workers[0]

        async def push(data: str) -> None:
            await client.send(
                "ServiceWorker.deliverPushMessage",
                {"origin": program.url.rstrip("/"), "registrationId": found[0], "data": data},
            )

        async def shown() -> list[dict[str, str]]:
            return await worker.evaluate(
                "async () => (await registration.getNotifications()).map("
                "({ title, body, tag, lang }) => ({ title, body, tag, lang }))"
            )

        async def until_titled(title: str, data: str) -> dict[str, str]:
            """Push until it is shown: a busy browser loses what comes while its worker starts."""
            async with asyncio.timeout(PATIENCE):
                while True:
                    await push(data)
                    for _ in range(LOOKS):
                        found = await shown()
                        if [each["title"] for each in found] == [title]:
                            return found[0]
                        await other.evaluate("new Promise(requestAnimationFrame)")

        async def until(expression: str) -> None:
            async with asyncio.timeout(PATIENCE):
                while not await worker.evaluate(expression):
                    await other.evaluate("new Promise(requestAnimationFrame)")

        other = await context.new_page()
        await other.goto(f"{program.url}static/favicon.svg")
        # With the conversation closed it is shown as it was sent, and what cannot be read as well.
        await page.goto(f"{program.url}static/app.css")
        await until("chats().then((pages) => pages.length === 0)")
        note = await until_titled(NOTE["title"], json.dumps(NOTE))
        assert note == NOTE | {"tag": "written"}
        await until_titled("Confidant", "not ours")
        # A click opens the conversation, or leads to where it is open.
        await worker.evaluate(CLICKS)
        await click(worker)
        assert await worker.evaluate("went") == ["opened /"]
        assert await shown() == []
        await page.goto(program.url)
        await installed(page)
        await click(worker)
        assert await worker.evaluate("went") == ["opened /", f"focused {program.url}"]
        # While it can be seen nothing is shown.
        asked = await worker.evaluate("asked")
        await push(json.dumps(NOTE))
        await push(json.dumps(NOTE | {"title": "second"}))
        await until(f"asked === {asked + 2}")
        await page.goto(f"{program.url}static/app.css")
        await until("chats().then((pages) => pages.length === 0)")
        await until_titled("third", json.dumps(NOTE | {"title": "third"}))
        assert set(await worker.evaluate("told")) == {"third"}


async def click(worker: Worker) -> None:
    """What the system does; only it may give a worker the right to open windows."""
    await worker.evaluate(
        """async () => {
            const [shown] = await registration.getNotifications();
            const notification = shown ?? { close() {} };
            const work = [];
            const event = new Event("notificationclick");
            event.notification = notification;
            event.waitUntil = (each) => work.push(each);
            self.dispatchEvent(event);
            await Promise.all(work);
        }"""
    )
