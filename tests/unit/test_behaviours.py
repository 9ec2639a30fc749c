"""The list of what a user can see or do names tests that exist."""

import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEHAVIOURS = tomllib.loads((ROOT / "tests/behaviours.toml").read_text("utf-8"))["behaviour"]
LEAST = 150


@cache
def functions_in(name: str) -> frozenset[str]:
    path = ROOT / name
    text = path.read_text("utf-8") if path.is_file() else ""
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def test_every_behaviour_is_one_sentence_of_its_own():
    sentences = [each["says"] for each in BEHAVIOURS]
    assert len(sentences) >= LEAST
    assert len(sentences) == len({sentence.casefold() for sentence in sentences})
    assert [s for s in sentences if not s.endswith(".") or s != s.strip() or "\n" in s] == []


def test_every_test_that_shows_a_behaviour_exists():
    assert [each["says"] for each in BEHAVIOURS if not each["tests"]] == []
    named = {name for each in BEHAVIOURS for name in each["tests"]}
    gone = [
        name for name in named if name.partition("::")[2] not in functions_in(name.split("::")[0])
    ]
    assert sorted(gone) == []
