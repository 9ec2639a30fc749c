"""Everything in a file, in another place, or gone: backup, restore, move, export and erase.

All of them go by the one list of tables, `bot.storage.tables`.
"""
