"""A `.env` that is changed: one line at a time, and never a line that nobody wrote."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import ConfigError
from bot.settings import dotenv

FILE = "# first\nA=1\nexport B='two' # why\n\nC=\"x\\ny\"\nA=3\nlast=end"


def test_a_value_takes_its_lines_place_and_all_others_stay():
    assert dotenv.edited(FILE, {"B": "new"}) == FILE.replace("export B='two' # why", "B=new")
    once = FILE.replace("A=1", "A=9").replace("A=3\n", "")
    assert dotenv.edited(FILE, {"A": "9"}) == once
    assert dotenv.edited(FILE, {"D": "4"}) == f"{FILE}\nD=4\n"
    assert dotenv.edited("", {"D": None}) == ""
    assert dotenv.values(dotenv.edited(FILE, {"A": None, "C": None})) == {"B": "two", "last": "end"}


def test_other_names_of_the_same_thing_go():
    text = "PLAIN=1\nX=2\n"
    meaning = {"PLAIN": "thing", "LONG__NAME": "thing"}.get
    assert dotenv.edited(text, {"LONG__NAME": "3"}, meaning) == "LONG__NAME=3\nX=2\n"
    assert dotenv.edited(text, {"LONG__NAME": None}, meaning) == "X=2\n"


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_is_set_is_read_back_or_refused_and_adds_nothing(first: str, second: str):
    text = FILE
    for name, value in (("A", first), ("NEW", second)):
        try:
            changed = dotenv.edited(text, {name: value})
        except ValueError:
            continue
        expected = {**dotenv.values(text), name: value}
        assert dotenv.values(changed) == expected
        text = changed
    assert {"B": "two", "last": "end"}.items() <= dotenv.values(text).items()


@pytest.mark.parametrize("value", ["a\nB=1", "a\rB=1", "a\0", "a\x1b[0m", "a\u2028b", "k" * 5_000])
def test_what_is_no_line_of_text_is_refused(value: str):
    with pytest.raises(ValueError, match=r"one line|too long"):
        dotenv.edited(FILE, {"A": value})


def test_a_file_with_a_quote_left_open_is_not_made_worse():
    with pytest.raises(ValueError, match="NAME=value"):
        dotenv.edited("A='open\nB=1\n", {"C": "it's"})


def test_a_file_is_private_whole_and_a_link_stays_one(tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / ".env"
    real.write_text("A=1\n")
    real.chmod(0o644)
    link.symlink_to(real)
    dotenv.write(link, "A=2\n")
    assert (link.is_symlink(), real.read_text()) == (True, "A=2\n")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == [".env", "real"]
    with pytest.raises(ConfigError, match="cannot be written"):
        dotenv.write(tmp_path / "real" / "below" / ".env", "A=secret\n")
