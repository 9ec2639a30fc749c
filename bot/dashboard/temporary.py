"""`/api/temporary`: a chat that is kept in its page alone, which sends all of it with each message.

No database, file, log or cache on disk has a word of it, so there is nothing to search, to remember
or to erase, whatever crashes. It has no memory and no tools; what it uses is counted as everywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, cast

import orjson
import structlog
from aiohttp import web

from bot.agent.model_limits import LimitsResolver
from bot.agent.models.speed import ANSWER
from bot.agent.running import RunningTurns
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Meter, Turn, TurnRequest, TurnResult
from bot.channel.kit.json_access import mapping, parse_json
from bot.channel.kit.markdown_html import render
from bot.config import OFFLINE, TURN_SECONDS
from bot.context import prompt
from bot.context.history import size_of
from bot.dashboard.guard import TEMPORARY
from bot.dashboard.pages import NO_STORE, Pages, Visit, route
from bot.errors import ModelContextFull, ModelUnreachable, WindowTooSmall
from bot.i18n import text
from bot.identity import Conversation
from bot.memory.notes import SpaceFiles
from bot.messages import Message, Text
from bot.money import LimitReached
from bot.shares import TALKS, Pool
from bot.unicode import well_formed

MOST_BODY: Final = 1_000_000  # bytes of a whole chat …
MOST_LINES: Final = 999  # … and messages in it
MOST_TEXT: Final = 64 * 1024  # bytes of the last one, as everywhere on the page
LOOK_SECONDS: Final = 0.1  # between two states of a reply, …
BUSY_SHARE: Final = 10  # … or so many times what drawing the last one took
ALIVE_SECONDS: Final = 15.0  # without a word from the model before a proxy is shown a blank line
PERSONA_SHARE: Final = 3  # the bot's own files take at most this part (one third) of the window

log = structlog.get_logger(__name__)


class TemporaryPages(Pages):
    """Answers what is said in temporary chats."""

    def __init__(
        self,
        *,
        limits: LimitsResolver,
        files: SpaceFiles,
        charging: Callable[[Conversation], AbstractAsyncContextManager[Meter]],
        running: RunningTurns,
    ) -> None:
        """`charging` counts what is used for somebody within an `async with`."""
        self._limits = limits
        self._files = files
        self._charging = charging
        self._running = running
        self._pool = Pool(TALKS)
        self._toolbox = Toolbox(())  # whatever a model calls, it is told that there is no such tool

    @route("POST", TEMPORARY, shared=True)
    async def _answer(self, visit: Visit) -> web.StreamResponse:
        """The reply to a chat's last line as it grows: JSON objects, a line each."""
        here, request = visit.conversation, visit.request
        if not here.is_served:
            raise web.HTTPForbidden
        async with self._pool.place(visit.visitor.name):
            body = await request.clone(client_max_size=MOST_BODY).read()
            said = await asyncio.to_thread(parse, body)
            asked = await self._asked(visit, said)
            response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
            response.headers.update(NO_STORE)
            response.headers["X-Accel-Buffering"] = "no"  # nginx passes a reply on as it grows
            await response.prepare(request)
            if isinstance(asked, str):
                await response.write(_line(error=asked))
            else:
                await self._stream(request, response, asked, here)
            await response.write_eof()
            return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        asked: TurnRequest,
        here: Conversation,
    ) -> None:
        written = ""

        def grow(words: str) -> None:
            nonlocal written
            written = words

        key = f"{here.key}:temporary"  # `/stop` in the ordinary chat is not about this
        async with self._charging(here) as meter:
            turn = Turn(asked, self._toolbox, grow, meter)
            answering = asyncio.create_task(turn.run())
            try:
                with (
                    self._running.running(key, "reply", (here,)) as stop,
                    stop.by(turn.stop, "reply"),
                ):
                    shown, pause, at = "", LOOK_SECONDS, time.monotonic()
                    while not answering.done():
                        await asyncio.wait({answering}, timeout=pause)
                        begun = time.monotonic()
                        if request.transport is None or request.transport.is_closing():
                            turn.stop()  # nobody is left to read it
                        elif written != shown or begun - at > ALIVE_SECONDS:
                            is_new, shown, at = written != shown, written, begun
                            await response.write(await _drawn(shown) if is_new else b"\n")
                            pause = max(LOOK_SECONDS, BUSY_SHARE * (time.monotonic() - begun))
            finally:
                turn.stop()
                await asyncio.wait({answering})
            result = answering.result()
        if result.model == OFFLINE:  # it stood in, and is no use without memory
            result = replace(result, reply="", error=ModelUnreachable())
        why = _why(here, asked, result)
        log.info("temporary.answered", error=type(result.error).__name__ if result.error else "")
        is_cut = result.stopped or result.stop == "max_tokens"
        await response.write(await _drawn(result.reply, ended=True, cut=is_cut, error=why))

    async def _asked(self, visit: Visit, said: Sequence[Message]) -> TurnRequest | str:
        """The request for a chat; a sentence where none can be made."""
        here, language = visit.conversation, visit.language
        agent = here.config.agent
        limits = await self._limits.of("", agent)
        if limits.name == OFFLINE:
            return visit.say("temporary.no_model")
        own = [file for file in await self._files.bootstrap(here.view) if not file.remembered]
        now = visit.at(visit.now)

        def weighed() -> tuple[str, int]:
            most = limits.window.tokens // PERSONA_SHARE
            system = prompt.system_prompt(
                name=agent.name,
                language=language,
                tools=(),
                persona=prompt.assemble_persona(own, most, short=limits.wants_short).text,
                short=limits.wants_short,
            )
            system = f"{system}\n\n{prompt.temporary(now)}"
            sizes = (size_of(each, limits.count) for each in said[:-1])
            return system, round((limits.count(system) + sum(sizes)) * limits.factor)

        system, used = await asyncio.to_thread(weighed)
        return TurnRequest(
            limits=limits,
            system=system,
            history=tuple(said[:-1]),
            messages=(said[-1],),
            context=ToolContext(here.view, "", now, limits.window.tokens),
            language=language,
            max_steps=agent.max_steps,
            timeout=limits.seconds(
                agent.turn_timeout, TURN_SECONDS, prompt=used, answer=2 * ANSWER
            ),
            used=used,
            cite=False,
        )


