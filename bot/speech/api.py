"""Speech: the seam for what understands it, and any service that offers it as OpenAI's does.

Those have `/audio/transcriptions` and `/audio/speech`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import structlog

from bot.channel.kit.json_access import child, mapping, number, parse_json, storable
from bot.channel.kit.text import parser
from bot.clock import Clock
from bot.config import SpeechConfig
from bot.delivery.delivery import Unspoken
from bot.files.opener import Limits, Opener
from bot.files.sandbox import Unreadable
from bot.i18n import text
from bot.invocation import installing
from bot.net.connection import session, why
from bot.shares import LISTENERS

if TYPE_CHECKING:
    from markdown_it.token import Token


@dataclass(frozen=True, slots=True)
class Audio:
    """Something that was said; `name` and `mime` are what the platform says of it, or empty."""

    data: bytes
    name: str = ""
    mime: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The words of a recording. `is_cut` is True if they are only the beginning.

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


# What of a reply is said aloud: its words, without what only the eye can read. Pure.

MOST = 2_000  # characters, about two minutes; services take 4 096
_URL = re.compile(r"https?://(?:www\.)?([^\s/?#]+)\S*")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SIGNS = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u200d\ufe0f]")
_SENTENCE = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)]*+(?=\s)|[。！？]|\n")


def speakable(markdown: str, language: str) -> str:
    """The words of a reply to say; empty when there are none.

    A long one ends with a sentence, and says that the rest is to be read, as it does of code and
    tables.
    """
    cut = markdown[: 4 * MOST]  # marks and what is left out take room as well
    lines = [" ".join(line.split()) for line in _lines(parser().parse(cut), language)]
    words = "\n".join(line for line in lines if any(char.isalnum() for char in line))
    if len(words) <= MOST and cut == markdown:
        return words
    return f"{_beginning(words[:MOST])}\n{text(language, 'speech.rest')}"


def _lines(tokens: Sequence[Token], language: str) -> Iterator[str]:
    """The words of a document, block by block."""
    in_table = False
    for token in tokens:
        if token.type in {"fence", "code_block"}:
            yield text(language, "speech.code")
        elif token.type == "table_open":
            in_table = True
            yield text(language, "speech.table")
        elif token.type == "table_close":
            in_table = False
        elif token.type == "inline" and not in_table:
            yield _said("".join(map(_word, token.children or ())))


def _word(token: Token) -> str:
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return token.content if token.type in {"text", "code_inline", "image"} else ""


def _said(words: str) -> str:
    """Words without signs: of an address, where it leads."""
    return _SIGNS.sub("", _TAG.sub("", _URL.sub(r"\1", words)))


def _beginning(words: str) -> str:
    ends = [found.end() for found in _SENTENCE.finditer(words)]
    if ends:
        return words[: ends[-1]].rstrip()
    return words.rpartition(" ")[0] or words


# --- a service ------------------------------------------------------------------------------------


MOST_ANSWER = 1_000_000  # bytes
MOST_SOUND = 10_000_000  # bytes; two minutes take one
CONNECT_TIMEOUT = 10.0  # seconds
# A key or an address that cannot be sent at all is a ValueError.
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
_ENDINGS = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/webm": "webm",
    "audio/flac": "flac",
}

# Why a service refuses: what it was sent, or how it was asked; else it may work later.
_REASONS = {
    **dict.fromkeys((400, 415, 422), "unsuited"),
    **dict.fromkeys((301, 302, 307, 308, 401, 403, 404, 405), "refused"),
    413: "length",
}

log = structlog.get_logger(__name__)


class SpeechApi:
    """Asks a service for the words of voice messages, and to say others."""

    def __init__(self, config: SpeechConfig) -> None:
        self._config = config

    async def transcribe(self, person: str, audio: Audio) -> Transcript:
        """The words of a voice message.

        Raises:
            Unreadable: the service fails, refuses it, or hears nothing in it.
        """
        try:
            status, body = await self._post("transcriptions", self._form(audio), MOST_ANSWER)
        except _FAILURES as error:
            log.warning("speech.unreachable", error=why(error))
            raise Unreadable("listening") from None
        if status != 200:
            log.warning("speech.refused", status=status)
            raise Unreadable(_REASONS.get(status, "listening"))
        transcript = _transcript(body)
        if transcript is None:
            log.warning("speech.no_answer", status=status)
            raise Unreadable("listening")
        if not transcript.text:
            raise Unreadable("silence")
        return transcript

    async def say(self, words: str) -> bytes:
        """An Ogg file with Opus in it, in which this is said.

        Raises:
            Unspoken: the service fails, refuses, or makes another kind of file.
        """
        config = self._config
        asked = {
            "model": config.reply_model,
            "voice": config.voice,
            "input": words,
            "response_format": "opus",
        }
        try:
            status, body = await self._post("speech", asked, MOST_SOUND)
        except _FAILURES as error:
            log.warning("speech.unreachable", error=why(error))
            raise Unspoken("speaking") from None
        if status != 200:
            log.warning("speech.refused", status=status)
            is_asked_wrongly = _REASONS.get(status) in {"refused", "unsuited"}
            raise Unspoken("refused" if is_asked_wrongly else "speaking")
        if not body.startswith(b"OggS"):
            raise Unspoken("format")
        return body

    async def close(self) -> None:
        """Nothing is kept open."""

    def _form(self, audio: Audio) -> aiohttp.FormData:
        config = self._config
        form = aiohttp.FormData()
        form.add_field("model", config.model)
        form.add_field("response_format", "json")
        if config.language:
            form.add_field("language", config.language)
        # Services go by the ending of a name.
        ending = _ENDINGS.get(audio.mime.partition(";")[0].lower(), "ogg")
        form.add_field("file", audio.data, filename=audio.name or f"voice.{ending}")
        return form

    async def _post(
        self, what: str, asked: aiohttp.FormData | Mapping[str, str], most: int
    ) -> tuple[int, bytes]:
        """The status and body of an answer of at most `most` bytes.

        Raises:
            aiohttp.ClientError: there was none, or it was longer.
            TimeoutError: it took too long.
            OSError: there is no connection.
        """
        config = self._config
        headers: dict[str, str] = {}
        if config.api_key is not None:
            headers["Authorization"] = f"Bearer {config.api_key.get_secret_value()}"
        timeout = aiohttp.ClientTimeout(total=config.timeout, sock_connect=CONNECT_TIMEOUT)
        address = f"{config.base_url.rstrip('/')}/audio/{what}"
        content: dict[str, Any] = {"json" if isinstance(asked, Mapping) else "data": asked}
        async with (
            session(timeout=timeout) as client,
            client.post(address, **content, headers=headers, allow_redirects=False) as answer,
        ):
            body = bytearray()
            async for block in answer.content.iter_chunked(1 << 16):
                body += block
                if len(body) > most:
                    raise aiohttp.ClientPayloadError("the answer is too long")
            return answer.status, bytes(body)


def _transcript(body: bytes) -> Transcript | None:
    """The words in an answer; None if it is no such answer."""
    try:
        answer = mapping(parse_json(body))
    except ValueError:
        return None
    words, used = answer.get("text"), child(answer, "usage")
    if not isinstance(words, str):
        return None
    return Transcript(
        " ".join(storable(words).split()),
        input_tokens=number(used, "input_tokens"),
        output_tokens=number(used, "output_tokens"),
    )


# Speech understood on this machine, by a program of its own with bounds on memory and time.

PROGRAM = Path(__file__).with_name("program.py")
NO_EXTRA = f'[speech] kind = "local" needs packages that are not installed: {installing("speech")}'
SECONDS = 60.0  # for one message; then what was understood until there counts
# Room for a medium model; half a minute more than the program takes by itself, while the time of a
# processor counts once for each of its threads.
LIMITS = Limits(megabytes=6_000, seconds=240, wall=90.0, idle=300.0, share=600.0, refill=0.5)


class LocalSpeech:
    """Has each voice message understood in turn; people share the time as with their files."""

    def __init__(self, config: SpeechConfig, clock: Clock, limits: Limits = LIMITS) -> None:
        self._model = str(Path(config.model).expanduser())
        self._language = config.language
        self._opener = Opener(None, clock, limits, program=PROGRAM, share=LISTENERS)

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


def local_missing(config: SpeechConfig) -> str:
    """Why nothing can be understood on this machine; empty when it can."""
    if find_spec("faster_whisper") is None:
        return NO_EXTRA
    folder = Path(config.model).expanduser()
    if not (folder / "model.bin").is_file():
        return "[speech] model is no folder of a Whisper model in CTranslate2 form (model.bin)"
    return ""
