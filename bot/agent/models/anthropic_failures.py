"""Whatever goes wrong with the Messages API or on the way to it, as one of our errors.

Imported only once a connection is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.agent.models import failures
from bot.agent.models.connection import Refused
from bot.agent.models.wire import ErrorEvent
from bot.channel.kit.json_access import child, mapping
from bot.errors import (
    ModelAuth,
    ModelBilling,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelTimeout,
    ModelTooLarge,
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


def model_error(error: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(error, ErrorEvent):
        return event_error(error.event)
    return _refusal(error) if isinstance(error, Refused) else failures.on_the_way(error)


def event_error(event: Mapping[str, Any]) -> ModelError:
    """The error that an `error` event within a stream tells."""
    kind, _, sentence = _told(event)
    return _class(200, kind, "", sentence)(f"error event: {kind or 'no type'}")


def _refusal(refused: Refused) -> ModelError:
    kind, code, sentence = _told(refused.body)
    detail = f"status {refused.status}, {code or kind or 'no type'}"
    if request := refused.headers.get("request-id"):
        detail += f", request {request}"
    made = _class(refused.status, kind, code, sentence)(detail)
    return failures.with_headers(made, refused.headers)


def _told(body: object) -> tuple[str, str, str]:
    """The kind of a failure, its code and its sentence."""
    error = child(mapping(body), "error")
    code = child(error, "details").get("error_code")
    return str(error.get("type") or ""), str(code or ""), str(error.get("message") or "")


def _class(status: int, kind: str, code: str, sentence: str) -> type[ModelError]:
    """Our error for a status, the service's own words for the kind and the code, its sentence."""
    if status == 402 or "spend_limit" in code or "billing" in code:
        return ModelBilling
    known = failures.by_words(status, sentence) or BY_TYPE.get(kind)
    return known or failures.by_status(status)
