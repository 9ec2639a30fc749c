"""The proof that nobody on the page is shown what is anothers', the owner included.

Three people come in by the ways there are; each tells the bot a canary in the page's chat, and each
has one in their notes. Then every page and the history are read with each one's browser.
"""

from __future__ import annotations

import json
from pathlib import Path

from bot.channel import PAGE_OWNER
from bot.channel.http import SharedRoute
from bot.dashboard.guard import OPEN_PATHS
from bot.dashboard.pages import CHANNEL
from bot.identity import MessageOrigin
from bot.memory import claims
from bot.testing import ScriptedModel
from tests.fakes.page_people import Browser, browser, browsers, key_in, serving
from tests.proofs.night_tour import NIGHT
from tests.support import Engine

SAID = {"owner": "quartzowl", "ada": "brassheron", "bob": "copperwren"}
OWNER_NAME = "Amberibis"  # what the owner is called, which their own chats alone are told
FACTS = """\
- My email is {0}@example.org <!-- owner 2026-01-05 -->
- Collects {0} stamps <!-- agent 2019-01-05 -->
- Prefers {0} seats <!-- agent 2024-01-01 -->
"""
# Nor are those for programs, where no login counts.
NO_PAGES = {"/chat/ws", "/enter", "/mcp", "/v1/models", "/v1/models/{model}"}
NOTED = {"owner": "velvetlynx", "ada": "silkotter", "bob": "satinstoat"}


async def tell(who: Browser, words: str) -> None:
    """Say something in the page's chat, and wait for the answer."""
    async with who.client.ws_connect("/chat/ws") as ws:
        await ws.send_json({"type": "hello", "version": 1, "format": "text"})
        await ws.send_json({"type": "send", "id": "m1", "text": words})
        while json.loads(await ws.receive_str())["type"] != "message":
            pass


async def history(who: Browser) -> str:
    async with who.client.ws_connect("/chat/ws") as ws:
        await ws.send_json({"type": "hello", "version": 1, "format": "text"})
        while json.loads(said := await ws.receive_str())["type"] != "history":
            pass
        return said


async def heard(who: Browser, words: str) -> None:
    """Wait until the page's chat has shown them what holds these words."""
    async with who.client.ws_connect("/chat/ws") as ws:
        await ws.send_json({"type": "hello", "version": 1, "format": "text"})
        while words not in await ws.receive_str():
            pass


async def everything_shown_to(engine: Engine, who: Browser) -> str:
    """What every page answers to a browser, whether it is theirs or not, and their history."""
    assert engine.app.server is not None
    shown = [await history(who)]
    for route in engine.app.server.routes:
        if route.method == "GET" and route.path not in NO_PAGES and not is_file(route.path):
            asked = (route.path, *looked_for(route.path))
            shown += [(await who.get(path))[1] for path in asked]
    return "\n".join(shown)


def is_file(path: str) -> bool:
    """The program's own, which are the same for everybody."""
    return path.startswith(("/assets/", "/static/"))


def looked_for(path: str) -> list[str]:
    """The page again, asked for what everybody said and noted, and for others' files."""
    # What they have in common is looked for: a form shows again what was typed into it.
    asked = [f"{path}?q={word}&query={word}" for word in ("word", "noted")]
    names = ("MEMORY.md", "people/ada/MEMORY.md", "../MEMORY.md")
    return [*asked, *(f"{path}?path={name}" for name in names if "memory" in path)]


def note(engine: Engine, person: str, words: str) -> Path:
    """A line in the MEMORY.md of a page person's space; its folder."""
    origin = MessageOrigin(CHANNEL, "default", person, "direct", person)
    view = engine.app.core.resolver.of(origin).view
    folder = engine.folder / "workspace"
    if person != PAGE_OWNER:
        folder /= view.space
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MEMORY.md").write_text(f"- A word that was noted: {words}\n")
    return folder


