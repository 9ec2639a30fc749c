"""How help is laid out: the commands in groups, each in one line, and with an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer
from typer.models import CommandInfo, TyperInfo

from bot.invocation import confidant

RUN = "Run it"
PEOPLE = "People"
MEMORY = "Conversations and memory"
KEEP = "Keep it, and move it"
SET_UP = "Set it up"


@dataclass(frozen=True, slots=True)
class Shown:
    """One command: its line, which fits a terminal of 80 columns, its example, and its group."""

    line: str
    example: str
    panel: str = ""


# By what is typed, in the order they are shown.
COMMANDS: Mapping[str, Shown] = {
    "run": Shown("Run the bot: every channel you set up, and the page.", "run", RUN),
    "chat": Shown("Chat in this terminal.", "chat", RUN),
    "login": Shown("Print a link that lets somebody in to the page.", "login ada", RUN),
    "doctor": Shown("Check everything, and mend what can be mended.", "doctor --fix", RUN),
    "pairing": Shown("Let people in, and out again.", "pairing list", PEOPLE),
    "export": Shown("Write all of one person into a file.", "export telegram:42 ada.zip", PEOPLE),
    "erase": Shown("Erase one person for good.", "erase telegram:42", PEOPLE),
    "usage": Shown("Show what was used, by whom, and what it cost.", "usage --days 7", PEOPLE),
    "sessions": Shown("Look at conversations, and write them out.", "sessions list", MEMORY),
    "memory": Shown(
        "Search and edit your notes, and mend their index.", "memory search boat", MEMORY
    ),
    "reminders": Shown("Show what is due, when and for whom.", "reminders", MEMORY),
    "backup": Shown(
        "Write everything into one file, while the bot runs.", "backup today.backup", KEEP
    ),
    "restore": Shown(
        "Put a backup in the place of what is there.", "restore --check today.backup", KEEP
    ),
    "move": Shown(
        "Move everything into a PostgreSQL, or a folder.", "move --to postgresql://bot@db/bot", KEEP
    ),
    "import": Shown(
        "Bring conversations and notes of other programs.", "import chatgpt chats.zip", KEEP
    ),
    "config": Shown("Check, explain and show the configuration.", "config check", SET_UP),
    "nodes": Shown("Show the nodes that share a database.", "nodes", SET_UP),
    "migrate": Shown("Make or renew the tables that nodes share.", "migrate", SET_UP),
    "pairing list": Shown("Show who asked, and who was let in.", "pairing list"),
    "pairing approve": Shown(
        "Let in whoever was given this code.", "pairing approve telegram ABCD2345 --me"
    ),
    "pairing revoke": Shown("They must ask again.", "pairing revoke telegram 42"),
    "pairing block": Shown("No answer and no code any more.", "pairing block telegram 42"),
    "pairing unblock": Shown("They may ask again.", "pairing unblock telegram 42"),
    "sessions list": Shown("Show every conversation; * marks those that go on.", "sessions list"),
    "sessions show": Shown("Show what was said in one.", "sessions show 0198f2c1"),
    "sessions export": Shown("Write all transcripts into a folder.", "sessions export transcripts"),
    "import openclaw": Shown("Bring a whole OpenClaw.", "import openclaw ~/.openclaw --dry-run"),
    "import chatgpt": Shown("Bring a data export of ChatGPT.", "import chatgpt chats.zip"),
    "import claude": Shown("Bring a data export of Claude.", "import claude chats.zip"),
    "memory status": Shown("Show what is in the index, and what is wrong.", "memory status"),
    "memory search": Shown("Find your notes by words and by meaning.", "memory search boat name"),
    "memory index": Shown("Bring the index in step with the notes.", "memory index"),
    "memory verify": Shown("Check vectors, embedder, index and files.", "memory verify"),
    "memory forget": Shown("Remove what holds these words.", "memory forget boat name"),
    "memory pull": Shown("Copy your notes into a new folder.", "memory pull notes"),
    "memory push": Shown("Write back what was edited there.", "memory push notes"),
    "memory edit": Shown("Edit a note in your editor.", "memory edit MEMORY.md"),
    "config check": Shown("Say what is wrong with it.", "config check"),
    "config show": Shown("Print every option, and where it comes from.", "config show"),
    "config schema": Shown("Print the JSON Schema of the file.", "config schema"),
}


def lay_out(cli: typer.Typer) -> None:
    """Give each command its line, group and example; the first ones are shown first."""
    cli.info.epilog = _example("run")
    _lay_out(cli, "")


def _lay_out(group: typer.Typer, above: str) -> None:
    order = list(COMMANDS)
    for each in (*group.registered_commands, *group.registered_groups):
        typed = f"{above} {name_of(each)}".strip()
        shown = COMMANDS.get(typed)
        if shown is not None:
            each.short_help = shown.line
            each.epilog = _example(shown.example)
            each.rich_help_panel = shown.panel or each.rich_help_panel
        if isinstance(each, TyperInfo) and each.typer_instance is not None:
            _lay_out(each.typer_instance, typed)

    def place(each: CommandInfo | TyperInfo) -> int:
        typed = f"{above} {name_of(each)}".strip()
        return order.index(typed) if typed in COMMANDS else len(order)

    group.registered_commands.sort(key=place)
    group.registered_groups.sort(key=place)


def _example(words: str) -> str:
    return f"Example: {confidant(words)}".replace("[", "\\[")  # it is markup


def name_of(each: CommandInfo | TyperInfo) -> str:
    """What is typed for a command or a group of them."""
    if each.name:
        return str(each.name)
    return each.callback.__name__.replace("_", "-") if each.callback is not None else ""


def typed(group: typer.Typer, above: Sequence[str] = ()) -> list[str]:
    """Every command and group below one, as it is typed."""
    found: list[str] = []
    for each in (*group.registered_commands, *group.registered_groups):
        path = (*above, name_of(each))
        found.append(" ".join(path))
        if isinstance(each, TyperInfo) and each.typer_instance is not None:
            found += typed(each.typer_instance, path)
    return found
