"""What the doctor finds out over the network: clock, page, models, embedder, server."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from typer.testing import CliRunner

from bot import clock
from bot.channel import reveal
from bot.cli.main import cli
from bot.clock import system_clock
from bot.config import Config
from bot.doctor import checks, server, services
from bot.storage.files import DataDirLock
from bot.views.outcomes import Told
from tests.fakes import completions_api as completions
from tests.fakes import messages_api as api
from tests.fakes import sites
from tests.fakes.checkup import looked, setup_of
from tests.fakes.ports import free_port
from tests.support import FakeClock, running


def config_of(folder: Path, **sections: Any) -> Config:
    storage = {"dir": folder / "data", **sections.pop("storage", {})}
    return Config.model_validate({"storage": storage, **sections})


def wrong(found: list[Told]) -> list[tuple[str, str]]:
    return [(each.level, each.text) for each in found if each.level != "ok"]


# --- the clock ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_server_was_asked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_ahead", {})


@asynccontextmanager
async def dated(seconds: float) -> AsyncIterator[str]:
    """A service whose clock is some seconds before this machine's."""

    async def answer(_: web.Request) -> web.Response:
        date = formatdate(system_clock() / 1000 + seconds, usegmt=True)
        return web.Response(status=404, headers={"Date": date})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with sites.serving(app) as url:
        yield url


@pytest.mark.parametrize(
    ("seconds", "level", "way"),
    [(0, "ok", ""), (-20, "ok", ""), (120, "warning", "slow"), (-3_600, "error", "fast")],
)
async def test_the_clock_is_compared_with_the_date_of_what_is_asked_anyway(
    tmp_path, seconds, level, way
):
    async with dated(seconds) as url:
        service = {"anthropic": {"base_url": f"{url}/v1", "api_key": "sk-canary"}}
        config = config_of(tmp_path, models=service)
        await looked(services.check_models, config)
    _zone, found = await looked(services.check_clock, config)
    assert found.level == level
    if way:
        measured, said = re.fullmatch(
            r"the clock is (\d+) seconds (\w+), compared with 1 .*", found.text
        ).groups()
        assert said == way
        assert abs(int(measured) - abs(seconds)) < 30  # however slow this machine is
    else:
        assert found.text == "the clock agrees with 1 server the bot talks to"


async def test_nobody_is_asked_where_nothing_is_set_up_or_reached(tmp_path):
    gone = {"anthropic": {"base_url": f"http://127.0.0.1:{free_port()}"}}
    for sections in ({}, {"models": gone}):
        config = config_of(tmp_path, **sections)
        await looked(services.check_models, config)
        found = await looked(services.check_clock, config)
        assert [each.level for each in found] == ["ok"]  # the time zone


async def test_a_clock_that_was_set_back_is_told_by_what_is_stored(tmp_path):
    folder, now = tmp_path / "data", FakeClock()
    async with running(folder, clock=now) as engine:
        await engine.ask("hello")
    config = config_of(tmp_path)
    assert wrong(await looked(services.check_clock, config, now)) == []
    now.advance(hours=-2)
    ((level, text),) = wrong(await looked(services.check_clock, config, now))
    assert (level, text.partition(":")[0]) == (
        "error",
        "something was stored 7200 seconds in the future",
    )


async def test_a_rule_about_a_chat_in_which_nobody_wrote_is_pointed_out(tmp_path):
    def with_rules(*chats: str) -> Config:
        rules = [{"action": "deny", "chat": chat} for chat in chats]
        return config_of(tmp_path, send_policy={"rules": rules}, scope={"rules": rules[:1]})

    assert await looked(checks.check_rules, with_rules("ada")) == []  # nothing is known yet
    async with running(tmp_path / "data") as engine:
        await engine.ask("hello")
    assert wrong(await looked(checks.check_rules, with_rules("ADA"))) == []
    rest = "where nobody has written yet; the closest known one is ada"
    assert wrong(await looked(checks.check_rules, with_rules("adda", "ada"))) == [
        ("warning", f"a rule names the chat adda, {rest}")
    ]


async def test_nodes_are_told_when_their_clock_is_not_the_servers(tmp_path, postgres_url):
    config = config_of(tmp_path, storage={"url": postgres_url})
    assert wrong(await looked(services.check_clock, config)) == []
    found = wrong(await looked(services.check_clock, config, lambda: system_clock() + 600_000))
    assert [level for level, _ in found] == ["warning"]


async def test_the_time_zone_is_named(tmp_path):
    agent = {"timezone": "Asia/Shanghai"}
    (found,) = await looked(services.check_clock, config_of(tmp_path, agent=agent))
    assert found.text == "the time zone is Asia/Shanghai, from [agent] timezone"


# --- the page -------------------------------------------------------------------------------------


async def test_the_page_answers_also_through_its_proxy(tmp_path):
    port = free_port()
    async with running(tmp_path / "data", serves=True, dashboard={"port": port}):
        origin = f"http://127.0.0.1:{port}"
        dashboard = {"port": port, "allowed_origins": [origin, "http://127.0.0.1:1"]}
        found = await looked(services.check_page, config_of(tmp_path, dashboard=dashboard))
    assert [each.text for each in found] == [
        "only this machine can reach it, so it needs no token",
        f"the page answers at 127.0.0.1:{port}",
        f"the page also answers at {origin}",
        "http://127.0.0.1:1 cannot be reached from here",
    ]


