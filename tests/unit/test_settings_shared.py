"""What nodes share of their settings, as values."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.settings.live import LIVE, is_shared
from bot.settings.shared import MOST_KEPT, Change, SharedSettings, Step

NAME = ("agent", "name")
OWNER = ("session", "owner_name")


def change(number: int, *steps: Step) -> Change:
    return Change(f"{number:016x}", number, steps)


@given(st.lists(st.tuples(st.sampled_from([NAME, OWNER]), st.none() | st.text(min_size=1))))
def test_what_is_kept_is_read_back_and_every_last_change_can_be_taken_back(wanted):
    shared = SharedSettings()
    for number, (key, value) in enumerate(wanted):
        before = shared
        shared = shared.changed(change(number, shared.step(key, value)))
        assert shared.values.get(key) == value
        assert shared.may_take_back(shared.changes[0])
        (step,) = shared.changes[0].steps
        undone = shared.changed(change(number, shared.step(key, step.before)))
        assert undone.values == before.values
        assert SharedSettings.from_json(shared.to_json()) == shared
    assert len(shared.changes) == min(len(wanted), MOST_KEPT)


def test_what_was_changed_again_is_not_taken_back():
    one = SharedSettings().changed(change(1, Step(NAME, None, "Heron")))
    two = one.changed(change(2, Step(NAME, "Heron", "Crane")))
    assert [two.may_take_back(each) for each in two.changes] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"values": 7, "changes": []}',
        '{"values": {}}',
        "[" * 10_000,
        '{"values": {}, "changes": [{}]}',
        '{"values": {}, "changes": 7}',
    ],
)
def test_what_cannot_be_read_counts_as_nothing(text: str):
    assert SharedSettings.from_json(text) == SharedSettings()


def test_only_what_may_be_shared_is_taken_from_the_database():
    values = {
        "agent.name": "Heron",
        "models.openai.base_url": "http://thief.example",
        "models.openai.api_key": "sk-1",
        "dashboard.token": "x" * 20,
        "tools.web.fetch": "true",
        "session.owner": "telegram:666",
        "agent": "{}",
        "agent.nothing": "1",
        "limits.people": "{}",
        "": "",
    }
    text = orjson.dumps({"values": values, "changes": []}).decode()
    assert SharedSettings.from_json(text).values == {NAME: "Heron"}


def test_nothing_with_an_address_or_a_secret_is_shared():
    own = {key for key in LIVE if not is_shared(key)}
    assert {key[0] for key in own} == {"models", "channels", "dashboard"}
