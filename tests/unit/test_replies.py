"""What people see of a reply when the model may choose silence: no token, nor a part of one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.agent.models import Reply, Request, TextDelta
from bot.agent.replies import TOKENS, is_silent, may_become_silent, spoken
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Turn, TurnRequest, TurnResult
from bot.identity.view import MemoryView
from bot.messages import Message, Text
from bot.testing import ScriptedModel, says

WORDS = st.text(max_size=12) | st.sampled_from(
    ["Hello.", "No.", "NO", "no reply", "N", "[", "[s", "- an item", "我没有", "NO_REPLYING", "(x)"]
)
TOKEN = st.sampled_from((*TOKENS, "no_reply", "No_Reply", "[silent]", "**NO_REPLY**", "`NO_REPLY`"))
GAP = st.sampled_from(["", " ", "\n", "\n\n", ": ", " — ", "."])
REPLIES = st.one_of(
    WORDS,
    TOKEN,
    st.tuples(GAP, TOKEN, GAP, WORDS).map("".join),
    st.tuples(TOKEN, GAP, TOKEN, GAP, WORDS).map("".join),
    st.tuples(WORDS, GAP, TOKEN).map("".join),
)


@pytest.mark.parametrize(
    "reply",
    ["NO_REPLY", " no_reply\n", "[SILENT]", "[silent]", "No_Reply", "**NO_REPLY**", "`NO_REPLY`."],
)
def test_the_whole_token_is_silence(reply):
    assert is_silent(reply)


@pytest.mark.parametrize(
    "reply",
    ["", "NO", "I have nothing to add. NO_REPLY", "No", "NO_REPLY_TO", "[silent](https://x)"],
)
def test_a_reply_that_does_not_begin_with_it_is_none_and_stays_as_it_is(reply):
    assert not is_silent(reply)
    assert spoken(reply) == reply


@pytest.mark.parametrize(
    ("reply", "seen"),
    [
        ("NO_REPLY\n\nBut the shop is closed.", "But the shop is closed."),
        ("NO_REPLY: the shop is closed.", "the shop is closed."),
        ("no_reply — closed", "closed"),
        ("**NO_REPLY**\n- an item", "- an item"),
        ("[SILENT] NO_REPLY closed", "closed"),
        ("NO_REPLY我不知道", "我不知道"),
        ("NO_REPLY *closed*", "*closed*"),
    ],
)
def test_a_reply_that_begins_with_it_is_shown_without_it(reply, seen):
    assert spoken(reply) == seen
    assert not is_silent(reply)


@given(st.sampled_from(TOKENS), st.data())
def test_nothing_is_shown_while_it_may_still_be_a_token(token, data):
    length = data.draw(st.integers(0, len(token)))
    assert may_become_silent(token[:length].lower())


@given(REPLIES)
def test_a_reply_is_silent_when_nothing_but_tokens_is_in_it(reply):
    assert is_silent(reply) == bool(reply.strip() and not spoken(reply).strip())
    assert spoken(spoken(reply)) == spoken(reply)


@dataclass
class Pieces(ScriptedModel):
    """A model that streams a reply cut where a test cuts it."""

    pieces: tuple[str, ...] = ()

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        for piece in self.pieces:
            yield TextDelta(piece)
        yield says("".join(self.pieces))


async def run(pieces: tuple[str, ...]) -> tuple[TurnResult, list[str]]:
    drafts: list[str] = []
    view = MemoryView(space="", keys=(), private=False)
    request = TurnRequest(
        model=Pieces(pieces=pieces),
        model_name="pieces",
        system="",
        history=(),
        messages=(Message("user", (Text("hello"),)),),
        context=ToolContext(view, "s", datetime(2026, 11, 21, tzinfo=UTC)),
        language="en",
        max_tokens=100,
        max_steps=1,
        timeout=60,
    )
    result = await Turn(request, Toolbox(()), drafts.append).run()
    return result, drafts


@given(st.data())
@example(None)
async def test_however_a_stream_is_cut_no_draft_and_no_reply_begins_with_a_part_of_a_token(data):
    reply = "NO_REPLY\nI am here." if data is None else data.draw(REPLIES)
    places = st.lists(st.integers(0, len(reply)), max_size=6)
    cuts = range(len(reply) + 1) if data is None else sorted({0, len(reply), *data.draw(places)})
    result, drafts = await run(tuple(reply[a:b] for a, b in pairwise(cuts)))
    assert result.error is None
    assert result.silent == is_silent(reply)
    assert not (is_silent(reply) and (drafts or result.reply))
    for draft in drafts:
        assert spoken(reply).strip().startswith(draft)  # it only grows, and loses nothing
        assert not may_become_silent(draft)
    assert result.reply == spoken(reply).strip()
    assert spoken(result.reply) == result.reply
