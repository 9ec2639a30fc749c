"""Attachments of a message, for the model: pictures, texts, documents and recordings.

Everything else is only named. What cannot be fetched in time is named too: a message is answered
in any case, and whoever sent it is told what the model did not see.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import structlog

from bot.agent.models import Usage
from bot.agent.tools.toolbox import limit_of, shortened
from bot.channel import Address, Channel, Inbound, Media
from bot.context import prompt
from bot.core import Core
from bot.errors import ChannelError, StorageError
from bot.files.opener import Document, FileReader, is_binary
from bot.files.sandbox import Unreadable
from bot.gateway.lanes import is_plain
from bot.health import Tries
from bot.i18n import text
from bot.identity import Conversation
from bot.messages import Picture, Text
from bot.money import UNKNOWN, Allowance, LimitReached
from bot.sessions import inbox
from bot.sessions.artifacts import PICTURE, ArtifactStore
from bot.sessions.inbox import QueuedMessage
from bot.shares import FILES, Pool
from bot.speech.api import Audio, Transcriber, Transcript
from bot.storage.records import MetaStore
from bot.unicode import decoded, one_line
from bot.unit_of_work import Committer

# Voice messages: their words take the message's place before its turn is prepared.
#
# What was understood is stored with the message that waits, so it is worked out once, and a
# second time only when the program ended in between.


class Listener:
    """Understands what people say, on the account of whoever sent it."""

    def __init__(
        self, transcriber: Transcriber, model: str, committer: Committer, allowance: Allowance
    ) -> None:
        """`model` is the name that what is used counts under; the offline one costs nothing."""
        self._transcriber = transcriber
        self._model = model
        self._committer = committer
        self._allowance = allowance

    async def hear(self, payer: Conversation, session_id: str, audio: Audio) -> Transcript:
        """Transcribe a recording that came in a conversation, always in bounded time.

        Raises:
            Unreadable: nothing was understood; the reason says why.
            StorageClosed: the program is ending.
        """
        account = self._allowance.account(payer)
        try:
            async with (
                self._committer.charging(account, session_id, "speech"),
                account.call(self._model, 0, UNKNOWN),
            ):
                heard = await self._transcriber.transcribe(payer.person, audio)
                account.add({self._model: Usage(heard.input_tokens, heard.output_tokens)})
        except LimitReached:
            raise Unreadable("limit") from None
        return heard


MOST_AUDIO = 20_000_000  # bytes
FETCH_TIMEOUT = 30.0  # seconds
NOT_WORKING = frozenset({"listening", "refused"})  # why not even the next one would be understood
MOST_QUOTED = 300  # characters of what was understood that are quoted back
TOLD = "speech.told:"  # in `meta`, with a person: they know that voice is switched off

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Understood:
    """Messages with what was said in them, and what their people are told about that.

    `answers_aloud` when their answer is to be said as well.
    """

    rows: Sequence[QueuedMessage]
    told: Sequence[str] = ()
    answers_aloud: bool = False


NOTHING_HEARD = Understood(())


class VoiceReader:
    """Makes words of voice messages, from channels that can fetch them."""

    def __init__(
        self, core: Core, listener: Listener | None, speech: Tries, *, answers_aloud: bool = False
    ) -> None:
        """`answers_aloud` when whoever speaks is answered so, in channels that can.

        `speech` hears whether understanding works.
        """
        self._speech = speech
        self._core = core
        self._listener = listener
        self._marks = MetaStore(core.database, core.clock)
        self._answers_aloud = answers_aloud

    async def understand(self, rows: Sequence[QueuedMessage]) -> Understood:
        """The messages of one turn with the words of those that were spoken.

        Raises:
            StorageError: what was understood could not be stored.
        """
        found: list[QueuedMessage] = []
        told: dict[str, None] = {}  # in order, and nothing twice
        failed = ""
        for row in rows:
            try:
                spoken, words = await self._one(row, failed)
            except Unreadable as error:
                log.info("speech.not_understood", reason=error.reason)
                self._core.metrics.voice.labels("in", error.reason).inc()
                if error.reason in NOT_WORKING:
                    failed = error.reason
                    self._speech.note(error)
                language = row.conversation.language
                why = text(language, f"media.why.{error.reason}")
                spoken, words = row, text(language, "speech.unheard", why=why)
            found.append(spoken)
            if words:
                told[words] = None
        return Understood(found, tuple(told), self._is_said(found[-1].inbound))

    def _is_said(self, inbound: Inbound) -> bool:
        """True when the answer to a message is said aloud."""
        channel = self._core.channels.get(inbound.channel)
        is_able = channel is not None and channel.capabilities.voice
        return self._answers_aloud and is_able and bool(inbound.spoken)

    async def _one(self, row: QueuedMessage, failed: str) -> tuple[QueuedMessage, str]:
        """A message with its words, and what is told of them.

        `failed` is why what listens did not work for one just before, or empty.

        Raises:
            Unreadable: it was not understood; the reason says why.
            StorageError: what was understood could not be stored.
        """
        inbound, language = row.inbound, row.conversation.language
        media = inbound.voice
        if media is None:
            return row, ""
        if inbound.spoken:
            return row, quoted(language, inbound.spoken)
        if self._listener is None:
            return row, await self._off(row.conversation.person, language)
        if failed:
            raise Unreadable(failed)
        transcript = await self._transcript(self._listener, row, media)
        self._core.metrics.voice.labels("in", "understood").inc()
        self._speech.note(None)
        said = "\n".join(part for part in (inbound.text, transcript.text) if part)
        heard = replace(inbound, text=said, spoken=transcript.text)
        await self._core.database.write(lambda tx: inbox.heard(tx, row.id, heard))
        words = quoted(language, transcript.text)
        if transcript.is_cut:
            words = f"{words}\n{text(language, 'speech.cut')}"
        return replace(row, inbound=heard), words

    async def _transcript(self, listener: Listener, row: QueuedMessage, media: Media) -> Transcript:
        """The transcript of a voice message.

        Raises:
            Unreadable: it was not understood; the reason says why.
        """
        if is_plain([row]):  # what ended the program twice is not tried a third time
            raise Unreadable("deadly")
        audio = await self._fetch(row.inbound, media)
        return await listener.hear(row.conversation, row.session_id, audio)

    async def _fetch(self, inbound: Inbound, media: Media) -> Audio:
        """The recording.

        Raises:
            Unreadable: it is too large, or cannot be fetched.
        """
        files = files_of(self._core.channels, inbound)
        if files is None:
            raise Unreadable("fetch")
        if media.size > MOST_AUDIO:
            raise Unreadable("bytes")
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                data = await files.fetch(inbound.address, media, MOST_AUDIO)
        except Exception as error:  # noqa: BLE001 - a channel may fail in any way; the turn goes on
            log.info("speech.not_fetched", error=type(error).__name__)
            raise Unreadable("fetch") from None
        return Audio(data, media.name, media.mime)

    async def _off(self, person: str, language: str) -> str:
        """That nobody listens, said once to everybody."""
        if await self._marks.get(f"{TOLD}{person}") is not None:
            return ""
        await self._marks.set(f"{TOLD}{person}", "1")
        return text(language, "speech.off")


def files_of(channels: Mapping[str, Channel], inbound: Inbound) -> Channel | None:
    """The channel that can fetch the files of a message, or None."""
    channel = channels.get(inbound.channel)
    return channel if channel is not None and channel.capabilities.files else None


def quoted(language: str, words: str) -> str:
    """The understood words, quoted in a line."""
    return text(language, "speech.quoted", words=one_line(words, MOST_QUOTED))


MOST_FILES = 10  # of one message
MOST_PICTURE = 20_000_000  # bytes
MOST_DOCUMENT = 20_000_000  # bytes
MOST_ALBUM = 60_000_000  # bytes of all files of one message
MOST_TEXT = 1_000_000  # bytes
TIMEOUT = 20.0  # seconds, for all files of one message, and …
LISTENING = 120.0  # … for recordings among them
JUST_BEFORE = 5 * 60_000  # ms; what was posted within that before a message may be meant by it

_PICTURES = ("image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp", "image/tiff")
_TEXTS = ("text/", "application/json", "application/xml", "application/x-yaml", "application/toml")
_SUFFIXES = frozenset(
    """.txt .md .markdown .csv .tsv .json .jsonl .xml .yaml .yml .toml .ini .log .py .js .ts .css
    .sh .sql .c .h .cpp .rs .go .java .tex .srt .ics""".split()  # noqa: SIM905
)
_DOCUMENTS = (
    "application/pdf",
    "application/msword",
    "application/vnd.ms-",
    "application/vnd.oasis.opendocument.spreadsheet",
    "application/vnd.openxmlformats-officedocument.",
    "application/xhtml+xml",
    "text/html",
)
_DOCUMENT_SUFFIXES = frozenset(
    """.pdf .docx .docm .xlsx .xlsm .xlsb .xls .ods .pptx .pptm .ppsx .doc .ppt .html .htm
    .xhtml""".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The attachments of a message.

    `unseen` are the files the model does not see, and why not; `partly` the documents of which it
    has the beginning only.
    """

    blocks: Sequence[Text | Picture] = ()
    unseen: Sequence[tuple[Media, str]] = ()
    partly: Sequence[tuple[Media, Document]] = ()

    def told(self, language: str) -> str:
        """Tell the sender which files the model does not see; empty if it sees all."""
        unseen = [(media, _why(language, reason)) for media, reason in self.unseen]
        partly = [(media, _part(language, document)) for media, document in self.partly]
        sentences = [
            text(language, f"media.{which}", files=_listed(language, files))
            for which, files in (("unseen", unseen), ("partly", partly))
            if files
        ]
        return "\n".join(sentences)


