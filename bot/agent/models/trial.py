"""Asking a service, before anything rests on it, which models it has, and what one can do."""

from __future__ import annotations

import asyncio
import base64
import io
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bot.agent.models import Checked, Model, Reply, Request, TextDelta, ToolSpec
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import open_service
from bot.channel import Finding
from bot.config import ModelsConfig
from bot.context.budget import TOO_SMALL
from bot.errors import ModelError
from bot.messages import Message, Picture, Text, ToolResult, ToolUse

WIDE = 32_768  # tokens: room for a long conversation, and in the memory of most machines


@asynccontextmanager
async def opened(config: ModelsConfig, service: str) -> AsyncGenerator[Model]:
    """A service as it is configured, for as long as it is asked; nothing of it is kept."""
    model = open_service(config.kind_of(service), config.services[service], _NothingKept())
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
        return sorted(await model.fetch_names()) if isinstance(model, Checked) else ()


async def window_to_set(config: ModelsConfig, service: str, name: str) -> int | None:
    """What a model's window has to be set to, in tokens, for conversations to fit; 0 is nothing.

    None when it is too small and its server cannot be asked for another one.

    Raises:
        ModelError: the service does not know the model, or cannot be asked.
    """
    if config.services[service].window:
        return 0
    async with opened(config, service) as model:
        told = (await model.check(name)).max_input_tokens if isinstance(model, Checked) else 0
        if not 0 < told < TOO_SMALL:
            return 0
        if isinstance(model, OpenAIModel) and await model.can_widen(name, WIDE):
            return WIDE
    return None


SECONDS: Final = 60.0  # that trying a model may take
LONGEST: Final = 4096  # tokens of an answer; thinking counts
LAST: Final = 150  # the number that the long answer counts to
_SYSTEM: Final = "You are being tried out. Do exactly what you are asked, in few words."
_TOOL: Final = ToolSpec(
    "lucky_number",
    "Tells the lucky number of today.",
    {"type": "object", "properties": {}},
)
_COLOURS: Final = ("red", "green", "blue", "yellow", "black", "white")


@dataclass(frozen=True, slots=True)
class Ability:
    """Whether a model can do something: None where there was no time to find out.

    `name` is "words", "long", "stream", "tools" or "images"; `why` says what it refuses with.
    """

    name: str
    works: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a model can do, how fast it writes (tokens a second, 0 unknown), and what that used."""

    abilities: Sequence[Ability]
    speed: float = 0.0
    tokens: int = 0

    def findings(self) -> Sequence[Finding]:
        """The same in words: a line for each ability that was tried."""
        found = [self._finding(each) for each in self.abilities if each.works is not None]
        left = len(self.abilities) - len(found)
        late = [Finding.of("warning", "model.untried", count=left)] if left else []
        return [*found, *late, Finding.of("ok", "model.used", tokens=self.tokens)]

    def _finding(self, ability: Ability) -> Finding:
        why, speed = f" ({ability.why})" if ability.why else "", round(self.speed, 1)
        if ability.works:
            return Finding.of("ok", f"model.can_{ability.name}", speed=speed)
        level = "error" if ability.name == "words" else "warning"
        return Finding.of(level, f"model.cannot_{ability.name}", why=why)


async def what_it_can(
    config: ModelsConfig, service: str, name: str, seconds: float = SECONDS
) -> Tried:
    """Try what a model can do: a long answer, a tool, a picture, one after the other.

    It costs some 1 500 tokens. Nothing is raised: what fails is what does not work.
    """
    async with opened(config, service) as model:
        attempt = _Attempt(model, name, asyncio.get_running_loop().time() + seconds)
        found = [*await attempt.at_length()]
        if found[0].works is not False:  # else nothing else would
            found.append(await attempt.made("tools", attempt.with_tool))
            found.append(await attempt.made("images", attempt.with_picture))
        return Tried(found, attempt.speed, attempt.tokens)


class _Attempt:
    """One model, asked until a moment of the running loop's clock."""

    def __init__(self, model: Model, name: str, until: float) -> None:
        self._model = model
        self._name = name
        self._until = until
        self._words = ""
        self._pieces = 0
        self.speed = 0.0
        self.tokens = 0

    async def at_length(self) -> Sequence[Ability]:
        """Whether it answers, at length, and word by word."""
        asked = f"Write the numbers from 1 to {LAST}, with blanks between them, and nothing else."
        begun, why = time.monotonic(), ""
        reply: Reply | None = None
        try:
            reply = await self._ask((Message("user", (Text(asked),)),))
        except TimeoutError:
            why = "timeout"
        except ModelError as error:
            why = error.reason
        has_words, pieces = bool(self._words.strip()), self._pieces
        if reply is None:
            late = None if why == "timeout" else False
            return (
                Ability("words", has_words or late, "" if has_words else why),
                Ability("long", late, why),
                Ability("stream", pieces > 2 or late),
            )
        took = max(time.monotonic() - begun, 0.001)
        self.speed = (reply.usage.output_tokens or len(self._words) / 4) / took
        return (
            Ability("words", has_words),
            Ability("long", reply.stop == "end" and str(LAST) in self._words),
            Ability("stream", pieces > 2),
        )

    async def made(self, name: str, attempt: Callable[[], Awaitable[bool]]) -> Ability:
        """Whether an attempt works."""
        try:
            return Ability(name, await attempt())
        except TimeoutError:
            return Ability(name, None, "timeout")
        except ModelError as error:
            return Ability(name, False, error.reason)

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
        )
        self._words, self._pieces = "", 0
        async with asyncio.timeout_at(self._until), aclosing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self._words += event.text
                    self._pieces += 1
                else:
                    self.tokens += event.usage.context_tokens
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


class _NothingKept:
    """A store for sizes that are asked for once."""

    async def get(self, key: str) -> str | None:
        return None

    async def set(self, key: str, text: str) -> None:
        pass
