"""`python -m bot.cli`, where the command itself is not at hand."""

from bot.cli import main

if __name__ == "__main__":
    main()
