"""Conversations: which one is open, what was said in it, when it ends.

Transcripts are append-only; `/new`, resets and `/undo` only move a pointer between sessions.
"""
