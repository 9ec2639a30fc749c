"""One module or package per channel.

Each knows its own SDK and `bot.channel`, and nothing else of the engine.
"""
