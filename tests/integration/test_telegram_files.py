"""Pictures and files go up through the SDK as multipart, in order, once."""

import io

import pytest
from PIL import Image
from structlog.testing import capture_logs

from adapters.telegram import render, send
from bot.channel import Address, Attachment, Button, Outbound
from bot.errors import ChatMoved, SendLater, SendRefused, SendTransient
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings
from tests.support import post

ADA = Address("telegram", "default", "7")


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.chats.add(7)
        yield server


@pytest.fixture
async def channel(fake):
    async with running(WatchingEngine(), settings(fake)) as running_channel:
        yield running_channel


def png():
    file = io.BytesIO()
    Image.new("RGB", (8, 4), "#0072b2").save(file, "PNG")
    return file.getvalue()


PICTURE = Attachment("context.png", "image/png", png())
NOTES = Attachment("notes.txt", "text/plain", "grüße".encode())


def out(text, *files: Attachment, outbound_id="o1", **fields):
    return Outbound(outbound_id, fields.pop("address", ADA), text, attachments=files, **fields)


def kinds(fake):
    return [(sent.kind, sent.text) for sent in fake.sent]


async def test_a_picture_goes_out_with_its_words_below(fake, channel):
    assert channel.capabilities.attachments
    asked = fake.push_text(7, "/context")
    buttons = (Button("Compact", "/compact"),)
    number = await post(
        channel, out("**57 %** & more", PICTURE, reply_to=str(asked), buttons=buttons)
    )
    sent = fake.sent[0]
    assert (sent.kind, sent.file, sent.mime) == ("photo", "context.png", "image/png")
    assert (sent.text, sent.source) == ("57 % & more", "<b>57 %</b> &amp; more")
    assert (sent.reply_to, str(sent.message_id)) == (asked, number)
    assert sent.buttons == [[("Compact", "/compact")]]
    with Image.open(io.BytesIO(fake.files[7, sent.message_id])) as image:
        assert image.size == (8, 4)


async def test_anything_but_a_picture_goes_out_as_a_file(fake, channel):
    drawing = Attachment("a.svg", "image/svg+xml", b"<svg/>")
    await post(channel, out("Here.", NOTES, drawing))
    assert kinds(fake) == [("document", "Here."), ("document", "")]
    assert [(sent.file, sent.mime) for sent in fake.sent] == [
        ("notes.txt", "text/plain"),
        ("a.svg", "image/svg+xml"),
    ]
    assert fake.files[7, fake.sent[0].message_id] == "grüße".encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 1024, [("photo", "x" * 1024)]),
        ("😀" * 512, [("photo", "😀" * 512)]),
        ("x" * 1025, [("", "x" * 1025), ("photo", "")]),
        ("😀" * 512 + "x", [("", "😀" * 512 + "x"), ("photo", "")]),
    ],
)
async def test_words_too_long_for_a_caption_come_before_the_picture(fake, channel, text, expected):
    await post(channel, out(text, PICTURE, buttons=(Button("Compact", "/compact"),)))
    assert kinds(fake) == expected
    assert [bool(sent.buttons) for sent in fake.sent] == [False, True][-len(expected) :]


async def test_a_picture_needs_no_words(fake, channel):
    await post(channel, out("", PICTURE))
    assert kinds(fake) == [("photo", "")]


async def test_a_large_file_goes_up_whole(fake, channel):
    large = Attachment("large.bin", "application/octet-stream", bytes(range(256)) * 20_000)
    await post(channel, out("Here.", large))
    assert fake.files[7, fake.sent[0].message_id] == large.data


async def test_a_topic_holds_for_pictures_too(fake, channel):
    fake.topics[7].add(3)
    place = Address("telegram", "default", "7", "3")
    await post(channel, out("x" * 2000, PICTURE, address=place))
    assert [sent.thread_id for sent in fake.sent] == [3, 3]


