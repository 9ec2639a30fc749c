"""The exports of other programs: assistants' and Telegram's JSON objects, WhatsApp's texts. Pure.

Each reader is registered in `exports.READERS`, with the names of the fields that it is known by.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Final

from bot.importing.values import (
    Found,
    Left,
    Remembered,
    Said,
    Skipped,
    Talk,
    digest,
    items,
    made,
    mapping,
    milliseconds,
    moment,
    seconds,
    text_of,
    words,
)
from bot.memory import layout

# What the first message of a conversation answers, in Claude and LibreChat.
_NO_PARENTS = frozenset(
    {"00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000"}
)
_USER = "user"
_MODEL = "assistant"

Nodes = Mapping[str, object]


def _branch(nodes: Nodes, last: str, up: str, down: str, times: Mapping[str, int]) -> list[str]:
    """The ids from the first one to the one that was last seen, or is newest where nothing says it.

    Where one is missing or damaged, what its parent says goes on; one that says nothing either is
    where it begins.
    """
    above = {
        words(child): id_ for id_, node in nodes.items() for child in items(mapping(node).get(down))
    }
    at = last
    if at not in nodes and at not in above:
        leaves = [id_ for id_, node in nodes.items() if not items(mapping(node).get(down))]
        at = max(leaves or nodes, key=lambda id_: times.get(id_, 0), default="")
    found: dict[str, None] = {}
    while (at in nodes or at in above) and at not in found:
        found[at] = None
        named = words(mapping(nodes.get(at)).get(up))
        at = named if named in nodes or named in above else above.get(at, "")
    return [*found][::-1]


def _line(
    messages: Sequence[Mapping[str, object]], last: str, names: tuple[str, str, str]
) -> Sequence[Mapping[str, object]]:
    """The messages of a list from the first one to the one that was last seen, or is newest.

    `names` are those of their id, that of the message before it, and their time. Where that one was
    lost, it is taken for the one before it in the list.
    """
    nodes: dict[str, object] = {}
    parents: set[str] = set()
    before, is_line = "", True
    for number, each in enumerate(messages):
        id_ = words(each.get(names[0])) or f"#{number}"
        parent = words(each.get(names[1]))
        is_line = is_line and (not parent or parent not in parents)
        parents.add(parent)
        is_known = parent in nodes or parent in _NO_PARENTS
        nodes[id_] = {"up": parent if is_known else before, "message": each}
        before = id_
    if is_line or len(parents) == 1:  # nobody answers the same message twice: there is one branch
        return messages
    if last not in nodes:
        times = {words(each.get(names[0])): moment(each.get(names[2])) for each in messages}
        last = max(reversed(nodes), key=lambda id_: times.get(id_, 0), default="")
    return [
        mapping(mapping(nodes[id_]).get("message")) for id_ in _branch(nodes, last, "up", "", {})
    ]


# --- ChatGPT --------------------------------------------------------------------------------------
#
# The messages of a conversation are a tree: what was edited or generated again is a branch. The one
# that was last seen counts, from `current_node` up to the root.

_READABLE = frozenset({"", "text", "multimodal_text"})
_THINKING = frozenset({"thoughts", "reasoning_recap"})
_SPOKEN = "audio_transcription"
_CANVAS = "canmore."
_WHOLE = ".*"  # the pattern of a change that replaces all of a document
# What stands where the page shows a link: a source, or something with a name.
_CITED = re.compile(
    r"(?:(?<![ \t])[ \t]++)?(?:\ue200(?P<kind>[^\ue200-\ue202]*+)"
    r"\ue202?(?P<what>[^\ue200\ue201]*+)\ue201|【[^【】\n†]*+†[^【】\n]*+】)"
)
_FROM_CHATGPT = "From ChatGPT"


def chatgpt_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A conversation of `conversations.json`, and what ChatGPT saved or was told in it."""
    title = words(data.get("title"))
    id_ = words(data.get("conversation_id")) or words(data.get("id"))
    if not isinstance(data.get("mapping"), dict):
        yield Skipped(title or id_ or "an entry", "it is no conversation of ChatGPT")
        return
    nodes = mapping(data.get("mapping"))
    times = {
        id_: seconds(mapping(mapping(node).get("message")).get("create_time"))
        for id_, node in nodes.items()
    }
    branch = _branch(nodes, words(data.get("current_node")), "parent", "children", times)
    began = seconds(data.get("create_time"))
    said: list[Said | Left | None] = []
    for name in branch:
        node = mapping(nodes.get(name))
        message = mapping(node.get("message"))
        if not node or (not message and node.get("message") is not None):
            said.append(Left.BROKEN)
            continue
        said += _chatgpt_said(message)
        yield from _chatgpt_saved(message, times.get(name, 0) or began)
    passed = nodes.keys() - set(branch)
    told = (mapping(mapping(nodes[name]).get("message")) for name in passed)
    said += [Left.BRANCHED for message in told if any(_chatgpt_said(message))]
    yield made("chatgpt", id_, title, said, began)


