"""Let anything go wrong in a cluster while people write: each message is answered exactly once.

Three nodes, a real PostgreSQL, Telegram, the page and a model, each behind a proxy that can fail. A
node counts as gone after two seconds. What is proved after the rounds: each message stands in one
turn and has one answer, in the order of its chat; nobody saw another's words; nothing waits
anywhere; the connection to Telegram was taken over in time. A send in flight at a fault may have
come twice; how often is told.
"""

from __future__ import annotations

import pytest

from tests.proofs.cluster.cluster import Cluster
from tests.proofs.cluster.faults import TAKEOVER, Rounds
from tests.proofs.cluster.people import People
from tests.proofs.crash import SEED
from tests.proofs.rounds import rounds

pytestmark = pytest.mark.proof


async def test_whatever_goes_wrong_each_message_is_answered_exactly_once(tmp_path, capsys):
    async with Cluster(tmp_path / "cluster", seed=SEED) as cluster:
        await cluster.start()
        people = People(cluster, SEED)
        faults = Rounds(cluster, people, SEED)
        await faults.run(rounds(10))
        verdict = await people.judge()
    slowest = max(faults.takeovers)
    assert slowest <= TAKEOVER
    with capsys.disabled():
        print(
            f"\nCluster: {len(faults.done)} faults, {verdict.messages} messages and "
            f"{verdict.commands} commands, 0 lost, 0 answered twice, {verdict.repeats} sends in "
            f"flight repeated; {len(faults.takeovers)} takeovers within {slowest:.1f} s"
        )
