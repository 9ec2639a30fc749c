"""What a large store costs beside an empty one: `python -m bench large [SESSIONS] [ENTRIES]`.

The store is written by SQL into a folder of its own, then the real program is started on it and on
an empty one in turn. Without numbers it has 2 000 conversations and 200 000 messages; the full size
is `python -m bench large 100000 10000000`, which takes a quarter of an hour and 11 GB of disk.
`--keep FOLDER` keeps what was written, and uses it again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import quote

import aiohttp

from bench import quiet
from bench.bots import CONFIDANT, running, server, settings
from bench.engine import OUT
from bench.large_store import FIRST_CHAT, Built, build
from bench.load import REPLY_TIMEOUT
from bench.sized import parsed
from bench.table import table
from bot.clock import system_clock
from bot.storage.files import PAGE_NAME
from tests.fakes.telegram import FakeTelegram

START_SECONDS = 300.0  # until it is ready
POLL = 0.005  # seconds between looks whether it is
PAUSE = 0.05  # seconds between messages
REST = 3.0  # seconds after the start in which what it does then is counted
BUILT = "built.json"
NO_BACKUPS = {"CONFIDANT_STORAGE__BACKUP_HOURS": "0"}  # one in between would be measured too


@dataclass(frozen=True, slots=True)
class Costs:
    """What one start came to; each field's name is what the table calls it."""

    ready: float  # seconds from its start until /readyz says so
    first_reply: float  # seconds from a first message, once it is ready, to its reply
    resting: float  # seconds of processor time until a while after that
    goes_on: float  # milliseconds of a turn of a conversation that goes on
    new: float  # of `/new`
    begins: float  # of the first turn of a new conversation, with what is recalled
    listed: float  # of the page that lists conversations
    found: float  # of the page that searches them
    resident: float  # megabytes, in the end


_ROWS: Mapping[str, tuple[str, str]] = {
    "ready": ("start to /readyz", "{:.2f} s"),
    "first_reply": ("the first message", "{:.2f} s"),
    "resting": (f"processor time of the start and {REST:g} s", "{:.2f} s"),
    "goes_on": ("a message, p50", "{:.1f} ms"),
    "new": ("/new, p50", "{:.1f} ms"),
    "begins": ("the first message of a new conversation, p50", "{:.1f} ms"),
    "listed": ("the list of conversations, p50", "{:.1f} ms"),
    "found": ("a search of what was said, p50", "{:.1f} ms"),
    "resident": ("resident", "{:.0f} MB"),
}


class Person:
    """Somebody who writes, and waits for what comes of it."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram
        self._number = int(time.time() * 100)  # a number that was there before is taken for a copy

    async def say(self, text: str) -> float:
        """Seconds until something came back."""
        before = len(self._telegram.sent_to(FIRST_CHAT))
        written = time.monotonic()
        self._number += 1
        self._telegram.push_text(FIRST_CHAT, text, message_id=self._number)
        await self._telegram.wait_for(
            lambda: len(self._telegram.sent_to(FIRST_CHAT)) > before, REPLY_TIMEOUT
        )
        return self._telegram.sent_to(FIRST_CHAT)[-1].at - written


async def measure(folder: Path, model_url: str, words: Sequence[str], times: int) -> Costs:
    """Start the program on a folder, use it, end it."""
    async with FakeTelegram(record_calls=False) as telegram, aiohttp.ClientSession() as client:
        given = settings(folder, telegram.url, telegram.token, model_url) | NO_BACKUPS
        async with running(CONFIDANT.command, folder, given) as program:
            page = await _ready(folder, client)
            ready = time.monotonic() - program.started
            person = Person(telegram)
            first_reply = await person.say("Good morning to you. What was it that we said?")
            await asyncio.sleep(REST)
            resting = program.cpu()
            goes_on = [await _after_pause(person, f"And then {n}?") for n in range(4 * times)]
            new: list[float] = []
            begins: list[float] = []
            for number in range(times):
                new.append(await _after_pause(person, "/new"))
                asked = f"what about {words[200 + number]} and {words[900 + number]}?"
                begins.append(await _after_pause(person, asked))
            listed = [await _get(client, f"{page}conversations") for _ in range(times)]
            found = [
                await _get(client, f"{page}conversations?q={quote(words[300 + number])}")
                for number in range(times)
            ]
            return Costs(
                *(ready, first_reply, resting),
                *(_median(each) for each in (goes_on, new, begins, listed, found)),
                resident=program.resident(),
            )


async def _after_pause(person: Person, text: str) -> float:
    await asyncio.sleep(PAUSE)
    return await person.say(text)


async def _ready(folder: Path, client: aiohttp.ClientSession) -> str:
    """The address of the page, once the program says that it is ready."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                url = (folder / PAGE_NAME).read_text().split("\n")[1]
                async with client.get(f"{url}readyz") as answer:
                    if answer.status == 200:
                        return url
            except (OSError, IndexError, aiohttp.ClientError):
                pass
            await asyncio.sleep(POLL)


