"""What servers of chat completions say of a failure becomes one of our errors."""

from __future__ import annotations

import pytest

from bot.agent.models.connection import Refused
from bot.agent.models.openai_failures import event_error, model_error
from bot.errors import ModelBilling, ModelContextFull, ModelError, ModelOverloaded, ModelRejected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"code": "insufficient_quota", "message": ""}}, ModelBilling),
        ({"error": {"type": "exceed_context_size_error"}}, ModelContextFull),
        ({"code": "context_length_exceeded"}, ModelContextFull),
        ({"error": "the prompt is too long for this model"}, ModelContextFull),
        ("no such thing", ModelRejected),
    ],
)
def test_a_refusal_is_known_by_its_words_however_they_are_written(body, expected):
    assert type(model_error(Refused(400, {}, body))) is expected


def test_a_refusal_names_what_can_be_looked_up():
    refused = Refused(503, {"x-request-id": "req_1"}, {"error": {"code": "server_error"}})
    error = model_error(refused)
    assert type(error) is ModelOverloaded
    assert str(error) == "status 503, server_error, request req_1"


@pytest.mark.parametrize(
    "event", [{}, {"error": None}, {"error": "words"}, {"error": {"code": [5]}}, {"error": [1]}]
)
def test_an_odd_error_event_is_an_error_still(event: dict[str, object]):
    assert isinstance(event_error(event), ModelError)
