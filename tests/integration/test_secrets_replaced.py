"""Secrets of Telegram that are replaced in the page, end to end: the old one is used no more."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from adapters.telegram.webhook import SECRET_HEADER
from tests.fakes.ports import free_port
from tests.fakes.started import Started, started
from tests.fakes.telegram import TOKEN, FakeTelegram

OTHER = "987654321:AAOtherTokenForTestsOnly_0123456789ab"
PREFIX = "CONFIDANT_CHANNELS__TELEGRAM__"


def kept(folder: Path, **values: str) -> None:
    (folder / "data").mkdir()
    lines = [f"{PREFIX}{name}={value}\n" for name, value in values.items()]
    (folder / "data" / ".env").write_text("".join(lines))


async def replace(program: Started, option: str, value: str) -> str:
    name = f"channels.telegram.{option}"
    status, page = await program.post("/settings/secret", option=name, value=value)
    assert status == 200
    assert value not in page
    return page


async def answered(telegram: FakeTelegram, user: int, token: str) -> None:
    """Somebody writes to the bot of a token, and is given a code by it."""
    telegram.push_text(user, "hello", token)
    await telegram.wait_for(lambda: any("code" in text for text in telegram.texts(user)), 30)


async def test_a_token_that_was_replaced_is_used_no_more(tmp_path: Path):
    async with FakeTelegram(TOKEN, OTHER) as telegram:
        kept(tmp_path, TOKEN=TOKEN, API_ROOT=telegram.url)
        async with started(tmp_path) as program:
            await answered(telegram, 7, TOKEN)
            await telegram.wait_acknowledged(TOKEN)
            await replace(program, "token", OTHER)
            calls = len(telegram.calls)
            await answered(telegram, 8, OTHER)
            # Who writes to the bot of before is heard by nobody, and nothing asks there any more.
            telegram.push_text(9, "is anybody there?", TOKEN)
            await answered(telegram, 10, OTHER)
            assert {call.token for call in telegram.calls[calls:]} == {OTHER}
            assert (telegram.pending(TOKEN), telegram.texts(9)) == (1, [])
            assert program.kept.count(OTHER) == 1
            assert TOKEN not in program.kept
        async with started(tmp_path):  # and so after a start
            calls = len(telegram.calls)
            await answered(telegram, 11, OTHER)
            assert {call.token for call in telegram.calls[calls:]} == {OTHER}


@pytest.mark.parametrize("how", ["replaced", "taken back"])
async def test_a_webhooks_secret_that_was_replaced_lets_nobody_in(tmp_path: Path, how: str):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with FakeTelegram() as telegram:
        kept(
            tmp_path,
            TOKEN=TOKEN,
            API_ROOT=telegram.url,
            MODE="webhook",
            WEBHOOK_URL=url,
            WEBHOOK_PORT=str(port),
            WEBHOOK_SECRET="first-secret",
        )
        async with started(tmp_path) as program, aiohttp.ClientSession() as http:
            await answered(telegram, 7, TOKEN)
            await replace(program, "webhook_secret", "second-secret")
            old, new = "first-secret", "second-secret"
            if how == "taken back":
                page = await program.get("/settings")
                change = page.partition('name="change" value="')[2].partition('"')[0]
                assert (await program.post("/settings/take-back", change=change))[0] == 200
                old, new = new, old
            await answered(telegram, 8, TOKEN)  # Telegram was told the new one
            hook = telegram.bots[TOKEN].webhook
            assert hook is not None
            assert hook["secret"] == new
            where = f"{url}/telegram/default"
            said = {"update_id": 1}
            async with http.post(where, json=said, headers={SECRET_HEADER: old}) as answer:
                assert answer.status in {401, 403}
            async with http.post(where, json=said, headers={SECRET_HEADER: new}) as answer:
                assert answer.status == 200
