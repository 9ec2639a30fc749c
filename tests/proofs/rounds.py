"""How long the proofs run: briefly in `make test`, longer in `make proof`, as PROOF_TIMES says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")


def rounds(usual: int, few: int | None = None) -> int:
    """As many times `usual` as PROOF_TIMES says; where it says nothing, `few`, or `usual`."""
    times = os.environ.get("PROOF_TIMES")
    if not times:
        return usual if few is None else few
    return usual * int(times)


def lengths(
    name: str, brief: int | None, usual: int, few: int | None = None
) -> pytest.MarkDecorator:
    """Runs a test with `brief` as its argument, and as a long proof with `rounds(usual, few)`.

    Without `brief` it is a long proof only: another test of the same mechanism is brief.
    """
    proof = pytest.param(rounds(usual, few), marks=pytest.mark.proof, id="proof")
    briefly = [] if brief is None else [pytest.param(brief, id="brief")]
    return pytest.mark.parametrize(name, [*briefly, proof])


def long(*values: object) -> ParameterSet:
    """One set of arguments of a test, as a long proof."""
    return pytest.param(*values, marks=pytest.mark.proof)


def sample(brief: Iterable[T], others: Iterable[T]) -> list[ParameterSet]:
    """One argument of a test: those of `brief`, and `others` as long proofs."""
    return [*map(pytest.param, brief), *map(long, others)]
