"""`python -m bot.cli`, where the command itself is not at hand."""

from bot.cli import main

main()