async def test_a_port_that_another_program_has_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:  # it never answers
        port = other.getsockname()[1]
        config = config_of(tmp_path, dashboard={"port": port})
        ((level, text),) = wrong(await looked(services.check_page, config))
        assert (level, text) == (
            "error",
            f"another program is listening on 127.0.0.1:{port}, so the page cannot",
        )
        with DataDirLock(tmp_path / "data"):
            ((_, text),) = wrong(await looked(services.check_page, config))
            assert "the bot is running, but its page does not answer" in text
    assert wrong(await looked(services.check_page, config)) == []
    app = web.Application()
    async with sites.serving(app) as url:
        config = config_of(tmp_path, dashboard={"port": int(url.rpartition(":")[2])})
        ((_, text),) = wrong(await looked(services.check_page, config))
        assert "another program is listening" in text


@pytest.mark.parametrize(
    ("dashboard", "said"),
    [
        ({"host": "0.0.0.0"}, "listens on 0.0.0.0 without a token"),
        ({"allowed_origins": ["http://bot.example.org"]}, "bot.example.org is not encrypted"),
    ],
)
async def test_what_lets_strangers_in_is_told(tmp_path, dashboard, said):
    config = config_of(tmp_path, dashboard={"port": 0, **dashboard})
    ((_, text),) = wrong(await looked(services.check_page, config))
    assert said in text


# --- models and embedder --------------------------------------------------------------------------


async def test_a_model_whose_price_nobody_told_is_named(tmp_path):
    async with completions.running() as server:
        server.pages = completions.ollama(131_072)
        service = {"local": {"kind": "openai", "base_url": server.base_url, "window": 32_768}}
        sections: dict[str, Any] = {"models": service, "agent": {"model": "local/qwen3"}}
        found = wrong(await looked(services.check_models, config_of(tmp_path, **sections)))
        assert found == [
            ("warning", "the price of local/qwen3 is unknown, so only its tokens are counted")
        ]
        sections["prices"] = {"models": {"local/qwen3": {"input": 0, "output": 0}}}
        assert wrong(await looked(services.check_models, config_of(tmp_path, **sections))) == []


async def test_a_model_that_cannot_be_reached_is_an_error(tmp_path):
    async with api.running() as gone:
        pass
    service = {"anthropic": {"base_url": gone.base_url, "api_key": "sk-canary"}}
    sections: dict[str, Any] = {"models": service, "agent": {"model": "claude-x"}}
    found = await looked(services.check_models, config_of(tmp_path, **sections))
    assert [each.level for each in found] == ["error", "warning"]
    assert "Check ANTHROPIC_API_KEY" in found[0].fix
    assert "sk-canary" not in str(found)


async def test_a_server_for_embeddings_that_is_gone_is_told(tmp_path):
    url = f"http://127.0.0.1:{free_port()}/v1"
    embedder = {"provider": "openai", "base_url": url, "model": "m", "timeout": 1}
    found = wrong(
        await looked(checks.check_memory, config_of(tmp_path, memory={"embedder": embedder}))
    )
    assert [(level, url in text) for level, text in found] == [("warning", True)]


# --- a server for many nodes ----------------------------------------------------------------------


@pytest.mark.usefixtures("logs_stay")
async def test_a_move_into_the_server_that_was_interrupted_is_completed(
    tmp_path, monkeypatch, empty_postgres_url
):
    folder = tmp_path / "data"
    async with running(folder) as engine:
        await engine.ask("the bike is blue")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(folder))
    monkeypatch.setenv("CONFIDANT_MEMORY__EMBEDDER__PROVIDER", "none")

    async def killed(*_: object) -> None:
        raise SystemExit(9)

    def typed(*words: str) -> Any:
        return CliRunner().invoke(cli, words, catch_exceptions=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.portability.move.Move._bring_notes", killed)
        await asyncio.to_thread(typed, "move", "--to", empty_postgres_url)
    monkeypatch.setenv("CONFIDANT_STORAGE__URL", empty_postgres_url)
    done = await asyncio.to_thread(typed, "doctor", "--json")
    (found,) = (
        each for each in orjson.loads(done.stdout)["findings"] if each["check"] == "storage"
        and each["level"] == "error"
    )  # fmt: skip
    assert (done.exit_code, found["id"], found["repair"]) == (1, "server.moving", "move")
    done = await asyncio.to_thread(typed, "doctor", "--fix", "--json")
    said = orjson.loads(done.stdout)
    assert said["repaired"] == [{"repair": "move", "check": "storage", "why": ""}]
    assert [each["id"] for each in said["findings"] if each["level"] == "error"] == []
    config = config_of(tmp_path, storage={"url": empty_postgres_url})
    assert (
        wrong([*await looked(server.check, config), *await looked(checks.check_left_over, config)])
        == []
    )
    async with setup_of(config).opened() as database:
        rows = await database.read(lambda tx: tx.execute("SELECT count(*) FROM entries"))
    assert int(rows[0][0]) >= 2
    assert reveal(config.storage.url) == empty_postgres_url
