"""What a person at a terminal is told of events."""

from __future__ import annotations

import ast
import string
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import structlog

from bot.log_lines import AGAIN_SECONDS, ENDED, LEFT_OUT, LEFT_OUT_ENDS, SENTENCES, Lines, line_of

ROOT = Path(__file__).resolve().parents[2]
TOLD = frozenset({"warning", "error", "exception", "critical"})


def told_events() -> dict[str, list[set[str]]]:
    """Every event that is told as more than an info, and the fields of each place that does."""
    found: dict[str, list[set[str]]] = defaultdict(list)
    for path in (*(ROOT / "bot").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=level), args=[first, *_]) if level in TOLD:
                    words = [
                        each.value
                        for each in ast.walk(first)
                        if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    ]
                    for word in words:
                        found[word].append({each.arg or "" for each in node.keywords})
                case _:
                    pass
    return found


def test_every_sentence_is_about_an_event_that_has_what_it_names():
    events = told_events()
    for name, sentence in SENTENCES.items():
        named = {field for _, field, _, _ in string.Formatter().parse(sentence) if field}
        assert events[name], name
        for fields in events[name]:
            assert named - {"confidant"} <= fields or "" in fields, (name, fields)


def test_what_is_left_out_exists():
    events = told_events()
    assert events.keys() >= LEFT_OUT
    made = (ROOT / "bot/channel/kit/supervisor.py").read_text("utf-8")
    for end in LEFT_OUT_ENDS:
        found = [name for name in events if name.endswith(end)]
        assert found or end.removeprefix(".") in made, end


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(lines: Lines, event: str, level: str = "warning", **fields: Any) -> str:
    try:
        return lines(None, level, {"event": event, "level": level, "timestamp": "now", **fields})
    except structlog.DropEvent:
        return ""


def test_a_warning_is_told_in_words_and_not_again_for_a_while():
    clock = Clock()
    lines = Lines(clock)
    words = "Warning: Something could not be stored (StorageFull). It is tried again."
    assert told(lines, "storage.retry", error="StorageFull", seconds=1) == words
    clock.now = AGAIN_SECONDS - 1
    assert told(lines, "storage.retry", error="StorageFull", seconds=2) == ""
    clock.now = AGAIN_SECONDS
    assert told(lines, "storage.retry", error="StorageFull", seconds=4) == words
    assert "StorageAway" in told(lines, "storage.retry", error="StorageAway", seconds=4)


def test_an_event_without_words_of_its_own_is_told_all_the_same():
    assert told(Lines(), "task.broke", "error", repeat=7, error="KeyError") == (
        "Error: task.broke (repeat: 7, error: KeyError)"
    )
    assert line_of({"event": "storage.retry", "level": "warning"}) == "Warning: storage.retry"


@pytest.mark.parametrize(
    ("event", "level", "fields"),
    [
        ("session.reset", "info", {}),
        ("telegram.connection.failed", "warning", {"error": "OSError"}),  # its channel says it
        ("web.socket.slow", "warning", {"waiting": 9}),
        ("library", "warning", {"logger": "aiohttp", "message": "noise"}),
        ("library", "error", {"logger": "py.warnings", "message": "old"}),
    ],
)
def test_what_a_person_need_not_know_is_left_out(event, level, fields):
    assert told(Lines(), event, level, **fields) == ""


def test_a_connection_is_told_of_when_it_is_lost_and_when_it_is_back():
    lines = Lines(Clock())

    def health(health: str, detail: str = "", account: str = "default") -> str:
        return told(
            lines, "channel.health", "info",
            channel="telegram", account=account, health=health, detail=detail,
        )  # fmt: skip

    assert [health("starting"), health("up")] == ["", ""]
    for _ in range(2):  # each time
        assert health("degraded", "It cannot be reached.") == "telegram: It cannot be reached."
        assert health("up") == "telegram: connected again"
    assert health("down", "", "second") == "telegram (second): not connected"


def test_nothing_that_is_told_commands_the_terminal():
    line = told(Lines(), "tools.plugin_failed", "error", package="x", problem="\x1b[2Jgone\r\x07")
    assert line == "Error: The tools of x cannot be used: [2Jgone"


def test_a_fault_that_ends_the_program_comes_with_its_trace():
    with pytest.raises(KeyError) as raised:
        {}["of ours"]
    found = (KeyError, raised.value, raised.tb)
    line = told(Lines(), "program.crashed", "critical", error="KeyError", exc_info=found)
    assert line.startswith("Traceback")
    assert line.endswith(f"KeyError: 'of ours'\n{ENDED}")


def test_what_is_remembered_has_a_bound():
    clock = Clock()
    lines = Lines(clock)
    for number in range(1_200):
        assert told(lines, "task.broke", repeat=number)
    assert told(lines, "task.broke", repeat=1_199) == ""
