"""A conversation of Claude's data export. Pure.

Its messages are a list. Where they name the message before them, what was edited or generated again
is a branch, and the one that was seen last counts. What was pasted stands in attachments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bot.importing.values import Said, Skipped, Talk, items, made, mapping, moment, words

MARK = "chat_messages"  # what every conversation has

_SENDERS = frozenset({"human", "assistant"})


def talk_of(data: Mapping[str, object]) -> Talk | Skipped:
    """The conversation of an object of `conversations.json`."""
    title, id_ = words(data.get("name")), words(data.get("uuid"))
    if not isinstance(data.get(MARK), list):
        return Skipped(title or id_ or "an entry", "it is no conversation of Claude")
    found = [mapping(each) for each in items(data.get(MARK))]
    branch = _branch(found, words(data.get("current_leaf_message_uuid")))
    said = [_said(each) for each in branch if words(each.get("sender")) in _SENDERS]
    return made("claude", id_, title, said, moment(data.get("created_at")))


def _branch(messages: Sequence[Mapping[str, object]], last: str) -> Sequence[Mapping[str, object]]:
    """The messages from the first one to the one that was last seen."""
    by_id = {id_: each for each in messages if (id_ := words(each.get("uuid")))}
    parents = [words(each.get("parent_message_uuid")) for each in messages]
    known = [parent for parent in parents if parent in by_id]
    if len(known) == len(set(known)):  # nobody answers the same message twice: there is one branch
        return messages
    newest = max(by_id, key=lambda id_: moment(by_id[id_].get("created_at")), default="")
    at = last if last in by_id else newest
    found: list[Mapping[str, object]] = []
    seen: set[str] = set()
    while at in by_id and at not in seen:
        seen.add(at)
        found.append(by_id[at])
        at = words(by_id[at].get("parent_message_uuid"))
    return found[::-1]


def _said(message: Mapping[str, object]) -> Said | None:
    """A message; None when there is nothing to read in it."""
    text = "\n\n".join(_texts(message)).strip()
    if not text:
        return None
    role = "user" if message.get("sender") == "human" else "assistant"
    return Said(words(message.get("uuid")), role, text, moment(message.get("created_at")))


def _texts(message: Mapping[str, object]) -> Iterator[str]:
    blocks = [mapping(each) for each in items(message.get("content"))]
    texts = [words(each.get("text")) for each in blocks if each.get("type") == "text"]
    yield from filter(None, texts if any(texts) else [words(message.get("text"))])
    for each in items(message.get("attachments")):
        pasted, name = mapping(each), words(mapping(each).get("file_name"))
        if text := words(pasted.get("extracted_content")):
            yield f"[{name}]\n{text}" if name else text