async def _get(client: aiohttp.ClientSession, url: str) -> float:
    started = time.monotonic()
    async with client.get(url) as answer:
        await answer.read()
        answer.raise_for_status()
    return time.monotonic() - started


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def report(empty: Costs, large: Costs, what: str) -> str:
    """The table: a row for each cost, and what it is of the empty store's."""
    rows = [
        (
            title,
            form.format(getattr(empty, name)),
            form.format(getattr(large, name)),
            f"{getattr(large, name) / getattr(empty, name):.2f}",
        )
        for name, (title, form) in _ROWS.items()
    ]
    return table((what, "empty", "large", "large ÷ empty"), rows)


def _medians(found: Sequence[Costs]) -> Costs:
    return Costs(
        **{
            each.name: statistics.median(getattr(costs, each.name) for costs in found)
            for each in fields(Costs)
        }
    )


async def _run(
    large: Path, out: Path, built: Built, rounds: int, times: int
) -> tuple[Costs, Costs]:
    empty: list[Costs] = []
    full: list[Costs] = []
    async with server("bench.model_server") as (model_url, _):
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="empty-", dir=out) as name:
                empty.append(await measure(Path(name), model_url, built.words, times))
            full.append(await measure(large, model_url, built.words, times))
    return _medians(empty), _medians(full)


def _store(folder: Path, sessions: int, entries: int) -> Built:
    """The store in a folder, which is written unless it is there."""
    noted = folder / BUILT
    if noted.exists():
        said = json.loads(noted.read_text("utf-8"))
        return Built(**said | {"words": tuple(said["words"])})
    built = asyncio.run(build(folder, sessions, entries, system_clock()))
    noted.write_text(json.dumps(asdict(built)), "utf-8")
    return built


def main() -> int:
    """Build, measure, print."""
    options = _options()
    quiet.logs()
    OUT.mkdir(parents=True, exist_ok=True)
    # Not in /tmp: that may be memory.
    folder = options.keep or Path(tempfile.mkdtemp(prefix="large-", dir=OUT))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        built = _store(folder, options.sessions, options.entries)
        found = asyncio.run(_run(folder, OUT, built, options.rounds, options.times))
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    what = (
        f"{options.sessions} conversations, {options.entries} messages "
        f"({built.database / 1e6:.0f} MB and {built.transcripts / 1e6:.0f} MB of transcripts, "
        f"Python {platform.python_version()})"
    )
    print(report(*found, what))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench large", description=__doc__)
    parser.add_argument("sessions", nargs="?", type=int, help="conversations")
    parser.add_argument("entries", nargs="?", type=int, help="messages, in all of them together")
    parser.add_argument("--rounds", type=int, help="how often each store is measured")
    parser.add_argument("--times", type=int, help="how often each thing is done")
    parser.add_argument("--keep", type=Path, help="folder in which the store stays")
    usual = {"sessions": 2_000, "entries": 200_000, "rounds": 3, "times": 15}
    return parsed(parser, usual, {"sessions": 40, "entries": 400, "rounds": 1, "times": 2})


if __name__ == "__main__":
    sys.exit(main())
