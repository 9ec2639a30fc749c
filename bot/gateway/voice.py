"""Voice messages: their words take the message's place before its turn is prepared.

What was understood is stored with the message that waits, so it is worked out once, and a second
time only when the program ended in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from bot.agent.models import Usage
from bot.channel import Channel, Files, Inbound, Media
from bot.clock import Clock
from bot.files.sandbox import Unreadable
from bot.gateway.attempts import is_plain
from bot.i18n import text
from bot.metrics import Metrics
from bot.money.allowance import Allowance
from bot.money.counts import Spent
from bot.sessions import inbox
from bot.sessions.inbox import QueuedMessage
from bot.speech.transcriber import Audio, Transcriber, Transcript
from bot.storage import Database
from bot.storage.meta import MetaStore
from bot.unicode import one_line
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


MOST_AUDIO = 20_000_000  # bytes
FETCH_TIMEOUT = 30.0  # seconds
NOT_WORKING = frozenset({"listening", "refused"})  # why not even the next one would be understood
MOST_QUOTED = 300  # characters of what was understood that are quoted back
TOLD = "speech.told:"  # in `meta`, with a person: they know that voice is switched off

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Understood:
    """Messages with what was said in them, and what their people are told about that.

    `answers_aloud` when their answer is to be said as well, `stopped` when somebody ended that.
    """

    rows: Sequence[QueuedMessage]
    told: Sequence[str] = ()
    answers_aloud: bool = False
    stopped: bool = False


NOTHING_HEARD = Understood(())


class VoiceReader:
    """Makes words of voice messages, from channels that can fetch them."""

    def __init__(
        self,
        *,
        channels: Mapping[str, Channel],
        listener: Listener | None,
        database: Database,
        marks: MetaStore,
        allowance: Allowance,
        metrics: Metrics,
        answers_aloud: bool = False,
    ) -> None:
        """`answers_aloud` when whoever speaks is answered so, in channels that can."""
        self._channels = channels
        self._listener = listener
        self._database = database
        self._marks = marks
        self._allowance = allowance
        self._metrics = metrics
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
                self._metrics.voice.labels("in", error.reason).inc()
                failed = error.reason if error.reason in NOT_WORKING else failed
                language = row.conversation.language
                why = text(language, f"media.why.{error.reason}")
                spoken, words = row, text(language, "speech.unheard", why=why)
            found.append(spoken)
            if words:
                told[words] = None
        return Understood(found, tuple(told), self._is_said(found[-1].inbound))

    def _is_said(self, inbound: Inbound) -> bool:
        """True when the answer to a message is said aloud."""
        channel = self._channels.get(inbound.channel)
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
        if (await self._allowance.of(row.conversation)).refused is not None:
            raise Unreadable("limit")  # listening costs as well
        if failed:
            raise Unreadable(failed)
        transcript = await self._transcript(self._listener, row, media)
        self._metrics.voice.labels("in", "understood").inc()
        said = "\n".join(part for part in (inbound.text, transcript.text) if part)
        heard = replace(inbound, text=said, spoken=transcript.text)
        await self._database.write(lambda tx: inbox.heard(tx, row.id, heard))
        words = quoted(language, transcript.text)
        if transcript.is_cut:
            words = f"{words}\n{text(language, 'speech.cut')}"
        return replace(row, inbound=heard), words

    async def _transcript(self, listener: Listener, row: QueuedMessage, media: Media) -> Transcript:
        """What was said in a message.

        Raises:
            Unreadable: it was not understood; the reason says why.
        """
        if is_plain([row]):  # what ended the program twice is not tried a third time
            raise Unreadable("deadly")
        audio = await self._fetch(row.inbound, media)
        return await listener.hear(row.conversation.person, row.session_id, audio)

    async def _fetch(self, inbound: Inbound, media: Media) -> Audio:
        """The recording.

        Raises:
            Unreadable: it is too large, or cannot be fetched.
        """
        files = files_of(self._channels, inbound)
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


class Listening:
    """Voice messages being understood: `result` waits for that, and `stop` ends it."""

    def __init__(self, reader: VoiceReader, rows: Sequence[QueuedMessage]) -> None:
        self._rows = rows
        self._task = asyncio.create_task(reader.understand(rows))
        self._stopped = False

    def stop(self) -> None:
        """End it; what is not understood yet is not to be answered."""
        self._stopped = True
        self._task.cancel()

    async def result(self) -> Understood:
        """What was understood; see `VoiceReader.understand`."""
        try:
            understood = await self._task
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not self._stopped or (waiting is not None and waiting.cancelling()):
                raise
            understood = Understood(self._rows)
        return replace(understood, stopped=self._stopped)


def files_of(channels: Mapping[str, Channel], inbound: Inbound) -> Files | None:
    """What fetches the files of a message; None where nothing can."""
    channel = channels.get(inbound.channel)
    is_able = channel is not None and channel.capabilities.files
    return channel if is_able and isinstance(channel, Files) else None


def quoted(language: str, words: str) -> str:
    """What was understood, in a line."""
    return text(language, "speech.quoted", words=one_line(words, MOST_QUOTED))
