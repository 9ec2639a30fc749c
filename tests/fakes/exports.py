"""Exports of other programs, made by code in the shape in which their makers give them.

The shapes were looked up in what reads or writes them in public: Open WebUI's `chats.py` and its
stored chats, LibreChat's messages, AstrBot's `conversation_service.py`, `result.json` as Telegram
Desktop writes it, and chats that people exported of WhatsApp on an iPhone and on Android.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BEGAN = 1_714_550_400.0  # 2024-05-01 08:00 UTC, in seconds

ROOT = "00000000-0000-4000-8000-000000000000"  # what Claude's first messages answer


def chatgpt(
    id_: str, *texts: str, began: float = BEGAN, title: str = "", **changes: Any
) -> dict[str, Any]:
    """A conversation of ChatGPT: what the person and the model said, in turn."""
    system = {
        "id": f"{id_}-system",
        "author": {"role": "system", "name": None, "metadata": {}},
        "create_time": None,
        "content": {"content_type": "text", "parts": [""]},
        "metadata": {"is_visually_hidden_from_conversation": True},
        "recipient": "all",
    }
    nodes: dict[str, Any] = {
        "root": {"id": "root", "message": None, "parent": None, "children": ["system"]},
        "system": {"id": "system", "message": system, "parent": "root", "children": []},
    }
    last = "system"
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        node = f"{id_}-{number}"
        add(nodes, node, last, gpt_message(node, role, text, began + 60 * number))
        last = node
    return {
        "title": title or f"Talk {id_}",
        "create_time": began,
        "update_time": began + 60 * len(texts),
        "mapping": nodes,
        "moderation_results": [],
        "current_node": last,
        "conversation_id": id_,
        "id": id_,
        **changes,
    }


def gpt_message(id_: str, role: str, text: str, at: float, **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "update_time": None,
        "content": {"content_type": "text", "parts": [text]},
        "status": "finished_successfully",
        "end_turn": True,
        "weight": 1.0,
        "metadata": {"model_slug": "gpt-4o"} if role == "assistant" else {},
        "recipient": "all",
        **changes,
    }


def add(nodes: dict[str, Any], id_: str, parent: str, message: Mapping[str, Any] | None) -> None:
    """Hang a node below another one."""
    nodes[id_] = {"id": id_, "message": message, "parent": parent, "children": []}
    nodes[parent]["children"].append(id_)


def claude(
    id_: str, *texts: str, began: float = BEGAN, name: str = "", **changes: Any
) -> dict[str, Any]:
    """A conversation of Claude: what the person and the model said, in turn."""
    messages: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        sender = "assistant" if number % 2 else "human"
        parent = messages[-1]["uuid"] if messages else ROOT
        node = f"{id_}-{number}"
        messages.append(claude_message(node, sender, text, began + 60 * number, parent))
    return {
        "uuid": id_,
        "name": name or f"Talk {id_}",
        "summary": "",
        "created_at": iso(began),
        "updated_at": iso(began + 60 * len(texts)),
        "account": {"uuid": "0a"},
        "chat_messages": messages,
        **changes,
    }


def claude_message(
    id_: str, sender: str, text: str, at: float, parent: str, **changes: Any
) -> dict[str, Any]:
    return {
        "uuid": id_,
        "text": text,
        "content": [{"type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": iso(at),
        "updated_at": iso(at),
        "attachments": [],
        "files": [],
        "parent_message_uuid": parent,
        **changes,
    }


def iso(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def pack(path: Path, talks: Sequence[Any] | bytes | str, **more: bytes | str) -> Path:
    """A ZIP as it comes: the conversations, and files beside them."""
    data = talks if isinstance(talks, (bytes, str)) else json.dumps(talks, ensure_ascii=False)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", data)
        archive.writestr("chat.html", "<html>not read</html>")
        for name, text in more.items():
            archive.writestr(name.replace("__", "/"), text)
    return path


def openwebui(id_: str, *texts: str, began: float = BEGAN) -> dict[str, Any]:
    """A chat of Open WebUI's "Export All Chats": a tree of messages, times in seconds."""
    nodes: dict[str, Any] = {}
    for number, text in enumerate(texts):
        name, parent = f"{id_}-{number}", f"{id_}-{number - 1}" if number else None
        nodes[name] = {
            "id": name,
            "parentId": parent,
            "childrenIds": [],
            "role": "assistant" if number % 2 else "user",
            "content": text,
            "timestamp": int(began) + 60 * number,
        }
        if parent:
            nodes[parent]["childrenIds"].append(name)
    chat = {
        "title": f"Talk {id_}",
        "models": ["llama3"],
        "history": {"messages": nodes, "currentId": f"{id_}-{len(texts) - 1}"},
        "messages": list(nodes.values()),
        "timestamp": int(began * 1000),
    }
    return {
        "id": id_,
        "user_id": "u",
        "title": f"Talk {id_}",
        "chat": chat,
        "created_at": int(began),
        "updated_at": int(began),
        "archived": False,
        "pinned": False,
        "meta": {},
    }


def librechat(id_: str, *texts: str, began: float = BEGAN) -> dict[str, Any]:
    """A conversation as LibreChat exports it, its messages in a list."""
    messages = [
        {
            "messageId": f"{id_}-{number}",
            "parentMessageId": f"{id_}-{number - 1}"
            if number
            else "00000000-0000-0000-0000-000000000000",
            "sender": "GPT-4o" if number % 2 else "User",
            "isCreatedByUser": not number % 2,
            "createdAt": iso(began + 60 * number),
            # Answers of agents have their words in blocks, and no text.
            **(
                {"text": "", "content": [{"type": "think", "think": "hm"}, _block(text)]}
                if number % 2
                else {"text": text}
            ),
        }
        for number, text in enumerate(texts)
    ]
    options = {"presetOverride": {}, "model": "gpt-4o"}
    return {
        "conversationId": id_,
        "endpoint": "openAI",
        "title": f"Talk {id_}",
        "exportAt": "10:00:00 GMT+0200",
        "branches": False,
        "recursive": False,
        "options": options,
        "messages": messages,
    }


def _block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def astrbot(id_: str, *texts: str, began: float = BEGAN) -> dict[str, Any]:
    """A line of AstrBot's `astrbot_conversations_export_….jsonl`."""
    content = [
        {"role": "assistant" if number % 2 else "user", "content": text}
        for number, text in enumerate(texts)
    ]
    return {
        "cid": id_,
        "user_id": "webchat:FriendMessage:webchat!ada!1",
        "platform_id": "webchat",
        "title": f"Talk {id_}",
        "persona_id": "default",
        "created_at": int(began),
        "updated_at": int(began),
        "content": content,
    }


def telegram(
    id_: int, *said: tuple[str, str], kind: str = "personal_chat", began: float = BEGAN
) -> dict[str, Any]:
    """A chat of Telegram Desktop's export: who said what; the other's id is that of the chat."""
    ids = {"Bo": f"user{id_}", "Ada": "user7", "Cy": "user8"}
    messages: list[dict[str, Any]] = [
        {
            "id": number + 1,
            "type": "message",
            "date": f"{datetime.fromtimestamp(began + 60 * number, UTC):%Y-%m-%dT%H:%M:%S}",
            "date_unixtime": str(int(began) + 60 * number),
            "from": who,
            "from_id": ids[who],
            "text": text,
            "text_entities": [{"type": "plain", "text": text}],
        }
        for number, (who, text) in enumerate(said)
    ]
    return {"name": "Bo" if kind == "personal_chat" else "Crew", "type": kind, "id": id_} | {
        "messages": messages
    }
