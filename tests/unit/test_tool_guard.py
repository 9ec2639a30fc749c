"""What a long tool result becomes, and who can read all of it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import (
    HEAD_SHARE,
    MAX_CHARACTERS,
    TAIL_SHARE,
    ArtifactGet,
    Toolbox,
    fitted,
    limit_of,
    shortened,
)
from bot.context import tokens
from bot.errors import NotVisible, StorageFull, ToolError
from bot.identity.view import MemoryView
from bot.messages import ToolUse
from bot.sessions import artifacts, store
from bot.sessions.artifacts import ArtifactStore
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork
from tests.support import beside

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def view(*keys: str) -> MemoryView:
    return MemoryView("people/ada", keys, private=True, people=("ada",))


def context(session: str, *keys: str, window: int = 32_000) -> ToolContext:
    return ToolContext(view(*keys), session, NOW, window=window)


class Kept:
    """Keeps texts in memory; `fails` is a full disk."""

    def __init__(self, *, fails: bool = False) -> None:
        self.texts: dict[str, str] = {}
        self._fails = fails

    async def keep(self, session_id: str, tool: str, text: str) -> str:
        if self._fails:
            raise StorageFull
        id_ = f"a-{len(self.texts):012x}"
        self.texts[id_] = text
        return id_


# --- the limit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "limit"),
    [
        (1_000, 2_000),  # never less …
        (1_666, 2_000),
        (1_700, 2_040),
        (16_000, 19_200),
        (32_000, 38_400),
        (120_000, 144_000),
        (200_000, 240_000),
        (333_333, 399_999),
        (333_334, 400_000),
        (1_000_000, 400_000),  # … and never more
    ],
)
async def test_a_result_of_just_the_limit_stays_and_one_more_character_is_cut(window, limit):
    kept = Kept()
    here = context("s", window=window)
    fits = "x" * limit
    assert limit_of(fits, window) == limit
    assert await fitted(fits, "tool", here, kept) == (fits, "")
    assert kept.texts == {}
    longer = f"{fits}y"
    cut, id_ = await fitted(longer, "tool", here, kept)
    assert len(cut) < limit
    assert id_ == "a-000000000000"
    assert kept.texts == {"a-000000000000": longer}


@pytest.mark.parametrize("window", [16_000, 32_000, 200_000, 1_000_000])
async def test_a_chinese_result_takes_no_more_of_the_window(window: int):
    text = "海边的风景很好，" * 100_000
    cut, _ = await fitted(text, "tool", context("s", window=window), Kept())
    assert 0.2 * window < tokens.estimate(cut) <= 0.31 * window or len(cut) <= 400_000
    assert tokens.estimate(cut) <= 0.31 * window


@pytest.mark.parametrize("window", [1_000, 4_000, 32_000, 200_000])
def test_of_a_script_with_more_tokens_to_the_character_fewer_stay(window: int):
    text = "海" * 50_000
    weight = tokens.estimate(text) / len(text)
    assert weight > 0.5
    wanted = max(1_000, int(window * 0.3 / weight))
    assert limit_of(text, window) == wanted < limit_of("x" * 50_000, window)
    assert isinstance(limit_of(text, window), int)
    assert limit_of("海" * 2_000, window) == limit_of("x" * 2_000, window)


@given(st.text(), st.integers(1_000, 2_000_000))
def test_what_is_short_is_never_cut(text: str, window: int):
    assert len(text) <= limit_of(text, window)


@given(st.text(min_size=100), st.integers(50, 99), st.integers(1, 40))
def test_head_and_tail_stay_and_the_note_says_where_to_read_on(text: str, limit: int, times: int):
    text *= times
    cut = shortened(text, limit, "a-0123456789ab")
    head, tail = cut[: int(limit * HEAD_SHARE)], text[-1:]
    assert text.startswith(head)
    assert cut.endswith(tail)
    left_out = len(text) - int(limit * HEAD_SHARE) - int(limit * TAIL_SHARE)
    assert f"{left_out} of {len(text)} characters" in cut
    assert f'artifact_get {{"id": "a-0123456789ab", "from": {len(head)}}}' in cut


# --- what goes wrong -----------------------------------------------------------------------------


class Says:
    """A tool that answers so."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    @property
    def spec(self) -> Any:
        from bot.agent.models import ToolSpec

        return ToolSpec("says", "", {"type": "object"}, built_in=True)

    async def run(self, arguments: Any, context: ToolContext) -> str:
        return self._answer


async def test_a_full_disk_is_an_error_and_not_half_a_result():
    toolbox = Toolbox([Says("x" * 50_000)], artifacts=Kept(fails=True))
    answer = await toolbox.run(ToolUse("t", "says", {}), context("s"))
    assert (answer.text, answer.is_error) == ("Error: the tool failed.", True)


# --- reading on ----------------------------------------------------------------------------------


ADA, BOB = "agent:main:web:dm:ada", "agent:main:web:dm:bob"


@pytest.fixture
async def database(tmp_path: Path):
    async with beside(tmp_path) as opened:
        yield opened


async def session_of(database: SqliteDatabase, key: str, *, by: Any = "first") -> str:
    place = store.Place(key, "", "web", "default", "x", "", "direct")
    if by == "new":
        return (
            await database.write(
                lambda tx: store.start(tx, place, 2, by=by, previous=None, model="")
            )
        )[0].id
    return (await database.write(lambda tx: UnitOfWork(tx, 1).current(place)))[0].id


