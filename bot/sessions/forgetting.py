"""Forgetting words wherever the database keeps them, but for transcripts, which only grow."""

from __future__ import annotations

from dataclasses import dataclass

from bot.scope import MemoryView
from bot.sessions import artifacts, search, snapshots
from bot.sessions.search import Mention
from bot.storage import Transaction


@dataclass(frozen=True, slots=True)
class Gone:
    """What held the words: entries, sessions that began with them, long results of tools."""

    mentions: list[Mention]
    prompts: list[str]
    results: int


def forget(tx: Transaction, view: MemoryView, words: str, now: int) -> Gone:
    """Let no search find these words again in a view's conversations, and no request show them."""
    mentions = search.forget(tx, view, words, now)
    keys = search.keys_of(tx, view)
    return Gone(mentions, snapshots.drop(tx, keys, words), artifacts.drop(tx, keys, words))
