"""Trying what a model can do: of the doctor when it is asked to, and when a model is connected."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from PIL import Image

from bot.agent.models import trial
from bot.agent.models.service import ServiceModel
from bot.channel import Finding
from bot.config import ModelsConfig
from bot.views.outcomes import told
from tests.fakes import completions_api as api
from tests.fakes.started import started
from tests.support import PATIENCE

NUMBERS = " ".join(map(str, range(1, trial.LAST + 1)))
COLOURS = {
    (255, 0, 0): "red",
    (0, 128, 0): "green",
    (0, 0, 255): "blue",
    (255, 255, 0): "yellow",
    (0, 0, 0): "black",
    (255, 255, 255): "white",
}


@dataclass
class Brain:
    """A model that can do what a test lets it."""

    can: set[str] = field(default_factory=lambda: {"words", "long", "stream", "tools", "images"})
    refuses: bool = False  # what it cannot do, instead of doing something else
    status: int = 400  # … with this
    waits: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        kind = asked_for(body)
        if kind == self.waits:
            await self.over.wait()
        if kind not in self.can and (self.refuses or kind == "words"):
            return await api.fails(self.status, message="no")(request)
        return await self.said(kind, body)(request)

    def said(self, kind: str, body: dict[str, Any]) -> Any:
        last = body["messages"][-1]
        if kind == "images":
            return api.says(seen(last) if "images" in self.can else "I see nothing.")
        if kind == "tools" and last["role"] == "tool":
            return api.says(f"It is {last['content']}.")
        if kind == "tools" and "tools" in self.can:
            called = api.chunk(tool_calls=[api.call(0, "lucky_number", "{}", "c1")])
            return api.streams(
                *map(api.sse, (called, api.chunk("tool_calls"))), b"data: [DONE]\n\n"
            )
        if kind == "tools":
            return api.says("It is 7.")
        words = NUMBERS if "long" in self.can else NUMBERS[:80]
        return api.says(*(words.split(" ") if "stream" in self.can else [words]))


def asked_for(body: dict[str, Any]) -> str:
    if body.get("tools"):
        return "tools"
    return "images" if isinstance(body["messages"][-1]["content"], list) else "words"


def seen(message: dict[str, Any]) -> str:
    url = next(part["image_url"]["url"] for part in message["content"] if "image_url" in part)
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    left, right = image.getpixel((10, 10)), image.getpixel((120, 10))
    return f"Left: {COLOURS[left]}. Right: {COLOURS[right]}."


class Facts(dict[str, str]):
    """A store whose texts a test sees."""

    async def get(self, key: str) -> str | None:
        return super().get(key)

    async def set(self, key: str, text: str) -> None:
        self[key] = text


async def tried(brain: Brain, seconds: float = PATIENCE) -> Sequence[Finding]:
    async with serving(brain) as config:
        try:
            return await trial.what_it_can(config, "own", "m", seconds=seconds)
        finally:
            brain.over.set()


@asynccontextmanager
async def serving(brain: Brain) -> AsyncGenerator[ModelsConfig]:
    async with api.running(brain.answer) as server:
        own = {"kind": "openai", "base_url": server.base_url}
        yield ModelsConfig.model_validate({"own": own})


EVERY = ("words", "long", "stream", "tools", "images")


def works(found: Sequence[Finding]) -> dict[str, bool]:
    """What was found out, by name; nothing of what there was no time for."""
    ids = (each.id.partition("_") for each in found)
    return {name: can == "model.can" for can, _, name in ids if name in EVERY}


async def test_a_model_that_can_do_everything():
    found = await tried(Brain())
    assert works(found) == dict.fromkeys(EVERY, True)
    assert all(each.values["speed"] > 0 for each in found if each.id == "model.can_long")
    assert {each.level for each in found} == {"ok"}


@pytest.mark.parametrize("missing", ["long", "stream", "tools", "images"])
async def test_what_a_model_cannot_do_is_said_of_that_alone(missing):
    found = await tried(Brain({*EVERY} - {missing}))
    assert works(found) == {name: name != missing for name in EVERY}
    (wrong,) = (each for each in found if each.level != "ok")
    assert (wrong.level, wrong.id) == ("warning", f"model.cannot_{missing}")


@pytest.mark.parametrize("missing", ["tools", "images"])
async def test_what_a_service_refuses_is_said_with_its_reason(missing):
    found = await tried(Brain({*EVERY} - {missing}, refuses=True))
    assert works(found)["words"]
    assert works(found)[missing] is False
    if missing == "images":  # without tools it may be asked all the same
        assert next(each for each in found if each.id == "model.cannot_images").values["why"]


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("missing", ["tools", "images"])
async def test_conversations_know_what_was_found_out(missing, refuses):
    store, brain = Facts(), Brain({*EVERY} - {missing}, refuses=refuses)
    async with serving(brain) as config:
        await trial.what_it_can(config, "own", "m", store, PATIENCE)
        # A model that was offered a tool and did not call it may call it another time.
        assert await takes(config, store, missing) is (missing == "tools" and not refuses)
        brain.can.add(missing)
        await trial.what_it_can(config, "own", "m", store, PATIENCE)
        assert await takes(config, store, missing)


async def test_a_service_that_is_busy_teaches_nothing():
    store, brain = Facts(), Brain({*EVERY} - {"images"}, refuses=True, status=429)
    async with serving(brain) as config:
        found = await trial.what_it_can(config, "own", "m", store, PATIENCE)
        assert not works(found)["images"]
        assert await takes(config, store, "images")


async def takes(config: ModelsConfig, store: Facts, what: str) -> bool:
    """True when a service that is opened now sends its model that."""
    async with trial.opened(config, "own", store) as model:
        assert isinstance(model, ServiceModel)
        return getattr(await model.catalog.able("m", model.usual("m")), what)


async def test_a_model_that_does_not_answer_is_asked_for_nothing_else():
    found = await tried(Brain(set()))
    assert works(found) == dict.fromkeys(("words", "long", "stream"), False)
    assert found[0].level == "error"


async def test_what_there_is_no_time_for_is_said_to_be_untried():
    found = await tried(Brain(waits="tools"), seconds=1.0)
    assert works(found) == dict.fromkeys(("words", "long", "stream"), True)
    for language, words in (("en", "2 tests skipped"), ("zh", "还有 2 项")):
        assert any(words in told(each, language).text for each in found)
    slow = await tried(Brain(waits="words"), seconds=0.2)
    assert not works(slow)
    assert {each.level for each in slow} == {"ok", "warning"}


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_every_line_of_it_has_words(language):
    for brain in (Brain(), Brain({"words"}), Brain(set())):
        for finding in await tried(brain):
            said = told(finding, language)
            assert said.text
            assert said.text != finding.id
            assert "{" not in said.text


async def test_the_page_shows_it_when_a_model_is_connected_and_connects_one_without_eyes(tmp_path):
    brain = Brain({*EVERY} - {"images"}, refuses=True)
    async with api.running(brain.answer) as server:
        server.pages["/v1/models"] = lambda _body: api.models("m")
        async with started(tmp_path) as program:
            await program.post("/settings/start/model", service="address", address=server.root)
            status, page = await program.post("/settings/start/use", model="m")
            assert status == 200
            assert "local/m" in page
            for words in (
                "What it can do",
                "tools: it uses them",
                "pictures: it cannot see them",
            ):
                assert words in page


@pytest.mark.usefixtures("logs_stay")
async def test_the_doctor_tries_models_only_when_it_is_asked_to(tmp_path):
    brain = Brain({*EVERY} - {"tools"})
    async with api.running(brain.answer) as server:
        server.pages["/v1/models"] = lambda _body: api.models("m")
        own = '[agent]\nmodel = "own/m"\n[models.own]\nkind = "openai"\n'
        place = f'base_url = "{server.base_url}"\n[storage]\ndir = "{tmp_path}/data"\n'
        (tmp_path / "c.toml").write_text(own + place)
        quiet = await doctor(tmp_path)
        assert not any("can_" in each or "cannot_" in each for each in quiet)
        assert not server.bodies
        loud = await doctor(tmp_path, "--try-models")
        assert {f"model.can_{name}" for name in ("words", "long", "stream", "images")} <= loud
        assert "model.cannot_tools" in loud


async def doctor(folder: Any, *more: str) -> set[str]:
    from typer.testing import CliRunner

    from bot.cli.main import cli

    command = ["doctor", "--config", str(folder / "c.toml"), "--json", *more]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    return {each["id"] for each in json.loads(done.stdout)["findings"]}
