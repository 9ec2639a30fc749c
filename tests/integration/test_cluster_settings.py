"""What is changed in the page of one node counts on all; what is secret stays on that one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from bot.agent.models import Reply, Usage
from bot.clock import system_clock
from bot.cluster.node import Node, Retention
from bot.cluster.turns import checked_pool
from bot.composition.core import Backend, open_backend
from bot.errors import StorageError
from bot.identity import MessageOrigin
from bot.messages import Message, Text
from bot.testing import ScriptedModel
from tests.fakes import completions_api
from tests.fakes.pair import pair
from tests.fakes.postgres import a_database
from tests.fakes.started import Started, started
from tests.fakes.tcp_proxy import TcpProxy
from tests.support import PATIENCE, make_config, running, until

KEY = "sk-test-0123456789abcdef"


@asynccontextmanager
async def node(folder: Path, url: str, **variables: str) -> AsyncIterator[Started]:
    folder.mkdir(exist_ok=True)
    place = {"CONFIDANT_STORAGE__URL": url, "CONFIDANT_STORAGE__NODE_TIMEOUT": "5"}
    async with started(folder, **place, **variables) as program:
        yield program


def name_of(program: Started) -> str:
    return program.app.core.resolver.policy.config.agent.name


def everything_in(url: str) -> str:
    """All that the tables hold which settings may be in."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = [connection.execute(f"SELECT * FROM {t}").fetchall() for t in ("meta", "events")]
    return repr(found)


async def change(program: Started, **fields: str) -> tuple[int, str]:
    dotted = {name.replace("__", "."): value for name, value in fields.items()}
    return await program.post("/settings/change", section="general", **dotted)


async def test_a_change_counts_on_every_node_also_after_a_start_and_is_taken_back_on_any(
    tmp_path, postgres_url
):
    async with node(tmp_path / "one", postgres_url) as one:
        async with node(tmp_path / "two", postgres_url) as two:
            status, page = await change(one, agent__name="Heron", agent__timezone="Asia/Tokyo")
            assert (status, "set by database: CONFIDANT_AGENT__NAME" in page) == (200, True)
            assert name_of(one) == "Heron"
            await until(lambda: name_of(two) == "Heron")
            assert str(two.app.core.resolver.policy.zone) == "Asia/Tokyo"
            assert (one.kept, two.kept) == ("", "")
        async with node(tmp_path / "two", postgres_url) as two:
            assert name_of(two) == "Heron"  # before anything was said to it
            page = await two.get("/settings?section=advanced")
            (made,) = re.findall(r'name="change" value="(\w+)"', page)
            assert "“Heron”" in page
            await change(two, session__owner_name="Ada")
            await until(lambda: one.app.core.resolver.policy.config.session.owner_name == "Ada")
            status, _ = await two.post("/settings/take-back", change=made)
            assert (status, name_of(two)) == (200, "Confidant")
            await until(lambda: name_of(one) == "Confidant")
            status, page = await one.post("/settings/take-back", change=made)
            assert (status, "cannot be taken back" in page) == (422, True)
            await one.post("/settings/unset", option="session.owner_name")
            await until(lambda: not two.app.core.resolver.policy.config.session.owner_name)


async def test_a_node_that_was_away_hears_of_it_when_it_is_back(
    tmp_path, postgres_url, monkeypatch
):
    monkeypatch.setattr("bot.cluster.node.LAST_RETRY", 0.2)
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
    tmp_path, postgres_url
):
    async with (
        node(tmp_path / "one", postgres_url) as one,
        node(tmp_path / "two", postgres_url, CONFIDANT_AGENT__NAME="Crane") as two,
    ):
        await change(one, agent__name="Heron", session__owner_name="Ada")
        await until(lambda: two.app.core.resolver.policy.config.session.owner_name == "Ada")
        assert (name_of(one), name_of(two)) == ("Heron", "Crane")
        status, page = await change(two, agent__name="Eve")
        assert (status, "set by CONFIDANT_AGENT__NAME" in page) == (422, True)
        assert name_of(one) == "Heron"


async def test_a_file_of_a_node_counts_less_and_what_stood_there_comes_back(tmp_path, postgres_url):
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


