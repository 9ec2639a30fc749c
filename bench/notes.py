"""What many notes cost in the page: `python -m bench notes`, 5 000 of them.

They are browsed as a person would: the list from beginning to end, every note, searches, edits;
once with all of them in one space, once with a hundredth of them in each of a hundred spaces. What
is measured is the time until the whole answer is there, with the program and its browser in one
process; and how much memory that process has before, after every note was opened once, and after
it was opened again. Other numbers are arguments: `python -m bench notes 500`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

import aiohttp
import psutil

from bench import quiet
from bench.memory import vocabulary
from bot.app import App, Parts
from bot.channel.http import Visitor
from bot.clock import system_clock
from bot.config import Config, Settings
from bot.dashboard.browsers import Browsers
from bot.dashboard.guard import COOKIE
from bot.identity.view import folder_name
from bot.memory.memory import Memory
from bot.settings import config_model
from bot.testing import ScriptedModel

NOTES = 5_000
SPACES = (1, 100)
ENTRIES = 20  # of a note
WORDS = 12  # of an entry
SEARCHES, EDITS = 100, 50
GOAL_MS = 100.0  # half of each kind of page
GOAL_GROWN = 10.0  # MB, when every note is opened once more


@dataclass(slots=True)
class Times:
    """How long each kind of page took, in ms, and how much memory the process had, in MB."""

    pages: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    resident: list[float] = field(default_factory=list[float])

    def weigh(self) -> None:
        """Note how much memory the process has now."""
        self.resident.append(psutil.Process().memory_info().rss / 1e6)


def write(workspace: Path, notes: int, spaces: int) -> list[str]:
    """Write so many notes, evenly over so many spaces; returns things to search for."""
    chance = random.Random(notes)  # noqa: S311 - the same ones each time
    words = vocabulary(chance)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    asked: list[str] = []
    for number in range(notes):
        drawn = chance.choices(words, weights, k=ENTRIES * WORDS)
        lines = [" ".join(drawn[at : at + WORDS]) for at in range(0, len(drawn), WORDS)]
        folder = _folder(workspace, number % spaces, spaces)
        folder.mkdir(parents=True, exist_ok=True)
        text = f"# Note {number}\n\n" + "".join(f"- {line} <!-- owner -->\n" for line in lines)
        (folder / f"note-{number:06d}.md").write_text(text, "utf-8")
        asked.append(" ".join(chance.choice(lines).split()[:4]))
    return asked


def _folder(workspace: Path, space: int, spaces: int) -> Path:
    if spaces == 1:
        return workspace / "memory"
    return workspace / "people" / folder_name(f"web:p{space}") / "memory"


class Visiting:
    """A browser of the owner, or of each of several people, and how long its pages take."""

    def __init__(self, url: str, client: aiohttp.ClientSession, times: Times) -> None:
        self._url = url
        self._client = client
        self._times = times

    async def get(self, kind: str, where: str) -> str:
        """A page, timed."""
        started = time.perf_counter()
        async with self._client.get(f"{self._url}{where}") as answer:
            text = await answer.text()
            answer.raise_for_status()
        self._times.pages.setdefault(kind, []).append((time.perf_counter() - started) * 1000)
        return text

    async def listed(self) -> list[str]:
        """Every note's address, of all pages of the list."""
        found: list[str] = []
        first = where = "memory/advanced"
        while where:
            page = await self.get("the list" if where == first else "its further pages", where)
            found += re.findall(r'<th scope="row"><a href="/(memory/file[^"#]*)"', page)
            more = re.findall(r'href="/(memory/advanced\?from=\d+)"', page)
            later = [each for each in more if _number(each) > _number(where)]
            where = later[0] if later else ""
        return [unescape(each) for each in found if "note-" in each]

    async def edit(self, path: str) -> None:
        """Add a line to a note."""
        page = await self.get("its form", path.replace("memory/file?", "memory/edit?"))
        fields = dict(re.findall(r'name="(path|base|since)" value="([^"]*)"', page))
        (text,) = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
        form = aiohttp.FormData(default_to_multipart=True)
        for name, value in {**fields, "text": f"{unescape(text)}- one more\n"}.items():
            form.add_field(name, unescape(value))
        started = time.perf_counter()
        async with self._client.post(
            f"{self._url}memory/edit", data=form, allow_redirects=False
        ) as answer:
            if answer.status != 303:
                raise SystemExit(f"an edit was refused: {answer.status}")
        self._times.pages.setdefault("an edit", []).append((time.perf_counter() - started) * 1000)


