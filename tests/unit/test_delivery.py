"""Delivery: in order, once, told when it fails, and over a restart."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.channel import Address, Attachment, Button, Capabilities, Outbound, Piece
from bot.channel.kit.text import numbered
from bot.coordination import Alone, Coordination, account_name
from bot.delivery import delivery as module
from bot.delivery import outbox
from bot.delivery.delivery import Delivery, Speaker
from bot.errors import (
    ChatMoved,
    SendLater,
    SendRefused,
    SendTransient,
    SendUnreachable,
    StorageFull,
)
from bot.metrics import Metrics
from bot.sessions import store
from bot.storage import Database, Transaction, records
from bot.testing import InMemoryChannel
from bot.unit_of_work import UnitOfWork
from tests.fakes.nodes import FakeNode
from tests.support import PATIENCE, FakeClock, core_of, pause, until

ADA = Address("memory", "default", "ada")
PLACE = store.Place("agent:main:memory:dm:ada", "ada", "memory", "default", "ada", "", "direct")


class Post:
    """An outbox and its delivery; `restart` begins again with what the table says."""

    def __init__(self, database: Database, speaker: Speaker | None = None) -> None:
        self.database = database
        self.speaker = speaker
        self.coordination: Coordination = Alone(database)
        self.clock = FakeClock()
        self.channel = InMemoryChannel(capabilities=Capabilities(max_length=64))
        self.metrics = Metrics()
        self.begin()

    def begin(self, *, is_open: bool = True, **options: Any) -> None:
        self.delivery = Delivery(
            core_of(
                self.database,
                channels={"memory": self.channel},
                clock=self.clock,
                metrics=self.metrics,
                coordination=self.coordination,
            ),
            speaker=self.speaker,
            **options,
        )
        if is_open:
            self.delivery.open()

    async def restart(self) -> None:
        await self.delivery.stop(0)
        self.begin()
        await self.delivery.look()

    async def store(
        self, *texts: str, address: Address = ADA, **fields: Any
    ) -> list[outbox.Letter]:
        at = fields.pop("at", self.clock())

        def work(tx: Transaction) -> list[outbox.Letter]:
            return [outbox.add(tx, address, text, at, **fields) for text in texts]

        return await self.database.write(work)

    async def post(self, *texts: str, **fields: Any) -> list[outbox.Letter]:
        letters = await self.store(*texts, **fields)
        self.delivery.post(letters)
        return letters

    def moves(self) -> None:
        """From now on Ada's chat is another one."""
        send = self.channel.send

        async def moved(piece: Piece) -> str:
            if piece.address.chat == "ada":
                raise ChatMoved("supergroup")
            return await send(piece)

        self.channel.send = moved

    def read(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"confidant_outbox_{name}", labels)

    async def states(self) -> list[str]:
        rows = await self.database.read(
            lambda tx: tx.execute("SELECT state FROM outbox ORDER BY id")
        )
        return [row[0] for row in rows]

    async def until(self, ready: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not ready(await self.states()):
                await pause(0.001)  # what is waited for needs the database too

    async def wait_sent(self, count: int) -> list[Outbound]:
        return await asyncio.wait_for(self.channel.wait_sent(count), PATIENCE)

    async def idle(self) -> None:
        """Wait until nothing is being sent, noted or counted."""
        await until(lambda: not self.delivery._workers.active)

    def texts(self) -> list[str]:
        return [piece.text for piece in self.channel.sent]


@pytest.fixture
async def post(each_database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
    monkeypatch.setattr(module, "LAST_RETRY", 0.004)
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.001)
    made = Post(each_database)
    with capture_logs():  # to draw the tracebacks takes seconds
        yield made
        await made.delivery.stop(0)


async def test_texts_of_one_address_arrive_in_order_and_are_noted(post):
    await post.post(*(f"t{n}" for n in range(250)))  # more than fits in memory
    await post.wait_sent(250)
    assert post.texts() == [f"t{n}" for n in range(250)]
    await post.until(lambda states: set(states) == {"sent"})
    await post.idle()
    assert post.read("seconds_count", channel="memory") == 250


async def test_who_has_had_their_share_of_a_room_waits_alone_and_loses_nothing(post):
    post.channel.errors = [SendLater(0.1, is_own=True)]

    def work(tx: Transaction) -> list[outbox.Letter]:
        said = (("eve 1", "eve"), ("eve 2", "eve"), ("ada 1", "ada"), ("ada 2", "ada"))
        return [outbox.add(tx, ADA, text, 1, asker=asker) for text, asker in said]

    post.delivery.post(await post.database.write(work))
    await post.wait_sent(4)
    assert post.texts() == ["ada 1", "ada 2", "eve 1", "eve 2"]
    await post.until(lambda states: set(states) == {"sent"})


async def test_what_another_node_left_goes_out_before_what_this_one_adds(post):
    """A node that is gone has left a reply, and the next one is written before anybody looked."""
    await post.delivery.stop(0)
    post.coordination = node = FakeNode()
    post.begin()
    account = account_name(ADA)
    await post.post("left")  # the account is still the other node's
    node.owned[account] = asyncio.Event()
    await post.post("added")
    await post.wait_sent(2)
    assert post.texts() == ["left", "added"]


async def test_a_piece_that_was_sent_is_not_sent_again_after_a_restart(post):
    words = " ".join(f"word{n:03}" for n in range(30))
    send, count = post.channel.send, 0

    async def dies(outbound):
        nonlocal count
        count += 1
        if count == 3:
            await asyncio.Event().wait()  # never comes back
        return await send(outbound)

    post.channel.send = dies
    await post.post(words)
    await post.wait_sent(2)
    await until(lambda: count == 3)
    await post.restart()
    post.channel.send = send
    await post.until(lambda states: states == ["sent"])
    assert " ".join(post.texts()).split() == words.split()
    ids = [piece.id for piece in post.channel.sent]
    assert len(set(ids)) == len(ids) > 2


async def test_each_message_a_text_is_rendered_to_is_noted_on_its_own(post):
    def render(outbound):
        return numbered(Piece(outbound, word) for word in outbound.text.split())

    post.channel.render = render
    post.channel.errors = [SendTransient(), SendLater(0.001)]
    await post.post("one two three")
    await post.until(lambda states: states == ["sent"])
    assert post.texts() == ["one", "two", "three"]
    assert [piece.id for piece in post.channel.sent] == ["letter-1", "letter-1.1", "letter-1.2"]


async def test_a_text_of_which_nothing_can_be_shown_is_parked_and_told(post):
    render = post.channel.render

    def picky(outbound):
        if outbound.text == "odd":
            raise SendRefused("there is nothing to show in this message")
        if outbound.text == "bug":
            raise ValueError
        return render(outbound)

    post.channel.render = picky
    await post.post("odd", "bug", "two", " \n ")
    await post.until(lambda states: sorted(states) == ["parked"] * 2 + ["sent"] * 4)
    assert post.texts()[0] == "two"
    assert " \n " not in post.texts()  # white space is sent by not sending it


async def test_an_address_that_waits_holds_up_no_other(post):
    post.channel.errors = [SendLater(60)]
    await post.post("slow")
    await post.post("quick", address=Address("memory", "default", "bob"))
    await post.wait_sent(1)
    assert post.texts() == ["quick"]


async def test_what_finds_nobody_is_kept_within_bounds_until_they_are_back(post, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_UNREACHED", 3)
    monkeypatch.setattr(outbox, "MAX_LATE", 2)
    words = [f"{number}" for number in range(5)]
    post.channel.errors = [SendUnreachable("blocked") for _ in words]
    await post.post(*words)
    await post.until(lambda states: states == ["parked"] * 5)
    kept = await post.database.read(lambda tx: outbox.unreached(tx, ADA))
    assert [letter.text for letter in kept] == ["2", "3", "4"]
    await post.delivery.again()
    assert post.texts() == []  # it waits for them, not for a time
    post.delivery.post(await post.database.write(lambda tx: outbox.reached(tx, ADA)))
    await post.wait_sent(2)
    assert post.texts() == ["3", "4"]
    assert await post.database.write(lambda tx: outbox.reached(tx, ADA)) == []


async def test_news_of_the_moment_is_not_kept_for_who_cannot_be_reached(post):
    post.channel.errors = [SendUnreachable("blocked")]
    await post.post("80 % is full", kind="notice")
    await post.until(lambda states: states == ["sent"])
    assert post.texts() == []


async def test_a_text_that_cannot_be_read_is_parked_told_and_holds_up_nothing(post, monkeypatch):
    monkeypatch.setattr(records, "_named", set())
    await post.store("first", "second", extra=outbox.Extra(draft="7"))
    torn = "UPDATE outbox SET extra = '{\"draft\": [' WHERE text = 'first'"
    await post.database.write(lambda tx: tx.execute(torn))
    with capture_logs() as logs:
        await post.delivery.look()
        await post.until(lambda states: states == ["parked", "sent", "sent"])
    second, *told = post.texts()
    assert second == "second"
    assert " ".join(told).startswith("One of my messages was not accepted")
    (told,) = [each for each in logs if each["event"] == "storage.row_unreadable"]
    assert told["table"] == "outbox"


async def test_who_takes_nothing_is_told_nothing_and_that_ends_there(post):
    post.channel.errors = [SendRefused("blocked"), SendRefused("blocked")]
    await post.post("one")
    await post.until(lambda states: states == ["parked", "sent"])
    await post.post("two")
    await post.until(lambda states: states == ["parked", "sent", "sent"])
    assert post.texts() == ["two"]


async def test_what_is_refused_is_told_in_the_language_it_was_written_in(post):
    post.channel.errors = [SendRefused("no such markup")]
    await post.post("壹", language="zh")
    await post.wait_sent(1)
    assert "没有被接受" in post.texts()[0]


class Poisoned:
    """The platform fails with one text for ever, and takes all others unless it is down."""

    def __init__(self, post: Post, word: str) -> None:
        self.is_down = False
        self.is_well = False
        self.recovers = False  # with the next try of that text; before, a notice might get through
        self.tries: list[str] = []
        self._send = post.channel.send
        self._word = word
        post.channel.send = self.send

    async def send(self, piece):
        self.tries.append(piece.text)
        if self.recovers and self._word in piece.text:
            self.is_down, self.is_well = False, True
        if self.is_down or (self._word in piece.text and not self.is_well):
            raise SendTransient
        return await self._send(piece)


@pytest.fixture
def platform(post):
    return Poisoned(post, "bad")


async def test_how_often_a_text_failed_is_known_after_a_restart(post, platform):
    for restart in range(1, module.PARK_TRIES):
        if restart == 1:
            await post.post("bad")
        await until(lambda n=restart: len(platform.tries) >= n)
        await post.restart()
    await post.until(lambda states: states == ["parked"])
    assert platform.tries.count("bad") <= 2 * module.PARK_TRIES


async def test_while_nothing_gets_through_everything_waits_in_order(post, platform):
    platform.is_down = True
    await post.post("bad", "two")
    await until(lambda: len(platform.tries) > 3 * module.PARK_TRIES)
    assert await post.states() == ["waiting", "waiting"]
    assert "two" not in platform.tries
    platform.recovers = True
    await post.until(lambda states: states == ["sent", "sent"])
    assert post.texts() == ["bad", "two"]


async def test_what_was_parked_is_tried_again_once_each_time_and_holds_up_nothing(post, platform):
    await post.post("bad")
    await post.until(lambda states: states == ["parked"])
    before = len(platform.tries)
    await post.delivery.again()
    await post.post("two")
    await post.until(lambda states: states == ["parked", "sent"])
    assert platform.tries[before:] == ["bad", "two"]
    platform.is_well = True
    await post.delivery.again()
    await post.until(lambda states: states == ["sent", "sent"])
    assert post.texts()[-1] == "bad"
    await post.idle()
    assert post.read("unsent") == 0


async def test_what_was_parked_goes_on_with_its_next_piece(post):
    platform = Poisoned(post, "word020")
    await post.post(" ".join(f"word{n:03}" for n in range(30)))
    await post.until(lambda states: states == ["parked"])
    assert sum("word020" in text for text in platform.tries) == module.PARK_TRIES
    platform.is_well = True
    await post.restart()
    await post.delivery.again()
    await post.until(lambda states: states == ["sent"])
    said = " ".join(text for text in post.texts() if text.startswith("word"))
    assert said.split() == [f"word{n:03}" for n in range(30)]


async def test_what_was_parked_follows_a_chat_that_moved(post, platform):
    await post.post("bad")
    await post.until(lambda states: states == ["parked"])
    platform.is_well = True
    post.moves()
    await post.delivery.again()
    await until(lambda: platform.tries.count("bad") == module.PARK_TRIES)
    async with asyncio.timeout(PATIENCE):
        while await post.database.read(
            lambda tx: tx.execute("SELECT 1 FROM outbox WHERE chat = 'ada'")
        ):
            await pause(0.002)
    await post.delivery.again()
    await post.until(lambda states: states == ["sent"])
    assert post.channel.sent[-1].address.chat == "supergroup"


async def test_after_a_week_a_parked_text_is_given_up(post, monkeypatch):
    monkeypatch.setattr(module, "LAST_TRIES", module.PARK_TRIES)
    platform = Poisoned(post, "bad")
    await post.post("bad")
    await post.until(lambda states: states == ["parked"])
    await post.delivery.again()
    async with asyncio.timeout(PATIENCE):
        while await post.database.read(outbox.waiting_again):
            await pause(0.002)
    before = len(platform.tries)
    await post.delivery.again()
    await post.post("two")
    await post.until(lambda states: states == ["parked", "sent"])
    assert platform.tries[before:] == ["two"]
    rows = await post.database.read(
        lambda tx: tx.execute("SELECT again, done_at FROM outbox WHERE text = 'bad'")
    )
    assert list(map(tuple, rows)) == [(0, post.clock())]


async def test_a_clock_that_jumps_parks_nothing(post):
    post.channel.errors = [SendTransient() for _ in range(3)]
    await post.post("patience")
    post.clock.advance(days=400)
    await post.until(lambda states: states == ["sent"])


async def test_at_a_start_texts_of_channels_that_are_off_wait(post):
    await post.delivery.stop(0)
    await post.store("later", address=Address("gone", "default", "ada"))
    await post.restart()
    await post.post("now")
    await post.until(lambda states: states == ["waiting", "sent"])


BUTTON = Button("Compact", "/compact")
PICTURE = Attachment("fill.png", "image/png", b"\x89PNG\x00\xff")


@pytest.mark.parametrize("able", [True, False])
async def test_buttons_and_files_come_with_the_last_piece_where_they_are_taken(post, able):
    post.channel.capabilities = Capabilities(max_length=64, buttons=able, attachments=able)
    words = " ".join(f"word{n:03}" for n in range(20))
    await post.store(words, extra=outbox.Extra((BUTTON,), (PICTURE,)))
    await post.restart()  # so that they are read from the table again
    await post.until(lambda states: states == ["sent"])
    *before, last = post.channel.sent
    assert before
    assert not any(piece.buttons or piece.attachments for piece in before)
    assert last.buttons == ((BUTTON,) if able else ())
    assert last.attachments == ((PICTURE,) if able else ())
    rows = await post.database.read(lambda tx: tx.execute("SELECT text, extra FROM outbox"))
    assert list(rows) == [("", "")]


async def test_a_reply_names_its_draft_in_its_first_piece_and_what_it_answers_in_all(post: Post):
    for again in (False, True):
        post.channel.sent.clear()
        letters = await post.store("word " * 30, reply_to="m5", extra=outbox.Extra(draft="7"))
        if again:
            queue = outbox.Queue(ADA)
            found = await post.database.read(lambda tx, q=queue: outbox.waiting(tx, q, 1))
            assert found == letters
            await post.restart()
        else:
            post.delivery.post(letters)
        sent = await post.wait_sent(3)
        assert [piece.draft for piece in sent] == ["7", "", ""]
        assert [piece.reply_to for piece in sent] == ["m5", "", ""]
        assert {piece.whole.reply_to for piece in sent} == {"m5"}
        await post.until(lambda states: set(states) == {"sent"})


class Gated:
    """A platform that takes nothing before it is opened."""

    def __init__(self, post: Post) -> None:
        self.is_open = asyncio.Event()
        self._send = post.channel.send
        post.channel.send = self.send

    async def send(self, piece):
        await self.is_open.wait()
        return await self._send(piece)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), is_restarted=st.booleans())
