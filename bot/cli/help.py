"""The tree of commands: each in one line of help, in its group, with an example and its function.

A command's module is imported when it is called, so that help is there at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from bot.invocation import confidant

RUN = "Run it"
PEOPLE = "People"
MEMORY = "Conversations and memory"
KEEP = "Keep it, and move it"
SET_UP = "Set it up"


@dataclass(frozen=True, slots=True)
class Shown:
    """One command: its line, which fits a terminal of 80 columns, its example, and its group.

    `body` is where its function is, "module:name" within this package; a group of commands has
    none.
    """

    line: str
    example: str
    panel: str = ""
    body: str = ""

    @property
    def epilog(self) -> str:
        """What is below its help."""
        return f"Example: {confidant(self.example)}".replace("[", "\\[")  # it is markup


# By what is typed, in the order they are shown.
COMMANDS: Mapping[str, Shown] = {
    "run": Shown(
        "Run the bot: every channel you set up, and the page.", "run", RUN, body="main:run"
    ),
    "chat": Shown("Chat in this terminal.", "chat", RUN, body="serve:chat"),
    "login": Shown(
        "Print a link that lets somebody in to the page.", "login ada", RUN, body="login:invite"
    ),
    "doctor": Shown(
        "Check everything, and mend what can be mended.", "doctor --fix", RUN, body="doctor:check"
    ),
    "pairing": Shown("Let people in, and out again.", "pairing list", PEOPLE),
    "export": Shown(
        "Write all of one person into a file.",
        "export telegram:42 ada.zip",
        PEOPLE,
        body="export:export",
    ),
    "erase": Shown("Erase one person for good.", "erase telegram:42", PEOPLE, body="erase:erase"),
    "usage": Shown(
        "Show what was used, by whom, and what it cost.",
        "usage --days 7",
        PEOPLE,
        body="usage:show",
    ),
    "sessions": Shown("Look at conversations, and write them out.", "sessions list", MEMORY),
    "memory": Shown(
        "Search and edit your notes, and mend their index.", "memory search boat", MEMORY
    ),
    "reminders": Shown(
        "Show what is due, when and for whom.", "reminders", MEMORY, body="reminders:show"
    ),
    "backup": Shown(
        "Write everything into one file, while the bot runs.",
        "backup today.backup",
        KEEP,
        body="archives:make",
    ),
    "restore": Shown(
        "Put a backup in the place of what is there.",
        "restore --check today.backup",
        KEEP,
        body="archives:choose",
    ),
    "move": Shown(
        "Move everything into a PostgreSQL, or a folder.",
        "move --to postgresql://bot@db/bot",
        KEEP,
        body="move:move",
    ),
    "import": Shown(
        "Bring conversations and notes of other programs.", "import chatgpt chats.zip", KEEP
    ),
    "config": Shown("Check, explain and show the configuration.", "config check", SET_UP),
    "nodes": Shown("Show the nodes that share a database.", "nodes", SET_UP, body="nodes:show"),
    "migrate": Shown(
        "Make or renew the tables that nodes share.", "migrate", SET_UP, body="nodes:migrate"
    ),
    "pairing list": Shown(
        "Show who asked, and who was let in.", "pairing list", body="pairing:show"
    ),
    "pairing approve": Shown(
        "Let in whoever was given this code.",
        "pairing approve telegram ABCD2345 --me",
        body="pairing:approve",
    ),
    "pairing revoke": Shown(
        "They must ask again.", "pairing revoke telegram 42", body="pairing:revoke"
    ),
    "pairing block": Shown(
        "No answer and no code any more.", "pairing block telegram 42", body="pairing:block"
    ),
    "pairing unblock": Shown(
        "They may ask again.", "pairing unblock telegram 42", body="pairing:unblock"
    ),
    "sessions list": Shown(
        "Show every conversation; * marks those that go on.",
        "sessions list",
        body="sessions:show_all",
    ),
    "sessions show": Shown(
        "Show what was said in one.", "sessions show 0198f2c1", body="sessions:show"
    ),
    "sessions export": Shown(
        "Write all transcripts into a folder.",
        "sessions export transcripts",
        body="sessions:export",
    ),
    "import openclaw": Shown(
        "Bring a whole OpenClaw.", "import openclaw ~/.openclaw --dry-run", body="openclaw:move"
    ),
    "import chatgpt": Shown(
        "Bring a data export of ChatGPT.", "import chatgpt chats.zip", body="importing:chats"
    ),
    "import claude": Shown(
        "Bring a data export of Claude.", "import claude chats.zip", body="importing:chats"
    ),
    "memory status": Shown(
        "Show what is in the index, and what is wrong.", "memory status", body="memory:status"
    ),
    "memory search": Shown(
        "Find your notes by words and by meaning.", "memory search boat name", body="memory:search"
    ),
    "memory index": Shown(
        "Bring the index in step with the notes.", "memory index", body="memory:index"
    ),
    "memory verify": Shown(
        "Check vectors, embedder, index and files.", "memory verify", body="memory:verify"
    ),
    "memory forget": Shown(
        "Remove what holds these words.", "memory forget boat name", body="memory:forget"
    ),
    "memory pull": Shown(
        "Copy your notes into a new folder.", "memory pull notes", body="notes:pull"
    ),
    "memory push": Shown(
        "Write back what was edited there.", "memory push notes", body="notes:push"
    ),
    "memory edit": Shown("Edit a note in your editor.", "memory edit MEMORY.md", body="notes:edit"),
    "config check": Shown("Say what is wrong with it.", "config check", body="options:check"),
    "config show": Shown(
        "Print every option, and where it comes from.", "config show", body="options:show"
    ),
    "config schema": Shown(
        "Print the JSON Schema of the file.", "config schema", body="options:schema"
    ),
}


class Tree(TyperGroup):
    """A group of commands, whose functions are found when one of them is called."""

    def __init__(self, *, above: str = "", **about: Any) -> None:
        super().__init__(**about)
        self._above = above
        self.commands = {
            typed.rpartition(" ")[2]: _stub(typed, shown)
            for typed, shown in COMMANDS.items()
            if typed.rpartition(" ")[0] == above
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is called, with its arguments and options."""
        name, command, rest = super().resolve_command(ctx, args)
        shown = COMMANDS.get(f"{self._above} {name}".strip())
        if shown is not None and shown.body:
            command = loaded(str(name), shown)
        return name, command, rest


def loaded(name: str, shown: Shown) -> Any:
    """A command as its function has it."""
    import_module("bot.cli.logger").load()  # or others load the log with more than it needs
    module, _, function = shown.body.partition(":")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, epilog=shown.epilog)(getattr(import_module(f"bot.cli.{module}"), function))
    return typer.main.get_command(alone)


def _stub(typed: str, shown: Shown) -> Any:
    about: dict[str, Any] = {"help": shown.line, "epilog": shown.epilog}
    about |= {"name": typed.rpartition(" ")[2], "rich_help_panel": shown.panel or None}
    return TyperCommand(**about) if shown.body else Tree(above=typed, no_args_is_help=True, **about)
