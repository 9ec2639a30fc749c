"""Speech understood on this machine, by a program of its own with bounds on memory and time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import structlog

from bot.clock import Clock
from bot.config import SpeechConfig
from bot.files.opener import Limits, Opener
from bot.files.sandbox import Unreadable
from bot.speech.transcriber import Audio, Transcript

PROGRAM = Path(__file__).with_name("program.py")
NO_EXTRA = (
    '[speech] kind = "local" needs packages that are not installed: '
    'pip install "confidant-bot[speech]"'
)
SECONDS = 60.0  # for one message; then what was understood until there counts
# Room for a medium model; half a minute more than the program takes by itself, while the time of a
# processor counts once for each of its threads.
LIMITS = Limits(megabytes=6_000, seconds=240, wall=90.0, idle=300.0, share=600.0, refill=0.5)

log = structlog.get_logger(__name__)


class LocalSpeech:
    """Has each voice message understood in turn; people share the time as with their files."""

    def __init__(self, config: SpeechConfig, clock: Clock, limits: Limits = LIMITS) -> None:
        self._model = str(Path(config.model).expanduser())
        self._language = config.language
        self._opener = Opener(None, clock, limits, program=PROGRAM)

    async def transcribe(self, person: str, audio: Audio) -> Transcript:
        """The words of a voice message.

        Raises:
            Unreadable: it is damaged or silent, or there is no model or no process.
        """
        asked = {
            "task": "speech",
            "model": self._model,
            "language": self._language,
            "seconds": SECONDS,
        }
        try:
            head, body = await self._opener.ask(person, asked, audio.data)
        except OSError as error:  # no process could be started
            log.warning("speech.no_process", error=type(error).__name__)
            raise Unreadable("listening") from None
        return Transcript(body.decode(), head["is_cut"])

    async def close(self) -> None:
        """End the program, whatever it is doing."""
        await self._opener.close()


def missing(config: SpeechConfig) -> str:
    """Why nothing can be understood on this machine; empty when it can."""
    if find_spec("faster_whisper") is None:
        return NO_EXTRA
    folder = Path(config.model).expanduser()
    if not (folder / "model.bin").is_file():
        return "[speech] model is no folder of a Whisper model in CTranslate2 form (model.bin)"
    return ""
