"""Every exception of OpenAI's SDK and its transport becomes one of ours."""

from __future__ import annotations

import inspect
from typing import Any

import httpx2
import openai
import pytest

from bot.agent.models.openai_failures import event_error, model_error
from bot.errors import ModelError, ModelRejected, ModelTimeout, ModelUnreachable
from tests.integration.test_anthropic_errors import all_subclasses

SECRET = "sk-not-to-be-shown"
REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1", headers={"Authorization": SECRET})
# These can come out of a call. Others belong to parts of the SDK that are not used here
# (websockets, credentials from files), and are an unexpected `ModelError`.
TOLD = (
    openai.APIError,
    openai.LengthFinishReasonError,
    openai.ContentFilterFinishReasonError,
)


def sdk_errors() -> list[type[Exception]]:
    roots = (openai.OpenAIError, openai.InvalidWebhookSignatureError)
    found = {cls for root in roots for cls in all_subclasses(root)}
    return sorted((cls for cls in found if cls.__module__.startswith("openai")), key=str)


def make(cls: type[Any]) -> Exception:
    status = getattr(cls, "status_code", 500)
    response = httpx2.Response(
        status if isinstance(status, int) else 500, request=REQUEST, json={"error": SECRET}
    )
    made: dict[type[Exception], Any] = {
        openai.OAuthError: lambda: cls(response=response, body={"error": SECRET}),
        openai.APITimeoutError: lambda: cls(REQUEST),
        openai.APIConnectionError: lambda: cls(message=SECRET, request=REQUEST),
        openai.APIError: lambda: cls(SECRET, REQUEST, body=SECRET),
    }
    if cls in made:
        return made[cls]()
    if issubclass(cls, openai.APIStatusError):
        return cls(SECRET, response=response, body={"message": SECRET})
    if issubclass(cls, openai.APIResponseValidationError):
        return cls(response, body=SECRET, message=SECRET)
    error = cls.__new__(cls, SECRET)
    Exception.__init__(error, SECRET)
    return error


@pytest.mark.parametrize("cls", sdk_errors(), ids=lambda cls: cls.__name__)
def test_every_sdk_error_is_one_of_ours(cls: type[Exception]):
    mapped = model_error(make(cls))
    assert isinstance(mapped, ModelError)
    assert SECRET not in str(mapped)
    if issubclass(cls, TOLD):
        assert type(mapped) is not ModelError


def test_the_walk_sees_every_public_exception_of_the_sdk():
    public = {
        value
        for _, value in inspect.getmembers(openai, inspect.isclass)
        if issubclass(value, Exception) and value.__module__.startswith("openai")
    }
    assert public <= set(sdk_errors())
    assert len(public) > 15


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ReadTimeout(SECRET), ModelTimeout),
        (httpx2.ConnectError(SECRET), ModelUnreachable),
        (ConnectionResetError(SECRET), ModelUnreachable),
        (RuntimeError(SECRET), ModelError),
    ],
)
def test_the_transports_errors_are_told_as_for_any_service(
    error: Exception, kind: type[ModelError]
):
    mapped = model_error(error)
    assert type(mapped) is kind
    assert SECRET not in str(mapped)


def test_ours_stay_as_they_are():
    error = ModelRejected("there is nothing to answer")
    assert model_error(error) is error


@pytest.mark.parametrize(
    "event", [{}, {"error": None}, {"error": "words"}, {"error": {"code": [5]}}, {"error": [1]}]
)
def test_an_odd_error_event_is_an_error_still(event: dict[str, object]):
    assert isinstance(event_error(event), ModelError)
