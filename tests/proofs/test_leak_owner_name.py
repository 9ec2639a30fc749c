"""What the owner is called is told in the owner's own direct chats, and nowhere else.

It is a canary of every tour (`World.owner_name`); here the tour has to notice when it is told to
others, and when the owner's own prompt does without it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.agent import session_cache
from bot.identity.view import MemoryView
from tests.proofs.canaries import Leak, Setting
from tests.proofs.tour import take_the_tour

pytestmark = pytest.mark.slow

SETTING = Setting(owner=("memory:boss",))


def everybody(_view: MemoryView) -> bool:
    return True


def nobody(_view: MemoryView) -> bool:
    return False


@pytest.mark.proof
async def test_the_owner_alone_is_called_by_name(tmp_path: Path):
    counts = await take_the_tour(tmp_path, SETTING)
    assert counts["owner named"] > 0


@pytest.mark.parametrize(("named", "noticed"), [(everybody, Leak), (nobody, AssertionError)])
async def test_the_tour_notices_who_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: object, noticed: type[Exception]
):
    monkeypatch.setattr(session_cache, "is_owners_own", named)
    with pytest.raises(noticed, match=r"system prompt|is called"):
        await take_the_tour(tmp_path, SETTING)
