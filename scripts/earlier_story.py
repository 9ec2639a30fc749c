"""What happens in a folder of `scripts/earlier_folders.py`: run by the program of then.

Only what every version has had is imported: an engine for tests, with a channel in memory. What a
version does not know it answers in words, and what came of each step is written down beside the
folder, for the tests to hold against what a later version finds. The program ends as a killed one
does, with a message that waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from bot.testing import ScriptedModel
from tests.support import running

try:
    from bot.identity.view import folder_name
except ImportError:  # as it was called first
    from bot.scope.view import folder_name

NOTES = {
    "MEMORY.md": "# Lasting\n- the harbour code is 4711\n- 水母 are afraid of the boat Pinguin\n",
    "memory/2026-11-20.md": "- by train to 北京\n",
}


def noted(workspace: Path) -> None:
    """Notes as a person writes them with an editor."""
    folder = workspace / "people" / folder_name("memory:ada")
    for name, text in NOTES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


async def told(engine: Any, said: dict[str, str], name: str, words: str, **changes: Any) -> None:
    """Say something, and keep the answer."""
    said[name] = await asyncio.wait_for(engine.ask(words, **changes), 30)


async def story(folder: Path, facts: Path) -> None:
    """Let people use it for a while."""
    said: dict[str, str] = {}
    noted(folder / "workspace")
    async with running(folder) as engine:
        await told(engine, said, "first", "the bicycle is green 水母")
        await told(engine, said, "secret", "zqforgotten is my secret", sender="bo")
        await told(engine, said, "asked to forget", "/memory forget zqforgotten", sender="bo")
        await told(engine, said, "forgotten", "/memory forget yes", sender="bo")
        await told(engine, said, "other", "bo likes trams", sender="bo")
        await told(engine, said, "new", "/new")
        await told(engine, said, "second", "the second conversation is about rowing")
        await told(engine, said, "reminder", "/remind in 300 hours water the plants")
        await told(engine, said, "repeat", "/remind every weekday at 8 take the pills")
        await told(engine, said, "task", "/task every weekday at 9 sum up the day")
        await told(engine, said, "zone", "/timezone Europe/Paris")
        await told(engine, said, "notices", "/notices off")
        await told(engine, said, "link", "/link")
        code = re.search(r"\b[A-Z2-9]{6,10}\b", said["link"])
        if code:
            await told(engine, said, "linked", f"/link {code[0]}", sender="cleo")
            await told(engine, said, "who", "/whoami", sender="cleo")
    model = ScriptedModel(gate=asyncio.Event())
    async with running(folder, model=model) as engine:
        await engine.say("what waits?", message_id="waits")
        await asyncio.wait_for(model.started.wait(), 30)
        keep(facts, said)
        os._exit(0)  # as when it is killed


def keep(facts: Path, said: dict[str, str]) -> None:
    """Write down what was said."""
    facts.write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(story(Path(sys.argv[1]), Path(sys.argv[2])))
