"""One memory of two programs on one PostgreSQL: written, found and forgotten on either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bot.agent.models import Request
from bot.messages import ToolResult, ToolUse
from tests.fakes.brain import Brain, Reply, says
from tests.fakes.pair import Pair, pair
from tests.support import Engine, running, until

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
def brain() -> Brain:
    return Brain(chat=answers)


@pytest.fixture
async def nodes(postgres_url: str, tmp_path: Path, brain: Brain) -> AsyncIterator[Pair]:
    async with pair(postgres_url, tmp_path, brain, memory={"watch": True}) as found:
        yield found


async def told(nodes: Pair, node: Engine, text: str) -> str:
    before = len(nodes.sent)
    await node.say(text)
    return (await nodes.answered(before + 1))[-1]


def notes(nodes: Pair) -> str:
    rows = nodes.look("SELECT text FROM notes WHERE path LIKE '%/memory/%'")
    return "\n".join(str(row[0]) for row in rows)


async def test_what_is_kept_on_one_node_is_found_and_shown_on_the_other(nodes: Pair):
    assert "✓ Stored in memory/" in await told(nodes, nodes.one, "keep the heron in mind")
    for node in (nodes.other, nodes.one):
        found = await told(nodes, node, "/memory search heron")
        assert "keep the heron in mind" in found
    assert "heron" in notes(nodes)
    assert not list(nodes.one.folder.rglob("*.md"))
    assert not (nodes.one.folder / "index").exists()
    (index,) = nodes.look("SELECT count(*) FROM memory_generations WHERE is_live = 1")
    assert index == (1,)


async def test_a_turn_elsewhere_that_had_read_forgotten_words_does_not_write_them(
    nodes: Pair, brain: Brain
):
    await told(nodes, nodes.one, f"the code of my front door is {CODE}")
    brain.held["chat"] = asyncio.Event()
    await nodes.one.say(f"keep {CODE} in mind")
    await until(lambda: len(brain.asked("chat")) == 2)
    busy = nodes.one.app.metrics.running.collect()
    is_here = next(iter(busy)).samples[0].value > 0
    elsewhere = nodes.other if is_here else nodes.one
    await told(nodes, elsewhere, f"/memory forget {CODE}")
    assert "Forgotten" in await told(nodes, elsewhere, "/memory forget yes")
    before = len(nodes.sent)
    brain.held.pop("chat").set()
    assert f"not kept: {CODE}" in (await nodes.answered(before + 1))[-1]
    assert CODE not in notes(nodes)
    # What the turn itself said with the words is forgotten with them, on both.
    for node in (nodes.one, nodes.other):
        await told(nodes, node, "and now?")
        assert CODE not in str(brain.asked("chat")[-1].messages)
        assert "Neither your files" in await told(nodes, node, f"/memory forget {CODE}")


async def test_the_heir_of_a_node_feeds_the_index(nodes: Pair):
    await told(nodes, nodes.one, "I like herons")
    await nodes.stop(nodes.one)
    await told(nodes, nodes.other, "and storks")
    said = "SELECT count(*) FROM memory_sources WHERE kind = 'transcript' AND text LIKE '%storks%'"
    await until(lambda: nodes.look(said) == [(1,)])


async def test_a_folder_with_notes_beside_a_database_is_told_and_left_alone(
    postgres_url: str, tmp_path: Path
):
    folder = tmp_path / "data"
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace/MEMORY.md").write_text("- an older heron\n")
    with capture_logs() as logs:
        async with running(folder, model=Brain(), storage={"url": postgres_url}) as engine:
            assert "heron" not in await engine.ask("/memory search heron")
    assert [each["event"] for each in logs].count("workspace.not_read") == 1
    assert [path.name for path in (folder / "workspace").iterdir()] == ["MEMORY.md"]
