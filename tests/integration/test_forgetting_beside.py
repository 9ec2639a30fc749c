"""Looking through a long history holds nobody up: others' messages are stored and answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.storage import fulltext
from tests.support import Engine, running

READER = "confidant-reader"
BUSY = {"MainThread", "confidant-writer"}  # the loop's, and the one that stores messages


class Held:
    """Stops the first look through what was said until it is let go; notes who looks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.looks: list[str] = []
        self.began = threading.Event()
        self.go_on = threading.Event()
        real = fulltext.folded

        def folded(text: str) -> str:
            if len(text) > 100:  # not the words that are looked for
                self.looks.append(threading.current_thread().name)
                self.began.set()
                assert self.go_on.wait(30)
            return real(text)

        patch.setattr(fulltext, "folded", folded)

    def looks_beside(self) -> bool:
        """Whether readers looked, and nobody who has others to serve; the index has its own."""
        return any(READER in name for name in self.looks) and not BUSY & {*self.looks}

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.began.wait, 30)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    stop = Held(monkeypatch)
    yield stop
    stop.go_on.set()


async def long_talk(engine: Engine) -> None:
    await engine.ask("my harbour code is 4711 " + "and so on " * 50, sender="ada")


@pytest.mark.parametrize("command", ["/whosees harbour code", "/memory forget harbour code"])
async def test_a_look_through_history_holds_up_nobodys_message(
    tmp_path: Path, held: Held, command: str
):
    async with running(tmp_path) as engine:
        await long_talk(engine)
        looking = asyncio.create_task(engine.ask(command, sender="ada"))
        await held.begun()
        # While it goes on: stored, answered, and noted, all of which the writer does.
        assert await engine.ask("hello", sender="eve") == "You said: hello"
        assert not looking.done()
        held.go_on.set()
        assert "and 2 messages of conversations" in await looking
    assert held.looks_beside()


async def test_a_confirmed_forgetting_looks_through_history_beside_the_writer(
    tmp_path: Path, held: Held
):
    held.go_on.set()
    async with running(tmp_path) as engine:
        await long_talk(engine)
        await engine.ask("/memory forget harbour code", sender="ada")
        held.looks.clear()
        held.began.clear()
        held.go_on.clear()
        confirmed = asyncio.create_task(engine.ask("/memory forget yes", sender="ada"))
        await held.begun()
        assert await engine.ask("hello", sender="eve") == "You said: hello"
        assert not confirmed.done()
        held.go_on.set()
        assert "conversations: 2 messages" in await confirmed
        assert "Neither" in await engine.ask("/whosees harbour code", sender="ada")
    assert held.looks_beside()
