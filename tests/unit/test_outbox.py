"""The outbox, replies said aloud, and speech understood on this machine."""

import asyncio
import random
import sys
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.channel import Address, Attachment, Button, Capabilities, Piece
from bot.config import SpeechConfig
from bot.delivery import delivery as module
from bot.delivery import outbox
from bot.delivery.delivery import Unspoken
from bot.delivery.outbox import Extra, Letter, Queue
from bot.errors import SendRefused, SendTransient
from bot.files.opener import Limits
from bot.files.sandbox import Unreadable
from bot.speech import program
from bot.speech.api import Audio, LocalSpeech, local_missing
from bot.storage import Database
from tests.speech import MODEL, encoded, spoken, wav
from tests.support import FakeClock
from tests.unit.test_delivery import ADA as PIGEON
from tests.unit.test_delivery import Post

ADA = Address("telegram", "default", "1", "t")
PLACES = [
    ADA,
    Address("discord", "default", "1", "t"),
    Address("telegram", "work", "1", "t"),
    Address("telegram", "default", "2", "t"),
    Address("telegram", "default", "1", ""),
]
FULL = Extra(
    buttons=(Button("Yes", "/yes"), Button("不", "/no")),
    attachments=(Attachment("a.txt", "text/plain", b"\x00\xff"),),
    draft="7",
)


@pytest.fixture
async def database(each_database: Database):
    return each_database


async def add(database: Database, text: str, address: Address = ADA, **more) -> Letter:
    return await database.write(lambda tx: outbox.add(tx, address, text, 5, **more))


async def waiting(database: Database, address: Address = ADA, asker: str = "") -> list[str]:
    found = await database.read(lambda tx: outbox.waiting(tx, Queue(address, asker), 10))
    return [letter.text for letter in found]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kind": "notice", "reply_to": "m5", "entry": "s1.4", "language": "zh", "asker": "ada"},
        {"extra": Extra()},
        {"extra": FULL},
        {"extra": Extra(buttons=FULL.buttons)},
        {"extra": Extra(attachments=FULL.attachments)},
        {"extra": Extra(draft="7")},
    ],
)
async def test_what_is_read_back_is_what_was_stored(database: Database, more):
    letter = await add(database, "hello", **more)
    assert letter == replace(Letter(letter.id, ADA, "reply", "hello", "", 0, "", 5), **more)
    assert letter.queue == Queue(ADA, more.get("asker", ""))
    assert await database.read(lambda tx: outbox.waiting(tx, letter.queue, 10)) == [letter]
    assert await database.read(outbox.queues) == [letter.queue]


@pytest.mark.parametrize(
    ("entry", "ids"), [("s1.4", ["s1.4", "s1.4.1"]), ("", ["letter-9", "letter-9.1"])]
)
def test_a_piece_has_the_same_id_each_time(entry: str, ids: list[str]):
    letter = Letter(9, ADA, "reply", "x", "", 0, entry, 5)
    whole = letter.outbound(Capabilities())
    assert [Piece(whole, "x", index=index).id for index in range(2)] == ids


async def test_a_queue_is_one_place_and_one_person(database: Database):
    for number, place in enumerate(PLACES):
        await add(database, f"to {number}", place)
    await add(database, "to bob", ADA, asker="bob")
    for number, place in enumerate(PLACES):
        assert await waiting(database, place) == [f"to {number}"]
    assert await waiting(database, ADA, "bob") == ["to bob"]
    queues = await database.read(outbox.queues)
    assert set(queues) == {*map(Queue, PLACES), Queue(ADA, "bob")}
    assert len(queues) == len(PLACES) + 1


async def test_what_waits_comes_in_order_and_no_more_than_asked_for(database: Database):
    for number in range(4):
        await add(database, f"t{number}")
    found = await database.read(lambda tx: outbox.waiting(tx, Queue(ADA), 3))
    assert [letter.text for letter in found] == ["t0", "t1", "t2"]


async def test_what_was_sent_leaves_no_words_behind(database: Database):
    letter = await add(database, "secret", extra=FULL)
    other = await add(database, "other")
    await database.write(lambda tx: outbox.sent(tx, letter.id, 77))
    assert await waiting(database) == ["other"]
    row = await database.read(
        lambda tx: tx.execute(
            "SELECT state, text, extra, again, done_at FROM outbox WHERE id = ?", (letter.id,)
        )
    )
    assert list(map(tuple, row)) == [("sent", "", "", 0, 77)]
    assert (await database.read(lambda tx: outbox.waiting(tx, Queue(ADA), 9)))[0] == other


