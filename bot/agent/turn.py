"""One turn: stream a reply, run the tools it asks for, stream on, until it is finished.

A turn only thinks: it writes nothing but what tools write. Whoever runs it commits the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog

from bot.agent.models import (
    Message,
    Model,
    Reply,
    Request,
    StopReason,
    Text,
    TextDelta,
    ToolResult,
    ToolSpec,
    ToolUse,
    Usage,
)
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.transcript import repaired, storable
from bot.errors import ModelBadReply, ModelContextFull, ModelError, ModelRefused, ModelTimeout
from bot.wellformed import well_formed

log = structlog.get_logger(__name__)

OnText = Callable[[str], None]

_FAILURES: Mapping[StopReason, type[ModelError]] = {
    "refusal": ModelRefused,
    "context_full": ModelContextFull,
}


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a turn starts from. `history` ends before the person's new `messages`."""

    model: Model
    model_name: str
    system: str
    history: tuple[Message, ...]
    messages: tuple[Message, ...]
    context: ToolContext
    language: str
    max_tokens: int
    max_steps: int
    timeout: float  # seconds
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn came to.

    `messages` begins with the person's own and is what the transcript gets. `reply` is what the
    person reads, partial when `stopped`. With `error` set the model failed after that much.
    """

    messages: tuple[Message, ...]
    reply: str
    stop: StopReason = "end"
    usage: Usage = field(default_factory=Usage)
    context_tokens: int = 0
    stopped: bool = False
    error: ModelError | None = None


class Turn:
    """A turn in progress. `run` it in a task of its own; `stop` may be called meanwhile."""

    def __init__(self, request: TurnRequest, toolbox: Toolbox, on_text: OnText | None) -> None:
        self._request = request
        self._toolbox = toolbox
        self._on_text = on_text
        self._messages: list[Message] = list(request.messages)
        self._said: list[str] = []  # the text of each finished reply
        self._writing: list[str] = []  # the deltas of the reply being written
        self._usage = Usage()
        self._context_tokens = 0
        self._task: asyncio.Task[TurnResult] | None = None
        self._begun = False
        self._stopped = False

    def start(self) -> asyncio.Task[TurnResult]:
        """Begin, and return the task that ends with the result."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def stop(self) -> None:
        """End as soon as possible; the result keeps what was written so far."""
        if self._task is not None and not self._task.done():
            self._stopped = True
            if self._begun:  # a task cancelled before its first step would have no result
                self._task.cancel()

    async def _run(self) -> TurnResult:
        self._begun = True
        try:
            async with asyncio.timeout(self._request.timeout):
                stop = await self._steps()
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            return self._result(stopped=True)
        except TimeoutError:
            return self._result(error=ModelTimeout())
        except ModelError as exc:
            return self._result(error=exc)
        except Exception:
            # A mistake of ours: told and kept like any other failure, or it would be tried forever.
            log.exception("turn.failed")
            return self._result(error=ModelError())
        failure = _FAILURES.get(stop)
        return self._result(stop=stop) if failure is None else self._result(error=failure())

    async def _steps(self) -> StopReason:
        if self._stopped:  # before the first step
            raise asyncio.CancelledError
        for _ in range(self._request.max_steps):
            reply = await self._reply()
            if reply.stop == "tool_use":
                self._messages.append(await self._run_tools(reply.message))
            elif reply.stop != "paused":
                return reply.stop
        log.warning("turn.too_many_steps", steps=self._request.max_steps)
        return "end"

    async def _reply(self) -> Reply:
        asked = self._request
        request = Request(
            model=asked.model_name,
            system=asked.system,
            messages=(*asked.history, *self._messages),
            tools=asked.tools,
            max_tokens=asked.max_tokens,
            language=asked.language,
        )
        reply: Reply | None = None
        async with aclosing(asked.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self._writing.append(event.text)
                    if self._on_text is not None:
                        self._on_text(self._text())
                else:
                    reply = event
        if reply is None:
            raise ModelBadReply
        self._writing.clear()
        self._said.append(reply.message.text)
        if reply.message.blocks:
            self._messages.append(storable(reply.message))
        self._count(reply.usage)
        return reply

    async def _run_tools(self, message: Message) -> Message:
        results: list[ToolResult] = []
        for block in message.blocks:
            if isinstance(block, ToolUse):
                text, is_error = await self._toolbox.run(
                    block.name, block.input, self._request.context
                )
                results.append(ToolResult(block.id, text, is_error=is_error))
        return storable(Message("user", tuple(results)))

    def _count(self, usage: Usage) -> None:
        total = self._usage
        self._usage = Usage(
            total.input_tokens + usage.input_tokens,
            total.output_tokens + usage.output_tokens,
            total.cache_read_tokens + usage.cache_read_tokens,
            total.cache_write_tokens + usage.cache_write_tokens,
        )
        self._context_tokens = usage.context_tokens

    def _text(self) -> str:
        parts = (*self._said, "".join(self._writing))
        return well_formed("\n\n".join(part.strip() for part in parts if part.strip()))

    def _result(
        self,
        *,
        stop: StopReason = "end",
        stopped: bool = False,
        error: ModelError | None = None,
    ) -> TurnResult:
        partial = well_formed("".join(self._writing))
        messages = tuple(self._messages)
        if partial.strip():
            messages = (*messages, Message("assistant", (Text(partial),)))
        return TurnResult(
            messages=tuple(repaired(messages)),
            reply=self._text(),
            stop=stop,
            usage=self._usage,
            context_tokens=self._context_tokens,
            stopped=stopped,
            error=error,
        )
