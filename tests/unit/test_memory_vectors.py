"""Vectors as bytes: what is packed comes back, and is as like to others as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bot.memory import vectors

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
def test_a_vector_differs_from_its_own_signs_in_none(rows):
    rows = vectors.normalised(rows)
    bits = np.frombuffer(b"".join(vectors.signature(row[None]) for row in rows), np.uint8)
    matrix = bits.reshape(len(rows), -1)
    wanted = vectors.signature(rows[:1])
    found = vectors.nearest(matrix, wanted, len(rows))
    assert found[0][1] == 0
    assert sorted(row for row, _ in found) == list(range(len(rows)))
    assert [distance for _, distance in found] == sorted(distance for _, distance in found)


def test_only_as_many_are_nearest_as_are_wanted():
    matrix = np.arange(100, dtype=np.uint8)[:, None]
    found = vectors.nearest(matrix, bytes([0]), 5)
    assert found[0] == (0, 0)
    assert len(found) == 5
    assert all(distance == 1 for _, distance in found[1:])


def test_vectors_of_another_length_are_never_compared_cut_short():
    packed = b"".join(vectors.pack(vectors.normalised(np.ones((1, 64)))))
    for dims in (48, 63, 100):
        with pytest.raises(ValueError, match="reshape"):
            vectors.cosines(packed, vectors.normalised(np.ones((1, dims))))
        with pytest.raises(ValueError, match="reshape"):
            vectors.unpack(packed, dims)