async def test_pieces_and_tries_are_noted_for_one_text(database: Database):
    letter, other = await add(database, "long"), await add(database, "other")

    async def noted() -> list[tuple[int, int]]:
        found = await database.read(lambda tx: outbox.waiting(tx, Queue(ADA), 9))
        assert found[1] == other
        return [(found[0].pieces_sent, found[0].tries)]

    await database.write(lambda tx: outbox.tried(tx, letter.id, 3))
    assert await noted() == [(0, 3)]
    # The next piece has not failed yet.
    await database.write(lambda tx: outbox.progress(tx, letter.id, 2))
    assert await noted() == [(2, 0)]


async def test_what_is_parked_is_kept_and_tried_again_only_when_it_may(database: Database):
    letters = [await add(database, f"t{number}") for number in range(4)]
    first, second, third, _ = letters

    def work(tx) -> None:
        outbox.tried(tx, first.id, 5)
        outbox.park(tx, first.id, "Down", 8, again=True)
        outbox.park(tx, second.id, "No", 9, again=False)
        outbox.park(tx, third.id, "Down", 8, again=True)

    await database.write(work)
    assert await waiting(database) == ["t3"]
    again = await database.read(lambda tx: outbox.to_try_again(tx, 10))
    assert [(each.text, each.tries, each.parked) for each in again] == [
        ("t2", 0, True),  # what was tried least comes first
        ("t0", 5, True),
    ]
    assert len(await database.read(lambda tx: outbox.to_try_again(tx, 1))) == 1
    assert await database.read(outbox.waiting_again) == 2
    assert await database.read(outbox.parked_by_channel) == [
        ("telegram", False, 1),
        ("telegram", True, 2),
    ]
    assert await database.read(lambda tx: outbox.parked(tx, ADA)) == 3
    assert await database.read(lambda tx: outbox.parked(tx, PLACES[1])) == 0
    rows = await database.read(
        lambda tx: tx.execute("SELECT error, done_at FROM outbox WHERE state = 'parked' ORDER BY 2")
    )
    assert sorted(map(tuple, rows)) == [("Down", 8), ("Down", 8), ("No", 9)]
    # Sent after all: it is tried no more.
    await database.write(lambda tx: outbox.sent(tx, first.id, 10))
    assert await database.read(outbox.waiting_again) == 1


async def test_what_waits_for_somebody_to_be_there_is_counted_with_what_is_tried_again(
    database: Database,
):
    await add(database, "t")
    ways = (outbox.LATER, outbox.REACHED, outbox.NEVER)
    parked = {way: await add(database, f"t{way}") for way in ways}

    def work(tx) -> None:
        for way, letter in parked.items():
            outbox.park(tx, letter.id, "Away", 8, way)

    await database.write(work)
    found = outbox.Backlog(waiting=1, again=2, refused=1)
    assert await database.read(outbox.backlogs) == {("telegram", "default"): found}
    assert await database.read(outbox.parked_by_channel) == [
        ("telegram", False, 1),
        ("telegram", True, 2),
    ]


async def test_what_a_chat_that_moved_waits_for_goes_with_it_and_nothing_else(database):
    for number, place in enumerate(PLACES):
        await add(database, f"to {number}", place)
    gone, kept = await add(database, "sent"), await add(database, "parked")

    def work(tx) -> int:
        outbox.sent(tx, gone.id, 6)
        outbox.park(tx, kept.id, "Down", 6, again=True)
        return outbox.move(tx, ADA, "9")

    assert await database.write(work) == 1
    there = Address("telegram", "default", "9", "t")
    assert await waiting(database, there) == ["to 0"]
    assert await waiting(database, ADA) == []
    for number, place in enumerate(PLACES[1:], 1):
        assert await waiting(database, place) == [f"to {number}"]
    assert await database.read(lambda tx: outbox.parked(tx, ADA)) == 1
    await database.write(lambda tx: outbox.move_parked(tx, kept.id, "9"))
    assert await database.read(lambda tx: outbox.parked(tx, ADA)) == 0
    assert await database.read(lambda tx: outbox.parked(tx, there)) == 1
    assert await database.write(lambda tx: outbox.move(tx, ADA, "10")) == 0


