"""Telling people of messages while no page of theirs is open: Web Push (RFC 8030, 8291, 8292).

`subscriptions` keeps where their browsers are told, `encryption` seals what they are told, `pusher`
sends it.
"""
