"""Files that people send in the chat page: kept, read by the model, shown to nobody else."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image
from prometheus_client import CollectorRegistry

from adapters.web import plugin
from adapters.web.files import shown_as
from bot.app import App, Parts
from bot.channel import MOST_UPLOAD, MOST_UPLOAD_PART
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer
from bot.dashboard.guard import COOKIE
from bot.messages import Picture
from bot.settings import config_model
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.fakes.web_pages import Chat, ready
from tests.support import FakeClock, make_config

A, B = "a" * 32, "b" * 32


def png(colour: str = "red") -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(held, "PNG")
    return held.getvalue()


class Served(Chat):
    """The program with nothing but its page; `model` says what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ScriptedModel()
        self.clock = FakeClock()

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[Served]:
        told, _ = make_config(folder)
        data = told.model_dump(exclude={"channels"}, exclude_unset=True)
        config = config_model({"web": plugin}).model_validate(data)
        parts = Parts(
            clock=self.clock, remote=self.model, channels={"web": self.web}, dashboard=False
        )
        server = DashboardServer(
            DashboardConfig(port=0),
            readiness=ready,
            registry=CollectorRegistry(),
            channels=[self.web],
            guest=self.guest,
        )
        async with App(config, {"web": plugin}, parts):
            self.url = (await server.start()).url
            try:
                yield self
            finally:
                await server.stop()

    @asynccontextmanager
    async def client(self, person: str = "") -> AsyncIterator[Client]:
        cookies = {COOKIE: f"let-in-as-{person}"} if person else {}
        jar = aiohttp.CookieJar(unsafe=True)
        headers = {"Origin": self.url.rstrip("/")}
        async with aiohttp.ClientSession(
            cookies=cookies, cookie_jar=jar, headers=headers
        ) as session:
            yield Client(self.url, session)


class Client:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def put(self, data: bytes, id_: str = A, **said: Any) -> int:
        """Bring a file in its parts; the last status."""
        kind = said.pop("kind", "image/png")
        query = {"name": "a.png", "size": str(len(data)), **said}
        status = 0
        for part in range(0, max(len(data), 1), MOST_UPLOAD_PART):
            async with self.session.post(
                f"{self.url}chat/files/{id_}",
                params={"part": str(part // MOST_UPLOAD_PART), **query},
                data=data[part : part + MOST_UPLOAD_PART],
                headers={"Content-Type": kind},
            ) as answer:
                status = answer.status
        return status

    async def get(self, id_: str = A) -> tuple[int, str, bytes]:
        async with self.session.get(f"{self.url}chat/files/{id_}") as answer:
            return answer.status, answer.content_type, await answer.read()


@pytest.fixture
def chat() -> Served:
    return Served()


def shown_to(model: ScriptedModel) -> list[object]:
    return [block for message in model.requests[-1].messages for block in message.blocks]


async def test_a_picture_reaches_the_model_and_is_there_after_a_reload(
    chat: Served, tmp_path: Path
) -> None:
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png()) == 204
        assert await client.put(png()) == 204  # tried again, as the answer was lost
        async with chat.page() as page, chat.page() as other:
            await page.say(type="send", id="m1", text="", files=[A])
            await page.until("ack", id="m1")
            sent = {"id": A, "name": "a.png", "size": len(png()), "picture": True}
            assert (await other.until("message", role="user"))["files"] == [sent]
            await page.until("message", role="bot")
        assert any(isinstance(block, Picture) for block in shown_to(chat.model))
        assert await client.get() == (200, "image/png", png())
        async with chat.page() as page:
            assert page.frames[-1]["items"][0]["files"] == [sent]
    chat.clock.advance(days=2)
    later = replace_model(chat)
    async with later.running(tmp_path), later.client() as client:
        assert await client.put(png("blue"), B) == 204
        assert (await client.get())[0] == 404
        async with later.page() as page:
            assert page.frames[-1]["items"][0]["files"] == [{"id": A, "gone": True}]


def replace_model(chat: Served) -> Served:
    """The same program, started anew at the same time."""
    again = Served()
    again.clock = chat.clock
    return again


async def test_a_document_larger_than_a_part_is_read(chat: Served, tmp_path: Path) -> None:
    words = b"The harbour opens at seven.\n" + b"x" * (MOST_UPLOAD_PART - 100_000)
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(words, name="plan.txt", kind="text/plain") == 204
        async with chat.page() as page:
            await page.say(type="send", id="m1", text="when?", files=[A])
            await page.until("message", role="bot")
        read = "".join(str(getattr(block, "text", "")) for block in shown_to(chat.model))
        assert "the file plan.txt, sent with this message" in read
        assert "The harbour opens at seven." in read
        assert "when?" in read
        assert await client.put(b"y" * (2 * MOST_UPLOAD_PART + 5), B, kind="text/plain") == 204
        assert (await client.get(B)) == (
            200,
            "application/octet-stream",
            b"y" * (2 * MOST_UPLOAD_PART + 5),
        )


async def test_what_was_brought_outlives_a_restart(chat: Served, tmp_path: Path) -> None:
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png()) == 204
    again = replace_model(chat)
    async with again.running(tmp_path), again.page() as page:
        await page.say(type="send", id="m1", text="look", files=[A])
        await page.until("message", role="bot")
    assert any(isinstance(block, Picture) for block in shown_to(again.model))


