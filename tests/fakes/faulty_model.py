"""A model that fails as it is told to, before its first word or after some."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from bot.agent.models import Reply, Request, TextDelta, Usage, Window
from bot.errors import ModelError
from bot.messages import Message, Text

Fault = tuple[int, ModelError]  # after so many words
WORDS = 4  # of a whole reply, each of them said once in a lifetime
TOKENS = 100  # of a word: more than any estimate of it


@dataclass
class FaultyModel:
    """`faults` come first, in order; then `decide`, if given, says which fault a request meets."""

    faults: list[Fault] = field(default_factory=list)
    decide: Callable[[Request], Fault | None] = lambda _request: None
    name: str = "faulty"
    asked: int = 0
    said: list[str] = field(default_factory=list)  # of whole replies
    spent: Usage = field(default_factory=Usage)  # by all that was begun, as it was told

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Say some words, or fail."""
        self.asked += 1
        number = self.asked
        fault = self.faults.pop(0) if self.faults else self.decide(request)
        words = [f"w{number}x{place}" for place in range(WORDS)]
        usage = Usage()
        for place, word in enumerate(words):
            if fault is not None and place == fault[0]:
                self.spent += usage
                raise fault[1]
            usage = Usage(input_tokens=number, output_tokens=TOKENS * (place + 1))
            if request.on_usage is not None:
                request.on_usage(usage)
            yield TextDelta(f"{word} ")
        text = "".join(f"{word} " for word in words)
        self.spent += usage
        self.said += words
        yield Reply(Message("assistant", (Text(text),)), "end", usage)

    async def window(self, model: str) -> Window:
        """A usual one."""
        return Window(200_000, 8_192)

    async def names(self) -> tuple[str, ...]:
        """None that anybody should choose."""
        return ()

    async def close(self) -> None:
        """Nothing to release."""
