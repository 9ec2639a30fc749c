"""The whole program in a browser: `confidant run` on an empty folder, with no key."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


class Program:
    """`confidant run`, as a person starts it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self, port: str = "0") -> None:
        self._process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("confidant"),
            "run",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._folder,
            env={
                "PATH": os.environ["PATH"],
                "CONFIDANT_STORAGE__DIR": str(self._folder / "data"),
                "CONFIDANT_DASHBOARD__PORT": port,
                "CONFIDANT_MEMORY__RECALL_TIMEOUT": "30",  # however busy the machine is
                "CONFIDANT_MEMORY__SEARCH_TIMEOUT": "30",
            },
        )
        line = (await self._process.stdout.readline()).decode()
        self.url = re.fullmatch(r"Confidant is at (http://\S+)\n", line)[1]

    async def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return await self._process.wait()

    @property
    def port(self) -> str:
        return self.url.rstrip("/").rsplit(":", 1)[1]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def program(tmp_path_factory):
    program = Program(tmp_path_factory.mktemp("program"))
    await program.start()
    yield program
    assert await program.end(signal.SIGTERM) == 0


async def open_page(browser: Browser, program: Program, locale: str = "en-GB") -> Page:
    context = await browser.new_context(locale=locale)
    page = await context.new_page()
    await page.goto(program.url)
    await page.wait_for_selector("#state[data-state=open]")
    return page


async def write(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.press("#message", "Enter")


async def test_chat_new_reload_and_the_history_is_there(browser, program):
    page = await open_page(browser, program)
    log = page.locator("#log")
    await write(page, "remember that my daughter is allergic to peanuts")
    await expect(log).to_contain_text("✓")
    await write(page, "/new")
    await expect(log).to_contain_text("New conversation.")
    await write(page, "what is my daughter allergic to?")
    await expect(log).to_contain_text("In memory/20")
    await page.reload()
    await page.wait_for_selector("#state[data-state=open]")
    await expect(log).to_contain_text("what is my daughter allergic to?")
    await expect(log).not_to_contain_text("remember that my daughter")
    await expect(page.locator("#talks-list")).to_contain_text("remember that my daughter")
    await page.context.close()


@pytest.mark.parametrize(
    ("locale", "asked", "cat"),
    [("en-GB", "What do you know about me?", "Tom"), ("zh-CN", "你记得我的哪些事？", "Mimi")],
)
async def test_what_is_known_is_told_from_the_notes_and_opens_them(
    browser, program, locale, asked, cat
):
    page = await open_page(browser, program, locale)
    await write(page, f"remember that my cat is called {cat}")
    await expect(page.locator("#log .line.bot .body").last).to_contain_text("✓")
    for _ in range(2):
        before = await page.locator("#log .line.bot").count()
        await write(page, asked)
        await expect(page.locator("#log .line.bot")).to_have_count(before + 1)
        answer = page.locator("#log .line.bot").last
        await expect(answer.locator(".body")).to_contain_text(f"my cat is called {cat}")
        await expect(answer.locator(".body")).not_to_contain_text(asked[:-1])
        await answer.locator(".sources summary").click()
        await expect(answer.locator(".sources")).to_contain_text(f"my cat is called {cat}")
    await page.context.close()


@pytest.mark.proof
async def test_a_kill_in_the_middle_is_not_noticed(browser, program):
    page = await open_page(browser, program)
    await write(page, "hello")
    await expect(page.locator("#log")).to_contain_text("I need a model")
    port = program.port
    await program.end(signal.SIGKILL)
    await write(page, "remember that the key is under the mat")
    await program.start(port)
    last = page.locator("#log .line.bot .body").last
    await expect(last).to_contain_text("✓ Stored", timeout=20_000)
    notes = list(Path(program._folder, "data/workspace/memory").glob("*.md"))
    assert notes[0].read_text().count("the key is under the mat") == 1
    await page.context.close()


@pytest.mark.proof
async def test_the_program_speaks_chinese_to_who_does(browser, program):
    page = await open_page(browser, program, "zh-CN")
    await write(page, "/help")
    await expect(page.locator("#log")).to_contain_text("开始新对话")
    await write(page, "/status")
    await expect(page.locator("#log")).to_contain_text("模型：offline")
    await page.context.close()
