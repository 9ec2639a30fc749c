"""The program that `bench fairness` measures: all of it, with a model that repeats and opens pages.

It answers with the mark of what it is asked, says whether it has read a file with the word
"harbour" in it, and opens the address after "open". `FAIR_PUSH` is where notes to browsers go.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import uvloop

from bot import logs
from bot.agent.models import Reply, Request
from bot.app import App, Parts
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.net.addresses import Guard
from bot.push.pusher import Endpoints
from bot.settings import load
from bot.testing import ScriptedModel

MARK = re.compile(r"\bq\d+\b")
_OPEN = re.compile(r"\bopen (http\S+)")


def script(request: Request) -> str | Reply:
    """The mark of the last question, once the page that it names was opened."""
    said = request.messages[-1]
    last = said.blocks[-1]
    if isinstance(last, ToolResult):
        said, seen = request.messages[-3], last.text
    elif found := _OPEN.search(said.text):
        use = ToolUse(f"open-{id(request)}", "web_fetch", {"url": found[1]})
        return Reply(Message("assistant", (use,)), "tool_use")
    else:
        seen = "".join(block.text for block in said.blocks if isinstance(block, Text))
    if "repeat" in said.text:
        return said.text
    marks = MARK.findall(said.text)
    return f"{marks[-1] if marks else 'Yes.'}{', and read' if 'harbour' in seen else ''}"


async def serve() -> None:
    """Run until it is asked to end."""
    loaded = load(None, os.environ, Path.cwd())
    logs.configure(loaded.config.log)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    endpoints = Endpoints(Guard.from_hosts([os.environ["FAIR_PUSH"]]), frozenset({"http"}))
    parts = Parts(remote=ScriptedModel(script), push_endpoints=endpoints)
    async with App(loaded.config, loaded.plugins, parts):
        await stop.wait()


if __name__ == "__main__":
    uvloop.run(serve())
