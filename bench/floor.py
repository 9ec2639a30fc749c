"""The least a Telegram bot with a model can be, as its authors write it: no engine at all.

It stores nothing, knows nobody and remembers nothing. `python -m bench.floor httpx` is on the SDKs'
default transports, `python -m bench.floor aiohttp` on aiohttp and uvloop. Almost half of their
processor time is the model SDK's own way of reading a stream, which is the one its documentation
shows; `python -m bench.floor aiohttp whole` asks for the whole reply at once and has no such cost,
and nothing to show meanwhile either.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import aiohttp
import anthropic
import uvloop
from telegram import Update
from telegram.error import NetworkError
from telegram.ext import Application, ContextTypes, MessageHandler, filters
from telegram.request import BaseRequest, RequestData

MODEL = "claude-sonnet-5-5"
MAX_TOKENS = 8192


class AiohttpRequest(BaseRequest):
    """python-telegram-bot's transport on aiohttp, as short as it can be."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float:
        return 60.0

    async def initialize(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256))

    async def shutdown(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *_: Any, **__: Any
    ) -> tuple[int, bytes]:
        if self._session is None:
            raise NetworkError("not initialized")
        data = request_data.json_parameters if request_data else None
        async with self._session.request(method, url, data=data) as response:
            return response.status, await response.read()


def main(transport: str, reply: str = "streamed") -> None:
    """Run until the process is ended; the model's reply is "streamed" or "whole"."""
    client = anthropic.AsyncAnthropic(
        base_url=os.environ["BENCH_MODEL_URL"],
        api_key="x",
        http_client=anthropic.DefaultAioHttpClient() if transport == "aiohttp" else None,
    )

    async def streamed(text: str) -> str:
        async with client.messages.stream(
            model=MODEL, max_tokens=MAX_TOKENS, messages=[{"role": "user", "content": text}]
        ) as stream:
            return await stream.get_final_text()

    async def whole(text: str) -> str:
        message = await client.messages.create(
            model=MODEL, max_tokens=MAX_TOKENS, messages=[{"role": "user", "content": text}]
        )
        return "".join(block.text for block in message.content if block.type == "text")

    ask = whole if reply == "whole" else streamed

    async def answer(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
        if update.message is None or not update.message.text:
            return
        await update.message.reply_text(await ask(update.message.text))

    builder = Application.builder().token(os.environ["TELEGRAM_BOT_TOKEN"])
    builder = builder.base_url(f"{os.environ['BENCH_TELEGRAM_URL']}/bot").concurrent_updates(True)
    if transport == "aiohttp":
        asyncio.set_event_loop(uvloop.new_event_loop())
        builder = builder.request(AiohttpRequest()).get_updates_request(AiohttpRequest())
    else:
        asyncio.set_event_loop(asyncio.new_event_loop())
    application = builder.build()
    application.add_handler(MessageHandler(filters.TEXT, answer))
    application.run_polling()


if __name__ == "__main__":
    main(*sys.argv[1:])
