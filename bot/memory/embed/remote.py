"""Any server with /v1/embeddings: OpenAI, Ollama, LM Studio, vLLM, llama.cpp, and others."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import numpy as np
import orjson
import structlog

from bot.channel import reveal
from bot.config import EmbedderConfig
from bot.errors import EmbedderError
from bot.memory.embed import TextsRefused
from bot.memory.vectors import Vectors, normalised
from bot.net.connection import session, why

TRIES = 3
FIRST_PAUSE = 0.5  # seconds, doubled each time
LONGEST_PAUSE = 8.0  # seconds
JITTER = 0.2  # of a pause
FAILURES = 2  # calls in a row that fail until the server is left alone
LOCK_OUT = 30.0  # seconds, doubled for each further failure
LONGEST_LOCK_OUT = 600.0  # seconds
MAX_ANSWER = 500_000  # bytes for each text
_TOO_MANY = 429
_SERVER_ERROR = 500
_ABOUT_TEXTS = frozenset({400, 413, 422})  # what a server may say of a text, or of too many
PROBE = "a word"  # what every server takes

log = structlog.get_logger(__name__)


class RemoteEmbedder:
    """`bot.memory.embed.Embedder` over HTTP.

    A server that fails again and again is left alone for a while, so that searches do not wait for
    it; the first call after that tries it once more, and one success forgets the failures.
    """

    provider = "openai"

    def __init__(
        self,
        config: EmbedderConfig,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.model = config.model
        self.endpoint = config.base_url.rstrip("/")
        self.dims = 0
        self._config = config
        self._now = now
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None
        self._failures = 0
        self._reason = ""
        self._locked_until = 0.0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text.

        Raises:
            TextsRefused: the server takes some of the texts only.
            EmbedderError: it cannot be reached, refuses all, or answers something else.
        """
        if not texts:
            return np.zeros((0, self.dims), np.float32)
        if self._now() < self._locked_until:
            raise EmbedderError(f"left alone after {self._failures} failures: {self._reason}")
        done = _Done()
        batch = self._config.batch
        try:
            for at in range(0, len(texts), batch):
                await self._halved(texts, range(at, min(at + batch, len(texts))), done)
            rows = done.stacked()
        except EmbedderError as error:
            self._failed(str(error))
            if done.rows:
                raise done.partly(str(error)) from error
            raise
        if self._failures:
            log.info("memory.embedder.recovered", failures=self._failures)
        self._failures, self._locked_until, self._reason = 0, 0.0, ""
        if done.refused:
            raise done.partly(done.reason)
        self.dims = int(rows.shape[1])
        return rows

    async def _halved(self, texts: Sequence[str], positions: range, done: _Done) -> None:
        """Ask for texts together; what is refused is asked for in halves, down to the one text.

        Raises:
            EmbedderError: the server cannot be reached, refuses everything, or answers nonsense.
        """
        try:
            rows = await self._request([texts[at] for at in positions])
        except _Refused as error:
            if not done.reason:  # is it about these texts at all, or about the model, say?
                await self._request([PROBE])
            done.reason = str(error)
            if len(positions) == 1:
                done.refused.append(positions[0])
                return
            middle = len(positions) // 2
            await self._halved(texts, positions[:middle], done)
            await self._halved(texts, positions[middle:], done)
        else:
            done.rows.update(zip(positions, rows, strict=True))

    async def close(self) -> None:
        """Close its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self._reason = reason
        if self._failures >= FAILURES:
            seconds = min(LONGEST_LOCK_OUT, LOCK_OUT * 2 ** (self._failures - FAILURES))
            self._locked_until = self._now() + seconds
            log.warning("memory.embedder.locked_out", failures=self._failures, seconds=seconds)

    async def _request(self, texts: Sequence[str]) -> Vectors:
        for failed in range(TRIES - 1):
            try:
                return await self._once(texts)
            except _MayPass:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**failed)
                await self._sleep(pause * (1 + random.uniform(-JITTER, JITTER)))  # noqa: S311
        return await self._once(texts)

    async def _once(self, texts: Sequence[str]) -> Vectors:
        body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        try:
            async with self._client().post(f"{self.endpoint}/embeddings", json=body) as answer:
                if answer.status == _TOO_MANY or answer.status >= _SERVER_ERROR:
                    raise _MayPass(f"the server answered {answer.status}")
                if answer.status in _ABOUT_TEXTS:
                    raise _Refused(f"the server answered {answer.status}")
                if answer.status != 200:
                    raise EmbedderError(f"the server answered {answer.status}")
                text = await _body(answer, len(texts) * MAX_ANSWER)
        except TimeoutError as error:
            raise EmbedderError("the server did not answer in time") from error
        except aiohttp.ClientError as error:
            raise _MayPass(f"the server cannot be reached: {why(error)}") from error
        except ValueError as error:  # what cannot be a header, such as a line end in the key
            raise EmbedderError("the request cannot be sent: is the key a single line?") from error
        try:
            data: object = orjson.loads(text)
        except ValueError as error:
            raise EmbedderError("the server's answer is no JSON") from error
        return _rows(data, len(texts))

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            key = reveal(self._config.api_key)
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            timeout = aiohttp.ClientTimeout(total=self._config.timeout)
            self._session = session(headers=headers, timeout=timeout, max_field_size=16_384)
        return self._session


class _Refused(EmbedderError):
    """The server does not take these texts, or not together."""


@dataclass(slots=True)
class _Done:
    """The results for some texts: vectors and refusals by position, and the reason of refusals."""

    rows: dict[int, Vectors] = field(default_factory=dict[int, Vectors])
    refused: list[int] = field(default_factory=list[int])
    reason: str = ""

    def stacked(self) -> Vectors:
        """The vectors, of length one, in the order of the texts.

        Raises:
            EmbedderError: they are of different lengths.
        """
        if len({len(row) for row in self.rows.values()}) > 1:
            self.rows.clear()
            raise EmbedderError("its vectors differ in length")
        rows = [self.rows[at] for at in sorted(self.rows)]
        return normalised(np.stack(rows)) if rows else np.zeros((0, 0), np.float32)

    def partly(self, reason: str) -> TextsRefused:
        """The error to raise for partial results."""
        rows = self.stacked()
        return TextsRefused(reason, sorted(self.rows), rows, sorted(self.refused))


class _MayPass(EmbedderError):
    """The same request may work in a moment."""


async def _body(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body of a server's answer.

    Raises:
        EmbedderError: it is longer than such an answer can be.
    """
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > limit:
            raise EmbedderError("the server's answer is too long")
    return bytes(body)


def _rows(data: object, count: int) -> Vectors:
    """The vectors of an answer, in the order of the texts.

    Raises:
        EmbedderError: they are not one list of numbers for each text, all of one length.
    """
    try:
        items = cast("list[dict[str, Any]]", cast("dict[str, Any]", data)["data"])
        items = sorted(items, key=lambda item: int(item.get("index", 0)))
        rows = np.asarray([item["embedding"] for item in items], dtype=np.float64)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise EmbedderError("the server's answer holds no vectors") from error
    if rows.ndim != 2 or rows.shape[0] != count or not rows.shape[1]:
        raise EmbedderError("the server's answer holds other vectors than were asked for")
    # Scaled before it is narrowed, so that nothing is too large or too small to have a length.
    highest = np.abs(rows).max(axis=1, keepdims=True)
    usable = np.isfinite(highest) & (highest > 0)
    return np.divide(rows, highest, out=np.zeros_like(rows), where=usable).astype(np.float32)
