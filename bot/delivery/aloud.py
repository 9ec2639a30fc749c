"""Replies that are said aloud: their words become sound when it is their turn to be sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import structlog
from cachetools import LRUCache

from bot.channel import Address, Attachment
from bot.delivery.outbox import Extra, Letter
from bot.metrics import Metrics

FORMAT = "audio/ogg"  # with Opus in it: what platforms show as a voice message
REMEMBERED = 1024  # places where it was told that nothing could be said aloud

log = structlog.get_logger(__name__)


class Unspoken(Exception):
    """A reply was not said aloud; `reason` is one of the words of `speech.why` in `bot.i18n`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Speaker(Protocol):
    """Says words aloud."""

    async def say(self, words: str) -> bytes:
        """An Ogg file with Opus in it, always in bounded time.

        Raises:
            Unspoken: there is none; the reason says why.
        """
        ...


class Aloud:
    """Makes sound of the words that are to be said, and knows where it was told that none came."""

    def __init__(self, speaker: Speaker | None, metrics: Metrics) -> None:
        self._speaker = speaker
        self._metrics = metrics
        self._told: LRUCache[Address, bool] = LRUCache(REMEMBERED)

    async def voiced(self, letter: Letter) -> Letter:
        """A text with the sound of its words, if it has any that are to be said.

        Raises:
            Unspoken: they could not be said.
        """
        if not letter.extra.aloud:
            return letter
        if self._speaker is None:  # it was switched off meanwhile
            raise Unspoken("off")
        sound = await self._speaker.say(letter.extra.aloud)
        return replace(letter, extra=Extra(attachments=(Attachment("voice.ogg", FORMAT, sound),)))

    def said(self, letter: Letter) -> None:
        """Note that a voice message was sent."""
        self._metrics.voice.labels("out", "sent").inc()
        self._told.pop(letter.address, None)

    def unsaid(self, letter: Letter, reason: str) -> bool:
        """Note that none was sent; True when that is to be told.

        That is once for each place, until one is sent there again or the program starts anew.
        """
        log.warning("delivery.unspoken", channel=letter.address.channel, reason=reason)
        self._metrics.voice.labels("out", reason).inc()
        if reason == "off" or letter.address in self._told:
            return False
        self._told[letter.address] = True
        return True
