"""Many nodes: a question that one of them asked is answered at whichever, and done once."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.pair import pair
from tests.integration.test_approvals import OWNER, Oven, baking, command
from tests.support import until


async def test_an_answer_at_another_node_counts_once(postgres_url: str, tmp_path: Path):
    oven = Oven()
    async with pair(postgres_url, tmp_path, baking(), tools=(oven,), session=OWNER) as nodes:
        await nodes.one.say("bake, please")
        await nodes.answered(2)
        sent = [*nodes.one.channel.sent, *nodes.other.channel.sent]
        asked = next(piece for piece in sent if piece.buttons)
        await nodes.other.say(command(asked))
        await nodes.one.say(command(asked))
        await until(lambda: "So: the oven has 180 degrees" in nodes.sent)
        await nodes.one.say("bye")
        await until(lambda: "Hello." in nodes.sent)
    assert oven.calls == [{"degrees": 180}]
    assert nodes.sent.count("Allowed, once: `oven`.") == 1
