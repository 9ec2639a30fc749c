"""Every exception the SDK and its transport can raise becomes one of ours."""

from __future__ import annotations

import inspect

import aiohttp
import anthropic
import httpx2
import pytest
from anthropic import _error_classes  # pyright: ignore[reportPrivateUsage]

from bot.agent.models.anthropic_failures import event_error, model_error
from bot.errors import (
    ModelAuth,
    ModelBilling,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelTooLarge,
    ModelUnreachable,
)

SECRET = "sk-ant-not-to-be-shown"
REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/messages", headers={"X-Api-Key": SECRET})
# These can come out of a call. Others belong to parts of the SDK that are not used here (toolsets,
# webhooks, credentials from files), and are an unexpected `ModelError`.
TOLD = (anthropic.APIError, anthropic.RetryableError, anthropic.CredentialsError)


def all_subclasses(cls: type) -> set[type]:
    below = {sub for direct in cls.__subclasses__() for sub in all_subclasses(direct)}
    return {cls, *below}


def sdk_errors() -> list[type[anthropic.AnthropicError]]:
    assert _error_classes.ERROR_CLASSES  # importing it defines the classes of every code
    found = all_subclasses(anthropic.AnthropicError)
    return sorted((c for c in found if c.__module__.startswith("anthropic")), key=str)


def make(cls: type[anthropic.AnthropicError]) -> anthropic.AnthropicError:
    codes = [key for key, value in _error_classes.ERROR_CLASSES.items() if value is cls]
    if issubclass(cls, anthropic.APIStatusError):
        status, code = codes[0] if codes else (getattr(cls, "status_code", 500), None)
        error = {"type": "", "message": SECRET, "details": {"error_code": code}}
        response = httpx2.Response(status, request=REQUEST, json={"error": error})
        return cls(SECRET, response=response, body={"error": error})
    if issubclass(cls, anthropic.APIResponseValidationError):
        return cls(httpx2.Response(200, request=REQUEST), body=SECRET, message=SECRET)
    if issubclass(cls, anthropic.APITimeoutError):
        return cls(REQUEST)
    if issubclass(cls, anthropic.APIConnectionError):
        return cls(message=SECRET, request=REQUEST)
    if issubclass(cls, anthropic.APIError):
        return cls(SECRET, REQUEST, body=SECRET)
    error = cls.__new__(cls, SECRET)
    Exception.__init__(error, SECRET)
    return error


@pytest.mark.parametrize("cls", sdk_errors(), ids=lambda cls: cls.__name__)
def test_every_sdk_error_is_one_of_ours(cls: type[anthropic.AnthropicError]):
    mapped = model_error(make(cls))
    assert isinstance(mapped, ModelError)
    assert SECRET not in str(mapped)
    unclear = cls in {anthropic.APIError, anthropic.APIWebhookValidationError}
    if issubclass(cls, TOLD) and not unclear:
        assert type(mapped) is not ModelError


def test_the_walk_sees_every_public_exception_of_the_sdk():
    public = {
        value
        for _, value in inspect.getmembers(anthropic, inspect.isclass)
        if issubclass(value, Exception) and value.__module__.startswith("anthropic")
    }
    assert public <= set(sdk_errors())
    assert len(public) > 20


@pytest.mark.parametrize("cls", sorted(all_subclasses(httpx2.HTTPError), key=str))
def test_every_transport_error_is_one_of_ours(cls: type[Exception]):
    error = cls.__new__(cls, SECRET)
    Exception.__init__(error, SECRET)
    mapped = model_error(error)
    assert type(mapped) is not ModelError
    assert SECRET not in str(mapped)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ReadTimeout(SECRET), ModelTimeout),
        (httpx2.ConnectTimeout(SECRET), ModelTimeout),
        (TimeoutError(SECRET), ModelTimeout),
        (httpx2.ReadError(SECRET), ModelUnreachable),
        (httpx2.ConnectError(SECRET), ModelUnreachable),
        (httpx2.RemoteProtocolError(SECRET), ModelUnreachable),
        (aiohttp.ServerDisconnectedError(SECRET), ModelUnreachable),
        (ConnectionResetError(SECRET), ModelUnreachable),
        (RuntimeError(SECRET), ModelError),
    ],
)
def test_the_particular_wins_over_the_general(error: Exception, kind: type[ModelError]):
    mapped = model_error(error)
    assert type(mapped) is kind
    assert SECRET not in str(mapped)


def test_ours_stay_as_they_are():
    error = ModelRejected("there is nothing to answer")
    assert model_error(error) is error


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (429, "rate_limit_error", None, ModelRateLimited),
        (429, "rate_limit_error", "enforced_spend_limit_reached", ModelBilling),
        (429, "rate_limit_error", "contract_spend_limit_reached", ModelBilling),
        (402, "billing_error", "linked_organization_billing_unavailable", ModelBilling),
        (403, "permission_error", None, ModelAuth),
        (413, None, None, ModelTooLarge),
        (500, None, None, ModelOverloaded),
        (599, None, None, ModelOverloaded),
        (422, "invalid_request_error", None, ModelRejected),
        (302, None, None, ModelRejected),
    ],
)
def test_codes_say_more_than_kinds_and_kinds_more_than_statuses(
    status: int, kind: str | None, code: str | None, expected: type[ModelError]
):
    body = {"error": {"type": kind, "message": "", "details": {"error_code": code}}}
    response = httpx2.Response(status, request=REQUEST, json=body)
    error = anthropic.APIStatusError("", response=response, body=body)
    assert type(model_error(error)) is expected


@pytest.mark.parametrize("event", [{}, {"error": None}, {"error": "words"}, {"error": {"type": 5}}])
def test_an_odd_error_event_is_an_error_still(event: dict[str, object]):
    assert isinstance(event_error(event), ModelError)
