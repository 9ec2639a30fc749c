"""Data exports of ChatGPT and Claude, made by code in the shape in which their makers give them."""

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
