from hypothesis import given
from hypothesis import strategies as st

from bot.unicode import one_line, well_formed

ANY = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY)
def test_any_text_becomes_one_that_can_be_stored(text):
    well_formed(text).encode()
    assert well_formed(well_formed(text)) == well_formed(text)


@given(st.text())
def test_text_that_is_well_formed_is_left_alone(text):
    assert well_formed(text) == text


@given(st.text(max_size=10), st.characters(min_codepoint=0x10000), st.text(max_size=10))
def test_the_two_halves_of_a_character_are_joined(before, character, after):
    raw = character.encode("utf-16-le")
    halves = "".join(chr(int.from_bytes(raw[i : i + 2], "little")) for i in (0, 2))
    assert well_formed(before + halves + after) == before + character + after


def test_a_text_in_a_line_says_where_it_was_cut():
    assert one_line(" a\n b\t c ", 5) == "a b c"
    assert one_line("a b c", 4) == "a b …"
    assert one_line("", 0) == ""
