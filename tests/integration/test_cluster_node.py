"""Nodes on a real PostgreSQL: what they tell each other, and what only one of them does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest
from structlog.testing import capture_logs

from bot import fencing
from bot.agent.models import Request
from bot.channel import Inbound
from bot.clock import system_clock
from bot.cluster import census, takeover
from bot.cluster.node import Node
from bot.cluster.signals import InlineEvent, Notification
from bot.cluster.turns import Turns
from bot.coordination import MOST_MENTIONED, Event, Hear
from bot.errors import FenceLost
from bot.fencing import Fence
from bot.messages import ToolResult, ToolUse
from bot.sessions import inbox
from tests.fakes.brain import Brain, Reply, says
from tests.fakes.pair import Pair, pair
from tests.integration.test_approvals import OWNER, Oven, baking, command
from tests.support import Engine, running, until

GONE_AFTER = 1.5  # seconds
# What waits is begun by a worker that is there for long.
DOING = """WITH worker AS (INSERT INTO procrastinate_workers(last_heartbeat)
    VALUES (now() + interval '1 hour') RETURNING id)
    UPDATE procrastinate_jobs SET status = 'doing', worker_id = worker.id FROM worker"""


class Nodes:
    """Some nodes of one database, each in its own task, and a look at it from outside."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.all: list[Node] = []

    async def start(self, clock=system_clock, **hears: Hear) -> Node:
        node = await Node.open(self.url, clock, GONE_AFTER)
        self.all.append(node)
        for topic, hear in hears.items():
            node.on(topic, hear)
        await node.hear_others()
        return node

    def pause(self, node: Node) -> Callable[[], None]:
        """As SIGSTOP does to a process: it says nothing more, and its connections stay.

        What is returned wakes it up.
        """
        woken = asyncio.Event()
        listen = node._listen

        async def nothing(_connection: object, _seconds: float) -> None:
            await woken.wait()

        def wake() -> None:
            node._listen = listen
            woken.set()

        node._listen = nothing
        return wake

    def look(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    async def close(self) -> None:
        for node in self.all:
            await node.close()


@pytest.fixture
async def nodes(postgres_url):
    found = Nodes(postgres_url)
    yield found
    await found.close()


def said(text: str) -> Inbound:
    return Inbound("memory", "default", "ada", "direct", "ada", "m1", text, 1)


async def looked(node: Node, url: str) -> takeover.Look:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await takeover.look(connection, node.name, GONE_AFTER)


async def held(node: Node, name: str, until_event: asyncio.Event) -> None:
    async with node.owning(name):
        await until_event.wait()


async def test_one_node_at_a_time_owns_something_and_another_takes_over(nodes):
    first, second = await nodes.start(), await nodes.start()
    async with first.owning("telegram/default") as lost:
        assert first.owns("telegram/default")
        over = asyncio.Event()
        waiting = asyncio.create_task(held(second, "telegram/default", over))
        epoch = first.fence("telegram/default").epoch
        nodes.look(  # its direct connection is cut
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s "
            "AND application_name = %s",
            "%pg_%advisory%",
            first.application,
        )
        nodes.look(takeover.END, first.application)
        await asyncio.wait_for(lost.wait(), 60)
        assert not first.owns("telegram/default")
    # As whoever loses it does: one that is soon back, and still wants it, may be the first again.
    await until(lambda: second.owns("telegram/default"))
    assert second.fence("telegram/default").epoch > epoch
    over.set()
    await waiting


async def test_a_node_that_is_not_notified_asks_for_what_others_said_and_says_so(
    nodes, monkeypatch
):
    connect, heard = Node._connect, list[Event]()

    async def deaf(node: Node) -> psycopg.AsyncConnection[tuple[object, ...]]:
        connection = await connect(node)
        await connection.execute("UNLISTEN *")
        return connection

    async def hear(event: Event) -> None:
        heard.append(event)

    monkeypatch.setattr(Node, "_connect", deaf)
    node = await nodes.start(books=hear)
    await until(lambda: node.standing().is_deaf)
    monkeypatch.setattr(Node, "_connect", connect)
    other = await nodes.start()
    await other.publish(Event("books", "ada"))
    await until(lambda: Event("books", "ada") in heard)
    assert not other.standing().is_deaf
    nodes.look(takeover.END, node.application)  # it connects anew, and listens
    await until(lambda: node.standing().is_connected and not node.standing().is_deaf)


async def test_parts_of_one_node_own_something_together(nodes):
    node = await nodes.start()
    async with node.owning("web/default"):
        async with node.owning("web/default"):
            pass
        assert node.owns("web/default")
    await until(lambda: not node.owns("web/default"))


async def test_a_paused_node_is_given_up_and_changes_nothing_when_it_wakes(nodes):
    paused, other = await nodes.start(), await nodes.start()
    over = asyncio.Event()
    holding = asyncio.create_task(held(paused, "telegram/default", over))
    await until(lambda: paused.owns("telegram/default"))
    fence = paused.fence("telegram/default")
    wake = nodes.pause(paused)
    waiting = asyncio.create_task(held(other, "telegram/default", over))
    await until(lambda: other.owns("telegram/default"))
    assert not paused.owns("telegram/default")  # it knows by its own clock
    # Its connections were ended; it makes others and tries to go on where it was.
    own = paused.own_fence()
    for gone in (fence, own):
        with fencing.behind(gone), pytest.raises(FenceLost):
            await paused.database.write(lambda tx: tx.execute("DELETE FROM meta"))
    wake()
    await until(lambda: paused.own_fence() != own)  # it is one of them again, and knows it
    assert nodes.look("SELECT count(*) FROM nodes") == [(2,)]
    over.set()
    await asyncio.gather(holding, waiting)
    with fencing.behind(paused.own_fence()):
        await paused.database.write(lambda tx: tx.execute("SELECT 1"))


async def test_what_one_node_says_the_others_hear(nodes):
    heard: list[tuple[str, Event]] = []

    def hear(name):
        async def keep(event):
            if event.name:
                heard.append((name, event))

        return keep

    first = await nodes.start(show=hear("first"))
    await nodes.start(show=hear("second"))
    await first.publish(Event("show", "web", "hello"))
    await until(lambda: heard)
    assert heard == [("second", Event("show", "web", "hello"))]


async def test_what_was_said_while_a_connection_was_lost_is_heard(nodes):
    heard: list[Event] = []

    async def keep(event):
        heard.append(event)

    first = await nodes.start()
    await first.publish(Event("show", "web", "before it listened"))
    await nodes.start(show=keep)
    await until(lambda: heard)
    assert heard == [Event("show", "web", "before it listened")]


async def test_a_listener_that_fails_keeps_nothing_from_the_others(nodes):
    heard: list[Event] = []

    async def fail(event):
        raise RuntimeError("planned")

    async def keep(event):
        heard.append(event)

    first = await nodes.start()
    second = await nodes.start(show=fail)
    second.on("show", keep)
    await first.publish(Event("show", "web", "x"))
    await until(lambda: heard)


async def test_a_transaction_notifies_once_however_much_it_tells(nodes):
    node = await nodes.start()

    def tell(tx):
        for number in range(40):
            tx.publish("show", "web", str(number))
            tx.wake(f"key {number % 4}")

    with psycopg.connect(nodes.url, autocommit=True) as listener:
        listener.execute(f"LISTEN {census.CHANNEL}")
        await node.database.write(tell)
        heard = [Notification.parse(each.payload) for each in listener.notifies(timeout=0.5)]
    # A node also tells itself something, to know that it hears.
    (told,) = [each for each in heard if each is not None and (each.ids or each.work)]
    assert len(told.ids) == 40
    assert told.work


async def test_a_work_that_is_taken_back_tells_nothing(nodes):
    node = await nodes.start()

    def fail(tx):
        tx.publish("show", "web", "never")
        tx.wake("never")
        raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        await node.database.write(fail)
    assert nodes.look("SELECT count(*) FROM events") == [(0,)]
    assert nodes.look("SELECT count(*) FROM procrastinate_jobs") == [(0,)]


async def test_many_messages_of_one_key_make_one_job_that_is_never_put_off(nodes):
    first, second = await nodes.start(), await nodes.start()
    works = [node.database.write(lambda tx: tx.wake("ada")) for node in (first, second) * 250]
    await asyncio.gather(*works)
    assert nodes.look(
        "SELECT lock, queueing_lock, status, scheduled_at FROM procrastinate_jobs"
    ) == [("ada", "ada", "todo", None)]


async def test_a_job_that_was_begun_does_not_swallow_what_comes_after(nodes):
    node = await nodes.start()
    await node.database.write(lambda tx: tx.wake("ada"))
    nodes.look(DOING)
    await node.database.write(lambda tx: tx.wake("ada"))
    found = nodes.look("SELECT status FROM procrastinate_jobs ORDER BY id")
    assert found == [("doing",), ("todo",)]


async def test_the_turn_of_a_worker_that_is_gone_is_given_back(nodes):
    node = await nodes.start()

    def store(tx):
        message = said("hello")
        inbox.store(tx, message, inbox.storable(message)[1], "ada", 1)
        tx.wake("ada")
        return census.acquire(tx, census.lane("ada"), "gone")

    epoch = await node.database.write(store)
    nodes.look("UPDATE procrastinate_jobs SET status = 'doing'")
    await until(lambda: nodes.look("SELECT status FROM procrastinate_jobs") == [("todo",)])
    assert nodes.look("SELECT deaths FROM inbox") == [(1,)]
    assert nodes.look("SELECT epoch > %s FROM fences WHERE name = 'lane/ada'", epoch) == [(True,)]


async def test_a_message_without_a_job_is_found(nodes):
    node = await nodes.start()
    message = said("hello")
    body = inbox.storable(message)[1]
    await node.database.write(lambda tx: inbox.store(tx, message, body, "ada", 1))
    await until(lambda: nodes.look("SELECT lock FROM procrastinate_jobs") == [("ada",)])


async def test_work_that_no_node_was_told_of_is_found(nodes):
    node = await nodes.start()
    insert = "INSERT INTO procrastinate_jobs(queue_name, task_name, lock) VALUES ('t', 't', 'ada')"
    nodes.look(insert)
    with node.hearing_of_work() as work:
        await asyncio.wait_for(work.wait(), 60)
    nodes.look(DOING)
    nodes.look(insert)
    assert not (await looked(node, nodes.url)).has_work  # it waits for the one that is being done


async def test_work_that_is_told_of_while_a_job_is_fetched_is_fetched_too(nodes):
    """The worker forgets what it heard meanwhile, which the job may have been too late for."""
    node = await nodes.start()
    turns = Turns(node, 1)
    heard: list[str] = []

    async def hear(channel, payload):
        heard.append(payload)

    connector = turns._app.connector
    listening = asyncio.create_task(connector.listen_notify(hear, ["any"]))
    with psycopg.connect(nodes.url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")
        async with turns._app.open_async():
            fetching = asyncio.create_task(
                connector.execute_query_one_async("SELECT 1 AS one, pg_advisory_lock_shared(1)")
            )
            await until(lambda: nodes.look("SELECT 1 FROM pg_locks WHERE NOT granted"))
            heard.clear()
            node.look_for_work()
            await until(lambda: heard)
            heard.clear()
            connection.execute("SELECT pg_advisory_unlock(1)")
            assert (await fetching)["one"] == 1
            await until(lambda: heard)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_command_that_a_gone_node_was_answering_is_answered_by_its_lane(nodes):
    gone, other = await nodes.start(), await nodes.start()
    message = said("/new")
    body = inbox.storable(message)[1]
    await gone.database.write(lambda tx: inbox.store(tx, message, body, "ada", 1, is_command=True))
    assert nodes.look("SELECT state, node FROM inbox") == [("command", gone.name)]
    nodes.pause(gone)
    await until(lambda: nodes.look("SELECT state FROM inbox") == [("waiting",)])
    assert nodes.look("SELECT lock FROM procrastinate_jobs") == [("ada",)]
    assert other.name in str(nodes.look("SELECT name FROM nodes"))


async def test_all_nodes_have_the_time_of_the_server(nodes):
    late = await nodes.start(lambda: system_clock() - 300_000)
    early = await nodes.start(lambda: system_clock() + 300_000)
    for node in (late, early):
        await until(lambda node=node: abs(node.clock() - system_clock()) < 1_000)


async def test_a_fence_lets_a_write_finish_before_it_is_taken_over(nodes):
    first, second = await nodes.start(), await nodes.start()
    epoch = await first.database.write(lambda tx: census.acquire(tx, "lane/ada", first.name))
    inside, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(tx):
        tx.execute(
            "INSERT INTO meta(key, value, updated_at) VALUES ('slow', '', 1) ON CONFLICT DO NOTHING"
        )
        loop.call_soon_threadsafe(inside.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)

    with fencing.behind(Fence("lane/ada", epoch)):
        writing = asyncio.create_task(first.database.write(slow))
    await inside.wait()
    taking = asyncio.create_task(
        second.database.write(lambda tx: census.acquire(tx, "lane/ada", second.name))
    )
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    await until(lambda: nodes.look(waits))
    assert not taking.done()
    go_on.set()
    await writing
    assert await taking > epoch
    with fencing.behind(Fence("lane/ada", epoch)), pytest.raises(FenceLost):
        await first.database.write(lambda tx: tx.execute("DELETE FROM meta"))
    assert nodes.look("SELECT key FROM meta WHERE key = 'slow'") == [("slow",)]


async def test_lanes_that_rest_are_pruned_and_no_epoch_is_given_twice(nodes):
    node = await nodes.start()
    names = ("lane/resting", "lane/running", "lane/fresh", "telegram/default")
    epochs = {}
    for name in names:
        epochs[name] = await node.database.write(
            lambda tx, name=name: census.acquire(tx, name, node.name)
        )
    await node.database.write(lambda tx: tx.wake("running"))
    nodes.look(DOING)
    nodes.look("UPDATE fences SET taken_at = now() - interval '30 h' WHERE name <> 'lane/fresh'")
    await census.prune_lanes(node.database)
    left = [name for (name,) in nodes.look("SELECT name FROM fences ORDER BY name")]
    assert left == ["lane/fresh", "lane/running", f"node/{node.name}", "telegram/default"]
    # A node that was paused all the while wakes up; also once the lane was taken up again.
    gone = Fence("lane/resting", epochs["lane/resting"])
    for _ in range(2):
        with fencing.behind(gone), pytest.raises(FenceLost):
            await node.database.write(lambda tx: tx.execute("DELETE FROM meta"))
        await node.database.write(lambda tx: census.acquire(tx, "lane/resting", node.name))


async def test_what_is_mentioned_reaches_who_listens_and_is_stored_nowhere(nodes):
    heard: list[Event] = []

    async def hear(event: Event) -> None:
        heard.append(event)

    async def hears_itself(event: Event) -> None:
        raise AssertionError(event)

    one = await nodes.start(show=hears_itself)
    await nodes.start(show=hear)
    thought, after = Event("show", "web", "汉 'thought'\n"), Event("show", "web", "after")
    await until(lambda: not any(node._is_behind for node in nodes.all))
    await one.mention(replace(thought, body="x" * MOST_MENTIONED))  # nobody hears of it
    await one.mention(thought)
    await one.publish(after)
    await until(lambda: after in heard)
    assert heard[-2:] == [thought, after]
    assert "after" in {body for (body,) in nodes.look("SELECT body FROM events")}
    assert not nodes.look("SELECT 1 FROM events WHERE body LIKE %s", "%thought%")


@pytest.mark.parametrize(
    "payload", ["[]", '["n", ["show", "web"]]', '["n", ["show", "web", 1]]', '[["n"], "abc"]', "1"]
)
def test_a_mention_of_somebody_else_is_none_of_ours(payload):
    assert InlineEvent.parse(payload) is None


@pytest.mark.parametrize("payload", ["", "no JSON", "[]", '["n", "x", 1, [], true]', "null", "[1]"])
def test_a_notification_of_somebody_else_is_none_of_ours(payload):
    assert Notification.parse(payload) is None


CODE = "xyzzy-42"


def answers(request: Request) -> Reply:
    """What is asked to be kept is written; the reply says it again."""
    last = request.messages[-1]
    if isinstance(last.blocks[-1], ToolResult):
        said = "not kept" if last.blocks[-1].is_error else "kept"
        return says(f"{said}: {CODE}", 1_000)
    if "keep" not in last.text:
        return says("All right.", 1_000)
    return says("", 1_000, ToolUse("w1", "memory_write", {"text": last.text}))


@pytest.fixture
def brain():
    return Brain(chat=answers)


@pytest.fixture
async def both(postgres_url, tmp_path, brain):
    async with pair(postgres_url, tmp_path, brain, memory={"watch": True}) as found:
        yield found


async def told(both: Pair, node: Engine, text: str) -> str:
    before = len(both.sent)
    await node.say(text)
    return (await both.answered(before + 1))[-1]


def notes(both: Pair) -> str:
    rows = both.look("SELECT text FROM notes WHERE path LIKE '%/memory/%'")
    return "\n".join(str(row[0]) for row in rows)


async def test_what_is_kept_on_one_node_is_found_and_shown_on_the_other(both):
    assert "✓ Stored in memory/" in await told(both, both.one, "keep the heron in mind")
    for node in (both.other, both.one):
        found = await told(both, node, "/memory search heron")
        assert "keep the heron in mind" in found
    assert "heron" in notes(both)
    assert not list(both.one.folder.rglob("*.md"))
    assert not (both.one.folder / "index").exists()
    (index,) = both.look("SELECT count(*) FROM memory_generations WHERE is_live = 1")
    assert index == (1,)


async def test_a_turn_elsewhere_that_had_read_forgotten_words_does_not_write_them(both, brain):
    await told(both, both.one, f"the code of my front door is {CODE}")
    brain.held["chat"] = asyncio.Event()
    await both.one.say("keep it in mind")
    await until(lambda: len(brain.asked("chat")) == 2)
    busy = both.one.app.core.metrics.running.collect()
    is_here = next(iter(busy)).samples[0].value > 0
    elsewhere = both.other if is_here else both.one
    await told(both, elsewhere, f"/memory forget {CODE}")
    assert "Forgotten" in await told(both, elsewhere, "/memory forget yes")
    before = len(both.sent)
    brain.held.pop("chat").set()
    assert "not showing it" in (await both.answered(before + 1))[-1]
    assert CODE not in notes(both)
    # What the turn itself said with the words is forgotten with them, on both.
    for node in (both.one, both.other):
        await told(both, node, "and now?")
        assert CODE not in str(brain.asked("chat")[-1].messages)
        assert "in none of your files" in await told(both, node, f"/memory forget {CODE}")


async def test_a_message_that_was_forgotten_elsewhere_gets_no_answer(both, brain):
    await told(both, both.one, "hello")
    brain.held["chat"] = asyncio.Event()
    await both.one.say(f"remember that the code is {CODE}")
    await until(lambda: len(brain.asked("chat")) == 2)
    assert "1 unanswered message" in await told(both, both.other, f"/memory forget {CODE}")
    assert "Forgotten" in await told(both, both.other, "/memory forget yes")
    brain.held.pop("chat").set()
    await told(both, both.other, "and now?")
    assert CODE not in str(brain.asked("chat")[-1].messages)
    assert CODE not in notes(both)


async def test_the_heir_of_a_node_feeds_the_index(both):
    await told(both, both.one, "I like herons")
    await both.stop(both.one)
    await told(both, both.other, "and storks")
    said = "SELECT count(*) FROM memory_sources WHERE kind = 'transcript' AND text LIKE '%storks%'"
    await until(lambda: both.look(said) == [(1,)])


async def test_a_folder_with_notes_beside_a_database_is_told_and_left_alone(postgres_url, tmp_path):
    folder = tmp_path / "data"
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace/MEMORY.md").write_text("- an older heron\n")
    with capture_logs() as logs:
        async with running(folder, model=Brain(), storage={"url": postgres_url}) as engine:
            assert "heron" not in await engine.ask("/memory search heron")
    assert [each["event"] for each in logs].count("workspace.not_read") == 1
    assert [path.name for path in (folder / "workspace").iterdir()] == ["MEMORY.md"]


async def test_an_answer_at_another_node_counts_once(postgres_url, tmp_path):
    oven = Oven()
    async with pair(postgres_url, tmp_path, baking(), tools=(oven,), session=OWNER) as nodes:
        await nodes.one.say("bake, please")
        await nodes.answered(2)
        sent = [*nodes.one.channel.sent, *nodes.other.channel.sent]
        asked = next(piece for piece in sent if piece.buttons)
        await nodes.other.say(command(asked))
        await nodes.one.say(command(asked))
        await until(lambda: "So: the oven has 180 degrees" in nodes.sent)
        await nodes.one.say("bye")
        await until(lambda: "Hello." in nodes.sent)
    assert oven.calls == [{"degrees": 180}]
    assert nodes.sent.count("Allowed, once: `oven`.") == 1
