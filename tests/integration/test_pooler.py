"""Nodes that reach their PostgreSQL through a real PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio

import orjson
import psycopg
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from bot.agent.models import Reply, Request
from bot.cli.main import cli
from bot.clock import system_clock
from bot.cluster.node import Node
from bot.errors import StorageAway, StorageError
from bot.messages import ToolResult, ToolUse
from bot.storage.postgres import PostgresDatabase
from bot.storage.postgres_link import examine
from bot.testing import ScriptedModel
from tests.fakes.brain import Brain, says
from tests.fakes.pair import Pair, pair
from tests.fakes.pgbouncer import PgBouncer
from tests.fakes.postgres import PostgresServer, a_database
from tests.fakes.tcp_proxy import TcpProxy
from tests.support import PATIENCE, Engine, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logs_stay")]

PEOPLE = 4


@pytest.fixture
def postgres_url(empty_postgres_url):
    """Empty: the tables too are made through a pooler."""
    return empty_postgres_url


@pytest.fixture
def pooler(postgres_url):
    found = PgBouncer(postgres_url)
    try:
        found.start()
        yield found
    finally:
        found.close()


async def everybody_says(nodes: Pair, number: int) -> None:
    """Everybody says something, at either node; what is refused comes again, as platforms do it."""

    async def bring(node: Engine, person: int) -> None:
        message = node.message(f"text {number} of {person}", sender=f"p{person}")
        while True:
            try:
                return await node.channel.push(message)
            except StorageError:
                await asyncio.sleep(0)

    both = (nodes.one, nodes.other)
    await asyncio.gather(*(bring(both[person % 2], person) for person in range(PEOPLE)))


async def killed_while_everybody_says(
    killed: PgBouncer | PostgresServer, nodes: Pair, times: int
) -> None:
    """Everybody says something, and again so many times while this is killed and started."""
    await everybody_says(nodes, 0)
    for number in range(1, times + 1):
        speaking = asyncio.create_task(everybody_says(nodes, number))
        before = len(nodes.sent)
        await until(lambda before=before: len(nodes.sent) > before)
        await asyncio.to_thread(killed.kill)
        await asyncio.to_thread(killed.start)
        await speaking


async def comes(nodes: Pair, sql: str, wanted: list[tuple[object, ...]]) -> None:
    """Return once the database holds this."""
    with psycopg.connect(nodes.url, autocommit=True) as connection:
        async with asyncio.timeout(PATIENCE):
            while connection.execute(sql.encode()).fetchall() != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # it is another process


async def all_are_answered(nodes: Pair, texts: int) -> list[str]:
    """Return what was sent, once each text has its one answer, in its person's order."""
    count = texts * PEOPLE
    await nodes.answered(count)
    await comes(nodes, "SELECT state, count(*) FROM inbox GROUP BY 1", [("done", count)])
    await comes(nodes, "SELECT state, count(*) FROM outbox GROUP BY 1", [("sent", count)])
    await comes(nodes, "SELECT count(*) FROM entries WHERE role = 'user'", [(count,)])
    for node in (nodes.one, nodes.other):
        for person in range(PEOPLE):
            sent = node.sent_to(f"p{person}")
            assert sent == sorted(sent)
    expected = {f"You said: text {n} of {p}" for n in range(texts) for p in range(PEOPLE)}
    assert set(nodes.sent) == expected
    return nodes.sent


async def test_messages_are_answered_once_and_another_node_goes_on(postgres_url, pooler, tmp_path):
    pooled = pooler.url(postgres_url)
    async with pair(postgres_url, tmp_path, ScriptedModel(), pooled) as nodes:
        for number in range(3):
            await everybody_says(nodes, number)
        assert len(await all_are_answered(nodes, 3)) == 3 * PEOPLE
        owner, heir = nodes.one, nodes.other
        if not owner.channel.sent:
            owner, heir = heir, owner
        await nodes.stop(owner)
        await heir.say("are you there?")
        await until(lambda: "You said: are you there?" in heir.sent_to("ada"))
    assert "unsupported startup parameter" not in pooler.log()


def keeping(request: Request) -> Reply:
    """What is asked to be kept is written."""
    last = request.messages[-1]
    if isinstance(last.blocks[-1], ToolResult) or "keep" not in last.text:
        return says("All right.", 1_000)
    return says("", 1_000, ToolUse("w1", "memory_write", {"text": last.text}))


async def test_notes_and_their_index_work_through_a_pooler(postgres_url, pooler, tmp_path):
    pooled = pooler.url(postgres_url)
    watch = {"watch": True}
    async with pair(postgres_url, tmp_path, Brain(chat=keeping), pooled, memory=watch) as nodes:
        await nodes.one.say("keep the heron in mind")
        assert "✓ Stored in memory/" in (await nodes.answered(1))[0]
        indexed = "SELECT count(*) > 0 FROM memory_chunks WHERE body LIKE '%heron%'"
        await comes(nodes, indexed, [(True,)])
        await nodes.other.say("/memory search heron")
        assert "keep the heron in mind" in (await nodes.answered(2))[1]


