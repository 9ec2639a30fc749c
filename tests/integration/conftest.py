"""What integration tests share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.context import tokens
from tests.support import Engine, running


@pytest.fixture
def believes_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the figure of a fake model stand for a long talk, of which only the end was said.

    That figures are checked is shown in tests/unit/test_turn.py.
    """
    monkeypatch.setattr(tokens, "is_plausible", lambda *_: True)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine as it is without any configuration; what it is to answer may be set at any time."""
    async with running(tmp_path) as found:
        yield found