async def test_a_picture_telegram_cannot_read_goes_out_as_a_file(fake, channel):
    broken = Attachment("broken.png", "image/png", b"not a picture")
    with capture_logs() as logs:
        await post(channel, out("Look.", broken))
    assert kinds(fake) == [("document", "Look.")]
    assert logs[0] == {"event": "telegram.send.simplified", "without": "photo"} | logs[0]


async def test_a_caption_telegram_cannot_parse_goes_out_plain(fake, channel):
    fake.fail_next("sendPhoto", Fault(400, "Bad Request: can't parse entities: Unsupported tag"))
    await post(channel, out("**bold** & so", PICTURE))
    assert (fake.sent[0].kind, fake.sent[0].source) == ("photo", "bold & so")


async def test_a_file_beyond_the_limits_is_left_out_and_the_words_go_out(
    fake, channel, monkeypatch
):
    monkeypatch.setattr(render, "MAX_FILE", 100)
    large = Attachment("large.bin", "application/octet-stream", b"x" * 101)
    with capture_logs() as logs:
        await post(channel, out("Here.", large, Attachment("empty.txt", "text/plain", b"")))
    assert kinds(fake) == [("", "Here.")]
    assert [log["event"] for log in logs] == ["telegram.file.left_out"] * 2


async def test_a_picture_too_large_to_show_goes_out_as_a_file(fake, channel, monkeypatch):
    monkeypatch.setattr(send, "MAX_PHOTO", 10)
    await post(channel, out("Here.", PICTURE))
    assert kinds(fake) == [("document", "Here.")]


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", 'a"b\r\nX: y.png', "图 片.png", "x" * 300]
)
async def test_a_name_cannot_break_out_of_its_header(fake, channel, name):
    await post(channel, out("Here.", Attachment(name, "image/png", png())))
    sent = fake.sent[0]
    assert sent.kind == "photo"
    assert not set(sent.file) & set('/"\r\n')
    assert len(sent.file) <= 64


async def test_a_retry_goes_on_after_the_messages_that_are_out(fake, channel):
    letter = out("x" * 2000, PICTURE, NOTES)
    fake.flood(3, "sendDocument")
    with pytest.raises(SendLater) as caught:
        await post(channel, letter)
    assert caught.value.seconds == 3
    number = await post(channel, letter)
    assert kinds(fake) == [("", "x" * 2000), ("photo", ""), ("document", "")]
    assert number == str(fake.sent[0].message_id)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(500), SendTransient),
        (Fault(drop=True), SendTransient),
        (Fault(413, "Request Entity Too Large"), SendRefused),
        (Fault(400, "Bad Request: CHAT_SEND_PHOTOS_FORBIDDEN"), SendRefused),
        (Fault(403, "Forbidden: bot was blocked by the user"), SendRefused),
        (Fault(429, "Too Many Requests: retry after 9", {"retry_after": 9}), SendLater),
        (Fault(400, "Bad Request: moved", {"migrate_to_chat_id": -1007}), ChatMoved),
    ],
)
async def test_failures_say_the_same_as_those_of_words(fake, channel, fault, error):
    fake.fail_next("sendPhoto", fault)
    with pytest.raises(error) as caught:
        await post(channel, out("Look.", PICTURE))
    assert fake.token not in str(caught.value)
    assert fake.sent == []
    await post(channel, out("Look.", PICTURE))
    assert kinds(fake) == [("photo", "Look.")]


async def test_sound_is_a_voice_message_unless_the_person_wants_none(fake, channel):
    sound = Attachment("voice.ogg", "audio/ogg", b"OggS")
    await post(channel, out("", sound))
    assert [(sent.kind, sent.mime, sent.text) for sent in fake.sent] == [("voice", "audio/ogg", "")]
    fake.fail_next("sendVoice", Fault(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN"))
    with pytest.raises(SendRefused, match=r"(?i)voice_messages_forbidden"):
        await post(channel, out("", sound))
    assert len(fake.sent) == 1
