"""What lets a browser install the page: the manifest, its icons, and the worker behind it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
import orjson
import pytest
from PIL import Image
from prometheus_client import CollectorRegistry

from adapters.web.channel import Web
from bot.channel import http
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer
from bot.dashboard.push import InstallPages
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.web_pages import ready

TOKEN = "0123456789abcdef0123456789abcdef"
HOSTILE = '</script><b>"; alert(1)//'


@asynccontextmanager
async def served(
    token: str = "", name: Callable[[], str] = lambda: "Heron"
) -> AsyncIterator[aiohttp.ClientSession]:
    server = DashboardServer(
        DashboardConfig.model_validate({"port": 0, "token": token or None}),
        readiness=ready,
        browsers=BrowsersInMemory(),
        registry=CollectorRegistry(),
        channels=[Web()],
        name=name,
    )
    try:
        async with aiohttp.ClientSession((await server.start()).url) as client:
            yield client
    finally:
        await server.stop()


@pytest.mark.parametrize("name", ["Heron", "苍鹭", HOSTILE])
async def test_the_manifest_has_the_bots_name_and_icons_that_are_there(name):
    async with served(name=lambda: name) as client:
        async with client.get("manifest.webmanifest") as answer:
            assert answer.content_type == "application/manifest+json"
            manifest = orjson.loads(await answer.read())
        assert (manifest["name"], manifest["start_url"]) == (name, "/")
        assert (manifest["display"], manifest["scope"]) == ("standalone", "/")
        purposes = [icon["purpose"] for icon in manifest["icons"]]
        assert purposes == ["any", "any", "maskable"]
        for icon in manifest["icons"]:
            async with client.get(icon["src"]) as answer:
                assert (answer.status, answer.content_type) == (200, icon["type"])
                picture = Image.open(BytesIO(await answer.read()))
            assert f"{picture.width}x{picture.height}" == icon["sizes"]
            is_cut = icon["purpose"] == "maskable"  # by the system: what is behind must be there
            assert (picture.convert("RGBA").getpixel((0, 0))[3] == 255) is is_cut


def kept(worker: str) -> dict[str, str]:
    (found,) = re.findall(r"^const FILES = (.*);$", worker, re.MULTILINE)
    return orjson.loads(found)


async def test_the_worker_keeps_the_pages_own_files_and_nothing_with_words_in_it():
    async with served() as client:
        async with client.get("sw.js") as answer:
            assert answer.content_type == "text/javascript"
            assert answer.headers["Cache-Control"] == "no-store"
            policy = answer.headers["Content-Security-Policy"]
            files = kept(await answer.text())
        assert {"worker-src 'self'", "manifest-src 'self'"} <= set(policy.split("; "))
        assert {"/", "/static/main.js", "/static/strings.json", "/assets/base.css"} <= set(files)
        rest = {path for path in files if not path.startswith(("/static/", "/assets/"))}
        assert rest == {"/"}  # the page before anything is in it
        for path, version in files.items():
            async with client.get(path) as answer:
                assert answer.status == 200
                assert answer.headers["ETag"].startswith(f'"{version}')


async def test_another_file_makes_another_worker():
    routes = http.asset_routes("adapters.web", "/static", index="index.html")
    files = http.asset_versions(routes)
    same, other = (InstallPages(str, each) for each in (dict(files), {**files, "/": "new"}))
    assert InstallPages(str, files)._worker == same._worker
    assert other._worker != same._worker


async def test_what_strangers_get_of_it_is_the_mark():
    async with served(TOKEN) as client:
        for path, status in {
            "assets/icon-192.png": 200,
            "assets/icon-maskable.png": 200,
            "manifest.webmanifest": 401,
            "sw.js": 401,
        }.items():
            async with client.get(path) as answer:
                assert (path, answer.status) == (path, status)


async def test_a_name_that_is_changed_shows_at_the_next_look():
    names = ["Heron"]
    async with served(name=lambda: names[-1]) as client:

        async def read(path: str) -> str:
            async with client.get(path) as answer:
                return await answer.text()

        before = await read("sw.js")
        names.append("Egret")
        assert orjson.loads(await read("manifest.webmanifest"))["name"] == "Egret"
        after = await read("sw.js")
        assert after == before.replace("Heron", "Egret") != before
