"""What `bot.app` starts and stops, put together: the engine and the page, each a straight list."""
