"""What a page was sent with a form, and a long list in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from aiohttp import web

SHOWN = 50  # of a list at once

T = TypeVar("T")


async def sent(request: web.Request) -> Mapping[str, str]:
    """The fields of a form as texts; files are left out.

    Raises:
        HTTPBadRequest: it is no form that can be read.
    """
    try:
        form = await request.post()
    # Bytes that are no text, an unknown charset, or parts without a boundary between them.
    except (ValueError, LookupError, AssertionError) as error:
        raise web.HTTPBadRequest from error
    return {name: value for name, value in form.items() if isinstance(value, str)}


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of a list: its rows, which part it is of how many, and how long the list is."""

    rows: Sequence[T]
    number: int
    parts: int
    total: int


def part_of(rows: Sequence[T], wanted: str, size: int = SHOWN) -> Part[T]:
    """The part of a list that a query asks for by its number from 1; the nearest there is."""
    parts = max(1, -(-len(rows) // size))
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 8 else 1
    number = min(max(number, 1), parts)
    return Part(rows[(number - 1) * size : number * size], number, parts, len(rows))


def address(path: str, wanted: str, name: str, number: int) -> str:
    """Where part `number` of the list `name` of a page is, among what is looked for there."""
    query = {"q": wanted} if wanted else {}
    return f"{path}?{urlencode({**query, name: number})}#{name}"
