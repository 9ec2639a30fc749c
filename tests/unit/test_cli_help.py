"""Help: every command in one line, in its group, with an example that can be typed."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from bot.cli.help import COMMANDS, Tree, loaded
from bot.cli.main import cli

WIDTH = 80  # columns of a terminal
ROOT = typer.main.get_command(cli)


def test_each_command_is_one_line_of_a_usual_terminal():
    names = [name.split()[-1] for name in COMMANDS]
    widest = WIDTH - 4 - max(map(len, names)) - 2
    assert not [shown.line for shown in COMMANDS.values() if cell_len(shown.line) > widest]
    seen = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": str(WIDTH), "NO_COLOR": "1"}).stdout
    for name, shown in COMMANDS.items():
        if " " not in name:
            assert re.search(rf"^│ {name} +{re.escape(shown.line)} +│$", seen, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_of_its_command_and_can_be_typed(name):
    words = shlex.split(COMMANDS[name].example)
    assert words[: len(name.split())] == name.split()
    command, context = ROOT, ROOT.context_class(ROOT)
    while isinstance(command, Tree) and words:
        _, command, words = command.resolve_command(context, words)
    command.make_context(name, words, parent=context)  # what does not fit is refused


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_shows_the_example(name):
    done = CliRunner().invoke(cli, [*name.split(), "--help"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    example = COMMANDS[name].example if name else "run"
    assert f"Example: confidant {example}" in done.stdout


def test_groups_are_shown_in_the_order_of_what_is_done():
    seen = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": str(WIDTH)}).stdout
    panels = list(dict.fromkeys(shown.panel for shown in COMMANDS.values() if shown.panel))
    assert re.findall(r"╭─ ([^─]+) ─", seen) == ["Options", *panels]


@pytest.mark.parametrize("name", [name for name, shown in COMMANDS.items() if shown.body])
def test_every_argument_and_option_says_what_it_is(name):
    command = loaded(name, COMMANDS[name])
    assert [each.name for each in command.params if not getattr(each, "help", "")] == []
