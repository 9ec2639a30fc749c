"""What a message passes in the code: `python -m bench journey`, `--list` names every function.

One direct message over Telegram, in a conversation that goes on, through the whole program: from
the adapter's poll to the reply sent, noted and everything quiet again. The fake Telegram and the
fake model speak real HTTP; memory is searched by words alone. What is counted is the project's own
functions, in all threads; going on after an `await` is no new call, and what Python makes itself
(the `__init__` of a dataclass) and comprehensions are none at all. Several messages are measured
and what all of them pass is told, so that a loop which woke up beside one does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from types import FrameType
from typing import Any, Self

import uvloop
from aiohttp import web

from bench import quiet
from bench.bots import ROOT, settings
from bench.engine import OUT
from bench.model_server import CLOSING, DELTAS, HEADERS, MODEL, OPENING
from bot.app import App, Parts
from bot.settings import load
from tests.fakes.telegram import FakeTelegram

OWN = ("bot", "adapters")  # folders whose functions count
ADA = 1000
MESSAGES, WARM_UP = 5, 4
QUIET = 0.5  # seconds with no call of a function that counts
LIMIT = 120.0  # seconds a message may take
# What is worked out of a message, and by which function; the sum of calls where it ends in a dot.
WORKED_OUT: Mapping[str, str] = {
    "session key worked out": "bot.identity.routing:session_key",
    "memory view worked out": "bot.identity.view:view_for",
    "command worked out": "bot.identity.access:parse",
    "conversations resolved": "bot.identity.conversation:resolve",
    "calls of `routing.*`": "bot.identity.routing:",
}
GOALS: Mapping[str, int] = {
    "functions": 220,
    "files": 45,
    "session key worked out": 1,
    "memory view worked out": 1,
    "command worked out": 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """A function is called, or goes on when it was not `called` but had been waiting."""

    name: str  # "bot.gateway.gateway:Gateway.receive"
    file: str  # from the project's folder
    strand: object  # the thread and task it runs in
    called: bool = True


@dataclass(frozen=True)
class Journey:
    """What one message passed, in order of time."""

    steps: tuple[Step, ...]

    @cached_property
    def calls(self) -> Counter[str]:
        """How often each function was called, in order of the first time; 0 if it only went on."""
        found: Counter[str] = Counter()
        for step in self.steps:
            found[step.name] += step.called
        return found

    @cached_property
    def files(self) -> Mapping[str, str]:
        """The file of each function."""
        return {step.name: step.file for step in self.steps}

    @property
    def changes(self) -> int:
        """How often a call was in another file than the one before it in the same task."""
        last: dict[object, str] = {}
        changes = 0
        for step in self.steps:
            if step.called:
                changes += last.setdefault(step.strand, step.file) != step.file
                last[step.strand] = step.file
        return changes

    def of(self, name: str) -> int:
        """Calls of a function, or of all whose names begin so when it ends in "." or ":"."""
        if not name.endswith((".", ":")):
            return self.calls[name]
        return sum(count for each, count in self.calls.items() if each.startswith(name))

    def figures(self) -> dict[str, int]:
        """Everything that is told, by what it is called in the table."""
        return {
            "functions": len(self.calls),
            "calls": self.calls.total(),
            "files": len(set(self.files.values())),
            "changes of file": self.changes,
            **{what: self.of(name) for what, name in WORKED_OUT.items()},
        }


class Recorder:
    """Notes each call of a function below some folders, in this thread and those begun meanwhile.

    A context manager; `take` gives what was noted since it was asked last.
    """

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        self._root = root
        self._own = tuple(f"{root / folder}/" for folder in folders)
        self._files: dict[str, str] = {}  # a code's file name: from the root, empty for others'
        self._steps: list[Step] = []

    def __enter__(self) -> Self:
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def count(self) -> int:
        """Steps noted since `take`."""
        return len(self._steps)

    def take(self) -> Journey:
        """What was noted since it was asked last."""
        steps, self._steps = self._steps, []
        return Journey(tuple(steps))

    def _event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        file = self._files.get(code.co_filename)
        if file is None:
            file = self._files[code.co_filename] = self._file(code.co_filename)
        if not file or (code.co_name.startswith("<") and code.co_name != "<lambda>"):
            return
        # A frame begins at a RESUME whose argument has no low bits, and goes on at one that has.
        called = code.co_code[frame.f_lasti + 1] & 3 == 0
        name = f"{frame.f_globals['__name__']}:{code.co_qualname}"
        self._steps.append(Step(name, file, _strand(), called))

    def _file(self, name: str) -> str:
        return str(Path(name).relative_to(self._root)) if name.startswith(self._own) else ""


def _strand() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return threading.get_ident(), task


async def measure(messages: int) -> Journey:
    """What so many messages pass, each measured alone.

    Raises:
        TimeoutError: a message was not answered, or the program does not get quiet.
    """
    journeys: list[Journey] = []
    with tempfile.TemporaryDirectory() as folder, Recorder(ROOT, OWN) as recorder:
        async with FakeTelegram(record_calls=False) as telegram, _model() as model_url:
            variables = settings(Path(folder), telegram.url, telegram.token, model_url) | {
                "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
                "CONFIDANT_MEMORY__WATCH": "false",
                "CONFIDANT_STORAGE__BACKUP_HOURS": "0",
            }
            loaded = load(None, variables, Path(folder))
            async with App(loaded.config, loaded.plugins, Parts(dashboard=False)) as app:
                app.watchdog.__exit__()  # it looks four times a second
                for number in range(WARM_UP + messages):
                    await _quiet(recorder)
                    recorder.take()
                    telegram.push_text(ADA, f"Can you tell me whether that works? ({number})")
                    await telegram.wait_sent(number + 1, LIMIT)
                    await _quiet(recorder)
                    journeys.append(recorder.take())
    return common(journeys[WARM_UP:])


def common(journeys: Sequence[Journey]) -> Journey:
    """The journey in the middle, by its calls, with nothing but the functions all of them pass."""
    shared = set.intersection(*(set(journey.calls) for journey in journeys))
    ways = [Journey(tuple(s for s in way.steps if s.name in shared)) for way in journeys]
    return sorted(ways, key=lambda way: way.calls.total())[len(ways) // 2]


async def _quiet(recorder: Recorder) -> None:
    """Return once nothing was noted for a while."""
    async with asyncio.timeout(LIMIT):
        seen, since = recorder.count, time.monotonic()
        while time.monotonic() - since < QUIET:
            await asyncio.sleep(QUIET / 10)
            if recorder.count != seen:
                seen, since = recorder.count, time.monotonic()


@asynccontextmanager
async def _model() -> AsyncGenerator[str]:
    """A model whose replies come in one piece, so that it is read alike each time; its address."""
    body = b"".join((OPENING, *DELTAS, CLOSING))

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(MODEL)
        await request.read()
        return web.Response(body=body, headers=HEADERS)

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def unknown(names: Sequence[str]) -> list[str]:
    """Those of the names that nothing in the project has: they would be counted as 0 for ever."""
    return [name for name in names if not _stands(name)]


def _stands(name: str) -> bool:
    module, _, path = name.rstrip(".").partition(":")
    try:
        found = importlib.import_module(module)
        return reduce(getattr, path.split("."), found) is not None if path else True
    except (ImportError, AttributeError):
        return False


def markdown(figures: Mapping[str, int]) -> str:
    """The table."""
    lines = ["| one direct message | | goal |", "|---|---:|---:|"]
    for what, figure in figures.items():
        goal = f"≤ {GOALS[what]}" if what in GOALS else ""
        lines.append(f"| {what} | {figure} | {goal} |")
    return "\n".join(lines) + "\n"


def listing(journey: Journey) -> str:
    """Every function with its file and calls, in order of the first call.

    "…" stands for calls where a function had been waiting for the message and was not called anew.
    """
    lines = ["| | function | file | calls |", "|---:|---|---|---:|"]
    for number, (name, calls) in enumerate(journey.calls.items(), 1):
        function = name.partition(":")[2]
        lines.append(f"| {number} | `{function}` | {journey.files[name]} | {calls or '…'} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Measure, print and write; 1 when something could not be counted."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench journey", description=__doc__)
    parser.add_argument("--list", action="store_true", help="every function, in order")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="how many are measured")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the table")
    asked = parser.parse_args(arguments)
    if gone := unknown(tuple(WORKED_OUT.values())):
        print(f"bench: nothing is called {', '.join(gone)} any more", file=sys.stderr)
        return 1
    try:
        journey = uvloop.run(measure(max(asked.messages, 1)))
    except TimeoutError:
        print(f"bench: no answer, or no quiet after it, within {LIMIT:g} s", file=sys.stderr)
        return 1
    report = markdown(journey.figures())
    if asked.list:
        report += f"\n{listing(journey)}"
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "journey.md").write_text(report, encoding="utf-8")
    print(report, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
