"""What channels leave out is counted, and no channel can make the metric grow without end."""

from __future__ import annotations

from typing import Any

import pytest

from bot.coordination import Alone
from bot.gateway.gateway import LONGEST_REASON as LONGEST
from bot.gateway.gateway import MOST_REASONS as MOST
from bot.gateway.gateway import Connections
from bot.metrics import Metrics
from bot.testing import RecordingEngine
from tests.support import running


def connections_of(metrics: Metrics) -> Connections:
    nobody: Any = None  # the database is not asked
    return Connections(metrics, Alone(nobody), {})


def counted(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["channel"], sample.labels["result"]): sample.value
        for family in metrics.received.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("from_bot", "from_bot"),
        ("", "other"),
        ("Too Large", "too_large"),
        ("42: né\n", "_n_"),
        ("x" * 5000, "x" * LONGEST),
        ("İ" * 100, "i_" * (LONGEST // 2)),
    ],
)
def test_a_reason_becomes_a_word(reason, word):
    metrics = Metrics()
    connections_of(metrics).dropped("pigeon", reason)
    assert counted(metrics) == {("pigeon", f"dropped_{word}"): 1}


def test_reasons_of_a_channel_stay_few_and_every_update_is_counted():
    metrics = Metrics()
    connections = connections_of(metrics)
    words = [f"{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]
    for word in [*words, *words]:
        connections.dropped("pigeon", word)
    connections.dropped("owl", "empty")
    found = counted(metrics)
    assert found.pop(("owl", "dropped_empty")) == 1
    assert len(found) == MOST + 1
    assert found["pigeon", "dropped_aa"] == 2
    assert found["pigeon", "dropped_other"] == 2 * (len(words) - MOST)
    assert sum(found.values()) == 2 * len(words)


async def test_a_channel_tells_the_engine(tmp_path):
    async with running(tmp_path) as engine:
        assert engine.channel.engine is not None
        engine.channel.engine.dropped("memory", "service")
        assert counted(engine.app.metrics)["memory", "dropped_service"] == 1


def test_the_double_counts_by_reason():
    engine = RecordingEngine()
    for reason in ("service", "empty", "service"):
        engine.dropped("memory", reason)
    assert engine.drops == {"service": 2, "empty": 1}
