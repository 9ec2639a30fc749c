"""Events that programs report, as messages that nobody wrote."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Final, cast

from adapters.web.files import address_of
from bot.channel import Foreign, Inbound
from bot.channel.http import Visitor
from bot.channel.kit.json_access import mapping, parse_json, storable

MOST: Final = 4_000  # characters of an event
MOST_FIELD: Final = 1_000  # … and of one of its fields
# What senders call the one delivery; it is the same when they try again.
DELIVERIES: Final = ("webhook-id", "X-GitHub-Delivery", "X-Gitea-Delivery", "X-Request-Id")

_FIELD = re.compile(r"\{([\w.-]{1,100})\}")


def event(hook: Visitor, headers: Mapping[str, str], body: bytes, now: int) -> Inbound:
    """An event of a program as a message; `now` is in ms since the epoch."""
    address = address_of(hook.name)
    delivery = next(filter(None, (headers.get(each, "") for each in DELIVERIES)), "")
    name = hashlib.sha256(delivery.encode()).hexdigest()[:24] if delivery else secrets.token_hex(12)
    return Inbound(
        channel=address.channel,
        account=address.account,
        chat=address.chat,
        chat_type="direct",
        sender=hook.name,
        message_id=f"hook-{hook.key}-{name}",
        text="",
        sent_at=now,
        foreign=(Foreign("event", told(hook.template, body), hook.program),),
    )


def told(template: str, body: bytes) -> str:
    """An event in words: a template with `{alert.title}` filled in from its JSON, or all of it."""
    try:
        found = parse_json(body)
    except (ValueError, RecursionError):
        found = body.decode("utf-8", "replace")
    if not template:
        whole = found if isinstance(found, str) else json.dumps(found, indent=1, ensure_ascii=False)
        return storable(whole)[:MOST].strip() or "(empty)"
    room = MOST

    def fill(name: re.Match[str]) -> str:
        nonlocal room
        words = _field(found, name[1]) if room > 0 else ""  # what comes later is cut anyway
        room -= len(words)
        return words

    filled = _FIELD.sub(fill, template)
    return storable(filled)[:MOST].strip() or "(empty)"


def _field(found: object, path: str) -> str:
    """A field by its path, such as "alerts.0.title"; empty when there is none."""
    for name in path.split("."):
        if isinstance(found, list):
            items = cast("list[object]", found)
            found = items[int(name)] if name.isdecimal() and int(name) < len(items) else None
        else:
            found = mapping(found).get(name)
    if found is None:
        return ""
    words = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return words[:MOST_FIELD]
