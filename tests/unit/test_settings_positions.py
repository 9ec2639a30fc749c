"""Lines of keys in TOML. In these documents every number is the line its key stands on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.settings.tomlfile import positions

LAYOUTS = {
    "plain": """a = 1
b = 2  # a = 9
[t]
c = 4
""",
    "dotted and quoted keys": """a.b.c = 1
a . d = 2
"a"."e f" = 3
'a'.'g.h' = 4
"\\u0061".i = 5
[ "t" . u ]
"x = 9" = 7
"" = 8
""",
    "dotted headers": """[a.b.c]
k = 2
[a]
k = 4
[a.b]
k = 6
""",
    "inline tables": """a = { b = 1, c = { d = 1, "e,}" = 1 }, f = [ { g = 1 } ] }
[t]
x = { y.z = 3, w = 3 }
""",
    "arrays over lines": """a = [
  2, # ] 9
  3, 3,

  [ 5,
    6 ],
  { b = 7 }, { b = 7, c = [
    8 ] }
]
b = 10
""",
    "arrays of tables": """[[r]]
k = 2
[[r]]
[r.s]
k = 5
[[r.q]]
k = 7
[[r.q]]
k = 9
[[r]]
[[r.q]]
k = 12
[r.q.z]
k = 14
""",
    "strings that look like more": '''s = """
a = 9
[x] \\""" ""
"""
a = 5
t = \'\'\'
b = 9\'\'
\'\'\'
b = 9
u = """x"""""
v = ""
w = \'\'
c = 13
d = "# no comment" # a comment with "quotes
e = 15
f = """\\
  \\\\"""
g = 18
h = "\\\\"
i = 20
j = ["a]", 'b"', """
c"""]
k = 23
''',
    "values of every kind": """a = true
b = 2
c = 1979-05-27T07:32:00Z
d = -1_000.5e-3
e = 07:32:00
f = 6
g = inf
h = 8""",
    "blank lines": """

a = 3

[ t ] # here

  b = 7
\tc = 8
""",
}  # fmt: skip


def leaves(value: object, key: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*key, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*key, index))
    else:
        yield key, value


def check(text: str) -> None:
    found = positions(text)
    for key, value in leaves(tomllib.loads(text)):
        assert key in found, key
        if type(value) is int:
            assert found[key] == value, key


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_hard_layouts(name, end):
    check(LAYOUTS[name].replace("\n", end))


def test_tables_and_arrays_have_lines_of_their_own():
    found = positions("a.b = 1\n[c.d]\n\n[[e]]\n[[e]]\nx = [\n1]\n")
    assert found == {
        ("a",): 1,
        ("a", "b"): 1,
        ("c",): 2,
        ("c", "d"): 2,
        ("e",): 4,
        ("e", 0): 4,
        ("e", 1): 5,
        ("e", 1, "x"): 6,
        ("e", 1, "x", 0): 7,
    }


def test_nesting_beyond_the_stack_gives_no_lines_rather_than_an_error():
    assert positions("a = " + "[" * 100_000 + "]" * 100_000) == {}


# --- documents made at random: each `@` becomes the line it stands on -----------------------------

NAMES = st.sampled_from(["a", "b", "c", '"d e"', "'f.g'", '"h\\"i"', "-", "1"])
STRINGS = st.sampled_from(
    ['"x"', "'y'", '""', '"""\n[z]\n"""', "'''\nq = 1'''", '"a # b"', '"""\\""""', "'''''x'''"]
)


def values() -> st.SearchStrategy[str]:
    scalars = st.one_of(st.just("@"), st.just("@"), STRINGS, st.just("true"), st.just("1.5"))
    return st.recursive(
        scalars, lambda inner: st.one_of(arrays(inner), inline(inner)), max_leaves=6
    )


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    comma = st.sampled_from([",", " ,\n", ", # , ]\n", "\n,\n\n"])
    return st.builds(
        lambda items, comma, end: f"[{comma.join(items)}{end}]",
        st.lists(inner, max_size=3),
        comma,
        st.sampled_from(["", "\n", " # ]\n"]),
    )


def inline(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # An `@` in a value that follows a line break would not be on its key's line: one level only.
    flat = inner.filter(lambda text: "\n" not in text)
    pairs = st.dictionaries(NAMES, flat, max_size=3)
    return pairs.map(lambda each: "{" + ", ".join(f"{k} = {v}" for k, v in each.items()) + "}")


@st.composite
def documents(draw: st.DrawFn) -> str:
    blocks = [_pairs(draw)]
    for number in range(draw(st.integers(0, 4))):
        parent = draw(NAMES)
        header = draw(
            st.sampled_from([f"[t{number}.{parent}]", f"[ u.t{number} ]", "[[l]]", "[[l]] # x"])
        )
        blocks.append(f"{header}\n{_pairs(draw)}")
        if header.startswith("[[") and draw(st.booleans()):
            blocks.append(f"[l.m]\n{_pairs(draw)}")
    text = "\n".join(blocks)
    lines = [line.replace("@", str(number)) for number, line in enumerate(text.split("\n"), 1)]
    return "\n".join(lines)


def _pairs(draw: st.DrawFn) -> str:
    pairs = draw(st.dictionaries(NAMES, values(), max_size=4))
    gap = draw(st.sampled_from([" = ", "=", "\t=  "]))
    return "\n".join(f"{name}{gap}{value}" for name, value in pairs.items())


@given(documents())
def test_documents_made_at_random(text):
    check(text)
