"""Asking a service, before anything rests on it, which models it has, and what one can do."""

from __future__ import annotations

import asyncio
import base64
import io
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final

from bot.agent.models import UNKNOWN_WINDOW, Model, Reply, Request, TextDelta, ToolSpec
from bot.agent.models.capabilities import LearnedLimit
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import open_service
from bot.agent.models.service import ServiceModel, TextStore
from bot.agent.turn import Meter
from bot.channel import Finding
from bot.clock import system_clock
from bot.config import ModelsConfig
from bot.context import tokens
from bot.context.budget import NARROW, TOO_SMALL
from bot.errors import ModelBlind, ModelError
from bot.messages import Message, Picture, Text, ToolResult, ToolUse

WIDE = 32_768  # tokens: room for a long conversation, and in the memory of most machines


@asynccontextmanager
async def opened(
    config: ModelsConfig, service: str, store: TextStore | None = None
) -> AsyncGenerator[Model]:
    """A service as it is configured, for as long as it is asked.

    What is learned of its models is kept in the store; without one it is forgotten.
    """
    store = _Nowhere() if store is None else store
    model = open_service(config.kind_of(service), config.services[service], store)
    try:
        yield model
    finally:
        await model.close()


async def names_of(config: ModelsConfig, service: str) -> Sequence[str]:
    """Ask a service which models it has; none of one that cannot be asked.

    Raises:
        ModelError: its subclass says what is wrong: the key, the address, the way there.
    """
    async with opened(config, service) as model:
        return sorted(await model.fetch_names() or ())


async def window_to_set(config: ModelsConfig, service: str, name: str) -> int | None:
    """The window to configure for a model, in tokens, so that conversations fit; 0 for none.

    None when it is too small and its server cannot be asked for another one.

    Raises:
        ModelError: the service does not know the model, or cannot be asked.
    """
    if config.services[service].window:
        return 0
    async with opened(config, service) as model:
        told = (await model.check(name) or UNKNOWN_WINDOW).max_input_tokens
        if not 0 < told < NARROW:
            return 0
        if isinstance(model, OpenAIModel) and await model.can_widen(name, WIDE):
            return WIDE
        return None if told < TOO_SMALL else 0


SECONDS: Final = 60.0  # that trying a model may take
LONGEST: Final = 4096  # tokens of an answer; thinking counts
MOST_SENT: Final = 1000  # tokens of a question, with a picture and a tool
LAST: Final = 150  # the number that the long answer counts to
_SYSTEM: Final = "You are being tried out. Do exactly what you are asked, in few words."
_TOOL: Final = ToolSpec(
    "lucky_number", "Tells the lucky number of today.", {"type": "object", "properties": {}}
)
_COLOURS: Final = ("red", "green", "blue", "yellow", "black", "white")


async def what_it_can(
    config: ModelsConfig,
    service: str,
    name: str,
    store: TextStore | None = None,
    seconds: float = SECONDS,
    *,
    meter: Meter | None = None,
) -> Sequence[Finding]:
    """Try what a model can do: a long answer, a tool, a picture; a line for each.

    What was known of it is found out anew: what it refuses and that it sees no pictures is kept in
    the store, so that no conversation has to find out. It costs some 1 500 tokens, by the meter.
    Nothing is raised: what fails is what does not work.
    """
    async with opened(config, service, store) as model:
        catalog = model.catalog if isinstance(model, ServiceModel) else None
        if catalog is not None:
            await catalog.forget(name)
        stream = partial((meter or Meter()).stream, model, name=f"{service}/{name}")
        attempt = _Attempt(stream, name, asyncio.get_running_loop().time() + seconds)
        await attempt.at_length()
        if attempt.can["words"] is not False:  # else nothing else would
            await attempt.made("tools", attempt.with_tool)
            await attempt.made("images", attempt.with_picture)
        # One that was too busy just then may see all the same.
        is_blind = isinstance(attempt.failed.get("images", ModelBlind()), ModelBlind)
        if catalog is not None and attempt.can.get("images") is False and is_blind:
            await catalog.learn(name, {"images": LearnedLimit(system_clock())})
        return attempt.findings()


Stream = Callable[[Request, Callable[[], int]], AsyncGenerator[TextDelta | Reply]]


