"""Vectors as bytes: what is packed comes back, and is as like to others as it was."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bot.memory import vectors

MOST = 1_000
ROWS = st.tuples(st.integers(1, 6), st.integers(1, 70)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-1, 1, width=16))
)


@given(ROWS)
def test_what_was_packed_comes_back_within_a_hundredth(rows):
    rows = vectors.normalised(rows)
    packed = vectors.pack(rows)
    assert [len(each) for each in packed] == [rows.shape[1]] * len(rows)
    back = vectors.unpack(b"".join(packed), rows.shape[1])
    assert back.shape == rows.shape
    for row, again in zip(rows, back, strict=True):
        if row.any():
            assert np.linalg.norm(again) == pytest.approx(1, abs=1e-4)
            assert float(row @ again) > 0.99
        else:
            assert not again.any()


@given(ROWS)
def test_packing_again_changes_nothing(rows):
    packed = vectors.pack(vectors.normalised(rows))
    back = vectors.unpack(b"".join(packed), rows.shape[1])
    assert vectors.pack(back) == packed


@given(ROWS)
def test_cosines_of_packed_rows_are_those_of_the_rows(rows):
    rows = vectors.normalised(rows)
    wanted = rows[:1]
    found = vectors.cosines(b"".join(vectors.pack(rows)), wanted)
    # Each dimension is off by half a step at most, so a row by that times the root of their number.
    most = 0.5 / 127 * math.sqrt(rows.shape[1]) * 1.05 + 1e-4
    assert found == pytest.approx(rows @ wanted[0], abs=most)
    assert (np.abs(found) <= 1.001).all()


@given(ROWS)
def test_products_are_what_matrices_give(rows):
    assert vectors.products(rows, rows) == pytest.approx(rows @ rows.T, abs=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_numbers_is_zeros_and_spoils_no_other(bad):
    rows = vectors.normalised(np.array([[bad, 1.0], [3.0, 4.0], [0.0, 0.0]]))
    assert rows.tolist() == [[0.0, 0.0], pytest.approx([0.6, 0.8]), [0.0, 0.0]]


@given(ROWS)
def test_every_row_is_found_by_its_signs_and_a_row_itself_first(values):
    rows = vectors.normalised(values)
    known = vectors.columns(vectors.signs(rows), rows.shape[1])
    assert known.shape == (-(-rows.shape[1] // 64), len(rows))
    found = vectors.nearest(known, rows[:1], MOST)
    assert sorted(found.tolist()) == list(range(len(rows)))
    there = (rows > 0).astype(np.float32) @ rows[0]
    assert there[found[0]] >= there.max() - 1e-5


def test_the_nearest_of_many_rows_are_found_by_their_signs():
    chance = np.random.default_rng(1)
    rows = vectors.normalised(chance.normal(size=(3 * MOST, 256)))
    known = vectors.columns(vectors.signs(rows), 256)
    for row in (0, 17, len(rows) - 1):
        near = vectors.normalised(rows[row : row + 1] + chance.normal(size=256) / 30)
        found = vectors.nearest(known, near, MOST)
        assert len(found) == MOST
        assert found[0] == row


@pytest.mark.parametrize("block", [1, 7, 1_000, 100_000])
def test_rows_are_found_the_same_however_many_are_compared_at_once(block, monkeypatch):
    chance = np.random.default_rng(3)
    rows = chance.standard_normal((1_500, 70)).astype(np.float32)
    known = vectors.columns(vectors.signs(rows), 70)
    whole = vectors.nearest(known, rows[:1], MOST)
    different = ((rows > 0) != (rows[0] > 0)).sum(axis=1)
    assert sorted(different[whole]) == sorted(different)[:MOST]
    monkeypatch.setattr(vectors, "BLOCK", block)
    assert vectors.nearest(known, rows[:1], MOST).tolist() == whole.tolist()


def test_vectors_of_another_length_are_never_compared_cut_short():
    packed = b"".join(vectors.pack(vectors.normalised(np.ones((1, 64)))))
    for dims in (48, 63, 100):
        with pytest.raises(ValueError, match="reshape"):
            vectors.cosines(packed, vectors.normalised(np.ones((1, dims))))
        with pytest.raises(ValueError, match="reshape"):
            vectors.unpack(packed, dims)


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "threads"), [("", 1), ("2", 2)])
def test_numpy_takes_no_thread_of_its_own_unless_it_is_told_to(chosen: str, threads: int):
    code = """
import os, sys
import bot.app, bot.testing
import bot.memory.embed.multilingual
import numpy as np
many = np.ones((600, 600), np.float32)
many @ many
print(len(os.listdir("/proc/self/task")))
"""
    if not Path("/proc/self/task").exists() or (os.cpu_count() or 1) < threads:
        pytest.skip("threads cannot be counted here, or there are too few")
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if chosen:
        env["OPENBLAS_NUM_THREADS"] = chosen
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(threads)]
