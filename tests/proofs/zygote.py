"""Starts the program again and again in a moment: everything is imported once, then forked.

A child is the program itself, from the composition root down, with the real channels and the
real storage; only the model is scripted, so that every answer names its question; it takes its
time when the question has the word SLOWLY, and the program dies while it puts together a request
that has the word POISON. For "bake 7" it wants to use the oven, which notes each call in the file
that OVEN names; for "tally" it bakes an order that is called like the day. The file that CLOCK
names says how far its clock is ahead, in ms; USES is after how many seconds it stores which claims
were used. Times between tries are short. Commands on standard input: `start` forks a child and
prints its process id, `reap PID` waits for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import uvloop

# Loaded once, before the fork.
from adapters.discord import channel as discord  # noqa: F401
from adapters.matrix import account as matrix  # noqa: F401
from adapters.nextcloud_talk import channel as nextcloud_talk  # noqa: F401
from adapters.telegram import channel as telegram  # noqa: F401
from bot import app, clock, logs
from bot.agent.models import Reply, Request, TextDelta, ToolSpec
from bot.agent.tools import ToolContext
from bot.app import App, Parts
from bot.channel import Inbound
from bot.context import prompt
from bot.delivery import delivery
from bot.gateway import lanes, tasks
from bot.memory import memory
from bot.messages import Message, ToolResult, ToolUse
from bot.settings import Loaded, load
from bot.testing import ScriptedModel

SLOWLY = "slowly"
POISON = "poison"
PER_WORD = 0.02  # seconds


class Oven:
    """A tool that changes something, and whose file tells how often."""

    spec = ToolSpec("oven", "Bake an order.", {"type": "object"}, changes=True)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Note the order, and take a moment."""
        file = os.open(os.environ["OVEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{json.dumps(dict(arguments))}\n".encode())
        os.close(file)
        await asyncio.sleep(PER_WORD)
        return "baked"


def script(request: Request) -> str | Reply:
    """Repeat what was said, or use the oven and say what came of it."""
    said = request.messages[-1]
    result = said.blocks[-1]
    if isinstance(result, ToolResult):
        use = request.messages[-2].blocks[-1]
        assert isinstance(use, ToolUse)
        return f"Order {use.input['order']}: {result.text}"
    found = re.fullmatch(r"bake (\d+)", said.text)
    if found is not None:
        order = int(found[1])
    elif said.text == "tally" and request.now is not None:
        order = int(f"{request.now:%Y%m%d}")
    else:
        return f"You said: {said.text}"
    use = ToolUse(f"oven-{order}", "oven", {"order": order})
    return Reply(Message("assistant", (use,)), "tool_use")


class Model(ScriptedModel):
    """It repeats what it is told, as fast as it was asked to."""

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Stream the answer word by word."""
        is_slow = SLOWLY in request.messages[-1].text
        async for event in super().stream(request):
            if is_slow:
                await asyncio.sleep(PER_WORD)
            yield event


def _poisoned() -> None:
    """Let the program die of one word, and not wait for minutes before it tries again."""
    notes = prompt.notes

    def deadly(inbound: Inbound, now: datetime) -> str:
        if POISON in inbound.text:
            os.kill(os.getpid(), signal.SIGKILL)
        return notes(inbound, now)

    prompt.notes = deadly
    delivery.FIRST_RETRY = delivery.LAST_RETRY = 0.02
    lanes.SETTLED = 0.7
    app.SWEEP_SECONDS = app.PARKED_SECONDS = 0.5
    tasks.LOOK_SECONDS = 0.1
    memory.USES_SECONDS = float(os.environ.get("USES", memory.USES_SECONDS))


def _clock() -> int:
    """The time, ahead by what the file says."""
    return clock.system_clock() + int(Path(os.environ["CLOCK"]).read_text())


async def _serve(loaded: Loaded) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    oven = (Oven(),) if "OVEN" in os.environ else ()
    parts = Parts(
        clock=_clock if "CLOCK" in os.environ else clock.system_clock,
        remote=Model(script),
        tools=oven,
        dashboard="CONFIDANT_DASHBOARD__PORT" in os.environ,
    )
    async with App(loaded.config, loaded.plugins, parts):
        await stop.wait()


def main() -> None:
    loaded = load(None, os.environ, Path.cwd())
    logs.configure(loaded.config.log)
    _poisoned()
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["start"]:
                # Told to stop before it listens for that, it does as soon as it does.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                pid = os.fork()
                if pid == 0:
                    sys.stdin.close()
                    uvloop.run(_serve(loaded))
                    os._exit(0)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                print(pid, flush=True)
            case ["reap", pid]:
                print(os.waitstatus_to_exitcode(os.waitpid(int(pid), 0)[1]), flush=True)
            case _:
                raise ValueError(line)


if __name__ == "__main__":
    main()
