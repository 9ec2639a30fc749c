"""`send_file`: a file goes out with the reply, where the turn takes place and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from PIL import Image

from bot.agent.models import Reply, Request
from bot.agent.tools.sending import MAX_FILE_NAME, MOST_BYTES, MOST_FILES
from bot.channel import Attachment, Capabilities, Media
from bot.delivery import outbox
from bot.errors import SendRefused, SendTransient
from bot.messages import Message, ToolResult, ToolUse
from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import Engine, running, until


def png() -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(made, "PNG")
    return made.getvalue()


PNG = png()
ABLE = Capabilities(attachments=True, files=True)


class Files(InMemoryChannel):
    """A channel that brings files and takes them."""

    def __init__(self, able: Capabilities, kept: Mapping[str, bytes]) -> None:
        super().__init__(capabilities=able)
        self.kept = kept

    async def fetch(self, address: Any, media: Media, most: int) -> bytes:
        if len(self.kept[media.ref]) > most:
            raise SendRefused("too large")
        return self.kept[media.ref]


def channel(able: Capabilities = ABLE, **kept: bytes) -> Files:
    return Files(able, kept)


def sending(*calls: dict[str, Any], answer: str = "Here.") -> ScriptedModel:
    """A model that sends these files in one go, and then says what the tools answered."""

    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks
        results = [each.text for each in last if isinstance(each, ToolResult)]
        if results:
            return answer or "\n".join(results)
        uses = [ToolUse(f"t{n}", "send_file", each) for n, each in enumerate(calls)]
        return Reply(Message("assistant", tuple(uses)), "tool_use")

    return ScriptedModel(script)


async def sent(engine: Engine, text: str = "please", **changes: Any) -> tuple[Attachment, ...]:
    await engine.ask(text, **changes)
    return tuple(file for piece in engine.channel.sent for file in piece.attachments)


async def test_what_it_writes_comes_with_the_reply_as_plain_text(tmp_path):
    async with running(tmp_path, channel=channel()) as engine:
        for name, called, mime in (
            ("trip.csv", "trip.csv", "text/csv"),
            ("notes.md", "notes.md", "text/markdown"),
            ("page.html", "page.txt", "text/plain"),
            ("run.svg", "run.txt", "text/plain"),
            ("../../etc/passwd", "etc passwd.txt", "text/plain"),
            ("行程.csv", "行程.csv", "text/csv"),
            ("\u202egpj.txt", "gpj.txt", "text/plain"),
            ("?", "file.txt", "text/plain"),
        ):
            engine.channel.sent.clear()
            engine.model.script = sending({"name": name, "text": "a,b\n1,2"}).script
            (file,) = await sent(engine)
            assert (file.name, file.mime, file.data) == (called, mime, b"a,b\n1,2")
            assert [piece.text for piece in engine.channel.sent] == ["Here."]


async def test_a_file_without_a_word_goes_out_alone(tmp_path):
    model = sending({"name": "a.txt", "text": "x"}, answer="NO_REPLY")
    rooms = {"memory": {"group_policy": "open"}}
    async with running(tmp_path, model=model, channel=channel(), channels=rooms) as engine:
        await engine.say("please", chat="den", chat_type="group", mentions_bot=True)
        await engine.channel.wait_sent(1)
        (piece,) = engine.channel.sent
        assert piece.address.chat == "den"
        assert [each.name for each in piece.attachments] == ["a.txt"]


async def test_what_was_sent_with_the_message_goes_back_as_it_was(tmp_path):
    photo = Media("document", "cat.png", "image/png", ref="r1")
    model = sending({"name": "my cat.exe", "source": "cat.png"})
    async with running(tmp_path, model=model, channel=channel(r1=PNG)) as engine:
        (file,) = await sent(engine, media=(photo,))
        assert (file.name, file.mime, file.data) == ("my cat.png", "image/png", PNG)


async def test_a_picture_of_an_earlier_message_is_found_by_its_name(tmp_path):
    photo = Media("document", "cat.png", "image/png", ref="r1")
    calls = iter([[], [{"name": "again", "source": "cat.png"}]])

    def script(request: Request) -> str | Reply:
        if any(isinstance(each, ToolResult) for each in request.messages[-1].blocks):
            return "Here."
        uses = [ToolUse("t", "send_file", each) for each in next(calls)]
        return Reply(Message("assistant", tuple(uses)), "tool_use") if uses else "Nice cat."

    async with running(tmp_path, model=ScriptedModel(script), channel=channel(r1=PNG)) as engine:
        await engine.ask("look", media=(photo,))
        (file,) = await sent(engine)
        assert (file.name, file.mime) == ("again.jpg", "image/jpeg")
        assert file.data.startswith(b"\xff\xd8")


async def test_what_cannot_be_sent_says_why_and_nothing_is(tmp_path):
    async with running(tmp_path, channel=channel()) as engine:
        for call, why in (
            ({"name": "a.txt"}, "either 'text' or 'source'"),
            ({"name": "a.txt", "text": "x", "source": "y"}, "either 'text' or 'source'"),
            ({"name": " ", "text": "x"}, "'name' is empty"),
            ({"name": "x" * (MAX_FILE_NAME + 1), "text": "x"}, "at most"),
            ({"name": "a", "source": "nothing.png"}, "no such file here; there are: none"),
            ({"name": "a", "source": "a-0123456789ab"}, "Error"),
            ({"name": "a.txt", "text": "é" * 150_000, "x": 1}, "unknown argument"),
        ):
            engine.model.script = sending(call, answer="").script
            assert await sent(engine) == ()
            assert why in engine.channel.sent[-1].text


async def test_size_and_number_are_bounded(tmp_path):
    big = Media("document", "big.bin", "application/octet-stream", ref="r1")
    full = Media("document", "full.bin", "application/octet-stream", ref="r2")
    many = [
        {"name": f"{n}.txt", "text": text} for n, text in enumerate(["four", *"x" * MOST_FILES])
    ]
    files = ({"name": "b", "source": media.name} for media in (big, full))
    model = sending(*files, *many, answer="")
    kept = channel(r1=b"x" * (MOST_BYTES + 1), r2=b"x" * (MOST_BYTES - MOST_FILES + 1))
    async with running(tmp_path, model=model, channel=kept) as engine:
        assert len(await sent(engine, media=(big, full))) == MOST_FILES
        words = engine.channel.sent[-1].text
        assert "cannot be fetched" in words
        assert "it has 4 bytes, and there is room for 3" in words
        assert f"{MOST_FILES} files at most" in words


async def test_a_channel_that_takes_none_is_told_in_words(tmp_path):
    model = sending({"name": "a.txt", "text": "x"}, answer="")
    async with running(tmp_path, model=model, channel=channel(Capabilities())) as engine:
        assert await sent(engine) == ()
        assert "takes no files" in engine.channel.sent[-1].text


async def test_what_waits_to_be_sent_is_taken_back_when_its_words_are_forgotten(tmp_path):
    async with running(tmp_path, channel=channel()) as engine:
        said = await engine.say("hello")
        await engine.channel.wait_sent(1)
        database, now = engine.app.core.database, engine.clock()
        file = Attachment("a.txt", "text/plain", b"the Walrus sings")

        def work(tx: Any) -> tuple[int, int]:
            keys = [row[0] for row in tx.execute("SELECT key FROM sessions")]
            extra = outbox.Extra(attachments=(file,))
            outbox.add(tx, replace(said.address), "Here.", now, extra=extra)
            return outbox.withdraw(tx, keys, "tiger", now), outbox.withdraw(tx, keys, "walrus", now)

        assert await database.write(work) == (0, 1)


async def test_it_goes_out_once_with_its_reply_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.SEND_GRACE", 0.05)
    model = sending({"name": "a.txt", "text": "x"})
    away = channel()
    away.errors += [SendTransient("no network")] * 100
    async with running(tmp_path, model=model, channel=away) as engine:
        await engine.say("please")
        await until(lambda: len(away.errors) < 100)
    assert away.sent == []
    back = channel()
    async with running(tmp_path, model=model, channel=back) as engine:
        (piece,) = await back.wait_sent(1)
        assert (piece.text, [each.name for each in piece.attachments]) == ("Here.", ["a.txt"])
    again = channel()
    async with running(tmp_path, model=model, channel=again) as engine:
        await engine.ask("/whoami")
        assert [piece for piece in again.sent if piece.attachments] == []
