"""What a tool answered to one person shows for nobody else: not in a request, not in a message.

The web is such a tool: what was searched for, found and read is that conversation's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.tools import ToolContext
from bot.messages import Message, ToolResult, ToolUse
from bot.testing import ScriptedModel
from tests.proofs.canaries import Leak, Wiretap
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
            ToolUse(f"c{number}", "send_file", {"name": "found.txt", "source": wanted}),
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
        there = [piece for piece in self.engine.channel.sent if piece.address.chat == chat][before:]
        files = (
            file.data.decode(errors="replace") for piece in there for file in piece.attachments
        )
        told = "\n".join((*(piece.text for piece in there), *files))
        seen = "\n".join(map(str, self.engine.model.requests[requests:]))
        self.shown[place] += f"{told}\n{seen}\n"
        return f"{told}\n{seen}"

    async def together(self, asked: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Say something in several direct chats at once: the words, and a mark of that chat's."""
        requests = len(self.engine.model.requests)
        before = {place: len(self.engine.sent_to(place[0])) for place in asked}
        for (sender, _), (words, _) in asked.items():
            await self.engine.say(words, sender=sender)
        await self.engine.channel.wait_until(
            lambda _: all(len(self.engine.sent_to(p[0])) > count for p, count in before.items())
        )
        seen = [str(request) for request in self.engine.model.requests[requests:]]
        for place, (_, mark) in asked.items():
            told = self.engine.sent_to(place[0])[before[place] :]
            self.shown[place] += "\n".join((*told, *(each for each in seen if mark in each), ""))


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


# --- the web --------------------------------------------------------------------------------------


def page(question: str) -> str:
    """What the page that answers a question is called: the worst model knows all of them."""
    return canary(question).replace("canary", "page")


