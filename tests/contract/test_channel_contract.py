"""What every channel owes the engine: the double and the real ones through the same tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools

import pytest

from bot.channel import Address, Attachment, Button, Channel, Outbound
from bot.channel.kit import text as chunking
from bot.errors import SendLater, SendRefused, SendUnreachable, StorageError
from bot.testing import RecordingEngine
from tests.contract.channel_cases import Buttons, cases
from tests.support import post

BUTTONS = (Button("Compact", "/compact"), Button("Not now", "/notices later"))
PICTURE = Attachment("a.png", "image/png", b"\x89PNG\r\n\x1a\n")

lacking: dict[object, set[str]] = {}  # by what makes a case, what its channel or platform lacks


def needs(ability: str):
    """Has a test prove nothing of a channel that lacks this, as the case says in words."""

    def wrapped(test):
        @functools.wraps(test)
        async def run(case, **arguments):
            if case is not None:
                await test(case, **arguments)

        run.needs = ability
        return run

    return wrapped


@pytest.fixture(params=cases(), ids=lambda make: make.__name__)
async def case(request, tmp_path):
    """A case; None where what is needed is lacking, which a case started before has said."""
    needed = getattr(request.function, "needs", "")
    if needed in lacking.get(request.param, ()):
        yield None
        return
    async with request.param(tmp_path) as case:
        lacking[request.param] = {name for name, does in vars(case).items() if type(does) is str}
        yield None if needed in lacking[request.param] else case


async def test_what_a_person_writes_reaches_the_engine_once_and_in_order(case):
    for number in range(3):
        await case.write(f"message {number}")
    await case.engine.wait_until(lambda e: len(e.received) >= 3)
    received = case.engine.received
    assert [inbound.text for inbound in received] == ["message 0", "message 1", "message 2"]
    assert {inbound.address for inbound in received} == {case.address}
    assert len({inbound.message_id for inbound in received}) == 3
    assert {inbound.chat_type for inbound in received} == {case.chat_type}
    assert all(inbound.sender for inbound in received)


async def test_what_the_engine_sends_is_shown_in_order(case):
    for number in range(3):
        sent = await post(case.channel, Outbound(f"o{number}", case.address, f"reply {number}"))
        assert sent
    assert (await case.shown(3))[-3:] == ["reply 0", "reply 1", "reply 2"]


@needs("copy")
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_message_that_is_brought_twice_is_one_message(case, is_known):
    await case.write("once")
    await case.engine.wait_until(lambda e: len(e.received) == 1)
    if is_known:
        await case.copy()
        await case.restart()
    await case.copy()
    await case.write("then")
    await case.engine.wait_until(lambda e: "then" in {each.text for each in e.received})
    assert kept(case.engine) == ["once", "then"]


HIDDEN = ["[docs]: https://example.org/a_b", ">", "#", "```\n```", "> >\n> #", "[](https://a.bc)"]


async def test_of_a_reply_that_renders_to_nothing_its_source_is_seen(case):
    before = 0
    for text in HIDDEN:
        await post(case.channel, Outbound(f"o{before}", case.address, text))
        every = await case.shown(before + 1)
        shown, before = case.seen("\n".join(every[before:])), len(every)
        words = text.removeprefix("[](").removesuffix(")")  # a link may show where it leads instead
        assert "".join(words.split()) in "".join(shown.split())


async def test_a_long_reply_arrives_whole_and_in_order_within_the_channels_limit(case):
    able = case.channel.capabilities
    assert able.max_length >= 64
    lines = 5 * able.max_length // (2 * 512)
    text = "\n".join(f"line {number} {'word ' * 100}👩‍👩‍👧" for number in range(lines))
    parts = chunking.split(text, able.max_length, able.length_unit)
    assert len(parts) == 3
    for number, part in enumerate(parts):
        name = f"long.{number}" if number else "long"
        assert await post(case.channel, Outbound(name, case.address, part))
    shown = await case.shown(3)
    assert "\n".join(shown) == text
    assert all(chunking.length(part, able.length_unit) <= able.max_length for part in shown)


async def test_a_text_becomes_the_same_pieces_each_time(case):
    able = case.channel.capabilities
    text = "**word** 🎉\n\n" * (able.max_length // 6)
    files = (PICTURE,) if able.attachments else ()
    whole = Outbound("o", case.address, text, reply_to="1", buttons=BUTTONS, attachments=files)
    made = case.channel.render(whole)
    assert case.channel.render(whole) == made
    assert len(made) > 1
    assert [piece.index for piece in made] == list(range(len(made)))
    assert {(piece.count, piece.whole) for piece in made} == {(len(made), whole)}
    assert len({piece.id for piece in made}) == len(made)
    assert [bool(piece.reply_to) for piece in made].count(True) == bool(made[0].reply_to)
    assert [bool(piece.buttons) for piece in made].count(True) == bool(made[-1].buttons)
    assert [file for piece in made for file in piece.attachments] == [*files]


async def test_a_text_of_which_nothing_shows_is_refused(case):
    with pytest.raises(SendRefused):
        case.channel.render(Outbound("o", case.address, " \n "))


async def test_a_channel_has_the_abilities_it_declares(case):
    able = case.channel.capabilities
    for declared, method in (
        (able.typing, "typing"),
        (able.drafts, "draft"),
        (able.command_menu, "publish_commands"),
        (able.activities, "activity"),
        (able.files, "fetch"),
        (able.reactions, "react"),
        (able.pages, "routes"),
    ):
        assert not declared or getattr(type(case.channel), method) is not getattr(Channel, method)
    assert able.drafts == callable(case.grown)
    assert able.buttons == isinstance(case.buttons, Buttons)
    assert able.attachments == callable(case.files)
    assert able.typing or not callable(case.typed)


async def test_it_shows_that_a_reply_is_being_written(case):
    await case.channel.typing(case.address)
    if not isinstance(case.typed, str):
        await case.typed()


@needs("files")
async def test_pictures_and_files_come_with_their_message_in_order(case):
    for number in range(2):
        files = (PICTURE, Attachment(f"{number}.txt", "text/plain", b"text"))
        place = case.address
        assert await post(
            case.channel, Outbound(f"o{number}", place, f"n {number}", attachments=files)
        )
    # A second file of a message may be a message of its own, without words.
    shown = [text for text in await case.shown(2) if text]
    assert shown[-2:] == ["n 0", "n 1"]
    assert await case.files() == ["a.png", "0.txt", "a.png", "1.txt"]


@needs("buttons")
async def test_a_press_gives_the_command_in_the_name_of_who_pressed(case):
    await case.write("hello")
    await case.engine.wait_until(lambda e: len(e.received) == 1)
    outbound = Outbound("full", case.address, "Nearly full.", "notice", buttons=BUTTONS)
    sent = await post(case.channel, outbound)
    assert (await case.shown(1))[-1] == "Nearly full."
    assert await case.buttons.choices() == ["Compact", "Not now"]
    await case.buttons.press(outbound, sent, "Not now")
    await case.engine.wait_until(lambda e: len(e.received) == 2)
    said, pressed = case.engine.received
    assert pressed.text == "/notices later"
    assert (pressed.sender, pressed.address, pressed.chat_type) == (
        said.sender,
        said.address,
        said.chat_type,
    )
    assert pressed.message_id not in {"", said.message_id}


@needs("buttons")
async def test_a_press_has_the_same_id_after_a_restart_and_another_on_another_message(case):
    sent: dict[str, str] = {}
    for name in ("one", "two"):
        letter = Outbound(name, case.address, name, "notice", buttons=BUTTONS)
        sent[name] = await post(case.channel, letter)
    one, two = (Outbound(name, case.address, name, buttons=BUTTONS) for name in sent)
    await case.buttons.press(one, sent["one"], "Compact")
    await case.engine.wait_until(lambda e: len(e.received) == 1)
    await case.restart()
    await case.buttons.again()
    await case.engine.wait_until(lambda e: len(e.received) == 2)
    await case.buttons.press(two, sent["two"], "Compact")
    await case.engine.wait_until(lambda e: len(e.received) == 3)
    first, second, third = (inbound.message_id for inbound in case.engine.received)
    assert first == second != third


@needs("buttons")
async def test_a_press_that_cannot_be_stored_is_not_lost(case):
    outbound = Outbound("full", case.address, "Nearly full.", "notice", buttons=BUTTONS)
    sent = await post(case.channel, outbound)
    case.engine.failures = 1
    with contextlib.suppress(StorageError):  # the double has nobody who would try again
        await case.buttons.press(outbound, sent, "Compact")
    await case.engine.wait_until(lambda e: e.attempts >= 1 and not e.failures)
    await case.buttons.again()
    await case.engine.wait_until(lambda e: len(e.received) >= 1)
    assert case.engine.received[0].text == "/compact"


@needs("grown")
async def test_a_reply_takes_the_place_of_what_showed_while_it_was_written(case):
    for text in ("One", "One, two"):
        await case.channel.draft(case.address, "d", text)
        await case.grown(text)
    await post(case.channel, Outbound("o", case.address, "One, two, three.", draft="d"))
    assert [text for text in await case.shown(1) if text.startswith("One")] == ["One, two, three."]


@needs("vanish")
async def test_what_showed_of_a_reply_may_be_deleted_meanwhile(case):
    await case.channel.draft(case.address, "d", "One")
    await case.grown("One")
    case.vanish()
    await post(case.channel, Outbound("o", case.address, "One, two.", draft="d"))
    assert await case.shown(1) == ["One, two."]


@needs("answer")
async def test_what_an_answered_message_came_with_can_be_fetched(case):
    await case.answer(b"the bill: 12 EUR")
    await case.engine.wait_until(lambda e: len(e.received) == 1)
    inbound = case.engine.received[0]
    assert inbound.text == "what is this?"
    assert not inbound.media
    (file,) = inbound.reply_to.media
    assert (file.name, file.mime) == ("a.txt", "text/plain")
    assert await case.channel.fetch(case.address, file, 1000) == b"the bill: 12 EUR"


async def test_a_message_that_is_gone_can_still_be_answered(case):
    await post(case.channel, Outbound("o", case.address, "hello", reply_to="424242"))
    assert await case.shown(1) == ["hello"]


@pytest.mark.parametrize("is_run_again", [True, False])
async def test_a_restart_in_mid_turn_loses_nothing_and_repeats_nothing(case, is_run_again):
    await case.write("question")
    await case.engine.wait_until(lambda e: len(e.received) == 1)
    await case.channel.draft(case.address, "d", "The whole")
    await case.restart()
    await case.write("next")
    await case.engine.wait_until(lambda e: e.received[-1].text == "next")
    assert kept(case.engine) == ["question", "next"]
    # The turn is run again, or was finished and is only to be sent.
    if is_run_again:
        await case.channel.draft(case.address, "d", "The whole")
    await post(case.channel, Outbound("o", case.address, "The whole reply.", draft="d"))
    await post(case.channel, Outbound("p", case.address, "The next."))
    assert await case.shown(2) == ["The whole reply.", "The next."]


@needs("forbid")
async def test_a_chat_that_is_closed_to_the_bot_refuses_until_it_is_open_again(case):
    case.forbid()
    with pytest.raises(SendUnreachable):
        await post(case.channel, Outbound("o", case.address, "hello"))
    # Nor do the abilities raise.
    await case.channel.typing(case.address)
    await case.channel.draft(case.address, "d", "so far")
    await case.channel.draft(case.address, "d", "")


@needs("limit")
async def test_a_rate_limit_says_how_long_to_wait_and_keeps_the_order(case):
    await post(case.channel, Outbound("o", case.address, "one"))
    seconds = case.limit()
    with pytest.raises(SendLater) as caught:
        await post(case.channel, Outbound("o.1", case.address, "two"))
    assert caught.value.seconds == pytest.approx(seconds)
    await asyncio.sleep(seconds)
    await post(case.channel, Outbound("o.1", case.address, "two"))
    assert await case.shown(2) == ["one", "two"]


async def test_it_says_how_it_is_doing(case):
    assert case.engine.health
    assert {name for name, _ in case.engine.health} == {case.channel.name}


async def test_stopping_twice_is_harmless(case):
    await case.channel.stop()
    await case.channel.stop()


def kept(engine: RecordingEngine) -> list[str]:
    """What was said, as the engine keeps it: it drops a second copy by its identity."""
    found: dict[tuple[Address, str], str] = {}
    for inbound in engine.received:
        found.setdefault((inbound.address, inbound.message_id), inbound.text)
    return list(found.values())
