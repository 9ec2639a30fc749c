"""Has recordings understood, and counts what the service says it used for that."""

from __future__ import annotations

from bot.agent.models import Usage
from bot.clock import Clock
from bot.money.counts import Spent
from bot.speech.transcriber import Audio, Transcriber, Transcript
from bot.unit_of_work import Committer


class Listener:
    """Understands what people say, on the account of whoever sent it."""

    def __init__(
        self, transcriber: Transcriber, model: str, committer: Committer, clock: Clock
    ) -> None:
        """`model` is the name that what is used counts under."""
        self._transcriber = transcriber
        self._model = model
        self._committer = committer
        self._clock = clock

    async def hear(self, person: str, session_id: str, audio: Audio) -> Transcript:
        """What is said in a recording that came in a conversation, always in bounded time.

        Raises:
            Unreadable: nothing was understood; the reason says why.
            StorageClosed: the program is ending.
        """
        heard = await self._transcriber.transcribe(person, audio)
        used = Usage(heard.input_tokens, heard.output_tokens)
        if used != Usage():
            spent = Spent(person, session_id, self._model, "speech", used)
            await self._committer.count(self._clock(), [spent])
        return heard
