"""What integration tests share."""

import pytest

from bot.context import tokens


@pytest.fixture
def believes_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the figure of a fake model stand for a long talk, of which only the end was said.

    That figures are checked is shown in tests/unit/test_turn.py.
    """
    monkeypatch.setattr(tokens, "is_plausible", lambda *_: True)
