"""First steps in the page: a model, Telegram and names, tried at once, used without a restart."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest

from tests.fakes import completions_api, messages_api
from tests.fakes.started import Started, load, started
from tests.fakes.telegram import TOKEN, FakeTelegram

KEY = "sk-test-0123456789abcdef"


def lists_models(*names: str) -> dict[str, object]:
    return {"/v1/models": lambda _body: completions_api.models(*names)}


async def test_a_key_of_openai_is_tried_kept_and_answers_the_next_message(tmp_path: Path):
    async with completions_api.running(completions_api.says("I am the model.")) as api:
        api.pages |= lists_models("gpt-one", "gpt-two")
        place = {"CONFIDANT_MODELS__OPENAI__BASE_URL": api.base_url}
        async with started(tmp_path, **place) as program:
            before = await program.ask("hello")
            assert "I am the model." not in before["text"]
            status, page = await program.post(
                "/settings/start/model", service="openai", key=KEY, address=""
            )
            assert (status, "gpt-two" in page, KEY in page) == (200, True, False)
            assert program.kept == ""
            status, page = await program.post("/settings/start/use", model="gpt-two")
            assert (status, "openai/gpt-two" in page, KEY in page) == (200, True, False)
            after = await program.ask("hello", "m2")
            assert "I am the model." in after["text"]
            assert api.headers[-1]["Authorization"] == f"Bearer {KEY}"
            mode = stat.S_IMODE((program.folder / ".env").stat().st_mode)
            assert (mode, KEY in program.kept) == (0o600, True)
    again = load(tmp_path, **place).config
    assert again.agent.model == "openai/gpt-two"
    assert again.models.openai.api_key is not None


async def test_a_key_of_anthropic_answers_while_a_turn_of_the_old_one_goes_on(tmp_path: Path):
    gate = asyncio.Event()

    async def late(request):
        await gate.wait()
        return await messages_api.says("The old one.")(request)

    models = {"claude-sonnet-5-5": messages_api.model_info("claude-sonnet-5-5", 200_000, 8_000)}
    async with (
        messages_api.running(late) as old,
        messages_api.running(messages_api.says("The new one.")) as new,
    ):
        old.models, new.models = models, models
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / ".env").write_text(
            f"# mine\nCONFIDANT_MODELS__ANTHROPIC__BASE_URL={old.base_url}\n"
        )
        async with started(tmp_path) as program:
            first = asyncio.create_task(program.ask("hello"))
            async with asyncio.timeout(30):
                while not old.bodies:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            text = (program.folder / ".env").read_text()
            (program.folder / ".env").write_text(text.replace(old.base_url, new.base_url))
            status, _ = await program.post("/settings/start/model", service="anthropic", key=KEY)
            assert status == 200
            status, _ = await program.post("/settings/start/use", model="claude-sonnet-5-5")
            assert status == 200
            gate.set()
            assert "The old one." in (await first)["text"]
            assert "The new one." in (await program.ask("and now?", "m2"))["text"]
            assert new.headers[-1]["x-api-key"] == KEY
            assert program.kept.startswith("# mine\n")


async def test_an_address_is_asked_as_an_ollama_is_and_needs_no_key(tmp_path: Path):
    async with completions_api.running(completions_api.says("Hi from here.")) as api:
        api.pages |= completions_api.ollama(32_768)
        async with started(tmp_path) as program:
            status, page = await program.post(
                "/settings/start/model", service="address", key="", address=api.root
            )
            assert (status, "qwen3" in page) == (200, True)
            status, _ = await program.post("/settings/start/use", model="qwen3:latest")
            for number in range(2):  # also once its window is known
                assert "Hi from here." in (await program.ask("hello", f"m{number}"))["text"]
            assert f"BASE_URL={api.root}\n" in program.kept
            assert api.bodies[-1]["model"] == "qwen3:latest-ctx32768"


async def test_a_model_whose_window_is_too_small_and_stays_so_is_not_taken(tmp_path: Path):
    async with completions_api.running(completions_api.says("Hi.")) as api:
        small = completions_api.models({"id": "small", "max_model_len": 8_192})
        api.pages["/v1/models"] = lambda _body: small
        async with started(tmp_path) as program:
            await program.post("/settings/start/model", service="address", address=api.root)
            status, page = await program.post("/settings/start/use", model="small")
            assert (status, "fewer than 16 000 tokens" in page) == (422, True)
            assert program.kept == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"service": "openai", "key": ""}, "Enter the key."),
        ({"service": "address", "address": ""}, "Enter the address"),
        ({"service": "nobody", "key": KEY}, "Choose where"),
        ({"service": "openai", "key": f"{KEY}\nCONFIDANT_AGENT__NAME=Eve"}, "one line of text"),
        ({"service": "openai", "key": f"{KEY}\x1b[31m"}, "one line of text"),
        ({"service": "openai", "key": "k" * 5_000}, "too long"),
        ({"service": "openai", "key": "file:/etc/passwd"}, "name of a file"),
        ({"service": "address", "address": "ftp://example.org"}, "is not an address"),
        ({"service": "address", "address": "http://[::1"}, "is not an address"),
        ({"service": "address", "address": "http://x:99999"}, "is not an address"),
        ({"service": "address", "address": "<script>alert(1)</script>"}, "Nothing answers"),
    ],
)
async def test_what_cannot_be_used_is_said_and_nothing_is_written(
    tmp_path: Path, fields: dict[str, str], said: str
):
    async with started(tmp_path) as program:
        status, page = await program.post("/settings/start/model", **fields)
        assert (status, said in page) == (422, True), page
        assert "<script>" not in page
        assert KEY not in page
        assert program.kept == ""


async def test_a_refused_key_and_a_dead_address_are_told_apart(tmp_path: Path):
    async with completions_api.running() as api:
        refused = {"error": {"message": "no", "code": "invalid_api_key"}}
        api.pages["/v1/models"] = lambda _body: completions_api.web.json_response(
            refused, status=401
        )
        async with started(tmp_path, CONFIDANT_MODELS__OPENAI__BASE_URL=api.base_url) as program:
            _, page = await program.post("/settings/start/model", service="openai", key=KEY)
            assert "does not take this key" in page
            _, page = await program.post(
                "/settings/start/model", service="address", address="http://127.0.0.1:9/v1"
            )
            assert "Nothing answers at this address" in page
            assert 'value="http://127.0.0.1:9/v1"' in page
            _, page = await program.post(
                "/settings/start/model", service="address", address=f"{api.root}/elsewhere"
            )
            assert "it lists no models" in page
            assert program.kept == ""


# --- Telegram -------------------------------------------------------------------------------------


async def test_a_token_begins_to_work_and_another_one_takes_its_place(tmp_path: Path):
    tokens = (TOKEN, "987654321:AAOtherTokenForTestsOnly_0123456789ab")
    async with FakeTelegram(*tokens) as telegram:
        place = {"CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url}
        async with started(tmp_path, **place) as program:
            for number, token in enumerate(tokens):
                status, page = await program.post("/settings/start/telegram", token=token)
                name = telegram.bots[token].username
                assert (status, f"@{name}" in page, token in page) == (200, True, False)
                telegram.push_text(7 + number, "hello", token)
                sent = await telegram.wait_sent(number + 1, within=30)
                assert "code" in sent[-1].text.lower()
            assert tokens[0] not in program.kept
            assert [key[0] for key in program.app.channels.items()] == ["web", "telegram"]
    found = load(tmp_path, **place).config.channels.get("telegram")
    assert found.token.get_secret_value() == tokens[1]  # type: ignore[attr-defined]


async def test_a_token_nobody_knows_is_refused_and_not_written(tmp_path: Path):
    async with FakeTelegram() as telegram:
        place = {"CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url}
        async with started(tmp_path, **place) as program:
            unknown = "111:AAnobodys"
            status, page = await program.post("/settings/start/telegram", token=unknown)
            assert (status, "does not know this token" in page) == (422, True)
            assert (unknown in page, program.kept) == (False, "")
        async with started(
            tmp_path, CONFIDANT_CHANNELS__TELEGRAM__API_ROOT="http://127.0.0.1:9"
        ) as program:
            _, page = await program.post("/settings/start/telegram", token=TOKEN)
            assert "cannot be reached" in page


# --- names, and files that cannot be written ------------------------------------------------------


async def test_who_is_who_counts_at_once_and_a_wrong_zone_keeps_what_was_typed(tmp_path: Path):
    async with started(tmp_path) as program:
        status, page = await program.post(
            "/settings/start/self", name='<b>"Heron"', timezone="Europe/Berlin", language="zh"
        )
        assert (status, "<b>" in page) == (200, False)
        async with program.page.get(f"{program.url}/api/ways") as answer:
            assert (await answer.json())["bot"] == '<b>"Heron"'

        policy = program.app.resolver.policy
        assert (str(policy.zone), policy.config.agent.language) == ("Europe/Berlin", "zh")
        status, page = await program.post(
            "/settings/start/self", name="Heron", timezone="Europe/Berlinn", language="en"
        )
        assert (status, "did you mean &#34;Europe/Berlin&#34;?" in page) == (422, True)
        assert 'value="Heron"' in page
        assert 'value="Europe/Berlinn"' in page
        assert load(tmp_path).config.agent.name == '<b>"Heron"'


async def test_what_the_owner_is_called_is_kept_shown_as_it_is_and_taken_out_again(tmp_path: Path):
    name = '<b>Ada</b> **"'

    async def greeted(program: Started) -> str:
        async with program.page.get(f"{program.url}/api/ways") as answer:
            return (await answer.json())["called"]

    async with started(tmp_path) as program:
        assert await greeted(program) == ""
        assert "is called" not in await program.get("/people")
        status, page = await program.post("/settings/start/self", owner_name=name)
        assert (status, "<b>" in page) == (200, False)
        assert "Saved, and in effect." in page
        assert "Saved" not in await program.get("/settings/start")
        assert await greeted(program) == name
        people = await program.get("/people")
        assert "is called &lt;b&gt;Ada&lt;/b&gt; **&#34;" in people
        assert "data/.env:1: CONFIDANT_SESSION__OWNER_NAME" in people
        assert load(tmp_path).config.session.owner_name == name
        status, page = await program.post("/settings/start/self", owner_name="x" * 81)
        assert (status, "it may have 80 characters" in page) == (422, True)
        assert await greeted(program) == name
        await program.post("/settings/start/self", owner_name="")
        assert (await greeted(program), program.kept) == ("", "")


async def test_a_file_that_cannot_be_written_is_told_and_the_key_waits_for_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with completions_api.running(completions_api.says("Hello.")) as api:
        api.pages |= lists_models("gpt-one")
        place = {"CONFIDANT_MODELS__OPENAI__BASE_URL": api.base_url}
        async with started(tmp_path, **place) as program:
            await program.post("/settings/start/model", service="openai", key=KEY)
            with monkeypatch.context() as patched:
                patched.setattr("bot.settings.dotenv.os.open", refuse)
                status, page = await program.post("/settings/start/use", model="gpt-one")
            assert (status, "cannot be written: Read-only file system" in page) == (422, True)
            assert "gpt-one" in page
            status, page = await program.post("/settings/start/use", model="gpt-one")
            assert (status, "openai/gpt-one answers" in page) == (200, True)


async def test_what_the_environment_sets_is_not_changed_here(tmp_path: Path):
    async with started(tmp_path, CONFIDANT_AGENT__NAME="Crane") as program:
        status, page = await program.post("/settings/start/self", name="Heron")
        assert (status, "set by CONFIDANT_AGENT__NAME" in page) == (422, True)
        assert program.kept == ""


def refuse(*_: object) -> int:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