async def test_the_commands_work_through_a_pooler(postgres_url, pooler, tmp_path, monkeypatch):
    pooled = pooler.url(postgres_url)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path))
    monkeypatch.setenv("CONFIDANT_STORAGE__URL", pooled)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIRECT_URL", postgres_url)
    monkeypatch.chdir(tmp_path)

    def typed(*words: str) -> str:
        done = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    await asyncio.to_thread(typed, "migrate")
    assert "No node is running." in await asyncio.to_thread(typed, "nodes")
    async with pair(postgres_url, tmp_path, ScriptedModel(), pooled) as nodes:
        await nodes.one.say("hello")
        await nodes.answered(1)
        found = orjson.loads(await asyncio.to_thread(typed, "nodes", "--json"))
        assert len(found["nodes"]) == 2
        assert {name for node in found["nodes"] for name in node["owns"]} >= {"memory/default"}
        said = await asyncio.to_thread(typed, "doctor")
        assert "✓ the role has the rights it needs" in said
        assert "messages\n  ✓ every message was answered" in said


async def test_nothing_is_lost_or_answered_twice_when_the_pooler_is_killed(
    postgres_url, pooler, tmp_path
):
    pooled = pooler.url(postgres_url)
    async with pair(postgres_url, tmp_path, ScriptedModel(), pooled) as nodes:
        await killed_while_everybody_says(pooler, nodes, 3)
        assert len(await all_are_answered(nodes, 4)) == 4 * PEOPLE


@pytest.mark.proof
async def test_nothing_is_lost_or_answered_twice_when_the_server_behind_it_is_killed(tmp_path):
    server, pooler = PostgresServer(), None
    try:
        server.start()
        with a_database(server.admin_url) as url:
            pooler = PgBouncer(url)
            pooler.start()
            async with pair(url, tmp_path, ScriptedModel(), pooler.url(url)) as nodes:
                await killed_while_everybody_says(server, nodes, 2)
                # What was on its way to the platform may repeat: nobody heard whether it got there.
                assert len(await all_are_answered(nodes, 3)) <= 5 * PEOPLE
    finally:
        if pooler is not None:
            pooler.close()
        server.close()


@pytest.mark.parametrize("done", [True, False])
async def test_a_commit_whose_answer_the_pooler_never_got_is_done_once(postgres_url, done):
    with TcpProxy.before(postgres_url) as proxy:
        pooler = PgBouncer(proxy.url(postgres_url))
        try:
            pooler.start()
            database = await PostgresDatabase.open(pooler.url(postgres_url))
            proxy.lose_answer(b"COMMIT", done=done)
            with capture_logs() as logs:
                await database.write(
                    lambda tx: tx.execute(
                        "INSERT INTO meta(key, value, updated_at) VALUES ('a', '', 1) "
                        "ON CONFLICT(key) DO UPDATE SET updated_at = meta.updated_at + 1"
                    )
                )
            told = [log["committed"] for log in logs if log["event"] == "storage.resolved"]
            assert (proxy.lost, told) == (1, [done])
            count = await database.read(lambda tx: tx.execute("SELECT updated_at FROM meta"))
            assert count == [(1,)]
            await database.close()
        finally:
            pooler.close()


async def test_a_server_that_is_gone_behind_a_pooler_is_waited_for_at_a_start(postgres_url):
    with TcpProxy.before(postgres_url) as proxy:
        pooler = PgBouncer(proxy.url(postgres_url))
        try:
            pooler.start()
            pooled = pooler.url(postgres_url)
            await (await PostgresDatabase.open(pooled)).close()
            proxy.cut()
            opening = asyncio.create_task(PostgresDatabase.open(pooled, wait=True))
            await asyncio.to_thread(proxy.refused, 1)
            # The first waits in the pooler. The next is refused at once when the pooler knows
            # by then, and after its own wait in line when it does not.
            with pytest.raises(StorageAway, match=r"login has been failing|query_wait_timeout"):
                await PostgresDatabase.open(pooled)
            assert not opening.done()
            proxy.mend()
            await (await asyncio.wait_for(opening, 60)).close()
        finally:
            pooler.close()


async def refusal(url: str, direct: str) -> str:
    """What a node says that does not start; the doctor says the same."""
    with pytest.raises(StorageError) as refused:
        await Node.open(url, system_clock, 2.0, direct=direct)
    said = str(refused.value)
    assert "\n" not in said
    assert said in (await asyncio.to_thread(examine, url, "", direct)).problems
    return said


async def test_a_pooler_before_the_listening_connection_is_refused(postgres_url, pooler):
    pooled = pooler.url(postgres_url)
    said = await refusal(pooled, "")
    assert said.startswith("[storage] url leads through a pooler (127.0.0.1:")
    assert "Set direct_url (CONFIDANT_STORAGE__DIRECT_URL) to the same database" in said
    assert "pool_mode = session" in said
    said = await refusal(postgres_url, pooled)
    assert said.startswith("[storage] direct_url leads through a pooler (127.0.0.1:")


async def test_a_pooler_with_a_process_for_each_session_serves_alone(postgres_url):
    pooler = PgBouncer(postgres_url, mode="session")
    try:
        pooler.start()
        node = await Node.open(pooler.url(postgres_url), system_clock, 2.0)
        await node.hear_others()
        async with asyncio.timeout(60), node.owning("anything"):
            assert node.owns("anything")
        await node.close()
    finally:
        pooler.close()