async def read(tool: ArtifactGet, context_: ToolContext, id_: object, **more: object) -> str:
    return await tool.run({"id": id_, **more}, context_)


async def test_all_of_a_result_can_be_read_in_parts(database: SqliteDatabase):
    kept, session = ArtifactStore(database, lambda: 1), await session_of(database, ADA)
    text = "".join(f"line {number} of the harbour, 海边\n" for number in range(4_000))
    here = context(session, ADA)
    toolbox = Toolbox([Says(text)], artifacts=kept)
    id_ = (await toolbox.run(ToolUse("t", "says", {}), here)).kept
    tool, found = ArtifactGet(kept), ""
    while True:
        part = await read(tool, here, id_, **{"from": len(found)})
        words, _, note = part.rpartition("\n[")
        if "more from character" not in note:
            found += part
            break
        found += words
        assert note == f"{len(text) - len(found)} more from character {len(found)}]"
        assert len(words) <= min(MAX_CHARACTERS, 32_000 // 8)
    assert found == text


async def test_only_the_persons_own_conversations_read_it(database: SqliteDatabase):
    kept = ArtifactStore(database, lambda: 1)
    first, other = await session_of(database, ADA), await session_of(database, BOB)
    later = await session_of(database, ADA, by="new")
    id_ = await kept.keep(first, "tool", "Ada's own words")
    tool = ArtifactGet(kept)
    for session in (first, later):
        assert await read(tool, context(session, ADA), id_) == "Ada's own words"
    for stranger in (context(other, BOB), context(other), context("", "")):
        with pytest.raises(NotVisible):
            await read(tool, stranger, id_)


@pytest.mark.parametrize(
    "id_",
    [
        *("a-", "a-%", "%", "' OR 1=1 --", "../../etc/passwd", "A-0123456789AB", "a-\x00", "😀"),
        "\ud800",
    ],
)
async def test_a_made_up_id_shows_nothing(database: SqliteDatabase, id_: str):
    kept, session = ArtifactStore(database, lambda: 1), await session_of(database, ADA)
    await kept.keep(session, "tool", "words")
    answer = await Toolbox([ArtifactGet(kept)]).run(
        ToolUse("t", "artifact_get", {"id": id_}), context(session, ADA)
    )
    assert answer.is_error
    assert "words" not in answer.text


@pytest.mark.parametrize(
    "arguments",
    [{}, {"id": ""}, {"id": 5}, {"id": "a" * 101}, {"id": "x", "path": "y"}, {"id": ["a"]}],
)
async def test_wrong_arguments_are_told(database: SqliteDatabase, arguments: dict[str, Any]):
    with pytest.raises(ToolError):
        await ArtifactGet(ArtifactStore(database, lambda: 1)).run(arguments, context("s"))


@pytest.mark.parametrize("start", [-1, 5, 10**30, "0", 1.5, True])
async def test_a_place_beyond_the_text_is_told(database: SqliteDatabase, start: object):
    kept, session = ArtifactStore(database, lambda: 1), await session_of(database, ADA)
    id_ = await kept.keep(session, "tool", "words")
    with pytest.raises(ToolError):
        await read(ArtifactGet(kept), context(session, ADA), id_, **{"from": start})
    assert await read(ArtifactGet(kept), context(session, ADA), id_, **{"from": 4}) == "s"


@pytest.mark.parametrize("text", ["half a pair \ud83d", "nothing \x00 at all", "\ud83d\ude00"])
async def test_whatever_a_tool_says_can_be_kept(database: SqliteDatabase, text: str):
    kept, session = ArtifactStore(database, lambda: 1), await session_of(database, ADA)
    id_ = await kept.keep(session, "tool", text)
    shown = await read(ArtifactGet(kept), context(session, ADA), id_)
    assert shown.encode()
    assert shown[:4] == text[:4] or shown == "😀"


# --- forgetting ----------------------------------------------------------------------------------


async def test_what_is_forgotten_is_removed_where_it_is_the_persons_own(database: SqliteDatabase):
    kept = ArtifactStore(database, lambda: 1)
    mine, theirs = await session_of(database, ADA), await session_of(database, BOB)
    quoted = await kept.keep(mine, "tool", "so she said:\n> The Code is\n> XYZZY  42, she said")
    other = await kept.keep(mine, "tool", "the boats")
    bobs = await kept.keep(theirs, "tool", "the code is xyzzy 42")
    picture = await kept.keep(mine, artifacts.PICTURE, "the code is xyzzy 42")
    words = "code is xyzzy 42"
    held = await database.read(lambda tx: artifacts.among(tx, artifacts.ids_of(tx, [ADA]), words))
    assert held == [quoted]
    assert await database.write(lambda tx: artifacts.drop(tx, [ADA], words)) == 1
    left = await database.read(lambda tx: tx.execute("SELECT id FROM artifacts"))
    assert {row[0] for row in left} == {other, bobs, picture}
    for keys, what in (([ADA], ""), ([ADA], "  "), ([], "boats"), ([ADA], "%")):
        assert (
            await database.write(lambda tx, keys=keys, what=what: artifacts.drop(tx, keys, what))
            == 0
        )