async def test_a_file_that_is_part_of_a_message_that_waits_is_not_dropped(
    chat: Served, tmp_path: Path
) -> None:
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png()) == 204
        row = "INSERT INTO inbox(channel, account, chat, thread, message_id, state, key, body, "
        row += "received_at) VALUES ('web', 'default', 'owner', '', 'x', 'waiting', 'k', '{}', 0)"
        chat.clock.advance(days=2)
        change(tmp_path, row)
        assert await client.put(png(), B) == 204
        assert (await client.get())[0] == 200
        change(tmp_path, "DELETE FROM inbox WHERE message_id = 'x'")
        assert await client.put(png(), "c" * 32) == 204
        assert (await client.get())[0] == 404


def change(folder: Path, sql: str) -> None:
    import apsw

    connection = apsw.Connection(str(folder / "confidant.db"))
    connection.set_busy_timeout(5_000)
    connection.execute(sql)
    connection.close()


async def test_nobody_else_reads_sends_or_drops_a_file(chat: Served, tmp_path: Path) -> None:
    async with (
        chat.running(tmp_path),
        chat.client() as owner,
        chat.client("ada") as ada,
        chat.page(person="ada") as page,
    ):
        assert await owner.put(png()) == 204
        assert (await ada.get())[0] == 404
        await page.say(type="send", id="m1", text="mine", files=[A])
        await page.until("error", key="files", id="m1")
        async with ada.session.delete(f"{chat.url}chat/files/{A}") as answer:
            assert answer.status == 204
        assert await ada.put(png("blue")) == 204  # the same id is another file of hers
        assert (await owner.get())[2] == png()
        async with owner.session.delete(f"{chat.url}chat/files/{A}"):
            pass
        assert (await owner.get())[0] == 404
        assert (await ada.get())[2] == png("blue")
    assert chat.model.requests == []


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"size": str(MOST_UPLOAD + 1)}, 413),
        ({"size": "3"}, 413),
        ({"size": "0"}, 400),
        ({"size": "-1"}, 400),
        ({"size": "x"}, 400),
        ({"part": "-1"}, 400),
        ({"part": "99"}, 400),
        ({"part": "9" * 5000}, 400),
        ({"id_": "short"}, 404),
        ({"id_": "..%2f" * 4}, 404),
    ],
)
async def test_what_is_no_file_is_refused(
    chat: Served, tmp_path: Path, said: dict[str, str], status: int
) -> None:
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png(), **said) == status
        assert await client.put(b"") == 400
        over = b"x" * (MOST_UPLOAD_PART + 1)
        async with client.session.post(f"{chat.url}chat/files/{A}?part=0&size=9", data=over) as a:
            assert a.status == 413
        async with client.session.post(
            f"{chat.url}chat/files/{A}?part=0&size=9", data=b"x", headers={"Origin": "http://evil"}
        ) as answer:
            assert answer.status == 403
    assert query(tmp_path, "SELECT count(*) FROM uploads") == [(0,)]


async def test_one_person_cannot_fill_the_disk(
    chat: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.sessions.uploads.MOST_BYTES", 1_000)
    monkeypatch.setattr("bot.sessions.uploads.MOST_FILES", 3)
    async with chat.running(tmp_path), chat.client() as client, chat.client("ada") as ada:
        assert await client.put(b"x" * 900) == 204
        assert await client.put(b"x" * 101, B) == 413
        assert await client.put(b"x" * 10, B) == 204
        assert await client.put(b"x" * 10, "c" * 32) == 204
        assert await client.put(b"x" * 10, "d" * 32) == 413
        assert await ada.put(b"x" * 900) == 204
        chat.clock.advance(days=1.1)
        assert await client.put(b"x" * 900, "d" * 32) == 204


@pytest.mark.parametrize("files", [["nope"], [A, A], "x", [A] * 11, [1], ["../../etc/passwd"], [B]])
async def test_a_message_with_files_that_are_none_is_refused_and_changes_nothing(
    chat: Served, tmp_path: Path, files: object
) -> None:
    async with chat.running(tmp_path), chat.client() as client, chat.page() as page:
        assert await client.put(png()) == 204
        await page.say(type="send", id="m1", text="x", files=files)
        error = await page.until("error", id="m1")
        assert error["key"] == ("files" if files == [B] else "malformed")
    assert query(tmp_path, "SELECT count(*) FROM inbox") == [(0,)]


async def test_a_part_of_a_file_is_no_file(chat: Served, tmp_path: Path) -> None:
    async with chat.running(tmp_path), chat.client() as client, chat.page() as page:
        assert await client.put(b"half", size="8") == 204
        assert (await client.get())[0] == 404
        await page.say(type="send", id="m1", text="x", files=[A])
        await page.until("error", key="files", id="m1")


async def test_nothing_that_could_act_is_shown_as_what_it_claims_to_be(
    chat: Served, tmp_path: Path
) -> None:
    hostile = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    async with chat.running(tmp_path), chat.client() as client:
        for kind in ("image/svg+xml", "text/html", "image/png", "x/\u00fc"):
            await client.put(hostile, kind=kind, name="<b>\u202e\n.png")
            assert (await client.get())[1] == "application/octet-stream"
            async with client.session.get(f"{chat.url}chat/files/{A}") as answer:
                assert answer.headers["Content-Disposition"] == "attachment"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (b"RIFF1234WAVE", None),
        (b"<svg", None),
        (b"", None),
    ],
)
def test_pictures_are_told_by_their_content(data: bytes, kind: str | None) -> None:
    assert shown_as(data) == kind
