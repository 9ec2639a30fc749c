"""Whatever OpenAI's SDK or its transport raises, as one of our errors.

Imported only once the SDK is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import openai

from bot.agent.models import failures
from bot.agent.models.wire import ErrorEvent
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelContextFull,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelTooLarge,
    ModelUnreachable,
)

# The service's own words for a failure say more than the status, which is 200 within a stream.
BY_CODE: Final[Mapping[str, type[ModelError]]] = {
    "invalid_api_key": ModelAuth,
    "authentication_error": ModelAuth,
    "insufficient_quota": ModelBilling,
    "billing_hard_limit_reached": ModelBilling,
    "billing_not_active": ModelBilling,
    "account_deactivated": ModelAuth,
    "model_not_found": ModelNotFound,
    "rate_limit_exceeded": ModelRateLimited,
    "rate_limit_error": ModelRateLimited,
    "context_length_exceeded": ModelContextFull,
    "exceed_context_size_error": ModelContextFull,
    "content_filter": ModelRefused,
    "content_policy_violation": ModelRefused,
    "server_error": ModelOverloaded,
    "server_overloaded": ModelOverloaded,
    "overloaded_error": ModelOverloaded,
    "request_too_large": ModelTooLarge,
}
# First match wins: the particular before the general.
BY_CLASS: Final[tuple[failures.Known, ...]] = (
    (openai.APITimeoutError, ModelTimeout),
    (openai.APIResponseValidationError, ModelBadReply),
    (openai.APIConnectionError, ModelUnreachable),
    (openai.ContentFilterFinishReasonError, ModelRefused),
    (openai.LengthFinishReasonError, ModelBadReply),
    (openai.APIError, ModelOverloaded),  # told within a stream
)


def model_error(error: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(error, ErrorEvent):
        return event_error(error.event)
    if isinstance(error, openai.APIStatusError):
        return _of_status(error)
    if failures.was_dropped(error):  # which the SDK's transport calls a timeout
        return ModelUnreachable("the connection was closed")
    return failures.by_class(error, BY_CLASS)


def event_error(event: Mapping[str, Any]) -> ModelError:
    """The error that a chunk of a stream tells; servers write any status into its code."""
    codes, sentence = told_in(event)
    status = next((int(code) for code in codes if code.isdecimal() and len(code) == 3), 0)
    words = next((code for code in codes if code and not code.isdecimal()), "no type")
    kind = _class(status or 200, codes, sentence)
    if kind is None:
        kind = failures.by_status(status) if status else ModelOverloaded
    return kind(f"error event: {words}")


def told_in(body: object) -> tuple[tuple[str, ...], str]:
    """The codes of a failure and its sentence, however a server writes them."""
    outer = cast("Mapping[str, Any]", body if isinstance(body, Mapping) else {"error": body})
    raw: object = outer.get("error", outer)
    if isinstance(raw, str):
        return (), raw
    error = cast("Mapping[str, Any]", raw if isinstance(raw, Mapping) else {})
    codes = tuple(str(error.get(name) or "") for name in ("code", "type"))
    return codes, str(error.get("message") or "")


def _of_status(error: openai.APIStatusError) -> ModelError:
    codes, sentence = told_in(error.body)
    words = next((code for code in codes if code), "no type")
    detail = f"{type(error).__name__}: status {error.status_code}, {words}"
    if error.request_id:
        detail += f", request {error.request_id}"
    kind = _class(error.status_code, codes, sentence) or failures.by_status(error.status_code)
    return failures.with_headers(kind(detail), error.response.headers)


def _class(status: int, codes: tuple[str, ...], sentence: str) -> type[ModelError] | None:
    if status == 402:
        return ModelBilling
    found = next((BY_CODE[code] for code in codes if code in BY_CODE), None)
    return found or failures.by_words(status, sentence)
