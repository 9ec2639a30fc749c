"""Whatever goes wrong with a service or on the way to it, as one of our errors.

The messages name the kind, the status and the request id, never what was sent or answered.
Imported only once a connection is made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

from bot.agent.models.refusals import Refusal, read
from bot.agent.models.wire import ErrorEvent, Refused
from bot.errors import ModelBadReply, ModelError, ModelProxy, ModelTimeout, ModelUnreachable

_AGAIN: Final[Mapping[str, bool]] = {"true": True, "false": False}

# First match wins: the particular before the general.
_ON_THE_WAY: Final[tuple[tuple[type[Exception], type[ModelError]], ...]] = (
    (TimeoutError, ModelTimeout),
    (aiohttp.ClientProxyConnectionError, ModelProxy),
    (aiohttp.ClientHttpProxyError, ModelProxy),
    (aiohttp.ClientError, ModelUnreachable),
    (OSError, ModelUnreachable),
    (ValueError, ModelBadReply),
)


def refusal(failure: Exception) -> Refusal | None:
    """What the service said, if it was the service that failed or refused."""
    if isinstance(failure, Refused):
        return read(failure.status, failure.body)
    return read(200, failure.event) if isinstance(failure, ErrorEvent) else None


def model_error(failure: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(failure, ModelError):
        return failure
    if (found := refusal(failure)) is None:
        kinds = (kind for cls, kind in _ON_THE_WAY if isinstance(failure, cls))
        return next(kinds, ModelError)(type(failure).__name__)
    if not isinstance(failure, Refused):
        return found.error()
    headers = failure.headers
    error = found.error(headers.get("request-id") or headers.get("x-request-id") or "")
    error.wait, error.again = _wait(headers), _AGAIN.get(headers.get("x-should-retry", ""))
    return error


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
