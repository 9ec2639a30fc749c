"""What is made of a conversation's messages, made once of each."""

import pytest

from bot.context.folding import Folding
from bot.messages import Message, Text


def said(*words: str) -> tuple[Message, ...]:
    return tuple(Message("user", (Text(word),)) for word in words)


class Joined:
    """A fold that counts what it is given."""

    def __init__(self) -> None:
        self.folding = Folding()
        self.added: list[str] = []

    def of(self, messages: tuple[Message, ...]) -> str:
        return self.folding.of("joined", messages, str, self._add)

    def _add(self, made: str, message: Message) -> str:
        if message.text == "bad":
            raise ValueError("bad")
        self.added.append(message.text)
        return made + message.text


def test_only_what_was_added_is_looked_at():
    joined, history = Joined(), said("a", "b")
    assert joined.of(history) == "ab"
    assert joined.of((*history, *said("c"))) == "abc"
    assert joined.of((*history, *said("c"))) == "abc"
    assert joined.added == ["a", "b", "c"]


@pytest.mark.parametrize("other", [said("a", "x", "c"), said("a"), ()])
def test_messages_that_are_others_now_are_looked_at_again(other):
    joined = Joined()
    joined.of(said("a", "b"))
    assert joined.of(other) == "".join(message.text for message in other)


def test_what_failed_in_the_middle_is_begun_anew():
    joined, history = Joined(), said("a")
    joined.of(history)
    with pytest.raises(ValueError, match="bad"):
        joined.of((*history, *said("b", "bad")))
    assert joined.of((*history, *said("c"))) == "ac"


def test_names_are_told_apart():
    folding, history = Folding(), said("a", "b")
    assert folding.of("joined", history, str, lambda made, each: made + each.text) == "ab"
    assert folding.of("counted", history, int, lambda made, _: made + 1) == 2