def _number(where: str) -> int:
    return int(where.partition("=")[2] or 0)


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[str]:
    """The program on a folder whose index is built; where its page is."""
    plugins = {"web": _web()}
    data = {
        "storage": {"dir": folder, "backup_hours": 0},
        "dashboard": {"port": 0},
    }
    config = config_model(plugins).model_validate(data)
    await _index(config)
    async with App(config, plugins, Parts(remote=ScriptedModel())) as app:
        if app.address is None:
            raise RuntimeError("the page is not served")
        yield app.address.url


def _web():  # noqa: ANN202 - a plug-in of ours
    from adapters.web import plugin  # noqa: PLC0415 - only here

    return plugin


async def _index(config: Config) -> None:
    memory = Memory.from_settings(Settings(config), system_clock)
    await memory.open()
    await memory.index.sync("bench")
    await memory.close()


async def measure(notes: int, spaces: int) -> Times:
    """Browse so many notes in so many spaces."""
    times = Times()
    with tempfile.TemporaryDirectory() as name:
        asked = write(Path(name) / "workspace", notes, spaces)
        async with served(Path(name)) as url:
            people = [""] if spaces == 1 else [f"p{number}" for number in range(spaces)]
            paths: dict[str, list[str]] = {}
            async with _visiting(url, people[0], Times()) as browser:  # templates, the embedder
                await browser.get("", "memory")
                await browser.get("", f"memory/search?q={asked[0].replace(' ', '+')}")
            for person in people:
                async with _visiting(url, person, times) as browser:
                    paths[person] = await browser.listed()
            if sum(map(len, paths.values())) != notes:
                raise SystemExit("the list does not show every note")
            times.weigh()
            for _ in range(2):
                for person, its in paths.items():
                    async with _visiting(url, person, times) as browser:
                        for path in its:
                            await browser.get("a note", path)
                times.weigh()
            searches = min(SEARCHES, len(asked))
            for number in range(searches):
                async with _visiting(url, people[number % len(people)], times) as browser:
                    words = asked[number * len(asked) // searches].replace(" ", "+")
                    await browser.get("a search", f"memory/search?q={words}")
            for number in range(min(EDITS, len(asked))):
                person = people[number % len(people)]
                async with _visiting(url, person, times) as browser:
                    await browser.edit(paths[person][number % len(paths[person])])
            times.weigh()
    return times


@asynccontextmanager
async def _visiting(url: str, person: str, times: Times) -> AsyncGenerator[Visiting]:
    cookies = {COOKIE: f"bench-{person}"} if person else {}
    headers = {"Accept": "text/html", "Accept-Language": "en", "Origin": url.rstrip("/")}
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookies=cookies, cookie_jar=jar, headers=headers) as client:
        yield Visiting(url, client, times)


async def _let_in(_browsers: Browsers, cookie: str) -> Visitor | None:
    """Everybody by the name in their cookie: this is no bench of logins."""
    known, _, name = cookie.partition("bench-")
    return Visitor(name) if name and not known else None


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a goal was missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notes", type=int, nargs="?", default=NOTES)
    parser.add_argument("--spaces", type=int, action="append", help="1 and 100 if not given")
    asked = parser.parse_args(arguments)
    notes: int = asked.notes
    Browsers.find = _let_in
    missed = False
    for spaces in asked.spaces or SPACES:
        times = asyncio.run(measure(notes, min(spaces, notes)))
        where = "one space" if spaces == 1 else f"{spaces} spaces"
        print(f"\n| {notes} notes in {where} | half within | 95 of 100 | goal |")
        print("|---|---|---|---|")
        for kind, took in times.pages.items():
            middle = statistics.median(took)
            slow = statistics.quantiles(took, n=20)[-1] if len(took) > 1 else took[0]
            missed |= middle > GOAL_MS
            print(f"| {kind} | {middle:.1f} ms | {slow:.1f} ms | ≤ {GOAL_MS:g} ms |")
        listed, once, twice, end = times.resident
        missed |= twice - once > GOAL_GROWN
        print(f"| memory, before any was opened | {listed:.0f} MB | | |")
        print(f"| after each was opened | {once:.0f} MB | | |")
        print(f"| after each was opened again | {twice:.0f} MB | | ≤ {GOAL_GROWN:g} MB more |")
        print(f"| after searches and edits | {end:.0f} MB | | |")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
