"""Forms that may hold a whole note: read with a bound on their size, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from bot.dashboard.pages import sent

BESIDE = 64 * 1024  # bytes of a form beside its text


async def form_of(request: web.Request, most: int) -> Mapping[str, str] | None:
    """The fields of a form that are text; None when it is larger than `most` bytes and a little.

    Raises:
        HTTPBadRequest: it is no form.
    """
    length = request.content_length
    if length is None or length > most + BESIDE:
        return None
    return await sent(request.clone(client_max_size=most + BESIDE))