class _Attempt:
    """One model, asked until a moment of the running loop's clock.

    `can` says of "words", "long", "stream", "tools" and "images" whether they work, None where
    there was no time to find out; `failed` with what they failed, where the service said so.
    """

    def __init__(self, stream: Stream, name: str, until: float) -> None:
        self._stream = stream
        self._name = name
        self._until = until
        self._words = ""
        self._pieces = 0
        self._speed = 0.0  # tokens a second that it writes; 0 unknown
        self._tokens = 0
        self.can: dict[str, bool | None] = {}
        self.failed: dict[str, ModelError] = {}

    def findings(self) -> Sequence[Finding]:
        """A line for each thing that was tried, for those that were not, and for the tokens."""
        found = [
            self._finding(name, works) for name, works in self.can.items() if works is not None
        ]
        if left := len(self.can) - len(found):
            found.append(Finding.of("warning", "model.untried", count=left))
        return [*found, Finding.of("ok", "model.used", tokens=self._tokens)]

    def _finding(self, name: str, works: bool) -> Finding:  # noqa: FBT001 - what was found
        if works:
            return Finding.of("ok", f"model.can_{name}", speed=round(self._speed, 1))
        why = f" ({self.failed[name].reason})" if name in self.failed else ""
        level = "error" if name == "words" else "warning"
        return Finding.of(level, f"model.cannot_{name}", why=why)

    async def at_length(self) -> None:
        """Try whether it answers, at length, and word by word."""
        await self.made("long", self._counting)
        late = None if self.can["long"] is None else False
        has_words = bool(self._words.strip())
        if not has_words and "long" in self.failed:
            self.failed["words"] = self.failed["long"]
        stream = self._pieces > 2 or late
        self.can = {"words": has_words or late, **self.can, "stream": stream}

    async def _counting(self) -> bool:
        asked = f"Write the numbers from 1 to {LAST}, with blanks between them, and nothing else."
        begun = time.monotonic()
        reply = await self._ask((Message("user", (Text(asked),)),))
        took = max(time.monotonic() - begun, 0.001)
        self._speed = (reply.usage.output_tokens or len(self._words) / 4) / took
        return reply.stop == "end" and str(LAST) in self._words

    async def made(self, name: str, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Note whether an attempt works."""
        try:
            self.can[name] = await attempt()
        except TimeoutError:
            self.can[name] = None
        except ModelError as error:
            self.can[name], self.failed[name] = False, error

    async def with_tool(self) -> bool:
        """True when it calls a tool and uses what that says."""
        number = str(secrets.randbelow(9000) + 1000)
        asked = Message("user", (Text("What is the lucky number of today? Call the tool for it."),))
        called = await self._ask((asked,), (_TOOL,))
        uses = [block for block in called.message.blocks if isinstance(block, ToolUse)]
        if not any(use.name == _TOOL.name for use in uses):
            return False
        results = Message("user", tuple(ToolResult(use.id, number) for use in uses))
        told = await self._ask((asked, called.message, results), (_TOOL,))
        return number in told.message.text

    async def with_picture(self) -> bool:
        """True when it sees which two colours a picture has."""
        left, right = secrets.SystemRandom().sample(_COLOURS, 2)
        asked = (
            Text(f"Which colour is left, which is right? Two of these words: {_COLOURS}."),
            Picture("image/png", "trial", await asyncio.to_thread(_picture, left, right)),
        )
        told = (await self._ask((Message("user", asked),), must_see=True)).message.text.lower()
        return -1 < told.rfind(left) < told.rfind(right)

    async def _ask(
        self,
        messages: tuple[Message, ...],
        tools: tuple[ToolSpec, ...] = (),
        *,
        must_see: bool = False,
    ) -> Reply:
        """The reply to a request; its words are kept as they come.

        Raises:
            ModelError: the model does not answer.
            TimeoutError: it does not in time.
        """
        request = Request(
            self._name,
            _SYSTEM,
            messages,
            tools,
            max_tokens=LONGEST,
            deadline=self._until,
            must_see=must_see,
            tokens=MOST_SENT,
        )
        self._words, self._pieces = "", 0
        written = self._stream(request, lambda: tokens.estimate(self._words))
        async with asyncio.timeout_at(self._until), aclosing(written) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self._words += event.text
                    self._pieces += 1
                else:
                    self._tokens += event.usage.context_tokens
                    return event
        raise ModelError("the reply has no end")


def _picture(left: str, right: str) -> str:
    """A picture of two colours, as base64."""
    from PIL import Image  # noqa: PLC0415 - seldom needed

    image = Image.new("RGB", (128, 64), left)
    image.paste(right, (64, 0, 128, 64))
    out = io.BytesIO()
    image.save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


class _Nowhere:
    """A store that keeps nothing."""

    async def get(self, key: str) -> str | None:
        return None

    async def set(self, key: str, text: str) -> None:
        pass