async def test_secrets_stay_with_their_node_and_never_reach_the_database(tmp_path, postgres_url):
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
            before = two.app.core.resolver.policy.config.agent.model
            # With its service set up, another model of it is an option like any other.
            status, _ = await one.post(
                "/settings/change", section="models", **{"agent.model": "openai/gpt-two"}
            )
            assert status == 200
            await change(one, agent__name="Heron")
            await until(lambda: name_of(two) == "Heron")
            assert one.app.core.resolver.policy.config.agent.model == "openai/gpt-two"
            assert two.app.core.resolver.policy.config.agent.model == before
            page = await two.get("/settings")
            assert "not in effect on this one" in page
            assert "agent.model" in page
            assert "of this node only" in page
            # Once it has a key of its own, what was changed for all counts there too.
            key = {"option": "models.openai.api_key", "value": KEY}
            assert (await two.post("/settings/secret", **key))[0] == 200
            assert two.app.core.resolver.policy.config.agent.model == "openai/gpt-two"
            assert KEY not in everything_in(postgres_url)


async def test_wrong_values_change_nothing_anywhere(tmp_path, postgres_url):
    async with node(tmp_path / "one", postgres_url) as one:
        for name, value, said in (
            ("agent.timezone", "Europe/Berlinn", "such as Europe/Berlin."),
            ("agent.name", "Eve\x07", "a name of one line"),
            ("agent.name", "x" * 5_000, "a name of one line"),
            ("agent.name", "file:/etc/passwd", "a name of one line"),
            ("session.owner_name", "x" * 81, "80 characters"),
        ):
            status, page = await one.post("/settings/change", section="general", **{name: value})
            assert (status, said in page) == (422, True), page
        status, page = await one.post(
            "/settings/change", section="models", **{"agent.model": "openai/gpt-two"}
        )
        assert (status, "No connected service has this model" in page) == (422, True)
        assert "settings" not in everything_in(postgres_url)


async def test_how_many_months_are_kept_is_offered_and_counts_everywhere(tmp_path, postgres_url):
    async with (
        node(tmp_path / "one", postgres_url) as one,
        node(tmp_path / "two", postgres_url) as two,
    ):
        status, _ = await one.post(
            "/settings/change", section="memory", **{"storage.keep_months": "24"}
        )
        assert status == 200
        await until(lambda: two.app.core.resolver.policy.config.storage.keep_months == 24)


# A sequence keeps its number when what asked for it is rolled back.
COLLIDES_ONCE = """
CREATE SEQUENCE tried;
CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tried') = 1 THEN
        RAISE 'another transaction was first' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER collides BEFORE INSERT ON procrastinate_jobs
    FOR EACH ROW EXECUTE FUNCTION collide();
"""


@pytest.fixture
def model():
    return ScriptedModel()


@pytest.fixture
async def nodes(postgres_url, tmp_path, model):
    async with pair(postgres_url, tmp_path, model) as found:
        yield found


async def test_messages_that_come_in_anywhere_are_answered_once_and_in_order(nodes, model):
    texts = [f"number {n}" for n in range(12)]
    for number, text in enumerate(texts):
        await (nodes.one, nodes.other)[number % 2].say(text)
    await until(lambda: nodes.look("SELECT count(*) FROM inbox WHERE state = 'done'") == [(12,)])
    await until(lambda: nodes.look("SELECT count(*) FROM outbox WHERE state <> 'sent'") == [(0,)])
    assert nodes.look("SELECT count(*) FROM entries WHERE role = 'user'") == [(12,)]
    said = [
        line[0] for line in nodes.look("SELECT line FROM entries WHERE role = 'user' ORDER BY seq")
    ]
    assert [text for line in said for text in texts if f'"{text}"' in line] == texts


async def test_people_notice_nothing_of_idle_connections_that_were_ended(nodes):
    await nodes.one.say("hello")
    await nodes.answered(1)
    jobs = (
        "application_name LIKE 'confidant %' AND state = 'idle' AND query LIKE '%procrastinate_%'"
    )
    assert nodes.look(
        f"SELECT pid FROM pg_stat_activity WHERE {jobs} AND pg_terminate_backend(pid)"
    )
    await nodes.one.say("good bye")
    await nodes.answered(2)


async def test_an_idle_connection_that_was_ended_is_replaced_before_it_is_used(postgres_url):
    async with checked_pool(
        conninfo=postgres_url, min_size=1, max_size=1, check=None, open=False
    ) as pool:
        async with pool.connection() as connection:
            ended = connection.info.backend_pid
        with psycopg.connect(postgres_url) as killer:
            killer.execute("SELECT pg_terminate_backend(%s, %s)", (ended, 10_000))
        async with pool.connection() as connection:
            await connection.execute("SELECT 1")
            assert connection.info.backend_pid != ended


async def test_a_job_that_collides_with_another_nodes_work_is_put_in_again(nodes):
    nodes.do(COLLIDES_ONCE)
    await nodes.one.say("hello")
    await nodes.answered(1)
    assert nodes.look("SELECT last_value FROM tried") == [(2,)]
    assert nodes.look("SELECT count(*) FROM inbox") == [(1,)]