def _role(message: Mapping[str, object]) -> str:
    return words(mapping(message.get("author")).get("role"))


def _chatgpt_said(message: Mapping[str, object]) -> Iterator[Said | Left | None]:
    """A message, or why it is left out; nothing for what is no message to anybody."""
    about, content = mapping(message.get("metadata")), mapping(message.get("content"))
    role, to = _role(message), words(message.get("recipient"))
    kind = words(content.get("content_type"))
    hidden = ("is_visually_hidden_from_conversation", "is_user_system_message")
    if role not in {_USER, _MODEL, "tool"} or any(about.get(name) for name in hidden):
        return
    if kind.endswith("_editable_context") or to == "bio":
        return
    is_shown = role != "tool" and to in {"", "all"} and kind in _READABLE
    text = "\n".join(_chatgpt_texts(content)).strip()
    if to.startswith(_CANVAS):
        text = _canvas(text)
    elif not is_shown:
        text = ""
    if kind in _THINKING:
        yield Left.THOUGHTS
    elif not text:
        yield Left.WORDLESS if is_shown else Left.BY_TOOLS
    elif role == _USER:
        yield Said(words(message.get("id")), "user", text, seconds(message.get("create_time")))
    else:
        text, at = _CITED.sub(_named, text), seconds(message.get("create_time"))
        yield Said(words(message.get("id")), "assistant", text, at)


def _chatgpt_texts(content: Mapping[str, object]) -> Iterator[str]:
    yield words(content.get("text"))
    for part in items(content.get("parts")):
        found = mapping(part)
        spoken = words(found.get("text")) if found.get("content_type") == _SPOKEN else ""
        if text := words(part) or spoken:
            yield text


def _canvas(call: str) -> str:
    """The document that a call of the canvas writes; empty for a change of a part of one."""
    asked = mapping(_parsed(call))
    text = words(asked.get("content"))
    for update in map(mapping, items(asked.get("updates"))):
        if update.get("pattern") == _WHOLE:
            text = words(update.get("replacement"))
    name = words(asked.get("name"))
    return f"[{name}]\n{text}" if name and text else text


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _named(found: re.Match[str]) -> str:
    """The text that replaces a mark in an answer: its name, or nothing."""
    named = items(_parsed(found["what"])) if found["kind"] == "entity" else ()
    space = found[0][: len(found[0]) - len(found[0].lstrip())]
    return f"{space}{words(named[1])}" if len(named) > 1 else ""


def _chatgpt_saved(message: Mapping[str, object], at: int) -> Iterator[Remembered]:
    content = mapping(message.get("content"))
    text = "\n".join(_chatgpt_texts(content)).strip()
    if message.get("recipient") == "bio" and _role(message) == _MODEL and text:
        entries = "\n".join(f"- {line.strip()}" for line in text.splitlines() if line.strip())
        yield Remembered(layout.MEMORY_FILE, _FROM_CHATGPT, entries, at)
    if context := words(content.get("model_set_context")).strip():
        about = "What ChatGPT had saved"
        yield Remembered(layout.MEMORY_FILE, about, context, at, is_newest=True)
    if content.get("content_type") == "user_editable_context":
        told = mapping(mapping(message.get("metadata")).get("user_context_message_data"))
        for about, plain, shown in (
            ("What you told ChatGPT about yourself", "about_user_message", "user_profile"),
            ("How you wanted ChatGPT to answer", "about_model_message", "user_instructions"),
        ):
            if text := (words(told.get(plain)) or words(content.get(shown))).strip():
                yield Remembered(layout.USER_FILE, about, text, at, is_newest=True)


