"""The tree of commands: each in one line of help, in its group, with an example and its function.

A command's module is imported when it is called, so that help is there at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from bot.invocation import confidant


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
    typed: Shown(**about)
    for typed, about in tomllib.loads(
        resources.files("bot.cli").joinpath("commands.toml").read_text("utf-8")
    ).items()
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
