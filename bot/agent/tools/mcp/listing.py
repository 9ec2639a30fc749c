"""What a server says of its tools, as a model may be told it: names, schemas, bounds. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import orjson

from bot.agent.models import ToolSpec

MAX_TOOLS = 100  # of one server; more would fill a model's window with what nobody asks for
MAX_NAME = 64  # characters, as the services of models take them
MAX_DESCRIPTION = 2_000  # characters
MAX_SCHEMA = 16_000  # bytes of JSON
_DIGEST = 6  # hexadecimal digits that keep two names apart
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]+")


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as its server offers it.

    `changes` is False only for one that says it only reads (`readOnlyHint`): by MCP one that says
    nothing may change something, and one that is not destructive may still send a mail.
    """

    name: str
    description: str
    schema: object
    changes: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """A server's tools, each with its name there.

    `unusable` are those whose schema is none, `left` is how many are too many.
    """

    tools: tuple[tuple[str, ToolSpec], ...] = ()
    unusable: tuple[str, ...] = ()
    left: int = 0


def offers_in(raw: object) -> list[Offer]:
    """The tools in a list as it came, whatever it is; what has no name is passed over."""
    found: list[Offer] = []
    for item in cast("list[object]", raw) if isinstance(raw, list) else ():
        tool = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name, said, hints = tool.get("name"), tool.get("description"), tool.get("annotations")
        noted = cast("dict[str, object]", hints) if isinstance(hints, dict) else {}
        if isinstance(name, str):
            changes = noted.get("readOnlyHint") is not True
            described = said if isinstance(said, str) else ""
            found.append(Offer(name, described, tool.get("inputSchema"), changes))
    return found


def listing_of(server: str, wanted: Sequence[str], offers: Iterable[Offer]) -> Listing:
    """The tools of a server that are `wanted`, always in the same order and with the same names."""
    chosen = {
        each.name: each for each in offers if any(fnmatchcase(each.name, one) for one in wanted)
    }
    named = _names(server, sorted(chosen))
    tools: list[tuple[str, ToolSpec]] = []
    unusable: list[str] = []
    for name, own in named.items():
        schema = schema_of(chosen[name].schema)
        if schema is None:
            unusable.append(name)
            continue
        words = _UNSEEN.sub(" ", chosen[name].description).strip()
        described = f"(from the tool server {server}) {words[:MAX_DESCRIPTION]}".strip()
        tools.append((name, ToolSpec(own, described, schema, changes=chosen[name].changes)))
    return Listing(tuple(tools[:MAX_TOOLS]), tuple(unusable), max(0, len(tools) - MAX_TOOLS))


def schema_of(schema: object) -> Mapping[str, Any] | None:
    """A schema that the services of models take: of an object, and not too large; else None."""
    if not isinstance(schema, dict):
        return None
    plain = cast("dict[str, Any]", schema)
    kind, properties = plain.get("type", "object"), plain.get("properties", {})
    required: object = plain.get("required", [])
    if kind != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    items = cast("dict[object, object]", properties).items()
    names = cast("list[object]", required)
    if not all(isinstance(n, str) and isinstance(each, (dict, bool)) for n, each in items):
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    try:
        size = len(orjson.dumps(plain))
    except TypeError:  # half a UTF-16 pair, or nested too deep
        return None
    return {**plain, "type": "object", "properties": properties} if size <= MAX_SCHEMA else None


def _names(server: str, names: Sequence[str]) -> dict[str, str]:
    """What each of a server's tools is called here: safe, and different from every other."""
    plain = {name: f"{server}_{name}" for name in names}
    safe = {name: _UNSAFE.sub("_", whole) for name, whole in plain.items()}
    return {
        name: each
        if each == plain[name] and len(each) <= MAX_NAME
        else f"{each[: MAX_NAME - _DIGEST - 1]}_{_digest(name)}"
        for name, each in safe.items()
    }


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
