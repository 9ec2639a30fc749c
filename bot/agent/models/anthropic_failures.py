"""Whatever Anthropic's SDK or its transport raises, as one of our errors.

Imported only once the SDK is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import anthropic

from bot.agent.models import failures
from bot.agent.models.wire import ErrorEvent
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
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
# First match wins: the particular before the general.
BY_CLASS: Final[tuple[failures.Known, ...]] = (
    (anthropic.APITimeoutError, ModelTimeout),
    (anthropic.APIResponseValidationError, ModelBadReply),
    (anthropic.CredentialsError, ModelAuth),
    (anthropic.RetryableError, ModelOverloaded),
    (anthropic.APIConnectionError, ModelUnreachable),
)


def model_error(error: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(error, ErrorEvent):
        return event_error(error.event)
    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error)
    return failures.by_class(error, BY_CLASS)


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
    return failures.with_headers(made, error.response.headers)


def _class(status: int, kind: str, code: str, sentence: str) -> type[ModelError]:
    """Our error for a status, the service's own words for the kind and the code, its sentence."""
    if status == 402 or "spend_limit" in code or "billing" in code:
        return ModelBilling
    known = failures.by_words(status, sentence) or BY_TYPE.get(kind)
    return known or failures.by_status(status)
