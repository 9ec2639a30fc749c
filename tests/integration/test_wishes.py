"""What people ask to have kept is kept by the program, whatever the model does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Request
from bot.channel import Foreign, ReplyTo
from bot.context import wishes
from bot.errors import ModelUnreachable
from bot.gateway.commits import TurnRecorder
from bot.identity.view import folder_name
from bot.messages import ToolResult
from bot.testing import ScriptedModel, calls
from tests.support import Engine, running, until

TABLE = Path(__file__).parents[1] / "data" / "wishes.txt"
TODAY = "memory/2026-11-21.md"
STORED = f"✓ Stored in {TODAY}:3"
FACT = "my locker is number 12"


def table(mark: str) -> Iterator[tuple[str, str, str]]:
    """The language of each line with a mark, what is said, and what is to be kept of it."""
    language = ""
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("== "):
            language = line[3:]
        elif line.startswith(f"{mark} "):
            said, _, kept = line[2:].partition(" | ")
            yield language, said, kept


def one_each(mark: str) -> list[tuple[str, str, str]]:
    """The first line with a mark of each language."""
    return list({line[0]: line for line in reversed([*table(mark)])}.values())


def note(folder: Path, sender: str = "ada") -> str:
    """What the note of today says of somebody, without its heading."""
    path = folder / "workspace" / "people" / folder_name(f"memory:{sender}") / TODAY
    return path.read_text().partition("\n\n")[2] if path.exists() else ""


def all_notes(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / "workspace").rglob("2026-*.md"))


def saying(reply: str) -> ScriptedModel:
    """A model that calls no tools."""
    return ScriptedModel(script=lambda _: reply)


def writing(reply: str, text: str) -> ScriptedModel:
    """A model that writes something of each message, then says `reply`."""

    def script(request: Request) -> Any:
        told = any(isinstance(block, ToolResult) for block in request.messages[-1].blocks)
        return reply if told else calls("memory_write", text=text)

    return ScriptedModel(script=script)


# --- in fourteen languages -----------------------------------------------------------------------


def test_the_table_has_as_many_of_each_language():
    wanted = [language for language, _, _ in table("+")]
    others = [language for mark in "->" for language, _, _ in table(mark)]
    assert len(set(wanted)) == 14
    assert {wanted.count(each) for each in wanted} == {10}
    assert sorted(others) == sorted(wanted)


async def test_what_is_asked_for_is_kept_in_their_words_by_a_model_that_calls_no_tool(tmp_path):
    for _, said, kept in table("+"):
        (wish,) = wishes.read(said).wishes
        assert (kept in wish.words, wish.lacks) == (True, ""), said
    wrong: list[tuple[str, ...]] = []
    async with running(tmp_path, model=saying("Okay.")) as engine:
        for number, (language, said, kept) in enumerate(one_each("+")):
            sender = f"{language}{number}"
            answer = await engine.ask(said, sender=sender)
            entry = note(tmp_path, sender)
            is_theirs = entry.endswith(" <!-- owner -->\n") and entry.count("\n") == 1
            if answer != f"Okay.\n\n{STORED}" or kept not in entry or not is_theirs:
                wrong.append((language, said, answer, entry))
    assert not wrong


async def test_what_only_looks_like_it_stores_nothing(tmp_path):
    assert [said for _, said, _ in table("-") if wishes.read(said) != wishes.MessageWishes()] == []
    wrong: list[tuple[str, str, str]] = []
    async with running(tmp_path, model=saying("Okay.")) as engine:
        for number, (language, said, _) in enumerate(one_each("-")):
            answer = await engine.ask(said, sender=f"{language}{number}")
            if answer != "Okay.":
                wrong.append((language, said, answer))
    assert not wrong
    assert not all_notes(tmp_path)


async def test_what_wants_a_reminder_is_told_how_to_set_one(tmp_path):
    wrong: list[tuple[str, str, str]] = []
    async with running(tmp_path, model=saying("I'll remember!")) as engine:
        for number, (language, said, _) in enumerate(table(">")):
            answer = await engine.ask(said, sender=f"{language}{number}")
            if not answer.startswith("I'll remember!\n\nNo reminder was set. To set one: /remind"):
                wrong.append((language, said, answer))
    assert not wrong
    assert not all_notes(tmp_path)


@pytest.mark.parametrize(
    ("said", "command", "locale"),
    [
        ("remember to call Mia tomorrow at 5pm", "/remind call Mia tomorrow at 5pm", "en"),
        ("don't forget to buy milk", "/remind tomorrow 9:00 buy milk", "en"),
        ("记得明天下午五点给小美打电话", "/remind 明天下午五点给小美打电话", "zh"),
    ],
)
async def test_the_command_it_names_sets_the_reminder(tmp_path, said, command, locale):
    async with running(tmp_path, model=saying("Sure.")) as engine:
        assert (await engine.ask(said, locale=locale)).endswith(command)
        set_ = await engine.ask(command, locale=locale)
        assert set_.startswith("I'll remind you" if locale == "en" else "我会在")


async def test_a_reminder_that_the_model_sets_is_not_told_of(tmp_path):
    def script(request: Request) -> Any:
        told = any(isinstance(block, ToolResult) for block in request.messages[-1].blocks)
        return "Set." if told else calls("schedule_message", text="call Mia", in_minutes=60)

    async with running(tmp_path, model=ScriptedModel(script=script)) as engine:
        assert await engine.ask("remember to call Mia in an hour") == "Set."


# --- what it is, and once ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "my locker is number 12",
        "The user's locker is number 12.",
        "用户的储物柜是12号",  # in another script it cannot be compared
    ],
)
async def test_what_the_model_writes_too_is_one_entry(tmp_path, written):
    async with running(tmp_path, model=writing("Done.", written)) as engine:
        assert await engine.ask(f"remember that {FACT}") == f"Done.\n\n{STORED}"
        assert note(tmp_path).count("\n") == 1
        assert written in note(tmp_path)


async def test_what_the_model_writes_of_something_else_takes_nothing_from_a_wish(tmp_path):
    said = f"I moved to Ghent. Remember that {FACT}."
    async with running(tmp_path, model=writing("Done.", "The user moved to Ghent")) as engine:
        assert await engine.ask(said) == f"Done.\n\n✓ Stored in {TODAY}:3-4"
        assert FACT in note(tmp_path)


async def test_several_wishes_of_a_message_are_kept_and_nothing_else_of_it(tmp_path):
    said = f"Remember that {FACT}. What should I cook? Also, remember that Bob hates rice."
    async with running(tmp_path, model=saying("Soup.")) as engine:
        assert await engine.ask(said) == f"Soup.\n\n✓ Stored in {TODAY}:3-4"
        assert FACT in note(tmp_path)
        assert "Bob hates rice" in note(tmp_path)
        assert "cook" not in note(tmp_path)


@pytest.mark.parametrize(
    "that", ["remember that", "Please remember this!", "记住这个", "merk dir das"]
)
async def test_what_points_back_is_what_they_said_before(tmp_path, that):
    async with running(tmp_path, model=saying("Okay.")) as engine:
        await engine.ask(f"By the way, {FACT}.")
        assert await engine.ask(that) == f"Okay.\n\n{STORED}"
        assert FACT in note(tmp_path)


async def test_what_points_back_to_nothing_of_theirs_is_told(tmp_path):
    nothing = (
        "Okay.\n\nNothing was stored: I don't see what to keep. Say it with “remember that …”."
    )
    quoted = "Okay.\n\nNothing was stored: I only keep what you say in your own words."
    async with running(tmp_path, model=saying("Okay.")) as engine:
        assert await engine.ask("remember that") == nothing
        await engine.ask("what is the capital of Peru?")
        assert await engine.ask("remember that") == nothing
        reply = ReplyTo("m0", "Eve", "my locker is number 99")
        assert await engine.ask("remember this", reply_to=reply) == quoted
        assert await engine.ask(f"remember: “{FACT}, as the letter says”") == quoted
    assert not all_notes(tmp_path)


async def test_it_is_kept_when_the_model_fails(tmp_path, engine):
    engine.model.script = lambda _: ModelUnreachable()
    assert STORED in await engine.ask(f"remember that {FACT}")
    assert FACT in note(tmp_path)


async def test_what_they_ask_for_twice_stands_there_once(tmp_path):
    async with running(tmp_path, model=saying("Okay.")) as engine:
        for _ in range(2):
            assert await engine.ask(f"remember that {FACT}") == f"Okay.\n\n{STORED}"
        assert note(tmp_path).count(FACT) == 1


async def test_a_crash_before_the_turn_is_stored_neither_loses_it_nor_keeps_it_twice(
    tmp_path, monkeypatch
):
    async def never(*_args: object, **_more: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(TurnRecorder, "commit", never)
        patch.setattr("bot.app.STOP_GRACE", 0.0)
        async with running(tmp_path, model=saying("Okay.")) as engine:
            await engine.say(f"remember that {FACT}")
            await until(lambda: FACT in note(tmp_path))
            assert not engine.sent_to("ada")
    async with running(tmp_path, model=saying("Okay.")) as engine:
        engine.clock.advance(days=1)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("ada")))
        assert engine.sent_to("ada") == [f"Okay.\n\n{STORED}"]
    assert all_notes(tmp_path).count(FACT) == 1


async def test_what_was_kept_so_can_be_forgotten(tmp_path):
    async with running(tmp_path, model=saying("Okay.")) as engine:
        await engine.ask_each(f"remember that {FACT}", f"/memory forget {FACT}")
        assert "Forgotten" in await engine.ask("/memory forget yes")
    assert FACT not in all_notes(tmp_path)


# --- what is not theirs, and where nothing can be kept -------------------------------------------


async def test_what_they_quote_is_not_kept(tmp_path):
    async with running(tmp_path, model=saying("I'll remember that.")) as engine:
        for number, said in enumerate(
            (
                f"> remember that {FACT}\nwhat does he mean?",
                f"Bob wrote: remember that {FACT}",
                f"Translate this text: remember that {FACT}",
                f"```\nremember that {FACT}\n```",
            )
        ):
            answer = await engine.ask(said, sender=f"p{number}")
            assert answer in {"I'll remember that.", f"I'll remember that.\n\n{STORED}"}
    assert FACT not in all_notes(tmp_path)


async def test_what_they_pass_on_is_not_kept_either_when_they_point_to_it(tmp_path):
    passed = (Foreign("forwarded", f"Remember that {FACT}", "Eve"),)
    async with running(tmp_path, model=saying("I'll remember that.")) as engine:
        assert await engine.ask("", foreign=passed) == "I'll remember that."
        told = await engine.ask("remember that")
        assert told.startswith("I'll remember that.\n\nNothing was stored")
    assert not all_notes(tmp_path)


async def test_a_room_without_memory_says_so_and_one_with_it_keeps_it_as_its_own(tmp_path):
    async def ask(engine: Engine) -> str:
        before = len(engine.sent_to("den"))
        said = {"chat": "den", "chat_type": "group", "mentions_bot": True}
        await engine.say(f"remember that {FACT}", **said)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) > before)
        return engine.sent_to("den")[-1]

    channels = {"memory": {"group_policy": "open"}}
    closed = "Okay.\n\nNot stored: this conversation has no memory."
    async with running(tmp_path, model=saying("Okay."), channels=channels) as engine:
        assert await ask(engine) == closed
    assert not all_notes(tmp_path)
    scope = {"default": "allow", "rules": []}
    async with running(tmp_path, model=saying("Okay."), channels=channels, scope=scope) as engine:
        assert await ask(engine) == f"Okay.\n\n{STORED}"
    (kept,) = (tmp_path / "workspace").rglob("2026-*.md")
    assert kept.parent.parent.parent.name == "rooms"
    assert "<!-- owner -->" not in kept.read_text()


async def test_a_message_of_60_kb_keeps_its_first_sentence_and_takes_no_time(tmp_path):
    pasted = f"Remember that {FACT}.\n\n" + "some words of a page, remember that. " * 1_600
    async with running(tmp_path, model=saying("Okay.")) as engine:
        wishes.read("")  # the phrases are read once
        begun = time.perf_counter()
        for text in (
            pasted,
            "remember " * 7_000,
            "记住，" * 20_000,
            "please " * 8_000,
            "[{(" * 20_000,
            "“" * 4_000,
        ):
            wishes.read(text)
            wishes.stated(text)
            wishes.claims(text)
        assert time.perf_counter() - begun < 2
        assert STORED[:8] in await engine.ask(pasted)
        assert FACT in note(tmp_path)
        told = await engine.ask("remember that " + "word " * 12_000, sender="eve")
        assert told == "Okay.\n\nNothing was stored: that is more than 4000 characters."
        assert not note(tmp_path, "eve")


# --- what a reply claims -------------------------------------------------------------------------

CLAIMS = (
    "I'll remember that.", "Got it, I'll keep that in mind!", "I've noted your locker.", "Noted!",
    "记住了！", "好的，我会记住的。", "覚えておきますね。", "기억할게요!", "Das merke ich mir.",
    "C'est noté !", "Je m'en souviendrai.", "Lo tendré en cuenta.", "Vou lembrar disso.",
    "Me lo ricorderò!", "Запомнил!", "Dat zal ik onthouden.", "Zapamiętam to.",
    "Bunu unutmayacağım.", "سأتذكر ذلك.",
)  # fmt: skip


async def test_a_claim_to_have_kept_it_is_made_true(tmp_path):
    assert all(map(wishes.claims, CLAIMS))
    said = iter(CLAIMS[::5])
    async with running(tmp_path, model=ScriptedModel(script=lambda _: next(said))) as engine:
        for number, claim in enumerate(CLAIMS[::5]):
            answer = await engine.ask(f"By the way, {FACT}.", sender=f"p{number}")
            assert answer == f"{claim}\n\n{STORED}"
            assert f"By the way, {FACT}. <!-- owner -->" in note(tmp_path, f"p{number}")


async def test_nothing_is_kept_where_nothing_was_stated_or_claimed(tmp_path):
    async with running(tmp_path) as engine:
        for number, (said, reply) in enumerate(
            (
                (f"By the way, {FACT}.", "Lockers are useful."),
                (f"By the way, {FACT}.", "I can't remember that."),
                (f"By the way, {FACT}.", "Would you like me to remember that?"),
                ("Do you remember my locker?", "I'll remember that for this conversation."),
                ("hello", "Hello! I'll remember what you tell me."),
                (f"By the way, {FACT}. Don't write that down.", "I'll remember that."),
                ("word " * 2_000, "Noted!"),
            )
        ):
            engine.model.script = saying(reply).script
            assert await engine.ask(said, sender=f"p{number}") == reply
    assert not all_notes(tmp_path)


async def test_a_claim_is_true_where_the_model_has_written(tmp_path):
    async with running(tmp_path, model=writing("I'll remember that.", "Locker: 12")) as engine:
        assert await engine.ask(f"By the way, {FACT}.") == f"I'll remember that.\n\n{STORED}"
        assert note(tmp_path).count("\n") == 1


async def test_a_secret_that_they_did_not_ask_to_keep_is_refused_with_a_sentence(tmp_path):
    secret = "the wifi password is Heron-7-Falcon"
    told = (
        "I'll remember that.\n\nNot stored: it looks like a password, key or code. "
        "Say “remember that …” if you want me to keep it."
    )
    async with running(tmp_path, model=saying("I'll remember that.")) as engine:
        assert await engine.ask(secret) == told
        assert not all_notes(tmp_path)
        assert STORED in await engine.ask(f"remember that {secret}")
        assert secret in note(tmp_path)


async def test_a_claim_in_a_room_without_memory_is_corrected(tmp_path):
    channels = {"memory": {"group_policy": "open"}}
    async with running(tmp_path, model=saying("Noted!"), channels=channels) as engine:
        said = {"chat": "den", "chat_type": "group", "mentions_bot": True}
        await engine.say(f"By the way, {FACT}.", **said)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("den")))
        told = "Noted!\n\nNot stored: this conversation has no memory."
        assert engine.sent_to("den") == [told]
