"""Upkeep of a conversation beside its turns: saving memory, making room, notices, resets.

`policy` decides what is due, purely; the other modules do it.
"""
