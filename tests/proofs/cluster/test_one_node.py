"""One node on PostgreSQL keeps what the many must: the proof's own footing."""

from __future__ import annotations

import asyncio

import pytest

from tests.proofs.cluster.cluster import Cluster
from tests.proofs.cluster.people import DIRECT, People

pytestmark = pytest.mark.proof


async def test_one_node_answers_everybody_once_over_a_kill_and_a_lost_database(tmp_path):
    async with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        (node,) = cluster.nodes
        await cluster.start()
        people = People(cluster, seed=1)
        async with people.page.open():
            async with people.writing(0.1):
                await asyncio.sleep(1)
            for chat in DIRECT:
                people.ask(chat)
            await cluster.kill(node)
            await cluster.start(node)
            await people.settled()
        loop = asyncio.get_running_loop()
        people.faults.append((0, loop.time()))
        verdict = await people.judge()
    assert verdict.messages >= len(DIRECT)
