"""Builders of what `bot.app` starts and stops: the engine and the page, each a straight list."""