class Web:
    """A search service and a site: each question finds a page of its own, which says a canary."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []  # questions
        self.read: list[str] = []  # pages

    async def search(self, request: web.Request) -> web.Response:
        question = request.query["q"]
        self.asked.append(question)
        found = {
            "title": canary(f"title {question}"),
            "url": f"{self.url}/{page(question)}",
            "content": canary(f"snippet {question}"),
        }
        return web.json_response({"results": [found]})

    async def page(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.read.append(name)
        return web.Response(text=f"{canary(f'text of {name}')} {'word ' * 30_000}")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Web]:
        app = web.Application()
        app.router.add_get("/search", self.search)
        app.router.add_get("/{name:page-.*}", self.page)
        # What this server logs is no part of the program.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://localhost:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    @property
    def settings(self) -> Mapping[str, Any]:
        host = self.url.removeprefix("http://")
        return {
            "search": "searxng",
            "search_url": self.url,
            "fetch": True,
            "internal_hosts": (host,),
        }


def surfing(request: Request) -> str | Reply:
    """As `script` does; and "find" searches the web, "read" opens what nobody may have named."""
    words = request.messages[-1].text
    name, _, rest = words.partition(" ")
    if name not in {"find", "open"}:
        return script(request)
    # What it opens is written so that the address itself stands nowhere.
    given = {"query": rest} if name == "find" else {"url": bytes.fromhex(rest).decode()}
    tool = "web_search" if name == "find" else "web_fetch"
    use = ToolUse(f"w{len(request.messages)}", tool, given)
    return Reply(Message("assistant", (use,)), "tool_use")


def opening(url: str) -> str:
    return f"open {url.encode().hex()}"


@dataclass(frozen=True)
class Search:
    """What one place looks for on the web, and what that place alone may see of it."""

    question: str
    page: str
    canaries: frozenset[str]

    @classmethod
    def of(cls, place: tuple[str, str], url: str) -> Search:
        mark = canary(f"question {place}")
        question = f"about {mark}"
        title, snippet = canary(f"title {question}"), canary(f"snippet {question}")
        seen = {mark, title, snippet, canary(f"text of {page(question)}")}
        return cls(question, f"{url}/{page(question)}", frozenset(seen))


async def surf(folder: Path, site: Web, tap: Wiretap) -> None:
    """Let everybody search and read for themselves, then try to see what the others saw.

    Raises:
        Leak: somebody did.
    """
    async with running(
        folder,
        model=ScriptedModel(surfing),
        web=site.settings,
        tool_rules=[{"action": "allow", "tools": ("web_*",), "ask": False}],
        session={"owner": ("memory:ada",)},
        channels={"memory": {"group_policy": "open"}},
        scope={"default": "allow", "rules": ()},
    ) as engine:
        watched = Watched(engine)
        searches = {place: Search.of(place, site.url) for place in PLACES}
        # Side by side where each has a chat of their own; in a room one after another.
        alone = {place: each for place, each in searches.items() if not place[1]}
        await watched.together(
            {p: (f"find {each.question}", each.question) for p, each in alone.items()}
        )
        await watched.together(
            {p: (opening(each.page), each.question) for p, each in alone.items()}
        )
        for place in PLACES:
            if place[1]:
                await watched.ask(place, f"find {searches[place].question}")
                await watched.ask(place, opening(searches[place].page))
        assert sorted(site.asked) == sorted(each.question for each in searches.values())
        assert len(site.read) == len(PLACES)
        kept = {place: set(ARTIFACT.findall(shown)) for place, shown in watched.shown.items()}
        assert all(kept.values())
        for place in PLACES:
            await snoop(watched, place, searches, kept)
        seen = {place: set(CANARY.findall(shown)) for place, shown in watched.shown.items()}
    den = frozenset[str]().union(*(searches[place].canaries for place in PLACES if place[1]))
    for place in PLACES:
        assert seen[place] >= searches[place].canaries
        if wrong := seen[place] - (den if place[1] else searches[place].canaries):
            raise Leak(f"{place} was shown {wrong}")
    if len(site.asked) + len(site.read) != 2 * len(PLACES):
        raise Leak("a page was opened for somebody who was never given its address")
    if wrong := [line for line in tap.lines if re.search("(canary|page)-[0-9a-f]{12}", line)]:
        raise Leak(f"the log has {wrong[0]}")


async def snoop(
    watched: Watched,
    place: tuple[str, str],
    searches: Mapping[tuple[str, str], Search],
    kept: Mapping[tuple[str, str], set[str]],
) -> None:
    """Let one place try everything to see what the others found."""
    for other in PLACES:
        if other != place and not (other[1] and place[1]):
            await watched.ask(place, opening(searches[other].page))
            for secret in sorted(kept[other]):
                await watched.ask(place, f"look {secret}")
    for words in ("look canary", "look about", "look word", "/context detail", "/tools", "/new"):
        await watched.ask(place, words)
    await watched.ask(place, "what do you know?")


async def test_nobody_sees_what_another_found_on_the_web(tmp_path: Path):
    async with Web().serving() as site:
        with Wiretap().listening() as tap:
            await surf(tmp_path, site, tap)
        assert len(tap.lines) > 50


def whoever_asks_reads_on(patch: pytest.MonkeyPatch) -> None:
    from bot.sessions import artifacts

    def anybodys(tx: Any, _view: object, _session: str, id_: str) -> str | None:
        rows = tx.execute("SELECT text FROM artifacts WHERE id = ?", (id_,))
        return next((row[0] for row in rows), None)

    patch.setattr(artifacts, "_text", anybodys)


def any_address_is_opened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("bot.agent.tools.web.fetch.is_mentioned", lambda _url, _texts: True)


def a_log_has_the_question(patch: pytest.MonkeyPatch) -> None:
    from bot.agent.tools.web.search import SearchApi

    ask = SearchApi._ask

    async def telling(self: SearchApi, query: str, count: int) -> Any:
        structlog.get_logger("leaky").info("asked", params=query)
        return await ask(self, query, count)

    patch.setattr(SearchApi, "_ask", telling)


@pytest.mark.parametrize(
    "leaky",
    [whoever_asks_reads_on, any_address_is_opened, a_log_has_the_question],
    ids=lambda leaky: leaky.__name__,
)
@pytest.mark.proof
async def test_a_leak_of_the_web_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaky: Callable[[pytest.MonkeyPatch], None]
):
    leaky(monkeypatch)
    async with Web().serving() as site:
        with Wiretap().listening() as tap, pytest.raises(Leak):
            await surf(tmp_path, site, tap)
