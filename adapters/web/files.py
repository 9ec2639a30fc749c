"""Files between the page and the engine: taken in parts, shown again to whoever sent them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import structlog
from aiohttp import web

from bot.channel import (
    DEFAULT_ACCOUNT,
    MOST_UPLOAD,
    MOST_UPLOAD_PART,
    UPLOAD_MARK,
    Address,
    Engine,
    Media,
)
from bot.channel.http import visitor_of
from bot.errors import SendRefused, SendTransient, StorageError

PATH: Final = "/chat/files/{id}"
MAX_NAME: Final = 128  # characters

_ID = re.compile(r"[A-Za-z0-9]{8,64}")
_PICTURE = re.compile(r"image/(jpeg|png|webp|gif|bmp|tiff)")
_MIME = re.compile(r"[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,96}")
# What every browser draws without running anything, by its first bytes.
_SHOWN = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)

CHANNEL: Final = "web"

log = structlog.stdlib.get_logger(__name__)


class FilePages:
    """`/chat/files/ID`: each person's own, for as long as the engine keeps them."""

    def __init__(self) -> None:
        self.engine: Engine | None = None  # keeps the files; without one none are taken

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [
            web.post(PATH, self._put),
            web.get(PATH, self._get),
            web.delete(PATH, self._drop),
        ]

    async def of(self, person: str, ids: Sequence[str]) -> tuple[Media, ...] | None:
        """The files of a message, in its order; None when one of them is not there.

        Raises:
            StorageError: they could not be looked up.
        """
        if not ids:
            return ()
        known = await self.known(person)
        refs = [f"{UPLOAD_MARK}{id_}" for id_ in ids]
        return tuple(known[ref] for ref in refs) if known.keys() >= {*refs} else None

    async def known(self, person: str) -> dict[str, Media]:
        """All files of a person that are there, by ref.

        Raises:
            StorageError: they could not be looked up.
        """
        return {} if self.engine is None else dict(await self.engine.files(address_of(person)))

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a file of a message; see `Channel.fetch`."""
        if self.engine is None or not media.ref.startswith(UPLOAD_MARK) or media.size > most:
            raise SendRefused("there is no such file here")
        try:
            data = await self.engine.file(address, media.ref)
        except StorageError as error:
            raise SendTransient("the file cannot be read now") from error
        if data is None or len(data) > most:
            raise SendRefused("the file is not there any more")
        return data

    async def _put(self, request: web.Request) -> web.Response:
        engine, id_ = self._engine_for(request)
        try:
            part, size = int(request.query["part"]), int(request.query["size"])
        except (KeyError, ValueError):
            raise web.HTTPBadRequest from None
        data = await _body(request)
        if not (0 <= part <= MOST_UPLOAD // MOST_UPLOAD_PART and size > 0 and data):
            raise web.HTTPBadRequest
        media = _described(id_, request.query.get("name", ""), request.content_type, size)
        if request.query.get("voice") == "1" and media.mime.startswith("audio/"):
            media = replace(media, kind="voice")  # what its person says, not what they pass on
        try:
            is_kept = await engine.put_file(_visitors(request), media, part, data)
        except StorageError:
            log.warning("web.file.not_stored")
            raise web.HTTPServiceUnavailable from None
        if not is_kept:
            raise web.HTTPRequestEntityTooLarge(MOST_UPLOAD, size)
        return web.Response(status=204)

    async def _get(self, request: web.Request) -> web.Response:
        engine, id_ = self._engine_for(request)
        data = await engine.file(_visitors(request), f"{UPLOAD_MARK}{id_}")
        if data is None:
            raise web.HTTPNotFound
        kind = shown_as(data)
        headers = {"Cache-Control": "private, no-store"}
        if kind is None:
            headers["Content-Disposition"] = "attachment"
        return web.Response(
            body=data, content_type=kind or "application/octet-stream", headers=headers
        )

    async def _drop(self, request: web.Request) -> web.Response:
        engine, id_ = self._engine_for(request)
        try:
            await engine.drop_file(_visitors(request), f"{UPLOAD_MARK}{id_}")
        except StorageError:
            raise web.HTTPServiceUnavailable from None
        return web.Response(status=204)

    def _engine_for(self, request: web.Request) -> tuple[Engine, str]:
        if self.engine is None:
            raise web.HTTPServiceUnavailable
        id_ = request.match_info["id"]
        if not _ID.fullmatch(id_):
            raise web.HTTPNotFound
        return self.engine, id_


def address_of(person: str) -> Address:
    """The address of a person's chat."""
    return Address(CHANNEL, DEFAULT_ACCOUNT, person)


def frame_of(media: Media | None, ref: str = "") -> dict[str, Any]:
    """A file as the page takes it; of one that is gone only that is known."""
    if media is None:
        return {"id": ref.removeprefix(UPLOAD_MARK), "gone": True}
    return {
        "id": media.ref.removeprefix(UPLOAD_MARK),
        "name": media.name,
        "size": media.size,
        "picture": media.kind == "photo",
    }


def shown_as(data: bytes) -> str | None:
    """The type of a picture that may be shown, by its content; None for everything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _SHOWN if data.startswith(begin)), None)


def _described(id_: str, name: str, mime: str, size: int) -> Media:
    known = mime.lower() if _MIME.fullmatch(mime.lower()) else "application/octet-stream"
    is_picture = _PICTURE.fullmatch(known) is not None
    flat = "".join(letter for letter in name if letter.isprintable())[:MAX_NAME]
    return Media("photo" if is_picture else "document", flat, known, size, f"{UPLOAD_MARK}{id_}")


def _visitors(request: web.Request) -> Address:
    return address_of(visitor_of(request).name)


async def _body(request: web.Request) -> bytes:
    """The bytes of a part; the server's own bound is for forms, and smaller."""
    held = bytearray()
    async for chunk in request.content.iter_chunked(64 * 1024):
        held += chunk
        if len(held) > MOST_UPLOAD_PART:
            raise web.HTTPRequestEntityTooLarge(MOST_UPLOAD_PART, len(held))
    return bytes(held)
