import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.replies import confirmation, without_confirmations
from bot.memory.notes import Place


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("✓ Stored.", "Stored."),
        ("  ✅ Stored. ✓", "Stored."),
        ("✔️✔️ 记住了 ✔️", "记住了"),
        ("I ✓ it", "I ✓ it"),
        ("Ok ✓\nmore", "Ok\nmore"),
        ("✓ milk\n✓ eggs", "✓ milk\n✓ eggs"),
        ("✓ milk\n✓ noted: eggs", "✓ milk\nnoted: eggs"),
        ("✓", ""),
        ("", ""),
        ("I'll remember", "I'll remember"),
    ],
)
def test_only_lists_keep_their_ticks(said: str, told: str):
    assert without_confirmations(said) == told


@given(st.text(alphabet="✓✅ a\n记."))
def test_nothing_but_ticks_is_taken_away(said: str):
    told = without_confirmations(said)
    bare = str.maketrans("", "", "✓✅ \n")
    assert told.translate(bare) == said.translate(bare)


def test_a_confirmation_names_each_place_once():
    places = [Place("memory/a.md", 3), Place("MEMORY.md", 5), Place("memory/a.md", 3)]
    assert confirmation("en", places) == "✓ Stored in memory/a.md:3, MEMORY.md:5"
    assert confirmation("zh", places[:1]) == "✓ 已存入 memory/a.md:3"
    assert confirmation("en", []) == ""