def parse(body: bytes) -> list[Message]:
    """The messages of a chat in turn, its person's first and last.

    Raises:
        HTTPBadRequest: it is something else.
    """
    try:
        found: object = mapping(parse_json(body)).get("lines")
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest from error
    lines = cast("list[object]", found) if isinstance(found, list) else []
    if len(lines) % 2 == 0 or len(lines) > MOST_LINES:
        raise web.HTTPBadRequest
    said: list[Message] = []
    for line in lines:
        words = line.replace("\0", "") if isinstance(line, str) else ""
        if not words.strip():
            raise web.HTTPBadRequest
        role = "assistant" if len(said) % 2 else "user"
        said.append(Message(role, (Text(well_formed(words)),)))
    if len(said[-1].text.encode()) > MOST_TEXT:
        raise web.HTTPBadRequest
    return said


def _why(here: Conversation, asked: TurnRequest, result: TurnResult) -> str:
    """Why there is no answer, or no more of it; empty where it is whole."""
    error, language = result.error, asked.language
    if error is None:
        is_empty = not result.reply and not result.stopped
        return text(language, "temporary.failed") if is_empty else ""
    if isinstance(error, LimitReached):
        return text(language, "temporary.limit")
    if isinstance(error, ModelContextFull | WindowTooSmall):
        return text(language, "temporary.full")
    words = text(language, "temporary.failed")
    if error.told and here.is_owner:
        return f"{words} {text(language, 'error.model.told', words=error.told)}"
    return words


async def _drawn(words: str, **more: object) -> bytes:
    html = await asyncio.to_thread(render, words, rich=True)
    return _line(text=words, html=html, **more)


def _line(**fields: Any) -> bytes:
    return orjson.dumps(fields) + b"\n"
