"""Requests of chat completions, for any conversation."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Request
from bot.agent.models.openai_wire import REASONING, THOUGHT, Dialect, body_of, messages_of
from bot.context.folding import Folding
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse

texts = st.text(max_size=20)
blocks = st.one_of(
    st.builds(Text, texts, st.booleans()),
    st.builds(ToolUse, texts, texts, st.dictionaries(texts, texts, max_size=2)),
    st.builds(ToolResult, texts, texts, st.booleans()),
    texts.map(lambda text: Opaque({"type": THOUGHT, "field": REASONING[0], "text": text})),
)
messages = st.builds(
    Message, st.sampled_from(["user", "assistant"]), st.lists(blocks, max_size=4).map(tuple)
)


@given(st.lists(messages, max_size=8).map(tuple), st.lists(st.integers(0, 8), max_size=4))
def test_a_conversation_that_goes_on_is_sent_as_if_it_were_converted_anew(
    history: tuple[Message, ...], turns: list[int]
):
    folding = Folding()
    for begins in sorted(turns):
        if not (alone := messages_of(history, begins)):
            continue
        request = Request("m", "s", history, begins=begins, folding=folding)
        sent = orjson.loads(body_of(request, 9, Dialect()))["messages"]
        assert sent == [{"role": "system", "content": "s"}, *alone]