# --- Claude ---------------------------------------------------------------------------------------
#
# The messages of a conversation are a list. Where they name the message before them, what was
# edited or generated again is a branch, and the one that was seen last counts. What was pasted
# stands in attachments, documents that Claude wrote stand in calls.

_SENDERS = frozenset({"human", "assistant"})
_WRITERS = frozenset({"artifacts", "create_file"})
_FROM_CLAUDE = "From Claude"
_UNSAFE = re.compile(r"[^\w.]+")


def claude_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A conversation of `conversations.json`."""
    title, id_ = words(data.get("name")), words(data.get("uuid"))
    if not isinstance(data.get("chat_messages"), list):
        yield Skipped(title or id_ or "an entry", "it is no conversation of Claude")
        return
    found = [mapping(each) for each in items(data.get("chat_messages"))]
    last = words(data.get("current_leaf_message_uuid"))
    branch = _line(found, last, ("uuid", "parent_message_uuid", "created_at"))
    said: list[Said | Left | None] = [_claude_said(each) for each in branch]
    said += [Left.BRANCHED] * (len(found) - len(branch))
    yield made("claude", id_, title, said, moment(data.get("created_at")))


def _claude_said(message: Mapping[str, object]) -> Said | Left:
    """A message, or why it is left out."""
    if words(message.get("sender")) not in _SENDERS:
        return Left.BROKEN
    text = "\n\n".join(_claude_texts(message)).strip()
    if not text:
        kinds = {mapping(each).get("type") for each in items(message.get("content"))}
        is_tools = bool(kinds) and kinds <= {"tool_use", "tool_result", "thinking"}
        return Left.BY_TOOLS if is_tools else Left.WORDLESS
    role = "user" if message.get("sender") == "human" else "assistant"
    return Said(words(message.get("uuid")), role, text, moment(message.get("created_at")))


def _claude_texts(message: Mapping[str, object]) -> Iterator[str]:
    blocks = [mapping(each) for each in items(message.get("content"))]
    texts = [text for block in blocks if (text := _claude_block(block))]
    is_told = any(block.get("type") == "text" and block.get("text") for block in blocks)
    if not is_told and (text := words(message.get("text"))):
        yield text
    yield from texts
    for each in items(message.get("attachments")):
        pasted, name = mapping(each), words(mapping(each).get("file_name"))
        if text := words(pasted.get("extracted_content")):
            yield f"[{name}]\n{text}" if name else text


def _claude_block(block: Mapping[str, object]) -> str:
    """The text of a block of a message: written, spoken, or a document it writes."""
    match block.get("type"):
        case "text" | "voice_note":
            return words(block.get("text"))
        case "tool_use" if block.get("name") in _WRITERS:
            asked = mapping(block.get("input"))
            text = words(asked.get("content")) or words(asked.get("file_text"))
            name = words(asked.get("title")) or words(asked.get("path"))
            return f"[{name}]\n{text}" if name and text else text
        case _:
            return ""


def claude_memory(data: Mapping[str, object]) -> Iterator[Found]:
    """Claude's memory of the person, and of each project."""
    if text := words(data.get("conversations_memory")).strip():
        yield Remembered(layout.MEMORY_FILE, _FROM_CLAUDE, text, 0)
    for id_, text in mapping(data.get("project_memories")).items():
        path = f"{layout.NOTES_FOLDER}/claude/project-{_name(id_)}.md"
        if words(text).strip():
            yield Remembered(path, "What Claude remembered of this project", words(text), 0)