async def test_one_node_sends_for_an_account_whoever_answered(nodes):
    for number in range(8):
        await (nodes.one, nodes.other)[number % 2].say(f"hello {number}", sender=f"p{number}")
    await nodes.answered(8)
    assert sorted(map(bool, (nodes.one.channel.sent, nodes.other.channel.sent))) == [False, True]


async def test_a_copy_that_comes_in_at_another_node_is_dropped(nodes):
    message = await nodes.one.say("hello")
    await nodes.other.channel.push(message)
    await nodes.one.say("good bye")
    await nodes.answered(2)
    assert nodes.look("SELECT count(*) FROM inbox") == [(2,)]
    assert len(nodes.sent) == 2


async def test_what_one_node_changed_of_a_conversation_the_other_knows(nodes, model):
    await nodes.one.say("I like herons")
    await nodes.answered(1)
    await nodes.other.say("and storks")
    await nodes.answered(2)
    await nodes.one.say("/new")
    await nodes.answered(3)
    await nodes.other.say("what do I like?")
    await nodes.answered(4)
    first = model.requests[-1].messages
    assert not any("and storks" in message.text for message in first[:-1] if message.role == "user")
    assert nodes.look("SELECT count(*) FROM sessions") == [(2,)]


async def test_a_node_that_stops_as_soon_as_it_started_waits_for_nothing(
    tmp_path, postgres_url, monkeypatch
):
    monkeypatch.setattr("bot.cluster.turns.CLOSE_SECONDS", 10 * PATIENCE)
    async with asyncio.timeout(PATIENCE), running(tmp_path, storage={"url": postgres_url}):
        pass


async def test_the_other_node_goes_on_when_one_stops(nodes):
    await nodes.one.say("hello")
    await nodes.answered(1)
    owner, heir = nodes.one, nodes.other
    if not owner.channel.sent:
        owner, heir = heir, owner
    await nodes.stop(owner)
    before = len(heir.channel.sent)
    await heir.say("are you there?")
    await until(lambda: len(heir.channel.sent) > before)


async def test_a_turn_that_was_taken_over_changes_nothing_and_sends_nothing(nodes, model):
    model.gate = asyncio.Event()
    model.script = lambda request: Reply(
        Message("assistant", (Text(f"You said: {request.messages[-1].text}"),)), "end", Usage(100)
    )
    await nodes.one.say("hello")
    await model.started.wait()
    # Another node takes the lane, as it does when this one was silent for too long.
    nodes.look("UPDATE fences SET epoch = epoch + 1 WHERE name LIKE 'lane/%' RETURNING 1")
    model.gate.set()
    await until(lambda: nodes.look("SELECT count(*) FROM inbox WHERE state = 'done'") == [(1,)])
    await nodes.answered(1)
    assert len(model.requests) == 2  # the first reply was given up
    assert nodes.look("SELECT count(*) FROM entries WHERE role = 'user'") == [(1,)]
    assert nodes.look("SELECT count(*) FROM outbox") == [(1,)]
    assert nodes.sent == ["You said: hello"]
    # Both were paid for.
    spent = "SELECT sum(runs), sum(input_tokens) FROM usage_counts"
    await until(lambda: nodes.look(spent) == [(2, 200)])


async def test_a_turn_is_stopped_from_the_other_node(nodes, model):
    for number, node in enumerate((nodes.one, nodes.other)):
        for words in ("/stop", "stop"):
            model.gate, model.started = asyncio.Event(), asyncio.Event()
            before = len(nodes.sent)
            await nodes.one.say("tell me everything", sender=f"p{number}{words}")
            await model.started.wait()
            await node.say(words, sender=f"p{number}{words}")
            await nodes.answered(before + 2)
            assert "Stopped." in "\n".join(nodes.sent[before:])
            model.gate.set()


async def test_nothing_is_stopped_where_no_turn_runs(nodes):
    await nodes.one.say("/stop")
    await nodes.other.say("stop")
    sent = await nodes.answered(2)
    assert "You said: stop" in sent


async def test_a_reply_is_seen_growing_where_its_account_is(nodes, model):
    await nodes.one.say("hello")
    await nodes.answered(1)
    owner = nodes.one if nodes.one.channel.sent else nodes.other
    other = nodes.other if owner is nodes.one else nodes.one
    model.gate, model.started = asyncio.Event(), asyncio.Event()
    await other.say("and then?", sender="bob")
    await until(lambda: "You" in owner.channel.drafts)
    model.gate.set()
    await nodes.answered(2)
    assert "You" not in other.channel.drafts


Open = Callable[..., AbstractAsyncContextManager[Backend]]


