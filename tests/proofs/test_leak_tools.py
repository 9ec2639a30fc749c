"""What a tool answered to one person shows for nobody else: not in a request, not in a message."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.tools import ToolContext
from bot.messages import Message, ToolResult, ToolUse
from bot.testing import ScriptedModel
from tests.support import Engine, running

ROOM: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
PLACES = [("ada", ""), ("bob", ""), ("eve", ""), ("bob", "den"), ("eve", "den")]
CANARY = re.compile(r"canary-[0-9a-f]{12}")
ARTIFACT = re.compile(r"a-[0-9a-f]{12}")
RULES = [
    {"action": "allow", "tools": ("safe",), "ask": True},
    {"action": "allow", "tools": ("diary",), "ask": False},
]


def canary(what: str) -> str:
    return f"canary-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


class Diary:
    """Answers something only this conversation may see, and much of it."""

    spec = ToolSpec("diary", "", {"type": "object"})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return f"{canary(context.session_id)} {'word ' * 200_000}"


class Safe:
    """Does something with what only this conversation knows; the person is asked."""

    spec = ToolSpec("safe", "", {"type": "object"}, changes=True)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return f"locked {canary(f'safe {context.session_id}')} {arguments['what']}"


def script(request: Request) -> str | Reply:
    """Use what is asked for: "diary", "safe", or every tool that looks for somebody's words."""
    said = request.messages[-1]
    number = len(request.messages)
    if isinstance(said.blocks[-1], ToolResult):
        return " ".join(b.text[:300] for b in said.blocks if isinstance(b, ToolResult))
    words = said.text
    uses: list[ToolUse] = []
    if words.startswith("diary"):
        uses = [ToolUse(f"d{number}", "diary", {})]
    elif words.startswith("safe"):
        uses = [ToolUse(f"s{number}", "safe", {"what": canary(f"word {words}")})]
    elif words.startswith("look"):
        wanted = words.removeprefix("look ")
        name = "artifact_get" if ARTIFACT.fullmatch(wanted) else "transcript_search"
        given = {"id": wanted} if name == "artifact_get" else {"query": wanted}
        uses = [
            ToolUse(f"a{number}", name, given),
            ToolUse(f"b{number}", "memory_search", {"query": wanted}),
        ]
    return Reply(Message("assistant", tuple(uses)), "tool_use") if uses else "Well."


class Watched:
    """An engine, and what each place was shown and told."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shown: dict[tuple[str, str], str] = dict.fromkeys(PLACES, "")

    async def ask(self, place: tuple[str, str], words: str, texts: int = 1) -> str:
        """Say something in a place; what is said there then, and what the model was shown."""
        sender, room = place
        chat, requests = room or sender, len(self.engine.model.requests)
        before = len(self.engine.sent_to(chat))
        await self.engine.say(words, sender=sender, **(ROOM if room else {}))
        await self.engine.channel.wait_until(
            lambda _: len(self.engine.sent_to(chat)) >= before + texts
        )
        told = "\n".join(self.engine.sent_to(chat)[before:])
        seen = "\n".join(map(str, self.engine.model.requests[requests:]))
        self.shown[place] += f"{told}\n{seen}\n"
        return f"{told}\n{seen}"


async def test_nobody_sees_what_a_tool_answered_to_another(tmp_path: Path):
    async with running(
        tmp_path,
        model=ScriptedModel(script),
        tools=(Diary(), Safe()),
        tool_rules=RULES,
        session={"owner": ("memory:ada",)},
        channels={"memory": {"group_policy": "open"}},
        scope={"default": "allow", "rules": ()},
    ) as engine:
        watched = Watched(engine)
        known: dict[tuple[str, str], set[str]] = {place: set() for place in PLACES}
        kept: dict[tuple[str, str], set[str]] = {place: set() for place in PLACES}
        for place in PLACES:
            answer = await watched.ask(place, "diary please")
            known[place] |= set(CANARY.findall(answer))
            kept[place] |= set(ARTIFACT.findall(answer))
            asked = await watched.ask(place, f"safe {place}")
            (command,) = set(re.findall(r"/allow [0-9a-f]{8}", asked))
            known[place] |= set(CANARY.findall(asked))
            for other in PLACES:  # nobody else can answer it, whatever they know of it
                if other != place and other[1] != place[1]:
                    assert "locked" not in await watched.ask(other, command)
            known[place] |= set(CANARY.findall(await watched.ask(place, command, 2)))
        # In a room they all are one conversation; of direct chats no two share anything.
        own = {place: known[place] | (_den(known) if place[1] else set()) for place in PLACES}
        assert all(len(found) >= 3 for found in known.values())
        assert all(kept.values())
        for place in PLACES:
            for other in PLACES:
                if other == place or (other[1] and place[1]):
                    continue
                for secret in sorted(kept[other]):
                    await watched.ask(place, f"look {secret}")
            for words in ("canary", "locked", "diary please", "safe"):
                await watched.ask(place, f"look {words}")
            await watched.ask(place, "/context detail")
            await watched.ask(place, "/tools")
            await watched.ask(place, "/new")
            await watched.ask(place, "what do you know?")
        for place in PLACES:
            found = set(CANARY.findall(watched.shown[place]))
            assert found <= own[place], (place, found - own[place])
            assert found >= known[place]


def _den(known: Mapping[tuple[str, str], set[str]]) -> set[str]:
    return set().union(*(found for (_, room), found in known.items() if room))
