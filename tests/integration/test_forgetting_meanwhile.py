"""Forgetting while something is under way that has read the words already: they stay forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Request
from bot.channel import Piece
from bot.errors import SendLater
from bot.gateway.commits import Approvals
from bot.identity.view import folder_name
from bot.memory.memory import Memory
from bot.memory.notes import Notes
from bot.messages import ToolResult, ToolUse
from bot.storage import fulltext
from bot.testing import ScriptedModel
from bot.unit_of_work import Committer
from tests.fakes.brain import Brain, Reply, added, current, query, says, settled
from tests.support import Engine, running, until, write_file

pytestmark = pytest.mark.usefixtures("believes_every_figure")
FLUSH_FROM = 176_000  # of a window of 200 000
CODE = "xyzzy-42"


@asynccontextmanager
async def begun(folder: Path, model: ScriptedModel) -> AsyncIterator[Engine]:
    context = {"enable_memory_flush": True, "context_tokens": 200_000}
    async with running(folder, model=model, context=context) as engine:
        yield engine


async def forget(engine: Engine, words: str = CODE) -> str:
    await engine.ask(f"/memory forget {words}")
    answer = await engine.ask("/memory forget yes")
    assert "Forgotten" in answer
    return answer


def notes(folder: Path) -> str:
    return "\n".join(path.read_text() for path in (folder / "workspace").rglob("*-*-*.md"))


def saving(request: Request) -> Any:
    """A flush that keeps the code in other words too, if it was shown it."""
    texts = ["The boat is called Wanda."]
    if CODE in request.messages[0].text:
        texts += [f"The code is {CODE}.", "The front door has a code."]
    return added(request, *texts)


@pytest.mark.parametrize("how", ["full", "/new"])
async def test_a_flush_that_had_read_the_words_does_not_write_them(tmp_path, how):
    brain = Brain(flush=saving)
    async with begun(tmp_path, brain) as engine:
        await engine.ask(f"please remember: the code of my front door is {CODE}")
        await engine.ask("my boat is called Wanda")
        brain.held["flush"] = asyncio.Event()
        brain.used = FLUSH_FROM if how == "full" else 1_000
        await engine.ask("go on" if how == "full" else "/new")
        await until(lambda: len(brain.asked("flush")) == 1)
        assert CODE in brain.asked("flush")[0].messages[0].text
        await forget(engine)
        brain.held.pop("flush").set()
        await settled()
        assert "Wanda" in notes(tmp_path)  # what was not forgotten is saved all the same
        assert CODE not in notes(tmp_path)
        assert "door" not in notes(tmp_path)
        assert CODE not in brain.asked("flush")[-1].messages[0].text
        if how == "full":
            assert current(tmp_path)["memory_flush_compaction_count"] == 0
            assert [each for each in engine.sent_to("ada") if "Saved to memory (1)" in each]


async def test_a_flush_of_somebody_else_goes_on(tmp_path):
    brain = Brain(flush=saving)
    async with begun(tmp_path, brain) as engine:
        await engine.ask(f"please remember: my code is {CODE}", sender="bob")
        await engine.ask(f"the code of my front door is {CODE}")
        brain.held["flush"] = asyncio.Event()
        await engine.ask("/new", sender="bob")
        await until(lambda: len(brain.asked("flush")) == 1)
        await forget(engine)
        brain.held.pop("flush").set()
        await settled()
        assert len(brain.asked("flush")) == 1
        assert CODE in notes(tmp_path)


async def test_a_turn_that_had_read_the_words_and_not_asked_yet_begins_anew_without_them(
    tmp_path, monkeypatch
):
    begin, reached, forgotten = Approvals.begin, asyncio.Event(), asyncio.Event()

    async def slow(self: Approvals, rows: Any) -> Any:
        if "what is up" in rows[0].inbound.text and not reached.is_set():
            reached.set()
            await forgotten.wait()
        return await begin(self, rows)

    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await engine.ask(f"the code of my front door is {CODE}")
        monkeypatch.setattr(Approvals, "begin", slow)
        await engine.say("what is up?")
        await reached.wait()
        await forget(engine)
        asked = len(brain.asked("chat"))
        forgotten.set()
        await until(lambda: engine.sent_to("ada")[-1] == "All right.")
        (request,) = brain.asked("chat")[asked:]
        assert "what is up?" in request.messages[-1].text
        assert CODE not in f"{request.system}{request.messages}"


async def test_a_message_that_is_forgotten_before_its_turn_hears_of_it_reaches_no_model(
    tmp_path, monkeypatch
):
    watching, reached, forgotten = Notes.watching, asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(self: Notes, view: Any) -> AsyncIterator[Any]:
        if not reached.is_set():
            reached.set()
            await forgotten.wait()
        async with watching(self, view) as watch:
            yield watch

    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await engine.ask("hello")
        monkeypatch.setattr(Notes, "watching", slow)
        await engine.say(f"the code of my front door is {CODE}")
        await reached.wait()
        await forget(engine)
        forgotten.set()
        assert await engine.ask("and now?") == "All right."
        assert all(CODE not in f"{each.system}{each.messages}" for each in brain.requests)


async def test_a_turn_that_had_read_the_words_does_not_write_them(tmp_path):
    answers: list[ToolResult] = []

    def chat(request: Request) -> Reply:
        last = request.messages[-1]
        if isinstance(last.blocks[-1], ToolResult):
            answers.append(last.blocks[-1])
            return says(f"I could not keep {CODE}.", 1_000)
        if "keep" not in last.text:
            return says("All right.", 1_000)
        return says("", 1_000, ToolUse("w1", "memory_write", {"text": "How the door is opened"}))

    brain = Brain(chat=chat, flush=saving)
    async with begun(tmp_path, brain) as engine:
        await engine.ask(f"the code of my front door is {CODE}")
        brain.held["chat"] = asyncio.Event()
        await engine.say("keep it in mind")
        await until(lambda: len(brain.asked("chat")) == 2)
        await forget(engine)
        brain.held.pop("chat").set()
        await engine.channel.wait_until(lambda sent: "not showing it" in sent[-1].text)
        (answer,) = answers
        assert answer.is_error
        assert "forgotten" in answer.text
        assert notes(tmp_path) == ""
        assert "✓" not in engine.sent_to("ada")[-1]
        assert all(CODE not in draft for draft in engine.channel.drafts)
        # What the turn itself said with the words is forgotten with them.
        await engine.ask("and now?")
        assert CODE not in str(brain.asked("chat")[-1].messages)
        assert "in none of your files" in await engine.ask(f"/memory forget {CODE}")
        await engine.ask("/new")
        await settled()
        assert all(CODE not in str(each.messages) for each in brain.asked("flush"))
        assert brain.asked("flush")
        assert CODE not in notes(tmp_path)


async def test_messages_that_are_not_answered_yet_are_counted_and_get_no_answer(tmp_path):
    brain = Brain(flush=saving)
    async with begun(tmp_path, brain) as engine:
        await engine.ask("hello")
        brain.held["chat"] = asyncio.Event()
        await engine.say(f"remember that the code is {CODE}")
        await until(lambda: len(brain.asked("chat")) == 2)
        await engine.say(f"and once more, {CODE.upper()}")
        await engine.say("how is the weather?")
        asked = await engine.ask(f"/memory forget {CODE}")
        assert "2 unanswered messages, which won't be answered" in asked
        answer = await engine.ask("/memory forget yes")
        assert "2 unanswered messages dropped" in answer
        brain.held.pop("chat").set()
        await engine.channel.wait_until(lambda sent: sent[-1].text == "All right.")
        assert [each.messages[-1].text for each in brain.asked("chat")][2:] == [
            "how is the weather?"
        ]
        assert notes(tmp_path) == ""
        assert CODE not in str(brain.asked("chat")[-1].messages).lower()
        kept = query(tmp_path, "SELECT count(*) FROM entries WHERE line LIKE ?", f"%{CODE}%")
        assert kept == [(2,)]  # the transcript has every word
        assert not query(tmp_path, "SELECT 1 FROM inbox WHERE body LIKE ?", f"%{CODE}%")
        assert "in none of your files" in await engine.ask(f"/memory forget {CODE}")


async def test_a_forgetting_that_a_kill_broke_off_finishes_after_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.0)
    reached = asyncio.Event()

    async def never(*_: Any, **__: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        async with begun(tmp_path, Brain()) as engine:
            await engine.ask_each(f"the code of my front door is {CODE}", f"/memory forget {CODE}")
            patch.setattr("bot.sessions.forgetting.hide", never)
            saying_yes = asyncio.create_task(engine.say("/memory forget yes"))
            await reached.wait()
            saying_yes.cancel()
            for task in asyncio.all_tasks():  # as when the process is gone
                if "Gateway" in str(task.get_coro()):
                    task.cancel()
    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await engine.channel.wait_until(lambda sent: bool(sent) and "Forgotten" in sent[-1].text)
        await engine.ask("and now?")
        assert CODE not in str(brain.asked("chat")[-1].messages)
        assert "in none of your files" in await engine.ask(f"/memory forget {CODE}")
        assert not query(tmp_path, "SELECT 1 FROM meta WHERE value LIKE ?", f"%{CODE}%")


@pytest.mark.parametrize("how", ["the platform's pace", "its later parts"])
async def test_a_text_that_was_taken_back_is_sent_no_further(tmp_path, how):
    long = "\n\n".join(f"part {n} of {CODE} " + "and so on " * 350 for n in range(3))
    brain = Brain(chat=lambda r: long if "door" in r.messages[-1].text else "All right.")
    sending, gate = asyncio.Event(), asyncio.Event()
    async with begun(tmp_path, brain) as engine:
        send = engine.channel.send

        async def slow(piece: Piece) -> str:
            if CODE in piece.text:
                sending.set()
                await gate.wait()
                if how != "its later parts":
                    gate.clear()
                    raise SendLater(0.01)
            return await send(piece)

        engine.channel.send = slow  # type: ignore[method-assign]
        await engine.say("tell me of the door")
        await sending.wait()
        await engine.say(f"/memory forget {CODE}")
        await engine.say("/memory forget yes")
        told = "SELECT 1 FROM outbox WHERE text LIKE 'Forgotten%'"
        await until(lambda: bool(query(tmp_path, told)))
        gate.set()
        await engine.channel.wait_until(lambda sent: bool(sent) and "Forgotten" in sent[-1].text)
        assert "withdrawn" in engine.sent_to("ada")[-1]
        parts = [text for text in engine.sent_to("ada") if text.startswith("part")]
        assert len(parts) == (1 if how == "its later parts" else 0)


async def test_what_begins_while_words_are_forgotten_waits_for_it(tmp_path, monkeypatch):
    reached, gate = asyncio.Event(), asyncio.Event()
    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await engine.ask(f"the code of my front door is {CODE}")
        forgetting = Memory.forget

        async def slow(*given: Any) -> Any:
            reached.set()
            await gate.wait()
            return await forgetting(*given)

        monkeypatch.setattr(Memory, "forget", slow)
        await engine.ask(f"/memory forget {CODE}")
        saying = asyncio.create_task(engine.say("/memory forget yes"))
        await reached.wait()
        await engine.say("what was it?")
        assert await engine.ask("hello", sender="bob") == "All right."  # nobody else waits
        assert len(brain.asked("chat")) == 2
        gate.set()
        await saying
        await until(lambda: len(brain.asked("chat")) == 3)
        assert CODE not in str(brain.asked("chat")[-1].messages)


@pytest.mark.parametrize(
    "command",
    [
        f"/memory search {CODE}",
        "/memory show memory/2026-11-01.md",
        "/memory faded",
        f"/memory confirm {CODE}",
        f"/memory forget door {CODE}",
        f"/whosees {CODE}",
    ],
)
async def test_a_command_that_had_read_the_words_does_not_tell_them(tmp_path, monkeypatch, command):
    reached, gate = asyncio.Event(), asyncio.Event()
    commit = Committer.commit

    async def slow(self: Committer, *given: Any, **how: Any) -> Any:
        if not reached.is_set() and how:  # a command, and the first one: it has read what it tells
            reached.set()
            await gate.wait()
        return await commit(self, *given, **how)

    notes = {
        "memory/2026-11-01.md": f"- The door {CODE} is green <!-- owner -->\n",
        "MEMORY.md": f"- Prefers {CODE} doors <!-- agent 2019-01-05 -->\n",
    }
    for name, words in notes.items():
        path = tmp_path / "workspace" / "people" / folder_name("memory:ada") / name
        write_file(path, words)
    async with begun(tmp_path, Brain()) as engine:
        await engine.app.agent.memory.index.sync("test")
        assert CODE in await engine.ask(command)
        monkeypatch.setattr(Committer, "commit", slow)
        asking = asyncio.create_task(engine.say(command))
        await reached.wait()
        await forget(engine)
        gate.set()
        await asking
        await until(lambda: "Forgotten" not in engine.sent_to("ada")[-1])
        assert "Please ask again" in engine.sent_to("ada")[-1]
        assert CODE not in await engine.ask(command)


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
def held(monkeypatch):
    stop = Held(monkeypatch)
    yield stop
    stop.go_on.set()


async def long_talk(engine: Engine) -> None:
    await engine.ask("my harbour code is 4711 " + "and so on " * 50, sender="ada")


@pytest.mark.parametrize("command", ["/whosees harbour code", "/memory forget harbour code"])
async def test_a_look_through_history_holds_up_nobodys_message(tmp_path, held, command):
    async with running(tmp_path) as engine:
        await long_talk(engine)
        looking = asyncio.create_task(engine.ask(command, sender="ada"))
        await held.begun()
        # While it goes on: stored, answered, and noted, all of which the writer does.
        assert await engine.ask("hello", sender="eve") == "You said: hello"
        assert not looking.done()
        held.go_on.set()
        assert "2 messages of conversations" in await looking
    assert held.looks_beside()


async def test_a_confirmed_forgetting_looks_through_history_beside_the_writer(tmp_path, held):
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
        assert "2 messages that no search finds" in await confirmed
        assert "in none of your files" in await engine.ask("/whosees harbour code", sender="ada")
    assert held.looks_beside()