def claude_project(data: Mapping[str, object]) -> Iterator[Found]:
    """A project of Claude's: its instructions, and each of its documents as a note."""
    id_, name = words(data.get("uuid")), words(data.get("name"))
    folder = f"{layout.NOTES_FOLDER}/claude"
    about = f"The project {' '.join(name.split())[:100]} of Claude"
    at = moment(data.get("updated_at")) or moment(data.get("created_at"))
    told = (words(data.get("description")), words(data.get("prompt_template")))
    if text := "\n\n".join(filter(None, map(str.strip, told))):
        yield Remembered(f"{folder}/project-{_name(id_)}.md", about, text, at, is_newest=True)
    for each in map(mapping, items(data.get("docs"))):
        called, text = words(each.get("filename")), words(each.get("content"))
        path = f"{folder}/project-{_name(id_)}/{_name(called.removesuffix('.md'))}.md"
        if text.strip():
            yield Remembered(path, "", text, moment(each.get("created_at")) or at)


# --- Open WebUI, LibreChat, AstrBot ---------------------------------------------------------------

_HIDDEN = ('<details type="', "</details>")  # of thinking and tools, in an answer of Open WebUI
_NOBODY = {"tool": Left.BY_TOOLS, "system": Left.SERVICE}


def openwebui_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A chat of Open WebUI's export, a tree of messages."""
    chat = mapping(data.get("chat"))
    history = mapping(chat.get("history"))
    nodes = mapping(history.get("messages"))
    times = {id_: seconds(mapping(node).get("timestamp")) for id_, node in nodes.items()}
    branch = _branch(nodes, words(history.get("currentId")), "parentId", "childrenIds", times)
    messages = [mapping(nodes.get(id_)) for id_ in branch]
    said = [_plain(each, words(each.get("id")), each.get("timestamp")) for each in messages]
    said += [Left.BRANCHED] * (len(nodes) - len([id_ for id_ in branch if id_ in nodes]))
    title = words(data.get("title")) or words(chat.get("title"))
    yield made("openwebui", words(data.get("id")), title, said, seconds(data.get("created_at")))


def librechat_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A conversation that LibreChat exported, its messages in a list or below one another."""
    found: list[Mapping[str, object]] = []
    waiting = [mapping(each) for each in reversed(items(data.get("messages")))]
    while waiting:
        found.append(message := waiting.pop())
        waiting += [mapping(each) for each in reversed(items(message.get("children")))]
    branch = _line(found, "", ("messageId", "parentMessageId", "createdAt"))
    said: list[Said | Left | None] = []
    for each in branch:
        text = text_of(each.get("text")) or text_of(each.get("content"))
        role = "user" if each.get("isCreatedByUser") else "assistant"
        one = Said(words(each.get("messageId")), role, text, moment(each.get("createdAt")))
        said.append((one if text else Left.WORDLESS) if each else Left.BROKEN)
    said += [Left.BRANCHED] * (len(found) - len(branch))
    yield made("librechat", words(data.get("conversationId")), words(data.get("title")), said, 0)


def astrbot_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A conversation of AstrBot's export, whose messages have neither an id nor a time."""
    said = [_plain(mapping(each), "", 0) for each in items(data.get("content"))]
    began = seconds(data.get("created_at"))
    yield made("astrbot", words(data.get("cid")), words(data.get("title")), said, began)


def _plain(message: Mapping[str, object], id_: str, at: object) -> Said | Left:
    """A message with a role and a content, or why it is left out."""
    role, text = words(message.get("role")), text_of(message.get("content"))
    if role not in {_USER, _MODEL}:
        return _NOBODY.get(role, Left.BROKEN)
    if role == _MODEL:
        text = _without_hidden(text)
    if not text:
        return Left.BY_TOOLS if message.get("tool_calls") else Left.WORDLESS
    return Said(id_, "user" if role == _USER else "assistant", text, seconds(at) or moment(at))


def _without_hidden(text: str) -> str:
    """An answer without what is folded away in it."""
    kept: list[str] = []
    at = 0
    while (start := text.find(_HIDDEN[0], at)) >= 0 and (end := text.find(_HIDDEN[1], start)) >= 0:
        kept.append(text[at:start])
        at = end + len(_HIDDEN[1])
    return "".join((*kept, text[at:])).strip()


