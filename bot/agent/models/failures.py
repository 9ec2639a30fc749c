"""Whatever the SDK or its transport raises, as one of our errors.

The messages name the kind, the status and the request id, never what was sent or answered.
Imported only once the SDK is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

import aiohttp
import anthropic
import httpx2

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
    ModelRejected,
    ModelTimeout,
    ModelTooLarge,
    ModelUnreachable,
)

# The service's own word for a failure says more than the status, which is 200 within a stream.
BY_TYPE: Final[Mapping[str, type[ModelError]]] = {
    "authentication_error": ModelAuth,
    "permission_error": ModelAuth,
    "billing_error": ModelBilling,
    "not_found_error": ModelNotFound,
    "rate_limit_error": ModelRateLimited,
    "timeout_error": ModelTimeout,
    "overloaded_error": ModelOverloaded,
    "api_error": ModelOverloaded,
    "request_too_large": ModelTooLarge,
    "conflict_error": ModelOverloaded,
}
BY_STATUS: Final[Mapping[int, type[ModelError]]] = {
    401: ModelAuth,
    402: ModelBilling,
    403: ModelAuth,
    404: ModelNotFound,
    408: ModelTimeout,
    409: ModelOverloaded,
    413: ModelTooLarge,
    429: ModelRateLimited,
    499: ModelUnreachable,
    504: ModelTimeout,
}
# The API has no code for these two; other services with the same API word them differently again.
CONTEXT_WORDS = (
    "prompt is too long",
    "context length",
    "context limit",
    "context size",
    "context window",
)
_AGAIN: Final[Mapping[str, bool]] = {"true": True, "false": False}
BILLING_WORDS = ("credit balance", "insufficient credit")
WORDED = frozenset({200, 400, 413, 422})
# First match wins: the particular before the general.
BY_CLASS: Final[tuple[tuple[tuple[type[Exception], ...], type[ModelError]], ...]] = (
    ((anthropic.APITimeoutError, httpx2.TimeoutException, TimeoutError), ModelTimeout),
    ((anthropic.APIResponseValidationError,), ModelBadReply),
    ((anthropic.CredentialsError,), ModelAuth),
    ((anthropic.RetryableError,), ModelOverloaded),
    (
        (anthropic.APIConnectionError, httpx2.TransportError, aiohttp.ClientError, OSError),
        ModelUnreachable,
    ),
    ((httpx2.HTTPError, httpx2.StreamError, ValueError), ModelBadReply),
)


def model_error(error: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, ErrorEvent):
        return event_error(error.event)
    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error)
    for classes, kind in BY_CLASS:
        if isinstance(error, classes):
            return kind(type(error).__name__)
    return ModelError(type(error).__name__)


def event_error(event: Mapping[str, Any]) -> ModelError:
    """The error that an `error` event within a stream tells."""
    raw: object = event.get("error")
    error = cast("Mapping[str, Any]", raw if isinstance(raw, Mapping) else {})
    kind, sentence = str(error.get("type") or ""), str(error.get("message") or "")
    return _class(200, kind, "", sentence)(f"error event: {kind or 'no type'}")


def _of_status(error: anthropic.APIStatusError) -> ModelError:
    code, kind = error.error_code or "", str(error.type or "")
    detail = f"{type(error).__name__}: status {error.status_code}, {code or kind or 'no type'}"
    if error.request_id:
        detail += f", request {error.request_id}"
    made = _class(error.status_code, kind, code, str(error.api_message or ""))(detail)
    made.wait = _wait(error.response.headers)
    made.again = _AGAIN.get(error.response.headers.get("x-should-retry", ""))
    return made


def _wait(headers: Mapping[str, str]) -> float:
    """The seconds to wait that an answer asks for; 0 when it asks for none."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return max(0.0, float(headers.get(name, "")) / unit)
        except ValueError:
            continue
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return max(0.0, until.timestamp() - time.time())


def _class(status: int, kind: str, code: str, sentence: str) -> type[ModelError]:
    """Our error for a status, the service's own words for the kind and the code, its sentence."""
    if status == 402 or "spend_limit" in code or "billing" in code:
        return ModelBilling
    if status in WORDED:
        lowered = sentence.lower()
        if any(words in lowered for words in CONTEXT_WORDS):
            return ModelContextFull
        if any(words in lowered for words in BILLING_WORDS):
            return ModelBilling
    known = BY_TYPE.get(kind) or BY_STATUS.get(status)
    return known or (ModelOverloaded if status >= 500 else ModelRejected)
