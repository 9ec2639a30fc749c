"""Speech understood on this machine: by a real model, bounded, and never to the harm of the bot."""

from __future__ import annotations

import random
import sys

import pytest

from bot.config import SpeechConfig
from bot.files.opener import Limits
from bot.files.sandbox import Unreadable
from bot.speech import program
from bot.speech.local import LocalSpeech, missing
from bot.speech.transcriber import Audio
from tests.speech import MODEL, encoded, spoken, wav
from tests.support import FakeClock

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


@pytest.mark.slow
def test_of_four_hours_the_beginning_is_decoded():
    hours = wav(bytes(2 * 1_000 * 4 * 3600), rate=1_000)
    samples, is_cut = program.decoded(hours)
    assert is_cut
    assert len(samples) == program.MOST_SECONDS * program.RATE


@pytest.mark.slow
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
    assert "model.bin" in missing(SpeechConfig(kind="local", model=str(tmp_path)))
    assert missing(LOCAL) == ""
