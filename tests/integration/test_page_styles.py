"""The chat page has its style sheets within it, and its content policy lets those through alone."""

from __future__ import annotations

import base64
import hashlib

import aiohttp

from tests.fakes.web_pages import Chat


async def test_the_page_brings_its_styles_and_lets_no_other_through() -> None:
    async with Chat().served() as chat, aiohttp.ClientSession() as client:
        async with client.get(chat.url) as answer:
            page, policy = await answer.text(), answer.headers["Content-Security-Policy"]
            etag = answer.headers["ETag"]
        style = page.partition("<style>")[2].partition("</style>")[0]
        for path in ("assets/base.css", "static/app.css"):
            async with client.get(chat.url + path) as answer:
                assert await answer.text() in style
                assert "sha256" not in answer.headers["Content-Security-Policy"]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'self' 'sha256-{digest}';" in policy
        assert "unsafe" not in policy
        assert 'rel="stylesheet"' not in page
        # A browser that has the page takes the policy of the answer that says so.
        async with client.get(chat.url, headers={"If-None-Match": etag}) as answer:
            assert (answer.status, answer.headers["Content-Security-Policy"]) == (304, policy)