@pytest.fixture
def backend(tmp_path, postgres_url):
    @asynccontextmanager
    async def opened(**storage: object) -> AsyncIterator[Backend]:
        config, _ = make_config(tmp_path / "folder", storage={"url": postgres_url, **storage})
        async with AsyncExitStack() as stack:
            yield await open_backend(config, system_clock, stack)

    return opened


def look(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)  # pyright: ignore[reportArgumentType]
        return cursor.fetchall() if cursor.description else []


async def test_with_a_url_everything_is_kept_there_and_nothing_in_the_folder(
    backend, tmp_path, postgres_url
):
    async with backend() as found:
        assert found.coordination.is_shared
        await found.database.write(
            lambda tx: tx.execute("INSERT INTO meta(key, value, updated_at) VALUES ('a', 'b', 1)")
        )
        assert look(postgres_url, "SELECT value FROM meta WHERE key = 'a'") == [("b",)]
    assert not (tmp_path / "folder").exists()


async def test_a_node_is_given_up_after_the_configured_time_and_not_before(backend, postgres_url):
    async with backend():
        pass  # the tables are there now
    for name, seconds in (("short", 20), ("long", 100)):
        look(
            postgres_url,
            "INSERT INTO nodes(name, beat_at, started_at, version) "
            f"VALUES ('{name}', now() - interval '{seconds} seconds', now(), '')",
        )
    silent = "SELECT name FROM nodes WHERE version = ''"
    async with backend(node_timeout=60):
        await until(lambda: ("long",) not in look(postgres_url, silent))
        assert look(postgres_url, silent) == [("short",)]
    async with backend(node_timeout=10):
        await until(lambda: not look(postgres_url, silent))


async def test_older_months_than_are_kept_are_dropped(backend, postgres_url):
    async with backend():
        pass  # the tables are there now
    this = "to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')"
    look(postgres_url, f"SELECT entries_lay_out(ARRAY['2001-01', {this}], '{{0, 10}}', 20)")
    for kept, gone in ((0, []), (12, [("2001-01",)])):
        async with backend(keep_months=kept) as found:
            owners = (getattr(work, "__self__", None) for work in found.housework.values())
            (retention,) = (each for each in owners if isinstance(each, Retention))
            for _ in ("told", "dropped"):
                await retention.look()
            dropped = "SELECT month FROM entry_months WHERE dropped_at IS NOT NULL"
            assert look(postgres_url, dropped) == gone


async def test_the_one_connection_that_cannot_be_pooled_goes_to_the_direct_url(
    backend, postgres_url
):
    with TcpProxy.before(postgres_url) as proxy:
        async with (
            backend(direct_url=proxy.url(postgres_url)) as found,
            found.coordination.owning("anything"),
        ):
            assert proxy.open  # more than one while that of the check at the start is being closed
            assert found.coordination.owns("anything")


async def test_a_direct_url_of_another_database_is_refused(postgres_admin_url, postgres_url):
    with (
        a_database(postgres_admin_url) as other,
        pytest.raises(StorageError, match="leads to another database than url"),
    ):
        await Node.open(postgres_url, system_clock, 2.0, direct=other)


async def test_a_direct_url_that_is_none_is_refused_without_its_password(postgres_url):
    with pytest.raises(StorageError, match="direct_url is not the URL of a PostgreSQL") as refused:
        await Node.open(postgres_url, system_clock, 2.0, direct="host=db password=very-secret x")
    assert "very-secret" not in str(refused.value)


async def test_a_direct_way_that_is_not_there_yet_is_waited_for(postgres_url):
    with TcpProxy.before(postgres_url) as proxy:
        proxy.cut()
        opening = asyncio.create_task(
            Node.open(postgres_url, system_clock, 2.0, direct=proxy.url(postgres_url))
        )
        await asyncio.to_thread(proxy.refused, 1)
        assert not opening.done()
        proxy.mend()
        await (await asyncio.wait_for(opening, 60)).close()


async def test_a_rule_about_memory_counts_on_every_node(tmp_path, postgres_url):
    async with (
        node(tmp_path / "one", postgres_url) as one,
        node(tmp_path / "two", postgres_url) as two,
    ):
        fields = {"effect": "allow", "chat": "-5", "chat_type": "group"}
        assert (await one.post("/channels/scope/add", **fields))[0] == 200
        await until(lambda: len(two.app.core.resolver.policy.config.scope.rules) == 2)
        room = MessageOrigin("telegram", "default", "-5", "group", "7")
        assert two.app.core.resolver.of(room).view.space == "rooms/telegram--5"
        assert (one.kept, two.kept) == ("", "")