async def test_nobodys_many_texts_in_a_room_come_before_anothers_first(post, counts, is_restarted):
    send, before = post.channel.send, len(post.channel.sent)
    platform = Gated(post)
    people = [f"p{number}" for number in range(len(counts))]

    def work(tx: Transaction) -> list[outbox.Letter]:
        return [
            outbox.add(tx, ADA, f"{person}.{number}", post.clock(), asker=person)
            for person, count in zip(people, counts, strict=True)
            for number in range(count)
        ]

    post.delivery.post(await post.database.write(work))
    if is_restarted:
        await post.restart()
    queues = [outbox.Queue(ADA, person) for person in people]
    waiting = post.delivery._workers.waiting  # all but the one that is being sent
    await until(lambda: sum(map(waiting, queues)) == sum(counts) - 1)
    platform.is_open.set()
    await post.wait_sent(before + sum(counts))
    texts = post.texts()[before:]
    for person in people:
        own = [place for place, text in enumerate(texts) if text.startswith(f"{person}.")]
        assert [texts[place] for place in own] == [f"{person}.{n}" for n in range(len(own))]
        # Each has one turn in a round; who is first may have had one more before the others came.
        assert all(place <= (number + 1) * len(people) for number, place in enumerate(own))
    post.channel.send = send


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long delivery waits between two sends, in seconds; here it takes no time."""
    monkeypatch.setattr(module, "FIRST_RETRY", 1.0)
    monkeypatch.setattr(module, "LAST_RETRY", 60.0)
    found: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        if seconds:  # and not `until`
            found.append(seconds)
        await sleep(0)

    monkeypatch.setattr("bot.delivery.delivery.asyncio.sleep", record)
    return found


async def error_of(post: Post, letter: outbox.Letter) -> tuple[object, ...]:
    rows = await post.database.read(
        lambda tx: tx.execute("SELECT state, error, again FROM outbox WHERE id = ?", (letter.id,))
    )
    return tuple(rows[0])


async def test_tries_come_further_and_further_apart_up_to_a_minute(post, pauses, platform):
    platform.is_down = True
    await post.post("bad")
    await until(lambda: len(pauses) >= 24)
    platform.recovers = True
    await post.until(lambda states: states == ["sent"])
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert set(pauses[8:]) == {60}


async def test_as_long_as_the_platform_asks_for_is_waited_and_counts_as_no_try(post, pauses):
    post.channel.errors = [SendLater(7), SendLater(90)]
    letter = (await post.post("soon"))[0]
    await post.until(lambda states: states == ["sent"])
    assert pauses == [7, 90]
    assert (await error_of(post, letter))[0] == "sent"


async def test_each_piece_is_a_whole_message_of_its_own(post):
    words = " ".join(f"word{n:03}" for n in range(20))
    await post.post(words, at=1_234, kind="notice", reply_to="m5", entry="s1.4", asker="ada")
    await post.until(lambda states: states == ["sent"])
    texts = post.texts()
    assert " ".join(texts).split() == words.split()
    whole = Outbound("s1.4", ADA, words, kind="notice", reply_to="m5", at=1_234, asker="ada")
    assert post.channel.sent == [
        Piece(whole, text, index=index, count=len(texts)) for index, text in enumerate(texts)
    ]
    assert [piece.id for piece in post.channel.sent][:2] == ["s1.4", "s1.4.1"]
    assert [piece.reply_to for piece in post.channel.sent][:2] == ["m5", ""]
    assert len(texts) > 2


@pytest.mark.parametrize(("unit", "length"), [("chars", 64), ("utf16", 32)])
async def test_a_piece_is_as_long_as_the_platform_counts(post, unit, length):
    post.channel.capabilities = Capabilities(max_length=64, length_unit=unit)
    await post.post("😀" * 128)
    await post.until(lambda states: states == ["sent"])
    assert set(map(len, post.texts())) == {length}


@pytest.mark.parametrize(("ahead", "seconds"), [(4_500, 4.5), (-9_000, 0)])
async def test_how_long_texts_wait_is_measured_and_never_below_nothing(post, ahead, seconds):
    await post.post("hi", at=post.clock() - ahead)
    await post.until(lambda states: states == ["sent"])
    assert post.read("seconds_sum", channel="memory") == seconds
    rows = await post.database.read(lambda tx: tx.execute("SELECT done_at FROM outbox"))
    assert rows[0][0] == post.clock()


async def test_what_is_refused_says_why_and_is_told_to_whom_it_was_for(post):
    post.channel.errors = [SendRefused("no such markup")]
    (letter,) = await post.post("one", reply_to="m5", entry="s1.4", asker="bob")
    await post.until(lambda states: states == ["parked", "sent"])
    assert await error_of(post, letter) == ("parked", "no such markup", 0)
    assert await post.database.read(lambda tx: outbox.parked(tx, ADA)) == 1
    told = post.channel.sent
    assert " ".join(post.texts()).startswith("One of my messages was not accepted")
    assert {piece.kind for piece in told} == {"notice"}
    assert {piece.whole.reply_to for piece in told} == {"m5"}
    assert told[0].id == f"unsent-{letter.id}"
    rows = await post.database.read(
        lambda tx: tx.execute("SELECT kind, asker, created_at, done_at FROM outbox ORDER BY id")
    )
    assert list(map(tuple, rows)) == [
        ("reply", "bob", post.clock(), post.clock()),
        ("notice", "bob", post.clock(), post.clock()),
    ]
    await post.idle()
    assert post.read("parked_total", channel="memory", result="refused") == 1
    assert post.read("unsent") == 0


async def test_what_does_not_get_through_is_told_with_its_age_and_what_follows_goes_out(
    post, platform
):
    at = post.clock() - 5 * module.MINUTE_MS - 1
    (letter,) = await post.post("bad", at=at, reply_to="m5", language="en")
    await post.post("two", "three")
    await post.until(lambda states: states == ["parked", "sent", "sent"])
    assert await error_of(post, letter) == ("parked", "SendTransient", 1)
    *told, two, three = post.channel.sent
    assert (two.text, three.text) == ("two", "three")
    assert " ".join(piece.text for piece in told).startswith("One of my messages, 5 minutes old")
    assert {(piece.kind, piece.whole.reply_to, piece.at, piece.address) for piece in told} == {
        ("notice", "m5", post.clock(), ADA)
    }
    assert told[0].id == f"unsent-{letter.id}"
    # What was told is sent at once, not stored.
    assert await post.states() == ["parked", "sent", "sent"]
    assert platform.tries.count("bad") == module.PARK_TRIES
    await post.idle()
    assert post.read("unsent") == 1
    assert post.read("parked_total", channel="memory", result="again") == 1


@pytest.mark.parametrize("error", [SendRefused("no notices"), ChatMoved("elsewhere")])
async def test_a_notice_that_does_not_get_through_either_lets_the_text_wait(post, error, logs):
    send = post.channel.send
    seen: list[str] = []

    async def moody(outbound):
        seen.append(outbound.kind)
        if outbound.kind == "notice":
            raise error
        if len(seen) < 3 * module.PARK_TRIES:
            raise SendTransient
        return await send(outbound)

    post.channel.send = moody
    await post.post("bad")
    await post.until(lambda states: states == ["sent"])
    assert "worker.failed" not in {line["event"] for line in logs}
    assert seen.count("notice") > 1
    assert post.texts() == ["bad"]


@pytest.mark.parametrize(("bugs", "state"), [(2, "sent"), (3, "parked")])
async def test_what_the_channel_should_have_mapped_is_tried_three_times(post, bugs, state, logs):
    post.channel.errors = [KeyError("ours")] * bugs
    letter = (await post.post("one", "two"))[0]
    await post.until(lambda states: states[:2] == [state, "sent"])
    if state == "parked":
        assert await error_of(post, letter) == ("parked", "given up after KeyError", 0)
    events = [line["event"] for line in logs if line["log_level"] == "error"]
    assert events == ["delivery.unmapped_error"] * bugs


async def test_an_outage_between_is_no_mistake_of_the_channel(post):
    post.channel.errors = [KeyError(), SendTransient(), KeyError(), SendTransient()]
    await post.post("one")
    await post.until(lambda states: states == ["sent"])


@pytest.mark.parametrize(("failures", "state"), [(2, "sent"), (3, "parked")])
async def test_after_a_day_of_tries_it_is_parked_though_nothing_else_gets_through(
    post, monkeypatch, failures, state
):
    monkeypatch.setattr(module, "GIVE_UP_TRIES", 3)
    post.channel.errors = [SendTransient() for _ in range(failures)]
    letter = (await post.post("one"))[0]
    await post.until(lambda states: states == [state])
    wanted = ("parked", "SendTransient", 1) if state == "parked" else ("sent", "", 0)
    assert await error_of(post, letter) == wanted


@pytest.mark.parametrize("waits", ["behind another", "tried again", "parked"])
async def test_what_is_forgotten_before_it_is_sent_is_not_sent(post, monkeypatch, waits):
    def forget(tx: Transaction) -> int:
        session, _ = UnitOfWork(tx, 1).current(PLACE)
        assert outbox.withdraw(tx, ["agent:main:memory:dm:eve"], "harbour", 1) == 0
        return outbox.withdraw(tx, [session.key], "the  HARBOUR", 1)

    monkeypatch.setattr(module, "GIVE_UP_TRIES", 1 if waits == "parked" else 1_000_000)
    monkeypatch.setattr(module, "PARK_TRIES", 1_000_000)  # nor is it parked by a slow machine
    post.channel.errors = [SendTransient() for _ in range(100_000)]
    before = ["first"] if waits == "behind another" else []
    await post.post(*before, "the harbour code")
    if waits == "parked":
        await post.until(lambda states: states == ["parked"])
    post.clock.advance(seconds=2)
    assert await post.database.write(forget) == 1
    if waits == "tried again":
        await post.idle()
    post.channel.errors.clear()
    await post.delivery.again()
    await post.post("last")
    await post.until(lambda states: set(states) == {"sent"})
    assert [piece.text for piece in post.channel.sent] == [*before, "last"]


async def test_a_channel_that_is_gone_is_tried_again_when_it_is_back(post):
    letter = (await post.post("lost", address=Address("gone", "default", "ada")))[0]
    await post.until(lambda states: states == ["parked"])
    assert await error_of(post, letter) == ("parked", "this channel is not running", 1)
    await post.idle()
    assert post.read("parked_total", channel="gone", result="again") == 1
    assert post.read("unsent") == 1
    await post.delivery.again()  # still gone: it is left alone
    await post.post("here")
    await post.until(lambda states: states == ["parked", "sent"])
    back = InMemoryChannel(capabilities=Capabilities(max_length=64))
    post.delivery._core.channels["gone"] = back
    await post.delivery.again()
    await post.until(lambda states: states == ["sent", "sent"])
    assert [piece.text for piece in back.sent] == ["lost"]


async def test_a_text_is_counted_once_however_often_it_is_tried_again(post, platform):
    letter = (await post.post("bad"))[0]
    await post.until(lambda states: states == ["parked"])
    for number in range(1, 3):
        before = len(platform.tries)
        await post.delivery.again()
        await until(lambda n=before: len(platform.tries) > n)
        await post.idle()
        found = await post.database.read(lambda tx: outbox.to_try_again(tx, 9))
        assert [(each.id, each.tries) for each in found] == [
            (letter.id, module.PARK_TRIES + number)
        ]
    await post.idle()
    assert post.read("parked_total", channel="memory", result="again") == 1


async def test_tries_that_cannot_be_noted_go_on(post, monkeypatch, logs):
    def full(*_: object) -> None:
        raise StorageFull

    monkeypatch.setattr(outbox, "tried", full)
    post.channel.errors = [SendTransient(), SendTransient()]
    await post.post("one")
    await post.until(lambda states: states == ["sent"])
    assert "worker.failed" not in {line["event"] for line in logs}


async def test_what_cannot_be_counted_holds_up_nothing(post, monkeypatch):
    Poisoned(post, "bad")
    read = post.database.read

    async def read_or_fail(work):
        if work is outbox.waiting_again:
            raise StorageFull
        return await read(work)

    monkeypatch.setattr(post.database, "read", read_or_fail)
    await post.post("bad", "two")
    await post.until(lambda states: states == ["parked", "sent"])
    await post.delivery.again()
    await post.idle()
    assert post.read("unsent") == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_chat_that_moved_is_told_of_and_followed_even_when_that_cannot_be_noted(
    post, fails
):
    moves = []

    async def on_moved(address: Address, chat: str) -> None:
        moves.append((address, chat))
        if fails:
            raise StorageFull

    post.begin(on_moved=on_moved)
    post.moves()
    await post.post("one", "two")
    await post.until(lambda states: states == ["sent", "sent"])
    assert moves == [(ADA, "supergroup")]
    await post.post("three")  # still meant for the old one
    await post.wait_sent(3)
    assert post.texts() == ["one", "two", "three"]
    assert {piece.address.chat for piece in post.channel.sent} == {"supergroup"}


async def test_nothing_is_sent_before_every_channel_has_started(post):
    post.begin(is_open=False)
    await post.post("early")
    for _ in range(20):
        await post.states()
    assert post.texts() == []
    post.delivery.open()
    await post.until(lambda states: states == ["sent"])


async def test_a_stop_sends_what_still_can_be_sent(post):
    platform = Gated(post)
    await post.post("one", "two")
    stopping = asyncio.create_task(post.delivery.stop(30))
    await asyncio.sleep(0)
    platform.is_open.set()
    await stopping
    assert post.texts() == ["one", "two"]
