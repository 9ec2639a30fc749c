"""What lets a browser install the page: its manifest, and the service worker behind it.

The worker keeps the page's own files, so that the page opens when the bot cannot be reached. It is
another worker whenever one of them is, which a browser looks for at each load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Final

import orjson
from aiohttp import web

from bot.channel.visitor import shared
from bot.dashboard.pages import ASSETS, NO_STORE

PAPER = "#f7f6f3"  # `--paper` of base.css
# What a browser fetches for the system, perhaps without a cookie: the project's mark.
ICONS: Final = {
    f"{ASSETS}/icon-192.png": ("192x192", "any"),
    f"{ASSETS}/icon-512.png": ("512x512", "any"),
    f"{ASSETS}/icon-maskable.png": ("512x512", "maskable"),
}


class InstallPages:
    """`/manifest.webmanifest` and `/sw.js`."""

    def __init__(self, name: str, files: Mapping[str, str]) -> None:
        """`name` is what the bot is called; `files` are the page's own, by path, with a version."""
        self._files = files
        self.rename(name)

    def rename(self, name: str) -> None:
        """The bot is called this from now on."""
        self._manifest = orjson.dumps(_manifest(name))
        self._worker = _worker(name, self._files)

    def routes(self) -> list[web.RouteDef]:
        """Where they are: a worker has power over what lies below it, so it is at the top."""
        return shared(
            [web.get("/manifest.webmanifest", self._serve_manifest), web.get("/sw.js", self._serve)]
        )

    async def _serve_manifest(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._manifest, content_type="application/manifest+json", headers=NO_STORE
        )

    async def _serve(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._worker, content_type="text/javascript", charset="utf-8", headers=NO_STORE
        )


def _manifest(name: str) -> dict[str, object]:
    return {
        "id": "/",
        "name": name,
        "short_name": name,
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": PAPER,
        "theme_color": PAPER,
        "icons": [
            {"src": path, "sizes": sizes, "type": "image/png", "purpose": purpose}
            for path, (sizes, purpose) in ICONS.items()
        ],
    }


def _worker(name: str, files: Mapping[str, str]) -> bytes:
    source = resources.files("bot.dashboard").joinpath("worker.js").read_bytes()
    listed = orjson.dumps(dict(files), option=orjson.OPT_SORT_KEYS)
    version = hashlib.sha256(listed).hexdigest()[:16]
    known = {b"NAME": orjson.dumps(name), b"VERSION": orjson.dumps(version), b"FILES": listed}
    return b"".join(b"const %s = %s;\n" % each for each in known.items()) + source
