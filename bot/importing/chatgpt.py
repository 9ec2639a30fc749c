"""A conversation of ChatGPT's data export. Pure.

Its messages are a tree: what was edited or generated again is a branch. The one that was last seen
counts, from `current_node` up to the root; what tools said and what was hidden there is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.importing.values import Said, Skipped, Talk, items, made, mapping, seconds, words

MARK = "mapping"  # what every conversation has

_READABLE = frozenset({"", "text", "multimodal_text"})
_SPOKEN = "audio_transcription"


def talk_of(data: Mapping[str, object]) -> Talk | Skipped:
    """The conversation of an object of `conversations.json`."""
    title = words(data.get("title"))
    id_ = words(data.get("conversation_id")) or words(data.get("id"))
    if not isinstance(data.get(MARK), dict):
        return Skipped(title or id_ or "an entry", "it is no conversation of ChatGPT")
    branch = _branch(mapping(data.get(MARK)), words(data.get("current_node")))
    said = [_said(message) for message in branch if _is_shown(message)]
    return made("chatgpt", id_, title, said, seconds(data.get("create_time")))


def _branch(nodes: Mapping[str, object], last: str) -> list[Mapping[str, object]]:
    """The messages from the first one to the one that was last seen."""
    at = last if last in nodes else _newest_leaf(nodes)
    found: list[Mapping[str, object]] = []
    seen: set[str] = set()
    while at in nodes and at not in seen:
        seen.add(at)
        node = mapping(nodes[at])
        found.append(mapping(node.get("message")))
        at = words(node.get("parent"))
    return found[::-1]


def _newest_leaf(nodes: Mapping[str, object]) -> str:
    leaves = [id_ for id_, node in nodes.items() if not items(mapping(node).get("children"))]
    return max(leaves or nodes, key=lambda id_: _time(mapping(nodes[id_])), default="")


def _time(node: Mapping[str, object]) -> int:
    return seconds(mapping(node.get("message")).get("create_time"))


def _is_shown(message: Mapping[str, object]) -> bool:
    """True for what the person and the model said to each other."""
    role = words(mapping(message.get("author")).get("role"))
    to = message.get("recipient")
    if role not in {"user", "assistant"} or (to is not None and to != "all"):
        return False
    about = mapping(message.get("metadata"))
    kind = words(mapping(message.get("content")).get("content_type"))
    hidden = ("is_visually_hidden_from_conversation", "is_user_system_message")
    return kind in _READABLE and not any(about.get(name) for name in hidden)


def _said(message: Mapping[str, object]) -> Said | None:
    """A message; None when there is nothing to read in it."""
    content = mapping(message.get("content"))
    text = "\n".join(_texts(content)).strip()
    if not text:
        return None
    is_own = mapping(message.get("author")).get("role") == "user"
    at = seconds(message.get("create_time"))
    return Said(words(message.get("id")), "user" if is_own else "assistant", text, at)


def _texts(content: Mapping[str, object]) -> Iterator[str]:
    yield words(content.get("text"))
    for part in items(content.get("parts")):
        found = mapping(part)
        spoken = words(found.get("text")) if found.get("content_type") == _SPOKEN else ""
        if text := words(part) or spoken:
            yield text
