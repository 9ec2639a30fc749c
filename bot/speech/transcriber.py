"""The seam for what understands speech."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Audio:
    """Something that was said; `name` and `mime` are what the platform says of it, or empty."""

    data: bytes
    name: str = ""
    mime: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was understood. `is_cut` is True when that is only the beginning.

    Tokens are those a service says it used; 0 where it tells none.
    """

    text: str
    is_cut: bool = False
    input_tokens: int = 0
    output_tokens: int = 0


class Transcriber(Protocol):
    """Understands what people say."""

    async def transcribe(self, person: str, audio: Audio) -> Transcript:
        """The words of a person's voice message, always in bounded time.

        Raises:
            Unreadable: nothing was understood; the reason says why.
        """
        ...

    async def close(self) -> None:
        """End what is being done."""
        ...