NOTHING_CAME = Contents()


class MediaReader:
    """Fetches what a model can take from channels that can fetch it."""

    def __init__(
        self, core: Core, artifacts: ArtifactStore, reader: FileReader, listener: Listener | None
    ) -> None:
        self._core = core
        self._artifacts = artifacts
        self._reader = reader
        self._listener = listener
        self._pool = Pool(FILES)

    async def read(
        self,
        inbound: Inbound,
        session_id: str,
        window: int,
        payer: Conversation,
    ) -> Contents:
        """Read the attachments of a person's message; never raises, never late."""
        with_it = came(inbound)
        files = files_of(self._core.channels, inbound) if with_it else None
        if files is None:
            return Contents()
        wanted = [media for media, _ in with_it if self._is_wanted(media, inbound)]
        takes_long = any(_is_recording(media) for media in wanted)
        album = _Album(
            files, inbound.address, session_id, window, payer=payer, places=dict(with_it)
        )
        reads = [asyncio.create_task(self._one(album, m)) for m in wanted[:MOST_FILES]]
        try:
            if reads:
                await asyncio.wait(reads, timeout=LISTENING if takes_long else TIMEOUT)
            seen = [task.result() if task.done() else "late" for task in reads]
        finally:
            for task in reads:
                task.cancel()
        seen += ["many"] * len(wanted[MOST_FILES:])
        found = list(zip(wanted, seen, strict=True))
        return Contents(
            [_named(m, r) if isinstance(r, str) else r.block for m, r in found],
            [(m, r) for m, r in found if isinstance(r, str)],
            [(m, r.cut) for m, r in found if isinstance(r, _Shown) and r.cut is not None],
        )

    def _is_wanted(self, media: Media, inbound: Inbound) -> bool:
        if _is_recording(media):  # what the sender said is in their words already
            return self._listener is not None and media is not inbound.voice
        return _is_picture(media) or _is_text(media) or _is_document(media)

    async def _one(self, album: _Album, media: Media) -> _Shown | str:
        """The block the model is shown for a file, or the word that says why there is none."""
        try:
            async with self._pool.place(album.person):
                return await self._opened(album, media)
        except Unreadable as error:
            log.info("media.not_shown", kind=media.kind, reason=error.reason)
            return error.reason
        except (ChannelError, StorageError) as error:
            log.info("media.not_fetched", kind=media.kind, error=type(error).__name__)
            return "fetch"
        except Exception as error:  # noqa: BLE001 - a file may be anything; the message goes on
            log.warning("media.unreadable", kind=media.kind, error=type(error).__name__)
            return "damaged"

    async def _opened(self, album: _Album, media: Media) -> _Shown:
        if _is_picture(media):
            return _Shown(await self._picture(album, media))
        if _is_recording(media) and self._listener is not None:
            return await self._recording(album, media, self._listener)
        if _is_document(media):
            return await self._read(album, media, await album.fetch(media, MOST_DOCUMENT))
        return await self._text(album, media)

    async def _picture(self, album: _Album, media: Media) -> Picture:
        data = await album.fetch(media, MOST_PICTURE)
        jpeg = await self._reader.jpeg(album.person, data)
        shown = base64.b64encode(jpeg).decode()
        ref = await self._artifacts.keep(album.session_id, PICTURE, shown)
        return Picture("image/jpeg", ref, shown)

    async def _text(self, album: _Album, media: Media) -> _Shown:
        data = await album.fetch(media, MOST_TEXT)
        if is_binary(data):  # a workbook that is called a table of text, say
            return await self._read(album, media, data)
        return _Shown(await self._quoted(album, media, decoded(data)))

    async def _read(self, album: _Album, media: Media, data: bytes) -> _Shown:
        document = await self._reader.text(album.person, data, media.mime, media.name)
        return await self._shown(album, media, document)

    async def _recording(self, album: _Album, media: Media, listener: Listener) -> _Shown:
        data = await album.fetch(media, MOST_AUDIO)
        heard = await listener.hear(
            album.payer, album.session_id, Audio(data, media.name, media.mime)
        )
        return await self._shown(album, media, Document(heard.text, is_cut=heard.is_cut))

    async def _shown(self, album: _Album, media: Media, document: Document) -> _Shown:
        left = f"[it goes on; {_part('en', document)} were read]\n" if document.is_cut else ""
        shown = await self._quoted(album, media, document.text, left)
        return _Shown(shown, document if document.is_cut else None)

    async def _quoted(self, album: _Album, media: Media, words: str, left: str = "") -> Text:
        """A file's words as a note; the beginning and the end of what is long."""
        limit = limit_of(words, album.window) // 2
        if len(words) > limit:
            kept = await self._artifacts.keep(album.session_id, media.name or "file", words)
            words = shortened(words, limit, kept)
        quoted = "\n".join(f"> {line}".rstrip() for line in words.splitlines())
        name = _name(media)
        head = prompt.file_head(name, album.places[media])
        return Text(f"{head}\n{quoted}\n{left}[end of {name}]\n", note=True, origin="file")


