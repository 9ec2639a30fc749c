"""The command `confidant`: one module for each group of subcommands."""

from bot.cli.main import main

__all__ = ["main"]
