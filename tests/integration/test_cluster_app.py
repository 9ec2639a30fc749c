"""Two whole programs on one PostgreSQL: what people notice of it, which is nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from bot.agent.models import Reply, Usage
from bot.cluster.turns import checked_pool
from bot.messages import Message, Text
from bot.testing import ScriptedModel
from tests.fakes.pair import Pair, pair
from tests.support import until

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
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def nodes(postgres_url: str, tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Pair]:
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