@dataclass(frozen=True, slots=True)
class _Shown:
    """The block the model is shown for a file; `cut` is the document if that is not all of it."""

    block: Text | Picture
    cut: Document | None = None


class _Album:
    """The files of one message: where they are, whose they are, and how much may still come."""

    def __init__(
        self,
        files: Channel,
        address: Address,
        session_id: str,
        window: int,
        *,
        payer: Conversation,
        places: Mapping[Media, str],
    ) -> None:
        self.session_id, self.window, self.payer = session_id, window, payer
        self.person = payer.person
        self.places = places
        self._files, self._address, self._left = files, address, MOST_ALBUM

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file.

        Raises:
            Unreadable: those before it were so large that there is no room.
            ChannelError: it could not be fetched.
        """
        most = min(most, self._left)
        if media.size > most or not most:
            raise Unreadable("bytes")
        data = await self._files.fetch(self._address, media, most)
        self._left -= len(data)
        return data


def came(inbound: Inbound) -> list[tuple[Media, str]]:
    """The files a message is about, each with where it came from, its own ones first.

    In a room that is also what was posted just before: a photo, and then "@bot what is this?".
    """
    answered = () if inbound.reply_to is None else inbound.reply_to.media
    found = [(media, "which came with the message that this one refers to") for media in answered]
    found = [*((media, "sent with this message") for media in inbound.media), *found]
    if not found:
        for said in reversed(inbound.heard):
            if said.media and inbound.sent_at - said.at <= JUST_BEFORE:
                return [(media, "posted just before this message") for media in said.media]
    return found


def _is_picture(media: Media) -> bool:
    return media.kind == "photo" or (media.kind == "document" and media.mime in _PICTURES)


def _is_text(media: Media) -> bool:
    if media.kind != "document":
        return False
    return media.mime.startswith(_TEXTS) or PurePath(media.name).suffix.lower() in _SUFFIXES


def _is_recording(media: Media) -> bool:
    is_audio = media.kind == "document" and media.mime.startswith("audio/")
    return is_audio or media.kind in {"audio", "voice"}


def _is_document(media: Media) -> bool:
    if media.kind != "document":
        return False
    suffix = PurePath(media.name).suffix.lower()
    # Platforms take ".csv" for a workbook where Excel is installed.
    is_text = suffix in _SUFFIXES
    return suffix in _DOCUMENT_SUFFIXES or (media.mime.startswith(_DOCUMENTS) and not is_text)


def _named(media: Media, reason: str) -> Text:
    """The model is told in English, as of everything else about a message."""
    words = f"[{media.kind} {_name(media)}: {_why('en', reason)}]\n"
    return Text(words, note=True, origin="name")


def _why(language: str, reason: str) -> str:
    return text(language, f"media.why.{reason}")


def _part(language: str, document: Document) -> str:
    """The part of a document that was read, in words."""
    unit = document.unit or "text"
    size = len(document.text)
    return text(language, f"media.part.{unit}", read=document.read, of=document.of, size=size)


def _listed(language: str, files: Sequence[tuple[Media, str]]) -> str:
    """Files by name, each with what there is to say about it."""
    named = [
        text(language, "media.file", name=_called(media, language), why=why) for media, why in files
    ]
    return text(language, "media.and").join(named)


def _called(media: Media, language: str) -> str:
    kind = "picture" if _is_picture(media) else "text"
    name = " ".join(media.name.replace("`", "").split())[:80]
    return f"`{name}`" if name else text(language, f"media.{kind}")


def _name(media: Media) -> str:
    flat = " ".join(media.name.split()).replace("[", "(").replace("]", ")")[:200]
    return flat or f"without a name ({media.kind})"
