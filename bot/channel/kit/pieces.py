"""What a text is sent as: the pieces of an `Outbound`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bot.channel import Capabilities, Outbound, Piece
from bot.channel.kit import text
from bot.errors import SendRefused


class TakesMarkdown:
    """A channel that takes Markdown as it is: a base class that renders."""

    capabilities: Capabilities

    def render(self, outbound: Outbound) -> list[Piece]:
        """The text as it is, cut at `max_length`, its files with the last piece.

        Raises:
            SendRefused: there is nothing to show.
        """
        able = self.capabilities
        parts = text.split(outbound.text, able.max_length, able.length_unit)
        if outbound.attachments and not parts:
            parts = [""]
        files = [()] * (len(parts) - 1) + [outbound.attachments]
        return numbered(
            Piece(outbound, part, attachments=each)
            for part, each in zip(parts, files, strict=False)
        )


def numbered(parts: Iterable[Piece]) -> list[Piece]:
    """The pieces, each knowing which one it is.

    Raises:
        SendRefused: there is none.
    """
    found = list(parts)
    if not found:
        raise SendRefused("there is nothing to show in this message")
    if len(found) == 1:
        return found
    return [replace(part, index=index, count=len(found)) for index, part in enumerate(found)]
