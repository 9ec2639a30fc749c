"""What is changed in the page of one node counts on all; what is secret stays on that one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from tests.fakes import completions_api
from tests.fakes.started import Started, started
from tests.fakes.tcp_proxy import TcpProxy
from tests.support import until

KEY = "sk-test-0123456789abcdef"


@asynccontextmanager
async def node(folder: Path, url: str, **variables: str) -> AsyncIterator[Started]:
    folder.mkdir(exist_ok=True)
    place = {"CONFIDANT_STORAGE__URL": url, "CONFIDANT_STORAGE__NODE_TIMEOUT": "5"}
    async with started(folder, **place, **variables) as program:
        yield program


def name_of(program: Started) -> str:
    return program.app.resolver.policy.config.agent.name


def everything_in(url: str) -> str:
    """All that the tables hold which settings may be in."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = [connection.execute(f"SELECT * FROM {t}").fetchall() for t in ("meta", "events")]
    return repr(found)


async def change(program: Started, **fields: str) -> tuple[int, str]:
    dotted = {name.replace("__", "."): value for name, value in fields.items()}
    return await program.post("/settings/change", group="bot", **dotted)


async def test_a_change_counts_on_every_node_also_after_a_start_and_is_taken_back_on_any(
    tmp_path: Path, postgres_url: str
):
    async with node(tmp_path / "one", postgres_url) as one:
        async with node(tmp_path / "two", postgres_url) as two:
            status, page = await change(one, agent__name="Heron", agent__timezone="Asia/Tokyo")
            assert (status, "set by database: CONFIDANT_AGENT__NAME" in page) == (200, True)
            assert name_of(one) == "Heron"
            await until(lambda: name_of(two) == "Heron")
            assert str(two.app.resolver.policy.zone) == "Asia/Tokyo"
            assert (one.kept, two.kept) == ("", "")
        async with node(tmp_path / "two", postgres_url) as two:
            assert name_of(two) == "Heron"  # before anything was said to it
            page = await two.get("/settings")
            (made,) = re.findall(r'name="change" value="(\w+)"', page)
            assert "“Heron”" in page
            await change(two, session__owner_name="Ada")
            await until(lambda: one.app.resolver.policy.config.session.owner_name == "Ada")
            status, _ = await two.post("/settings/take-back", change=made)
            assert (status, name_of(two)) == (200, "Confidant")
            await until(lambda: name_of(one) == "Confidant")
            status, page = await one.post("/settings/take-back", change=made)
            assert (status, "cannot be taken back" in page) == (422, True)
            await one.post("/settings/unset", option="session.owner_name")
            await until(lambda: not two.app.resolver.policy.config.session.owner_name)


async def test_a_node_that_was_away_hears_of_it_when_it_is_back(tmp_path: Path, postgres_url: str):
    with TcpProxy.before(postgres_url) as proxy:
        async with (
            node(tmp_path / "one", postgres_url) as one,
            node(tmp_path / "two", proxy.url(postgres_url)) as two,
        ):
            proxy.cut()
            await change(one, agent__name="Heron")
            assert name_of(two) == "Confidant"
            proxy.mend()
            await until(lambda: name_of(two) == "Heron")


async def test_what_a_nodes_environment_says_counts_more_there_and_only_there(
    tmp_path: Path, postgres_url: str
):
    async with (
        node(tmp_path / "one", postgres_url) as one,
        node(tmp_path / "two", postgres_url, CONFIDANT_AGENT__NAME="Crane") as two,
    ):
        await change(one, agent__name="Heron", session__owner_name="Ada")
        await until(lambda: two.app.resolver.policy.config.session.owner_name == "Ada")
        assert (name_of(one), name_of(two)) == ("Heron", "Crane")
        status, page = await change(two, agent__name="Eve")
        assert (status, "set by CONFIDANT_AGENT__NAME" in page) == (422, True)
        assert name_of(one) == "Heron"


async def test_a_file_of_a_node_counts_less_and_what_stood_there_comes_back(
    tmp_path: Path, postgres_url: str
):
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
    (tmp_path / "two" / "data" / ".env").write_text("CONFIDANT_AGENT__NAME=Stork\n")
    async with (
        node(tmp_path / "one", postgres_url) as one,
        node(tmp_path / "two", postgres_url) as two,
    ):
        assert name_of(two) == "Stork"
        await change(one, agent__name="Heron")
        await until(lambda: name_of(two) == "Heron")
        await one.post("/settings/unset", option="agent.name")
        await until(lambda: name_of(two) == "Stork")
        await two.post("/settings/unset", option="agent.name")  # in its own file
        assert (name_of(two), two.kept) == ("Confidant", "")


async def test_secrets_stay_with_their_node_and_never_reach_the_database(
    tmp_path: Path, postgres_url: str
):
    async with completions_api.running(completions_api.says("I am the model.")) as api:
        api.pages |= {"/v1/models": lambda _body: completions_api.models("gpt-one", "gpt-two")}
        place = {"CONFIDANT_MODELS__OPENAI__BASE_URL": api.base_url}
        async with (
            node(tmp_path / "one", postgres_url, **place) as one,
            node(tmp_path / "two", postgres_url) as two,
        ):
            await one.post("/settings/start/model", service="openai", key=KEY)
            status, _ = await one.post("/settings/start/use", model="gpt-one")
            assert (status, KEY in one.kept) == (200, True)
            assert KEY not in everything_in(postgres_url)
            before = two.app.resolver.policy.config.agent.model
            # With its service set up, another model of it is an option like any other.
            status, _ = await one.post(
                "/settings/change", group="models", **{"agent.model": "openai/gpt-two"}
            )
            assert status == 200
            await change(one, agent__name="Heron")
            await until(lambda: name_of(two) == "Heron")
            assert one.app.resolver.policy.config.agent.model == "openai/gpt-two"
            assert two.app.resolver.policy.config.agent.model == before
            page = await two.get("/settings")
            assert "not in effect on this one" in page
            assert "agent.model" in page
            assert "of this node only" in page
            # Once it has a key of its own, what was changed for all counts there too.
            key = {"option": "models.openai.api_key", "value": KEY}
            assert (await two.post("/settings/secret", **key))[0] == 200
            assert two.app.resolver.policy.config.agent.model == "openai/gpt-two"
            assert KEY not in everything_in(postgres_url)


async def test_wrong_values_change_nothing_anywhere(tmp_path: Path, postgres_url: str):
    async with node(tmp_path / "one", postgres_url) as one:
        for name, value, said in (
            ("agent.timezone", "Europe/Berlinn", "did you mean"),
            ("agent.name", "Eve\x07", "without control characters"),
            ("agent.name", "x" * 5_000, "too long"),
            ("agent.name", "file:/etc/passwd", "name of a file"),
            ("session.owner_name", "x" * 81, "80 characters"),
        ):
            status, page = await one.post("/settings/change", group="bot", **{name: value})
            assert (status, said in page) == (422, True), page
        status, page = await one.post(
            "/settings/change", group="models", **{"agent.model": "openai/gpt-two"}
        )
        assert (status, "its service is not set up here" in page) == (422, True)
        assert "settings" not in everything_in(postgres_url)


async def test_how_many_months_are_kept_is_offered_and_counts_everywhere(
    tmp_path: Path, postgres_url: str
):
    async with (
        node(tmp_path / "one", postgres_url) as one,
        node(tmp_path / "two", postgres_url) as two,
    ):
        status, _ = await one.post(
            "/settings/change", group="months", **{"storage.keep_months": "24"}
        )
        assert status == 200
        await until(lambda: two.app.resolver.policy.config.storage.keep_months == 24)
