"""OpenClaw's folder: its state, agents, workspace and settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final, cast

from bot.errors import ImportRefused
from bot.importing.values import Piece, items, mapping, words

SETTINGS: Final = ("openclaw.json", "moltbot.json", "clawdbot.json")
MAX_SETTINGS = 1_000_000  # bytes
_NOTES: Final = frozenset({"memory.md", "agents.md", "soul.md", "identity.md", "user.md"})

# JSON5, as far as people write it: comments, names and texts in other quotes, commas at the end.
_JSON5 = re.compile(
    # What is not closed goes on to the end: nothing is looked through twice.
    r"""(?P<text>"(?:[^"\\]|\\.)*(?:"|\Z))|(?P<single>'(?:[^'\\]|\\.)*(?:'|\Z))"""
    r"""|(?P<note>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<name>(?<![\w$])[A-Za-z_$][\w$]*+)(?=\s*:)"""
    r"""|(?P<comma>,)(?=(?:\s|//[^\n]*+|(?>/\*.*?(?:\*/|\Z)))*+[}\]])""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Agent:
    """One of the agents: where its database and its older transcripts are, if it has them."""

    name: str
    database: Path | None
    sessions: Path | None


@dataclass(frozen=True, slots=True)
class Home:
    """A folder of OpenClaw; `settings` may be empty, and `unread` then says why."""

    folder: Path
    settings: Mapping[str, object]
    agents: tuple[Agent, ...]
    workspace: Path | None
    state: Path | None
    credentials: Path | None
    unread: str = ""


def look(folder: Path) -> Home:
    """Look at a state folder (`~/.openclaw`), or at a workspace alone.

    Raises:
        ImportRefused: it is neither, or it cannot be read.
    """
    try:
        there = {path.name for path in folder.iterdir()}
    except OSError as exc:
        raise ImportRefused(f"{folder} cannot be read: {exc.strerror}.") from exc
    settings, unread = _settings(folder, there)
    agents = _agents(folder)
    is_state = bool(agents) or bool(there & {*SETTINGS, "state", "credentials"})
    is_workspace = bool({name.lower() for name in there} & _NOTES)
    if not is_state and not is_workspace:
        raise ImportRefused(
            f"{folder} holds nothing of OpenClaw: name its folder, such as ~/.openclaw, or a "
            "workspace with MEMORY.md. Nothing was changed."
        )
    workspace = _workspace(folder, settings) if is_state else folder
    if workspace is None and is_workspace:
        workspace = folder
    state = folder / "state" / "openclaw.sqlite"
    credentials = folder / "credentials"
    return Home(
        folder,
        settings,
        agents,
        workspace,
        state if state.is_file() else None,
        credentials if credentials.is_dir() else None,
        unread,
    )


def _agents(folder: Path) -> tuple[Agent, ...]:
    found: list[Agent] = []
    homes = sorted((folder / "agents").iterdir()) if (folder / "agents").is_dir() else []
    # The oldest ones had one agent, and its transcripts in the folder itself.
    for name, home in (*((path.name, path) for path in homes), ("main", folder)):
        database = home / "agent" / "openclaw-agent.sqlite"
        sessions = home / "sessions"
        agent = Agent(
            name, database if database.is_file() else None, sessions if sessions.is_dir() else None
        )
        if agent.database or agent.sessions:
            found.append(agent)
    return tuple(found)


def _workspace(folder: Path, settings: Mapping[str, object]) -> Path | None:
    """The folder of the main agent's notes; it may come from another machine."""
    agents = mapping(settings.get("agents"))
    listed = [mapping(each) for each in items(agents.get("list"))]
    named = [
        words(mapping(mapping(agents.get("entries")).get("main")).get("workspace")),
        *(words(each.get("workspace")) for each in listed if each.get("id") == "main"),
        words(mapping(agents.get("defaults")).get("workspace")),
        words(mapping(settings.get("agent")).get("workspace")),
    ]
    here = [folder / Path(name).name for name in named if name]
    elsewhere = [Path(name).expanduser() for name in named if name]
    for path in (*here, folder / "workspace", *elsewhere):
        if path.is_dir():
            return path
    return None


def _settings(folder: Path, there: set[str]) -> tuple[Mapping[str, object], str]:
    name = next((name for name in SETTINGS if name in there), "")
    if not name:
        return {}, ""
    try:
        with (folder / name).open(encoding="utf-8-sig") as file:
            text = file.read(MAX_SETTINGS + 1)
    except (OSError, UnicodeDecodeError):
        return {}, f"{name} cannot be read"
    found = parse(text) if len(text) <= MAX_SETTINGS else None
    return (found, "") if found is not None else ({}, f"{name} cannot be read")


def parse(text: str) -> Mapping[str, object] | None:
    """The object that JSON, or JSON5, holds; None when it holds none. Pure."""
    for tried in (text, _JSON5.sub(_as_json, text)):
        try:
            found: object = json.loads(tried)
        except (ValueError, RecursionError):
            continue
        return cast("Mapping[str, object]", found) if isinstance(found, dict) else None
    return None


def _as_json(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "single":
            return json.dumps(found[0][1:-1].replace("\\'", "'"))
        case "name":
            return json.dumps(found[0])
        case "text":
            return found[0]
        case _:
            return ""


_DIGESTS = frozenset(
    resources.files("bot.importing.openclaw")
    .joinpath("template_digests.txt")
    .read_text("ascii")
    .split()
)


def written(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of a note without those that its template had."""
    return [piece for piece in pieces if piece.digest not in _DIGESTS]


def is_untouched(pieces: Iterable[Piece]) -> bool:
    """True for a note that says nothing but what its template says."""
    return all(piece.is_heading for piece in written(pieces))
