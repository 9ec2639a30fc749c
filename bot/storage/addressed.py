"""Rows that belong to one address, in whichever table: its four columns are the same in all."""

from __future__ import annotations

from typing import Final

from bot.channel import Address

HERE: Final = "channel = ? AND account = ? AND chat = ? AND thread = ?"


def place(address: Address) -> tuple[str, str, str, str]:
    """The values of these columns."""
    return address.channel, address.account, address.chat, address.thread
