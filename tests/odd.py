"""Odd input: any JSON, and what a platform sends with parts of it lost, moved or made odd."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

WORDS = st.text(max_size=8)
EXACT = st.integers(-(2**53), 2**53)  # numbers that come back as they were


def json_of(
    scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[str] = WORDS, leaves: int = 12
) -> st.SearchStrategy[Any]:
    """Any JSON made of these scalars, null, true and false, with these keys."""
    return st.recursive(
        st.none() | st.booleans() | scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=leaves,
    )


JSON = json_of(st.integers() | st.floats() | WORDS)
EXACT_JSON = json_of(EXACT | WORDS)

ODD = [
    *(None, True, False, 0, -1, 1 << 70, 10**400, 1.5, float("nan"), float("inf"), "", "x", "\0"),
    *("0", "5", "\ud83d", "\u202e", "👩‍👩‍👧", "x" * 20_000, [], {}, [None], [[[]]], [{}] * 300),
    *([None, 1, "x", {}], {"id": 5}, {"id": "7"}, {"id": -5, "type": "channel"}, {"type": 1}),
    *("/new@other_bot", "@confidant_bot", "private", 4_000_000, {"message": {"content": 5}}),
    *("<@100>" * 300, "<t:1:R>" * 300, "2026-99-99", "0001-01-01T00:00:00+23:59"),
]


def _places(value: Any, found: list[Any]) -> list[Any]:
    """Every mapping and list inside a value."""
    if isinstance(value, dict | list):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            _places(inner, found)
    return found


def mutated(seeds: Sequence[dict[str, Any]], chance: random.Random) -> dict[str, Any]:
    """A copy of one of these with up to eight of its parts lost, moved or made odd."""
    made = copy.deepcopy(chance.choice(seeds))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5, 8))):
        where = chance.choice(_places(made, []))
        if isinstance(where, list):
            where.append(copy.deepcopy(chance.choice(ODD)))
        elif where:
            key = chance.choice(list(where))
            match chance.randrange(4):
                case 0:
                    del where[key]
                case 1:  # something from elsewhere
                    donor = chance.choice(_places(chance.choice(seeds), []))
                    items = list(donor.values()) if isinstance(donor, dict) else donor
                    where[key] = copy.deepcopy(chance.choice(items or [None]))
                case _:
                    where[key] = copy.deepcopy(chance.choice(ODD))
    return made
