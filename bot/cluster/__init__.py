"""Many nodes on one PostgreSQL: who is there, who does what, and turns that run once.

Only this package and `bot.storage.postgres` need the extra "cluster".
"""