async def test_nobody_on_the_page_is_shown_what_is_anothers(tmp_path: Path):
    session = {"owner_name": OWNER_NAME}
    async with (
        serving(tmp_path, session=session) as engine,
        browsers(engine, 3) as (owner, ada, bob),
    ):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        await bob.post("/enter", key=key_in(await engine.ask("/web", sender="bob")))
        people = {"owner": owner, "ada": ada, "bob": bob}
        for name, who in people.items():
            note(engine, await who.who(), NOTED[name])
        for name, who in people.items():
            await tell(who, f"My word is {SAID[name]}.")
        for name, who in people.items():
            shown = await everything_shown_to(engine, who)
            assert SAID[name] in shown
            assert NOTED[name] in shown
            assert (OWNER_NAME in shown) == (name == "owner")
            for other in people.keys() - {name}:
                assert SAID[other] not in shown, (name, other)
                assert NOTED[other] not in shown, (name, other)
        # Nor was the model, for anybody, told of anothers'.
        for request in engine.model.requests:
            told = repr(request)
            assert sum(word in told for word in SAID.values()) <= 1
            assert sum(word in told for word in NOTED.values()) <= 1
            assert (OWNER_NAME in told) == (NOTED["owner"] in told)
        async with browser(engine) as nobody:
            for route in engine.app.server.routes if engine.app.server else ():
                if route.method == "GET" and not is_file(route.path):
                    text = (await nobody.get(route.path))[1]
                    words = (OWNER_NAME, *SAID.values(), *NOTED.values())
                    assert not any(word in text for word in words)


async def test_nobody_on_the_page_is_shown_what_the_night_did_to_anothers_notes(tmp_path: Path):
    model = ScriptedModel(script=lambda request: request.messages[-1].text)
    memory = {"night": {"mode": "model"}}
    async with (
        serving(tmp_path, model=model, memory=memory) as engine,
        browsers(engine, 3) as (owner, ada, bob),
    ):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        await bob.post("/enter", key=key_in(await engine.ask("/web", sender="bob")))
        people = {"owner": owner, "ada": ada, "bob": bob}
        folders = {name: note(engine, await who.who(), NOTED[name]) for name, who in people.items()}
        for name, folder in folders.items():
            (folder / "MEMORY.md").write_text(FACTS.format(NOTED[name]))
            (folder / "memory").mkdir(exist_ok=True)
            later = f"- 08:00 My email is {NOTED[name]}@example.com <!-- owner -->\n"
            (folder / "memory" / "2026-11-01.md").write_text(later)
        engine.clock.advance(minutes=1)  # they are told where they wrote last: here
        for who in people.values():
            await tell(who, "Hello.")
        await engine.app.agent.memory.index.sync("test")
        for now in (NIGHT, NIGHT + 6 * 3_600_000):
            engine.clock.now = now
            await engine.app.maintenance.nights.look()
            for name, who in people.items():
                if now > NIGHT:
                    await heard(who, "I tidied")
                shown = await everything_shown_to(engine, who)
                assert ("I tidied" in shown) == (now > NIGHT)
                for other in people:
                    assert (NOTED[other] in shown) == (other == name)
        asked = [repr(each) for each in model.requests if each.purpose == "night"]
        assert len(asked) == len(people)
        assert all(sum(word in each for word in NOTED.values()) == 1 for each in asked)
        # What one answers, confirms or takes back is theirs alone.
        facts = {name: (folder / "MEMORY.md").read_text() for name, folder in folders.items()}
        for name, who in people.items():
            page = (await who.get("/memory/night"))[1]
            assert page.count(NOTED[name]) == 3
            for other in people.keys() - {name}:
                claim = claims.digest(f"prefers {NOTED[other]} seats")
                for judged in ("confirm", "wrong"):
                    await who.post(f"/memory/{judged}", path="MEMORY.md", claim=claim)
            assert facts == {n: (folders[n] / "MEMORY.md").read_text() for n in folders}
            await who.post("/memory/night", answer="yes", day="2026-11-22")
            text = facts[name] = (folders[name] / "MEMORY.md").read_text()
            assert text.count("~~") == 6
            assert facts == {n: (folders[n] / "MEMORY.md").read_text() for n in folders}
            await who.post("/memory/night")
            facts[name] = FACTS.format(NOTED[name])
            assert facts == {n: (folders[n] / "MEMORY.md").read_text() for n in folders}


async def test_every_route_of_the_running_program_by_who_really_logged_in(tmp_path: Path):
    """The table of `test_page_visitors`, with logins that are stored."""
    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, ada, nobody):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        assert engine.app.server is not None
        routes = [r for r in engine.app.server.routes if r.method == "GET"]
        for route in routes:
            if route.path in OPEN_PATHS | NO_PAGES or is_file(route.path):
                continue
            path = route.path.replace("{", "").replace("}", "")
            is_shared = isinstance(route, SharedRoute)
            mine, _ = await ada.get(path)
            assert (path, mine == 403) == (path, not is_shared)
            assert (await owner.get(path))[0] not in {401, 403}
            status, where = await nobody.get(path)
            assert (path, status, where) == (path, 303, "/login")