# --- anything else: JSONL as docs/moving-in.md describes it ---------------------------------------


def plain_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A conversation with a list of messages."""
    said: list[Said | Left | None] = []
    for each in map(mapping, items(data.get("messages"))):
        content = each.get("content") or each.get("text")
        one = _plain({**each, "content": content}, words(each.get("id")), each.get("at"))
        by = words(each.get("by"))
        said.append(replace(one, by=by) if by and isinstance(one, Said) else one)
    began = seconds(data.get("at")) or moment(data.get("at"))
    yield made("jsonl", words(data.get("id")), words(data.get("title")), said, began)


def plain_memory(data: Mapping[str, object]) -> Iterator[Found]:
    """Something to remember, on its own."""
    if text := words(data.get("memory")).strip():
        at = seconds(data.get("at")) or moment(data.get("at"))
        entries = text if text.startswith(("-", "#")) else f"- {text}"
        yield Remembered(layout.MEMORY_FILE, "Imported", entries, at)


def _name(text: str) -> str:
    """A text as the name of a file."""
    return _UNSAFE.sub("-", text)[:60].strip("-.").lower() or "untitled"


# --- Telegram -------------------------------------------------------------------------------------

_CHANNELS: Final = frozenset({"public_channel", "private_channel"})


def telegram_talk(data: Mapping[str, object]) -> Iterator[Found]:
    """A chat of Telegram's: in one of two, the other has its id; in a group, names tell."""
    kind, title = words(data.get("type")), words(data.get("name"))
    if kind in _CHANNELS:
        yield Skipped(title or "a channel", "a channel is no conversation")
        return
    chat = str(data.get("id"))
    others = f"user{chat}" if kind in {"personal_chat", "bot_chat"} else ""
    is_own = kind == "saved_messages"
    said = [
        _telegram_said(mapping(each), others, is_own=is_own) for each in items(data.get("messages"))
    ]
    yield made("telegram", chat, title or ("Saved messages" if is_own else ""), said, 0)


def _telegram_said(message: Mapping[str, object], others: str, *, is_own: bool) -> Said | Left:
    """A message, or why it is left out; in a chat of two `others` is who is not the person."""
    if message.get("type") != "message":
        return Left.SERVICE if message.get("type") == "service" else Left.BROKEN
    parts = message.get("text")
    runs = [words(each) or words(mapping(each).get("text")) for each in items(parts)]
    text = (words(parts) or "".join(runs)).strip()
    if not text:
        return Left.WORDLESS
    if forwarded := words(message.get("forwarded_from")):
        text = f"[forwarded from {forwarded}]\n{text}"
    sender, name = words(message.get("from_id")), words(message.get("from"))
    is_own = is_own or bool(others and sender and sender != others)
    stamp = words(message.get("date_unixtime"))
    at = seconds(int(stamp)) if stamp.isascii() and stamp.isdigit() and len(stamp) < 12 else 0
    at = at or moment(message.get("date"))
    by = "" if is_own else name or sender or "somebody"
    return Said(str(message.get("id") or ""), "user" if is_own else "assistant", text, at, by)


# --- WhatsApp -------------------------------------------------------------------------------------
#
# A line for each message, `[01.05.24, 09:14:00] Ada: hello` on an iPhone and `01/05/2024, 09:14 -
# Ada: hello` on Android, and more lines where it has more. The order of a date is that of the phone
# and stands nowhere: that of the whole chat is the one in which most dates are possible, and the
# fewest go back.

