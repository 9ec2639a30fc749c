"""What all integration tests share."""

import pytest

from bot.context import tokens


@pytest.fixture(autouse=True)
def _a_figure_stands_for_a_long_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe whatever a fake model reports: it makes a short conversation as full as a long one.

    That figures are checked is shown in tests/unit/test_turn.py.
    """
    monkeypatch.setattr(tokens, "MOST_OFF", 1_000_000)
