import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.context.calibration import (
    HIGH,
    LEAST,
    LOW,
    MOST_MODELS,
    START,
    Calibration,
    from_json,
)

COUNTS = st.integers(-100, 3_000_000)
SAMPLES = st.lists(st.tuples(st.sampled_from(["one", "two"]), COUNTS, COUNTS), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


def after(samples: list[tuple[str, int, int]]) -> Calibration:
    calibration = Calibration()
    for model, estimated, reported in samples:
        calibration = calibration.learn(model, estimated, reported)
    return calibration


def test_an_unknown_model_is_taken_at_its_estimate():
    assert Calibration().factor("m") == 1.0


def test_one_request_moves_the_factor_and_many_bring_it_there():
    assert after([("m", 2 * START, 4 * START)]).factor("m") == pytest.approx(5 / 3)
    assert after([("m", 5_000, 6_000)] * 20).factor("m") == pytest.approx(1.2, rel=0.01)
    assert after([("m", 5_000, 4_000)] * 20).factor("m") == pytest.approx(0.8, rel=0.01)


def test_long_requests_count_more_than_short_ones():
    short, long = after([("m", 500, 1_000)]), after([("m", 5_000, 10_000)])
    assert 1 < short.factor("m") < long.factor("m") < 2


def test_what_was_learned_first_is_forgotten_at_last():
    calibration = after([("m", 20_000, 40_000)] * 50 + [("m", 20_000, 20_000)] * 20)
    assert calibration.factor("m") == pytest.approx(1.0, rel=0.01)


def test_one_odd_report_does_not_undo_what_many_taught():
    assert after([("m", 10_000, 11_000)] * 50 + [("m", 10_000, 99_000)]).factor("m") < 1.4


@pytest.mark.parametrize(
    ("estimated", "reported", "learned"),
    [
        (LEAST - 1, 10_000, False),
        (LEAST, 10_000, True),
        (LEAST + 1, 10_000, True),
        (10_000, LEAST - 1, False),
        (10_000, LEAST, True),
        (0, 0, False),
        (-5_000, 5_000, False),
    ],
)
def test_tiny_requests_teach_nothing(estimated, reported, learned):
    assert (after([("m", estimated, reported)]) != Calibration()) is learned


@given(SAMPLES)
def test_a_factor_stays_within_bounds(samples):
    calibration = after(samples)
    assert all(LOW <= calibration.factor(model) <= HIGH for model in ("one", "two"))


@pytest.mark.parametrize(("reported", "bound"), [(10_000_000, HIGH), (LEAST, LOW)])
def test_the_bounds_are_reached_and_not_passed(reported, bound):
    calibration = after([("m", 100_000, reported)] * 200)
    assert calibration.factor("m") == pytest.approx(bound, abs=0.001)


@given(SAMPLES)
def test_models_do_not_teach_each_other(samples):
    alone = [sample for sample in samples if sample[0] == "one"]
    assert after(samples).factor("one") == after(alone).factor("one")


@given(SAMPLES)
def test_what_is_kept_comes_back(samples):
    assert from_json(after(samples).to_json()) == after(samples)


def test_learning_leaves_the_value_before_it_as_it_was():
    before = Calibration()
    before.learn("m", 5_000, 9_000)
    assert before.factor("m") == 1.0


def test_only_so_many_models_are_kept_those_heard_of_least_recently_go():
    calibration = after([(f"m{number}", 5_000, 9_000) for number in range(MOST_MODELS)])
    calibration = calibration.learn("m0", 5_000, 9_000).learn("new", 5_000, 9_000)
    assert len(calibration.models) == MOST_MODELS
    assert calibration.factor("m1") == 1.0
    assert calibration.factor("m0") > 1.0
    assert from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        "nothing",
        "[]",
        "3",
        "null",
        '{"m": 1.5}',
        '{"m": []}',
        '{"m": [1.5]}',
        '{"m": [1.5, 100, 3]}',
        '{"m": ["1.5", 100]}',
        '{"m": [0.49, 100]}',
        '{"m": [3.01, 100]}',
        '{"m": [NaN, 100]}',
        '{"m": [1.5, -1]}',
        '{"m": [1.5, 0]}',
        '{"m": [1.5, 1e999]}',
        '{"good": [1.5, 100], "m": [null, null]}',
        "[" * 100_000,
        "\ud800",
        orjson.dumps({f"m{n}": [1.5, 100] for n in range(MOST_MODELS + 1)}).decode(),
    ],
)
def test_what_was_not_written_here_teaches_nothing(raw):
    assert from_json(raw) == Calibration()


@given(JSON)
def test_no_json_breaks_it(data):
    calibration = from_json(json.dumps(data))
    assert all(LOW <= each.factor <= HIGH for each in calibration.models.values())


@given(st.text())
def test_no_text_breaks_it(raw):
    from_json(raw)