async def test_what_is_old_and_over_is_dropped_and_nothing_that_may_still_go_out(database):
    letters = [await add(database, text) for text in ("sent", "late", "given up", "again", "waits")]

    def work(tx) -> None:
        outbox.sent(tx, letters[0].id, 10)
        outbox.sent(tx, letters[1].id, 20)
        outbox.park(tx, letters[2].id, "No", 10, again=False)
        outbox.park(tx, letters[3].id, "Down", 10, again=True)
        outbox.prune(tx, 20)

    await database.write(work)
    rows = await database.read(lambda tx: tx.execute("SELECT id FROM outbox ORDER BY id"))
    assert [row[0] for row in rows] == [letters[1].id, letters[3].id, letters[4].id]
    await database.write(lambda tx: outbox.drop(tx, letters[4].id, 30))
    assert await waiting(database) == []
    assert (await add(database, "another")).id > letters[4].id
    await database.write(lambda tx: outbox.drop(tx, letters[4].id + 1, 30))
    assert await database.read(outbox.waiting_again) == 1


@given(
    st.builds(
        Extra,
        buttons=st.lists(
            st.builds(Button, st.text(max_size=9), st.text(max_size=9)), max_size=3
        ).map(tuple),
        attachments=st.lists(
            st.builds(Attachment, st.text(max_size=9), st.text(max_size=9), st.binary(max_size=9)),
            max_size=3,
        ).map(tuple),
        draft=st.text(max_size=9),
    )
)
def test_whatever_comes_with_a_text_is_read_back(extra: Extra):
    assert outbox._from_json(outbox._to_json(extra)) == extra
    assert (outbox._to_json(extra) == "") == (extra == Extra())


@dataclass
class Speaker:
    """It says words as they are."""

    said: list[str] = field(default_factory=list)
    fails: str = ""

    async def say(self, words: str) -> bytes:
        await asyncio.sleep(0)
        self.said.append(words)
        if self.fails:
            raise Unspoken(self.fails)
        return b"OggS" + words.encode()


@pytest.fixture
async def post(each_database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
    monkeypatch.setattr(module, "LAST_RETRY", 0.004)
    with capture_logs():
        made = Post(each_database, Speaker())
        made.channel.capabilities = Capabilities(max_length=400, attachments=True, voice=True)
        yield made
        await made.delivery.stop(0)


async def say(post: Post, *words: str) -> None:
    letters = await post.database.write(
        lambda tx: [
            outbox.add(tx, PIGEON, "", post.clock(), language="en", extra=Extra(aloud=each))
            for each in words
        ]
    )
    post.delivery.post(letters)


def outcomes(post: Post) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for metric in post.metrics.voice.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }


async def test_words_become_a_voice_message_in_their_turn(post: Post):
    await post.post("first")
    await say(post, "said")
    await post.post("last")
    sent = await post.wait_sent(3)
    assert [(piece.text, [f.data for f in piece.attachments]) for piece in sent] == [
        ("first", []),
        ("", [b"OggSsaid"]),
        ("last", []),
    ]
    await post.idle()
    assert await post.states() == ["sent"] * 3
    assert outcomes(post) == {"sent": 1}


async def test_what_waits_is_said_after_a_restart(post: Post):
    await post.database.write(
        lambda tx: outbox.add(tx, PIGEON, "", post.clock(), extra=Extra(aloud="later"))
    )
    await post.restart()
    (sent,) = await post.wait_sent(1)
    assert sent.attachments[0].data == b"OggSlater"


async def test_a_send_that_fails_is_tried_again_with_the_same_sound(post: Post):
    post.channel.errors = [SendTransient("busy"), SendTransient("busy")]
    await say(post, "once")
    await post.wait_sent(1)
    assert post.speaker.said == ["once"]


@pytest.mark.parametrize("reason", ["speaking", "refused", "format"])
async def test_what_cannot_be_said_is_told_once_until_it_can(post: Post, reason: str):
    post.speaker.fails = reason
    await say(post, "one", "two")
    await post.post("text")
    sent = await post.wait_sent(2)
    assert ["couldn't say this aloud" in piece.text for piece in sent] == [False, True]
    assert sent[1].kind == "notice"
    post.speaker.fails = ""
    await say(post, "three")
    await post.wait_sent(3)
    post.speaker.fails = reason
    await say(post, "four")
    assert "couldn't say" in (await post.wait_sent(4))[-1].text
    await post.idle()
    assert outcomes(post) == {reason: 3, "sent": 1}


async def test_a_platform_that_does_not_take_it_is_told_once(post: Post):
    post.channel.errors = [SendRefused("VOICE_MESSAGES_FORBIDDEN")]
    await say(post, "one")
    (told,) = await post.wait_sent(1)
    assert "aren't accepted here" in told.text
    await post.idle()
    assert await post.states() == ["sent", "sent"]


