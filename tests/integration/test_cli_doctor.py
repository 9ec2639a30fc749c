"""`confidant doctor` as it is typed, in a process of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.channel import Inbound
from bot.delivery import outbox
from bot.sessions import inbox
from bot.storage.sqlite import SqliteDatabase
from bot.testing import RecordingEngine
from tests.fakes import commands
from tests.fakes import completions_api as completions
from tests.fakes import messages_api as api
from tests.fakes.nextcloud import (
    API_PASSWORD,
    API_USER,
    RESPONSE,
    SECRET,
    FakeNextcloud,
    running,
    settings,
)
from tests.fakes.ports import free_port
from tests.support import NOON

pytestmark = pytest.mark.slow


async def doctor(folder: Path, *arguments: str, **variables: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *commands.argv(),
        "doctor",
        *arguments,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUTF8": "1", **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def test_nothing_is_set_up(tmp_path):
    code, out, _ = await doctor(tmp_path)
    assert code == 0
    assert out.startswith(f"storage\n  ✓ {tmp_path}/.confidant is not there yet")
    assert "\nmodel\n  ! no key is set" in out
    assert out.endswith("channels\n  ✓ no channel that could be checked is set up\n")
    assert "→ Put ANTHROPIC_API_KEY=" in out
    assert "memory\n  ✓ it is searched by words and by meaning (local)\n" in out
    assert "tokens\n  ✓ they are estimated" in out
    code, out, _ = await doctor(tmp_path, "nextcloud")
    assert code == 1
    assert "it is not set up" in out
    code, out, _ = await doctor(tmp_path, "web")
    assert code == 0
    assert "nothing to check" in out
    code, _, err = await doctor(tmp_path, "pigeon")
    assert code == 2
    assert err.startswith('confidant: There is no channel "pigeon": there are ')


async def test_a_folder_whose_owner_nobody_knows_is_named(tmp_path):
    for name in ("ada-0123456789", f"bob-{'0' * 32}", "eve"):
        (tmp_path / "workspace" / "people" / name).mkdir(parents=True)
    _, out, _ = await doctor(tmp_path, CONFIDANT_STORAGE__DIR=str(tmp_path))
    assert "workspace/people/ada-0123456789 is nobody's" in out
    assert "bob-" not in out
    assert "eve" not in out


def of(out: str, section: str) -> str:
    """What is said below a heading."""
    return out.partition(f"\n{section}\n")[2].partition("\nmemory\n")[0]


async def test_the_model_is_asked_whether_it_takes_the_key_and_is_known(tmp_path):
    async with api.running(api.says("Hi")) as server:
        server.models["claude-x"] = api.model_info("claude-x", 300_000, 64_000)
        server.models["silent"] = api.model_info("silent", None, 8_000)
        variables = {
            "ANTHROPIC_API_KEY": "sk-canary-of-the-key",
            "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": server.base_url,
            "CONFIDANT_AGENT__MODEL": "claude-x",
        }
        code, out, err = await doctor(tmp_path, **variables)
        assert (code, err) == (0, "")
        said = of(out, "model")
        assert "✓ anthropic/claude-x answers, the key is taken" in said
        assert "its window: 300000 tokens, its service says" in said
        code, out, _ = await doctor(tmp_path, **{**variables, "CONFIDANT_AGENT__MODEL": "silent"})
        assert "its window: 200000 tokens, is a guess, because its service says nothing" in out
        code, out, _ = await doctor(tmp_path, **{**variables, "CONFIDANT_AGENT__MODEL": "nobody"})
        assert (code, "! anthropic/nobody: " in of(out, "model")) == (0, True)
        assert "sk-canary" not in out
    code, out, err = await doctor(tmp_path, **variables)
    assert code == 1
    assert "✗ anthropic/claude-x: " in of(out, "model")
    assert "→ Check ANTHROPIC_API_KEY" in out
    code, out, _ = await doctor(tmp_path, **{**variables, "CONFIDANT_AGENT__MODEL": "offline"})
    assert (code, "✓ the offline model answers" in out) == (0, True)
    assert "! anthropic: " in of(out, "model")  # nobody asks it now


async def test_every_configured_service_is_asked_and_a_small_window_is_told(tmp_path):
    async with api.running(api.says("Hi")) as claude, completions.running() as server:
        claude.models["claude-x"] = api.model_info("claude-x", 300_000, 64_000)
        server.pages = completions.ollama(131_072)
        variables = {
            "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": claude.base_url,
            "CONFIDANT_MODELS__LOCAL__KIND": "openai",
            "CONFIDANT_MODELS__LOCAL__BASE_URL": server.base_url,
            "CONFIDANT_AGENT__MODEL": "local/qwen3",
        }
        code, out, err = await doctor(tmp_path, **variables)
        assert (code, err) == (1, "")
        said = of(out, "model")
        assert "✓ anthropic answers, without a key, and it lists 1 model\n" in said
        assert "✓ local/qwen3 answers, without a key" in said
        assert "✗ its window has 4096 tokens; conversations need 16000" in said
        assert "→ Set [models.local] window" in said
        wide = {**variables, "CONFIDANT_MODELS__LOCAL__WINDOW": "32768"}
        code, out, _ = await doctor(tmp_path, **wide)
        assert (code, "32768 tokens, the configuration says" in out) == (0, True)
        others = {"CONFIDANT_AGENT__FALLBACK": "anthropic/claude-x, anthropic/nobody"}
        _, out, _ = await doctor(tmp_path, **wide, **others)
        assert "✓ anthropic/claude-x answers" in of(out, "model")
        assert "! anthropic/nobody: " in of(out, "model")


async def test_who_insists_on_tiktoken_is_told_that_its_ranks_are_missing(tmp_path):
    variables = {"CONFIDANT_CONTEXT__TOKENIZER": "tiktoken", "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    code, out, _ = await doctor(tmp_path, **variables)
    assert code == 1
    assert "✗ they are estimated: tiktoken's ranks are not here" in out
    code, out, _ = await doctor(tmp_path, CONFIDANT_MEMORY__EMBEDDER__PROVIDER="none")
    assert (code, "searched by words alone, as [memory] says" in out) == (0, True)


async def test_a_set_up_is_checked_while_the_bot_runs(tmp_path):
    async with FakeNextcloud() as fake:
        port = free_port()
        section = "CONFIDANT_CHANNELS__NEXTCLOUD_TALK__"
        variables = {
            f"{section}BASE_URL": fake.url,
            f"{section}PUBLIC_URL": f"http://127.0.0.1:{port}",
            f"{section}API_USER": API_USER,
            "NEXTCLOUD_TALK_BOT_SECRET": SECRET,
            "NEXTCLOUD_TALK_API_PASSWORD": API_PASSWORD,
        }
        async with running(RecordingEngine(), settings(fake, port)):
            code, out, err = await doctor(tmp_path, "nextcloud-talk", **variables)
            assert (code, err) == (0, "")
            assert out.startswith("nextcloud_talk\n  ✓ the secret has")
            assert "✗" not in out
            fake.bots[0].features &= ~RESPONSE
            code, out, err = await doctor(tmp_path, **variables)
        assert code == 1
        assert "✗ the bot lacks the feature response" in out
        assert "→ occ talk:bot:list" in out
        assert SECRET not in out + err


async def test_what_was_not_answered_and_not_sent_is_shown(tmp_path):
    data = tmp_path / "data"
    database = await SqliteDatabase.open(data / "confidant.db")
    variables = {"CONFIDANT_STORAGE__DIR": str(data)}
    code, out, _ = await doctor(tmp_path, **variables)
    assert code == 0
    assert "✓ all were answered" in out
    person = Inbound("telegram", "default", "7", "direct", "7", "m1", "hello", NOON)

    def work(tx):
        row = inbox.store(tx, person, inbox.storable(person)[1], "key", NOON)
        inbox.set_aside(tx, row, "ValueError", NOON)
        for again in (True, False):
            letter = outbox.add(tx, person.address, "secret words", NOON)
            outbox.park(tx, letter.id, "SendTransient", NOON, again=again)

    await database.write(work)
    await database.close()
    code, out, _ = await doctor(tmp_path, **variables)
    assert code == 0
    assert "! a message of 2026-11-2" in out
    assert "was set aside (telegram, ValueError)" in out
    assert "! telegram: 1 text could not be sent" in out
    assert "! telegram: 1 text was refused" in out
    assert "secret" not in out
    assert "hello" not in out
