"""Failures of services and of the way to them, as our errors, whatever the protocol.

The messages name the kind, the status and the request id, never what was sent or answered.
Imported only once a connection is made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

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
from bot.net.connection import why

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
# The Messages API has no code for these two; other services word them differently again.
CONTEXT_WORDS = (
    "prompt is too long",
    "context length",
    "context limit",
    "context size",
    "context window",
    "maximum number of tokens",
)
BILLING_WORDS = ("credit balance", "insufficient credit", "insufficient balance", "quota")
WORDED = frozenset({200, 400, 413, 422})
_AGAIN: Final[Mapping[str, bool]] = {"true": True, "false": False}

# First match wins: the particular before the general.
_ON_THE_WAY: Final[tuple[tuple[type[Exception], type[ModelError]], ...]] = (
    (TimeoutError, ModelTimeout),
    (aiohttp.ClientError, ModelUnreachable),
    (OSError, ModelUnreachable),
    (ValueError, ModelBadReply),
)


def on_the_way(error: Exception) -> ModelError:
    """Our error for what was raised on the way to a service, or while its answer was read."""
    if isinstance(error, ModelError):
        return error
    found = (kind for cls, kind in _ON_THE_WAY if isinstance(error, cls))
    return next(found, ModelError)(why(error))


def with_headers(error: ModelError, headers: Mapping[str, str]) -> ModelError:
    """The error, with when and whether the answer's headers say to ask again."""
    error.wait = _wait(headers)
    error.again = _AGAIN.get(headers.get("x-should-retry", ""))
    return error


def by_words(status: int, sentence: str) -> type[ModelError] | None:
    """Our error for a sentence of the service, where its status says less than that."""
    if status not in WORDED:
        return None
    lowered = sentence.lower()
    if any(words in lowered for words in CONTEXT_WORDS):
        return ModelContextFull
    return ModelBilling if any(words in lowered for words in BILLING_WORDS) else None


def by_status(status: int) -> type[ModelError]:
    """Our error for a status that nothing else is known of."""
    return BY_STATUS.get(status) or (ModelOverloaded if status >= 500 else ModelRejected)


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
