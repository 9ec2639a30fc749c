"""The pages of search engines, behind a proxy of this machine that pretends to be the internet."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

TLS = Path(__file__).resolve().parents[1] / "data" / "tls"
AUTHORITY = TLS / "authority.pem"  # what has to be trusted

DUCKDUCKGO = """<html><body><div class="result__body links_main">
<h2><a href="https://rust.example/book">Rust</a></h2>
<a href="https://rust.example/book">A language for systems.</a></div></body></html>"""
MOJEEK = """<html><body><ul class="results-standard"><li>
<h2><a href="https://rust.example/faq">Rust: questions</a></h2><p class="s">Answers.</p></li>
</ul></body></html>"""
PAGES = {"html.duckduckgo.com": DUCKDUCKGO, "www.mojeek.com": MOJEEK}


@dataclass
class SearchEngines:
    """Pages by host, and which queries each was asked; `status` is how all of them answer."""

    url: str = ""
    pages: dict[str, str] = field(default_factory=lambda: dict(PAGES))
    status: int = 200
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await _head(reader)
            host = line.split()[1].partition(":")[0]
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(TLS / "server.pem")
            await writer.start_tls(context)
            await self._answer(host, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    async def _answer(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await _head(reader)
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        query = parse_qs(body.decode() or urlsplit(head.split()[1]).query)
        self.asked.append((host, query["q"][0]))
        page = self.pages.get(host, "").encode()
        writer.write(
            f"HTTP/1.1 {self.status} Answer\r\nContent-Type: text/html; charset=utf-8\r\n"
            f"Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode()
            + page
        )
        await writer.drain()


async def _head(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


@asynccontextmanager
async def running() -> AsyncGenerator[SearchEngines]:
    """Start the proxy on a free port of this machine."""
    engines = SearchEngines()
    server = await asyncio.start_server(engines.serve, "127.0.0.1", 0)
    async with server:
        engines.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield engines
