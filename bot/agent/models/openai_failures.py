"""Whatever goes wrong with chat completions or on the way to them, as one of our errors.

Imported only once a connection is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from bot.agent.models import failures
from bot.agent.models.connection import Refused
from bot.agent.models.wire import ErrorEvent
from bot.errors import (
    ModelAuth,
    ModelBilling,
    ModelContextFull,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelRefused,
    ModelTooLarge,
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


def model_error(error: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(error, ErrorEvent):
        return event_error(error.event)
    return _refusal(error) if isinstance(error, Refused) else failures.on_the_way(error)


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


def _refusal(refused: Refused) -> ModelError:
    codes, sentence = told_in(refused.body)
    words = next((code for code in codes if code), "no type")
    detail = f"status {refused.status}, {words}"
    if request := refused.headers.get("x-request-id"):
        detail += f", request {request}"
    kind = _class(refused.status, codes, sentence) or failures.by_status(refused.status)
    return failures.with_headers(kind(detail), refused.headers)


def _class(status: int, codes: tuple[str, ...], sentence: str) -> type[ModelError] | None:
    if status == 402:
        return ModelBilling
    found = next((BY_CODE[code] for code in codes if code in BY_CODE), None)
    return found or failures.by_words(status, sentence)