_DATE = r"(?P<{0}1>\d{{1,4}})[./-] ?(?P<{0}2>\d{{1,2}})[./-] ?(?P<{0}3>\d{{1,4}})\.?"
_TIME = (
    r"(?P<{0}h>\d{{1,2}})[:.](?P<{0}m>\d\d)(?:[:.](?P<{0}s>\d\d))?"
    r"(?:[ \u202f\u00a0]?(?P<{0}p>[AaPp])\.?[ \u202f\u00a0]?[Mm]\.?)?"
)
_ROW = re.compile(
    r"[\u200e\u200f\ufeff]*+(?:"
    rf"\[{_DATE.format('a')},?[ \u202f]{_TIME.format('a')}\] "
    rf"|{_DATE.format('b')},?[ \u202f]{_TIME.format('b')} [-–] "
    r")(?P<rest>.*)"
)
_NAMED = re.compile(r"(?P<name>[^:]{1,100}): ?(?P<text>.*)", re.DOTALL)
_BY_PROGRAM = "\u200e"  # before what WhatsApp itself put into a message
_FIRST_YEAR = 2009  # of WhatsApp
_ORDERS: Final = {"day/month/year": "321", "month/day/year": "312", "year/month/day": "123"}

_Row = tuple[re.Match[str], list[str]]


def is_whatsapp(start: str) -> bool:
    """True for the beginning of a chat of WhatsApp."""
    return any(map(_ROW.match, start.split("\n", 5)[:5]))


def whatsapp_talk(text: str, title: str, zone: tzinfo) -> Talk:
    """A chat of WhatsApp, in which everybody goes by a name; its file is called after the other."""
    rows: list[_Row] = []
    for line in text.split("\n"):
        row = _ROW.match(line)
        if row is not None:
            rows.append((row, [row["rest"].rstrip("\r")]))
        elif rows:
            rows[-1][1].append(line.rstrip("\r"))
    order, times, is_sure = _ordered(rows, zone)
    found = [_NAMED.fullmatch("\n".join(lines)) for _, lines in rows]
    names = {one["name"].strip("\u200e\u200f~\u202f ") for one in found if one is not None}
    other = next((name for name in names if title.endswith(name)), "") if len(names) == 2 else ""
    said: list[Said | Left | None] = []
    seen = Counter[str]()
    for one, at in zip(found, times, strict=True):
        if one is None:
            said.append(Left.SERVICE)
            continue
        name = one["name"].strip("\u200e\u200f~\u202f ")
        text = one["text"].split(_BY_PROGRAM, 1)[0].strip()
        if not text or (text[0] == "<" and text[-1] == ">"):
            said.append(Left.WORDLESS)
            continue
        id_ = digest(str(at), name, text)
        seen[id_] += 1
        is_own = bool(other) and name != other
        by, role = ("", "user") if is_own else (name, "assistant")
        said.append(Said(f"{id_}{seen[id_]}", role, text, at, by))
    assumed = f"Dates of WhatsApp are read as {order}"
    assumed += "" if is_sure else ", as nothing in a chat says what they are"
    name = title or digest(*sorted(names))
    return replace(made("whatsapp", name, title, said, 0), assumed=assumed)


def _ordered(rows: Sequence[_Row], zone: tzinfo) -> tuple[str, list[int], bool]:
    """The order of the dates of a chat, its times by it, and whether no other fits as well."""
    tried: list[tuple[int, int, str, list[int]]] = []
    for name, order in _ORDERS.items():
        times = [_time(row, order, zone) for row, _ in rows]
        known = [at for at in times if at]
        back = sum(later < earlier for earlier, later in pairwise(known))
        tried.append((len(times) - len(known), back, name, times))
    best = min(tried, key=lambda one: one[:2])
    is_sure = all(one is best or one[:2] > best[:2] or one[3] == best[3] for one in tried)
    return best[2], best[3], is_sure


def _time(row: re.Match[str], order: str, zone: tzinfo) -> int:
    """The time of a message in ms since the epoch; 0 if its date is invalid in this order."""
    kind = "a" if row["ah"] else "b"
    year, month, day = (int(row[f"{kind}{at}"]) for at in order)
    hour, half = int(row[f"{kind}h"]), (row[f"{kind}p"] or "").lower()
    hour = hour % 12 + 12 * (half == "p") if half else hour
    year += 2000 * (year < 100)
    try:
        when = datetime(
            year, month, day, hour, int(row[f"{kind}m"]), int(row[f"{kind}s"] or 0), tzinfo=zone
        )
    except ValueError:
        return 0
    return milliseconds(when.timestamp() * 1000) if year >= _FIRST_YEAR else 0
