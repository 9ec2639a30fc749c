"""Who is there and what waits: as the command line, the metrics and /readyz tell it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner

from bot import __version__, housekeeping
from bot.cli.main import cli
from bot.cluster import census
from bot.coordination import Standing
from bot.metrics import Metrics
from bot.storage.postgres import PostgresDatabase
from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import PATIENCE, running, until

pytestmark = pytest.mark.usefixtures("logs_stay")


def shared(url: str) -> dict[str, Any]:
    return {"url": url, "node_timeout": 8}


def typed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, url: str, *arguments: str, command: str = "nodes"
) -> str:
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(folder))
    if url:
        monkeypatch.setenv("CONFIDANT_STORAGE__URL", url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, [command, *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_one_machine_says_so_in_one_line(monkeypatch, tmp_path):
    said = typed(monkeypatch, tmp_path, "")
    assert said == (
        "This is one machine with a storage folder: [storage] url names no PostgreSQL to share.\n"
    )
    assert typed(monkeypatch, tmp_path, "", "--json") == "null\n"
    assert "`confidant run` opens it" in typed(monkeypatch, tmp_path, "", command="migrate")


def test_a_database_on_which_no_node_ran_has_none(monkeypatch, tmp_path, empty_postgres_url):
    assert "are those of this version" in typed(
        monkeypatch, tmp_path, empty_postgres_url, command="migrate"
    )
    assert "No node runs." in typed(monkeypatch, tmp_path, empty_postgres_url)
    assert orjson.loads(typed(monkeypatch, tmp_path, empty_postgres_url, "--json"))["nodes"] == []


async def test_every_node_is_listed_with_what_it_does(monkeypatch, tmp_path, postgres_url):
    model = ScriptedModel(gate=asyncio.Event())
    two = InMemoryChannel()
    async with (
        running(tmp_path / "a", storage=shared(postgres_url), model=model) as one,
        running(tmp_path / "b", storage=shared(postgres_url), model=model, channel=two),
    ):
        await one.say("hello")
        async with asyncio.timeout(PATIENCE):
            await model.started.wait()
        said = await asyncio.to_thread(typed, monkeypatch, tmp_path, postgres_url, "--json")
        found = orjson.loads(said)
        assert len(found["nodes"]) == 2
        assert {node["version"] for node in found["nodes"]} == {__version__}
        assert all(node["silent"] < 2_000 for node in found["nodes"])
        assert sum(node["lanes"] for node in found["nodes"]) == 1
        assert (found["jobs"], found["messages"]) == (0, 1)
        owned = [name for node in found["nodes"] for name in node["owns"]]
        assert owned == sorted(set(owned))
        table = await asyncio.to_thread(typed, monkeypatch, tmp_path, postgres_url)
        for node in found["nodes"]:
            assert node["name"] in table
        assert "1 messages are not answered yet" in table
        model.gate.set()
        await until(lambda: bool(one.channel.sent or two.sent))


async def test_what_a_node_tells_with_its_beat_is_small_and_has_no_secret(tmp_path, postgres_url):
    async with running(tmp_path, storage=shared(postgres_url)):
        database = await PostgresDatabase.open(postgres_url)
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    rows = await database.read(
                        lambda tx: tx.execute("SELECT CAST(facts AS TEXT) FROM nodes")
                    )
                    facts = orjson.loads(rows[0][0])
                    if facts.get("database"):
                        break
        finally:
            await database.close()
        assert set(facts) == {"clock_ahead", "database", "loop"}
        assert all(isinstance(number, int | float) for number in facts.values())


def test_facts_of_another_version_are_taken_as_far_as_they_are_known():
    assert census.NodeFacts.parse({"loop": 3, "clock_ahead": "?", "more": 1}) == census.NodeFacts(
        loop=3
    )
    assert census.NodeFacts.parse({}) == census.NodeFacts()


def standing(**changes: Any) -> Standing:
    usual = {
        "nodes": 3,
        "is_registered": True,
        "is_connected": True,
        "owned": 2,
        "jobs": 5,
        "oldest_job": 1_500,
        "takeovers": 1,
        "reruns": 4,
    }
    return Standing(**{**usual, **changes})


def test_metrics_have_numbers_of_all_nodes_and_no_names():
    metrics = Metrics()
    now = [standing()]
    housekeeping.count_nodes(metrics, lambda: now[0])
    told = generate_latest(metrics.registry).decode()
    for line in (
        "nodes 3.0",
        "node_owned 2.0",
        "jobs_waiting 5.0",
        "jobs_oldest_seconds 1.5",
        "transactions_rerun 4.0",
    ):
        assert f"\nconfidant_{line}\n" in told
    now[0] = standing(nodes=2, takeovers=2)
    told = generate_latest(metrics.registry).decode()
    assert "\nconfidant_nodes 2.0\n" in told
    assert "\nconfidant_node_takeovers 2.0\n" in told


async def test_readiness_says_how_many_nodes_there_are(tmp_path, postgres_url):
    import aiohttp

    async with (
        running(tmp_path, storage=shared(postgres_url), serves=True) as engine,
        aiohttp.ClientSession() as session,
    ):
        assert engine.app.address is not None
        async with asyncio.timeout(PATIENCE):
            while True:
                async with session.get(f"{engine.app.address.url}readyz") as response:
                    check = (await response.json())["checks"]["nodes"]
                if check == {"state": "ok", "detail": "1 alive"}:
                    break
                assert check["state"] in {"ok", "degraded"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"is_connected": False}, "direct connection"), ({"is_registered": False}, "do not count")],
)
def test_a_node_that_is_cut_off_is_degraded(changes, words):
    check = housekeeping.among_nodes(standing(**changes))
    assert check.state == "degraded"
    assert words in check.detail


async def test_a_command_that_was_stored_after_its_node_was_given_up_is_answered_once(
    tmp_path, postgres_url
):
    async with running(tmp_path, storage=shared(postgres_url)) as engine:
        await engine.ask("hello")
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            given_up = "UPDATE fences SET epoch = epoch + 1 WHERE name LIKE 'node/%'"
            assert connection.execute(given_up).rowcount == 1
        assert "Model:" in await engine.ask("/status")
        await engine.ask("bye")
        assert len(engine.channel.sent) == 3