async def test_what_does_not_get_through_for_minutes_is_left_to_its_words(post: Post):
    post.channel.errors = [SendTransient("busy")] * module.PARK_TRIES
    await say(post, "one")
    (told,) = await post.wait_sent(1)
    assert "aren't getting through right now" in told.text
    await post.idle()
    assert await post.states() == ["sent", "sent"]


async def test_what_was_to_be_said_before_it_was_switched_off_is_dropped(post: Post):
    post.delivery._aloud._speaker = None
    await say(post, "one")
    await post.post("text")
    await post.wait_sent(1)
    await post.idle()
    assert post.texts() == ["text"]
    assert await post.states() == ["sent", "sent"]


WORDS = "Good morning. Please remind me to buy some milk tomorrow."
LOCAL = SpeechConfig(kind="local", model=str(MODEL), language="en")


def asked(**changes):
    return {"model": str(MODEL), "language": "en", "seconds": 60.0, **changes}


@pytest.fixture
async def speech():
    made = []

    def make(**changes):
        made.append(LocalSpeech(LOCAL, FakeClock(), **changes))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.mark.slow
async def test_what_was_said_is_understood_in_a_process_of_its_own(speech):
    transcript = await speech().transcribe("ada", Audio(spoken(WORDS)))
    assert "remind me to buy some milk" in transcript.text
    assert not transcript.is_cut
    assert "faster_whisper" not in sys.modules or "bot.speech.program" in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no recording", "damaged"),
        (b"", "damaged"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "damaged"),
        (wav(b""), "silence"),
        (wav(bytes(64_000)), "silence"),
        (wav(random.Random(1).randbytes(160_000)), "silence"),  # noqa: S311 - noise
    ],
)
async def test_what_cannot_be_understood_is_refused_with_a_reason(speech, data, reason):
    with pytest.raises(Unreadable, match=reason):
        await speech().transcribe("ada", Audio(data))


async def test_a_process_that_cannot_be_started_is_said(speech, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unreadable, match="listening"):
        await speech().transcribe("ada", Audio(b"RIFF"))


@pytest.mark.slow
async def test_a_recording_that_takes_too_long_ends_its_process(speech):
    with pytest.raises(Unreadable, match="slow"):
        await speech(limits=Limits(megabytes=6_000, wall=0)).transcribe("ada", Audio(spoken(WORDS)))


@pytest.mark.parametrize(
    "names",
    [
        b"ffconcat version 1.0\nfile other.wav\n",
        b"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5.0,\nother.wav\n#EXT-X-ENDLIST\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    ],
)
def test_a_recording_that_names_other_files_or_addresses_opens_none(tmp_path, monkeypatch, names):
    (tmp_path / "other.wav").write_bytes(spoken(WORDS))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreadable, match="damaged"):
        program.decoded(names)


@pytest.mark.parametrize(
    ("format_", "codec"),
    [
        ("ogg", "libopus"),
        ("mp3", "libmp3lame"),
        ("mp4", "aac"),
        ("adts", "aac"),
        ("webm", "libopus"),
        ("flac", "flac"),
    ],
)
def test_what_people_record_in_is_decoded(format_, codec):
    seconds = len(program.decoded(spoken(WORDS))[0]) / program.RATE
    samples, is_cut = program.decoded(encoded(spoken(WORDS), format_, codec))
    assert len(samples) / program.RATE == pytest.approx(seconds, abs=0.2)
    assert not is_cut


@pytest.mark.proof
def test_of_four_hours_the_beginning_is_decoded():
    hours = wav(bytes(2 * 1_000 * 4 * 3600), rate=1_000)
    samples, is_cut = program.decoded(hours)
    assert is_cut
    assert len(samples) == program.MOST_SECONDS * program.RATE


@pytest.mark.proof
def test_when_time_is_over_what_was_understood_counts():
    clock = iter((0.0, 100.0, 200.0))
    samples, _ = program.decoded(spoken(WORDS))
    model = program.model_of(str(MODEL))
    words, is_cut = program.understood(model, samples, "en", 60.0, lambda: next(clock))
    assert is_cut
    assert words


@pytest.mark.slow
def test_a_damaged_end_does_not_take_the_beginning_away():
    whole = spoken(WORDS)
    head, body = program.answer(asked(), whole[: len(whole) // 2])
    assert "reason" not in head
    assert b"morning" in body


@pytest.mark.slow
def test_a_folder_without_a_model_is_said(tmp_path):
    head, _ = program.answer(asked(model=str(tmp_path)), spoken(WORDS))
    assert head == {"reason": "listening"}
    assert "model.bin" in local_missing(SpeechConfig(kind="local", model=str(tmp_path)))
    assert local_missing(LOCAL) == ""
