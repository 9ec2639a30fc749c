"""Models fail at random, before their first word and after it; `make proof` does it more often.

Whatever happens, each message is answered once, no word is shown twice, and every token that a
service counted is counted here, once.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import cast

from bot.agent.models import Request
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelOverloaded,
    ModelRateLimited,
    ModelTimeout,
    ModelUnreachable,
)
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.fakes.faulty_model import WORDS, Fault, FaultyModel
from tests.proofs.rounds import rounds
from tests.support import running

FAULTS = 100  # `make proof` has ten times as many
KINDS = (
    ModelOverloaded,
    ModelRateLimited,
    ModelTimeout,
    ModelUnreachable,
    ModelBilling,
    ModelAuth,
    ModelBadReply,
)
AGENT = {"model": "one", "fallback": ("two", "anthropic/three")}


async def test_whatever_fails_each_message_is_answered_once(tmp_path: Path):
    chance = random.Random(7)  # noqa: S311 - the same faults every time
    faults = 0

    def decide(_request: Request) -> Fault | None:
        nonlocal faults
        if chance.random() < 0.3:
            return None
        faults += 1
        return chance.choice((0, 0, 0, 1, WORDS - 1)), chance.choice(KINDS)()

    faulty = FaultyModel(decide=decide)
    session = {"reset": {"mode": "none"}}
    model = cast("ScriptedModel", faulty)
    asked = 0
    async with running(tmp_path, model=model, agent=AGENT, session=session) as engine:
        while faults < rounds(FAULTS):
            asked += 1
            await engine.ask(f"message {asked}")
        answers = engine.sent_to("ada")
        assert len(answers) == asked
        shown = Counter(re.findall(r"w\d+x\d+", "\n".join(answers)))
        assert set(faulty.said) <= shown.keys()
        assert max(shown.values()) == 1
        # What was said before a break is shown too, but never beside another model's words.
        for answer in answers:
            assert len({word.partition("x")[0] for word in re.findall(r"w\d+x\d+", answer)}) <= 1
    ((sent, written, turns),) = query(
        tmp_path, "SELECT SUM(input_tokens), SUM(output_tokens), SUM(turns) FROM sessions"
    )
    assert (sent, written) == (faulty.spent.input_tokens, faulty.spent.output_tokens)
    assert turns == asked
