"""Channels, models and tools from other packages: the documents' examples, and broken ones."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import ANY

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from bot import channel, housekeeping, settings
from bot import plugins as packages_beside
from bot.agent.models import ToolSpec
from bot.agent.models.registry import Models, configured
from bot.agent.tools import ToolContext
from bot.agent.tools.search import MemorySearch
from bot.agent.tools.toolbox import NOT_GIVEN, Toolbox, ToolPlugins, installed
from bot.app import App, Parts
from bot.channel import ChannelPlugin, Health, Outbound
from bot.config import EmbedderConfig, Settings
from bot.errors import ConfigError, EmbedderError, SendTransient
from bot.gateway import channels
from bot.identity.access import ToolRights
from bot.identity.view import MemoryView
from bot.memory import embed
from bot.memory.note_store import FolderNotes
from bot.memory.notes import SpaceFiles
from bot.memory.search import Findings
from bot.messages import ToolUse
from bot.plugins import CHANNELS as CHANNELS_GROUP
from bot.settings.fields import config_model
from bot.testing import InMemoryChannel, RecordingEngine, ScriptedModel
from tests.fakes import written_channel, written_model
from tests.fakes.config_channels import CHANNELS, PigeonConfig, load
from tests.fakes.text_store import TextStoreInMemory
from tests.support import Engine, FakeClock, make_config, post, running, until, write_file


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages; what is imported from it is forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def install(folder: Path, package: str, name: str, code: str, group: str = "channels") -> None:
    """Put a package with one channel, or with tools, into a folder, as an installer would."""
    (folder / f"{package}.py").write_text(dedent(code))
    meta = folder / f"{package}-1.dist-info"
    write_file(meta / "METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (meta / "entry_points.txt").write_text(f"[confidant.{group}]\n{name} = {package}:plugin\n")


GOOD = """
    from pydantic import Field
    from bot.channel import ChannelConfig, ChannelPlugin
    class RavenConfig(ChannelConfig):
        wit: int = Field(default=3, description="How clever.")
    plugin = ChannelPlugin("raven", RavenConfig, create=lambda config: None)
"""


def test_the_channels_of_this_project_are_found():
    assert {"console", "telegram", "web"} <= set(settings.installed_channels())


def test_the_plain_names_are_known(tmp_path):
    environ = {"TELEGRAM_BOT_TOKEN": "1:a", "ANTHROPIC_API_KEY": "k"}
    config = settings.load(None, environ, tmp_path).config
    telegram = config.channels.get("telegram")
    assert telegram.model_dump()["token"].get_secret_value() == "1:a"
    assert config.models.anthropic.api_key is not None


def test_a_channel_of_another_package_is_configured_like_ours(packages):
    install(packages, "raven_channel", "raven", GOOD)
    assert "raven" in settings.installed_channels()
    loaded = settings.load(None, {"CONFIDANT_CHANNELS__RAVEN__WIT": "5"}, packages)
    assert loaded.config.channels.get("raven").model_dump()["wit"] == 5
    assert loaded.plugins["raven"].name == "raven"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("", "cannot be loaded: AttributeError"),
        ("plugin = 3", "is no channel: it names a int"),
        (GOOD.replace('"raven"', '"crow"'), 'calls itself "crow", which cannot be its name'),
    ],
)
def test_a_broken_channel_is_named(packages, code, reason):
    install(packages, "raven_channel", "raven", code)
    with pytest.raises(ConfigError) as caught:
        settings.load(None, {}, packages)
    assert 'the channel "raven" (raven_channel, raven_channel:plugin) ' in str(caught.value)
    assert reason in str(caught.value)


def test_two_packages_with_one_channel_are_told(packages):
    install(packages, "raven_channel", "raven", GOOD)
    install(packages, "other_raven", "raven", GOOD)
    with pytest.raises(ConfigError, match='two packages bring a channel "raven"'):
        settings.installed_channels()


def test_a_rule_may_name_what_servers_and_other_packages_bring(packages, tmp_path):
    rules = "[[tools.rules]]\naction = 'deny'\ntools = ['Memory_*', 'files_read', 'fi*', '*']\n"
    rules += "channel = 'PIGEON'\n"
    server = "[tools.mcp.files]\ncommand = 'x'\n"
    assert load(tmp_path, rules + server).warnings == ()
    for said in ("files_read", "fi*"):
        with pytest.raises(ConfigError, match=f'no tool is called "{re.escape(said)}"'):
            load(tmp_path, rules)
    install(packages, "some_tools", "tools", "", group="tools")
    (warning, other) = load(tmp_path, rules).warnings  # its tools are known once it is loaded
    assert 'no tool is called "files_read"' in warning
    assert 'no tool is called "fi*"' in other


def test_a_channel_whose_options_have_no_default_is_refused(tmp_path):
    class Needy(PigeonConfig):
        needed: int

    plugin = ChannelPlugin("needy", Needy, CHANNELS["owl"].create)
    with pytest.raises(ConfigError, match=r"without a default: \['needed'\]"):
        settings.load(None, {}, tmp_path, {"needy": plugin})


def test_a_plain_name_for_an_option_that_does_not_exist_is_refused(tmp_path):
    plugin = ChannelPlugin("p", PigeonConfig, CHANNELS["owl"].create, env={"P_KEY": ("key",)})
    with pytest.raises(ConfigError, match='the channel "p" has no option for P_KEY'):
        settings.load(None, {}, tmp_path, {"p": plugin})


HEAD = "from bot.agent.models.registry import ModelPlugin\n"


async def test_the_model_of_the_document_is_a_service_like_ours(packages: Path):
    written_model.install(packages)
    loaded = load(packages, '[agent]\nmodel = "echo/loud"\n[models.echo]\n')
    assert loaded.warnings == ()
    services = configured(loaded.config.models, TextStoreInMemory())
    found = Models(Settings(loaded.config), services)
    assert await found.names() == ("echo/loud", "offline")
    assert (await found.window("echo/loud")).max_input_tokens == 100_000
    await found.close()


def test_a_kind_that_nobody_brings_is_told(packages: Path):
    with pytest.raises(ConfigError, match=r'"eko" is no kind of service; there is "anthropic"'):
        load(packages, '[models.x]\nkind = "eko"\n')
    written_model.install(packages)
    with pytest.raises(ConfigError, match=r'"ehco" is no kind of service; did you mean "echo"\?'):
        load(packages, '[models.x]\nkind = "ehco"\n')


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("plugin = 3", "is no plug-in: it names a int"),
        (f"{HEAD}plugin = ModelPlugin('other', None)", 'calls itself "other"'),
    ],
)
def test_a_package_that_cannot_be_used_is_named(packages: Path, code: str, reason: str):
    written_model.install(packages, code)
    models = load(packages, "[models.echo]\n").config.models
    with pytest.raises(ConfigError) as caught:
        configured(models, TextStoreInMemory())
    assert reason in str(caught.value)
    assert "confidant-echo" in str(caught.value)


ROOT = written_channel.DOCUMENT.parents[1]
LONGEST = 70  # lines
TEXT = written_channel.DOCUMENT.read_text("utf-8")
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = channel.Address("mailbox", "default", "ada")


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    folder = tmp_path / "mail" / "ada"
    (folder / "in").mkdir(parents=True)
    return folder


@pytest.fixture
def mailbox(tmp_path: Path, ada: Path) -> channel.Channel:
    plugin = written_channel.plugin(tmp_path)
    return plugin.create(plugin.config.model_validate({"path": str(ada.parent)}))


def test_the_example_is_short_and_needs_nothing_but_the_contract():
    source = written_channel.source()
    assert len(source.splitlines()) <= LONGEST
    assert re.findall(r"^(?:from bot|import bot).*", source, re.MULTILINE) == [
        "from bot import channel, errors",
        "from bot.channel.kit.supervisor import Supervisor",
        "from bot.channel.kit.text import TakesMarkdown",
    ]


@pytest.mark.proof
def test_the_example_passes_the_linter_and_the_strict_type_checker(tmp_path):
    path = written_channel.write(tmp_path)
    # In a package of its own `bot` is one of the libraries.
    known = 'lint.isort.known-third-party = ["bot"]'
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), "--config", known]
    (tmp_path / "__init__.py").touch()
    run([*ruff, "check", *settings, str(path)])
    run([*ruff, "format", "--check", *settings, str(path)])
    project = {
        "typeCheckingMode": "strict",
        "include": [path.name],
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(project))
    python = ["--pythonpath", sys.executable]
    run([sys.executable, "-m", "basedpyright", "-p", str(tmp_path), *python])


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=os.sep)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_off_until_it_has_a_folder(tmp_path):
    plugin = written_channel.plugin(tmp_path)
    config = config_model({plugin.name: plugin}).model_validate({})
    assert not plugin.ready(config.channels.get("mailbox"))
    assert plugin.ready(plugin.config.model_validate({"path": "~/mailbox"}))


async def test_a_message_has_the_same_id_after_a_crash(mailbox, ada, tmp_path):
    engine, path = RecordingEngine(), ada / "in" / "1.txt"
    path.write_text("hello")
    os.link(path, tmp_path / "kept")
    for _ in range(2):
        await mailbox.start(engine)
        await until(lambda: not path.exists())
        await mailbox.stop()
        os.link(tmp_path / "kept", path)
    first, second = engine.received
    assert first == second


async def test_a_file_that_is_still_empty_waits_and_links_lead_nowhere(mailbox, ada, tmp_path):
    engine = RecordingEngine()
    (tmp_path / "secret.txt").write_text("secret")
    (ada / "in" / "0.txt").touch()
    (ada / "in" / "1.txt").symlink_to(tmp_path / "secret.txt")
    (ada / "in" / "2.txt").write_text("hello")
    await mailbox.start(engine)
    await until(lambda: bool(engine.health))
    await mailbox.stop()
    assert [inbound.text for inbound in engine.received] == ["hello"]
    assert sorted(path.name for path in (ada / "in").iterdir()) == ["0.txt", "1.txt"]


async def test_a_piece_that_is_sent_again_is_the_same_file(mailbox, ada):
    for _ in range(2):
        await post(mailbox, Outbound("o", PLACE, "hello", at=5))
    assert [path.name for path in (ada / "out").iterdir()] == ["5-o.md"]


async def test_somebody_without_a_folder_is_tried_again_later(mailbox):
    with pytest.raises(SendTransient):
        await post(mailbox, Outbound("o", channel.Address("mailbox", "default", "bob"), "hello"))


PARTS = [
    name
    for name in channel.__all__
    for part in (getattr(channel, name),)
    if isinstance(part, type) and not issubclass(part, BaseModel)
]


@pytest.mark.parametrize("name", PARTS)
def test_the_document_names_every_part_of_the_contract(name):
    assert f"`{name}" in TEXT


@pytest.mark.parametrize("part", [channel.Inbound, channel.ChannelPlugin, channel.Capabilities])
def test_the_document_names_every_field(part):
    assert [each.name for each in fields(part) if f"`{each.name}`" not in TEXT] == []


def test_the_document_names_everything_an_engine_can_be_asked():
    asked = {name for name in vars(channel.Engine) if not name.startswith("_")} - {"commands"}
    assert [name for name in asked if f"`Engine.{name}" not in TEXT] == []


def test_the_document_names_everything_a_channel_can_do():
    able = {name for name in vars(channel.Channel) if not name.startswith("_")}
    assert [name for name in able if f"`{name}" not in TEXT] == []


async def test_the_test_it_shows_passes(tmp_path):
    (code,) = (code for code in written_channel.BLOCK.findall(TEXT) if "async def test_" in code)
    plugin = written_channel.plugin(tmp_path)
    names = {
        "RecordingEngine": RecordingEngine,
        "Mailbox": plugin.create,
        "MailboxConfig": plugin.config,
    }
    exec(code, names)  # noqa: S102
    await names["test_a_message_stays_until_it_is_stored"](tmp_path / "mail")


def test_its_package_brings_the_entry_point():
    (package,) = (text for text in TOML.findall(TEXT) if "[project]" in text)
    assert tomllib.loads(package)["project"]["entry-points"] == {
        CHANNELS_GROUP: {"mailbox": "confidant_mailbox:plugin"}
    }


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_other_documents_lead_there(page):
    assert "writing-a-channel.md" in (ROOT / page).read_text("utf-8")


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "writing-a-tool.md"
(EXAMPLE, HOOK, EMBEDDER, SEARCH) = re.findall(
    r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL
)
(ENTRY,) = re.findall(r"^```toml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
STRANGER = ToolContext(MemoryView("", (), private=False), "s", datetime(2026, 7, 1, tzinfo=UTC))
OWNER = replace(STRANGER, rights=(ToolRights(is_private=True),))


def test_the_example_is_short_and_its_entry_point_is_the_one_that_is_looked_for():
    lines = [
        line for line in EXAMPLE.splitlines() if line and not line.startswith(("import", "from"))
    ]
    assert len(lines) <= 20
    assert ENTRY == '[project.entry-points."confidant.tools"]\ndice = "dice_tool:plugin"\n'


async def test_the_example_works_as_it_stands_there(packages: Path):
    install(packages, "dice_tool", "dice", EXAMPLE, "tools")
    plugins = ToolPlugins()
    toolbox = Toolbox((), more=lambda: plugins.tools)
    assert toolbox.specs == ()
    await plugins.load()
    assert [spec.name for spec in toolbox.specs] == ["roll_dice"]
    result = await toolbox.run(ToolUse("t", "roll_dice", {"count": 5}), OWNER)
    assert re.fullmatch(r"[1-6](, [1-6]){4}", result.text)
    assert result.origin == "tool"
    wrong = await toolbox.run(ToolUse("t", "roll_dice", {"count": 500}), OWNER)
    assert wrong.text == "Error: 'count' must be a whole number from 1 to 100"
    refused = await toolbox.run(ToolUse("t", "roll_dice", {}), STRANGER)
    assert refused.text == f"Error: {NOT_GIVEN}"


TOOL = """
    from bot.agent.models import ToolSpec
    from bot.agent.tools.toolbox import ToolPlugin
    class Own:
        spec = ToolSpec({name!r}, "", {schema}, built_in=True)
        async def run(self, arguments, context):
            return "done"
    plugin = ToolPlugin(create=lambda: [Own()])
"""
OBJECT = {"type": "object"}


async def test_a_tool_cannot_give_itself_to_everybody(packages: Path):
    install(packages, "own_tool", "own_tool", TOOL.format(name="own", schema=OBJECT), "tools")
    plugins = ToolPlugins()
    await plugins.load()
    toolbox = Toolbox((), more=lambda: plugins.tools)
    assert (await toolbox.run(ToolUse("t", "own", {}), OWNER)).text == "done"
    assert (await toolbox.run(ToolUse("t", "own", {}), STRANGER)).is_error


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("plugin = 5", "TypeError: broken:plugin is no ToolPlugin"),
        ("", "AttributeError: "),
        (TOOL.format(name="no name", schema=OBJECT), "TypeError: a tool needs a ToolSpec"),
        (TOOL.format(name="own", schema={"type": "string"}), "TypeError: the schema of own"),
        (TOOL.format(name="own", schema=OBJECT).replace("[Own()]", "1 / 0"), "ZeroDivisionError"),
    ],
)
def test_a_broken_package_is_named_and_the_others_stay(packages: Path, code: str, problem: str):
    install(packages, "dice_tool", "dice", EXAMPLE, "tools")
    install(packages, "broken", "broken", code, "tools")
    tools, problems = installed()
    assert [tool.spec.name for tool in tools] == ["roll_dice"]
    ((package, why),) = problems
    assert package == "broken"
    assert why.startswith(problem)


def test_of_two_tools_with_a_name_the_second_is_named(packages: Path):
    for package in ("first", "second"):
        install(packages, package, package, TOOL.format(name="own", schema=OBJECT), "tools")
    tools, problems = installed()
    assert len(tools) == 1
    assert problems == [("second", "another package has a tool own")]


# --- what never returns ---------------------------------------------------------------------------


WAITS = "import threading\nthreading.Event().wait()\n"


@pytest.mark.parametrize("where", ["imported", "created"])
def test_a_package_that_never_loads_is_named_and_the_others_stay(
    packages: Path, where: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packages_beside, "LOAD_SECONDS", 0.5)
    code = dedent(TOOL.format(name="own", schema=OBJECT))
    created = code.replace("lambda: [Own()]", "__import__('threading').Event().wait")
    stuck = WAITS + code if where == "imported" else created
    install(packages, "a_stuck", "a_stuck", stuck, "tools")
    install(packages, "dice_tool", "dice", EXAMPLE, "tools")
    tools, problems = installed()
    assert [tool.spec.name for tool in tools] == ["roll_dice"]
    assert problems == [("a_stuck", "it did not load within 0.5 s")]


STUBBORN = """
    import asyncio
    from bot.agent.models import ToolSpec
    from bot.agent.tools.toolbox import ToolPlugin
    class Own:
        spec = ToolSpec("own", "", {"type": "object"}, timeout=0.2)
        async def run(self, arguments, context):
            while True:
                try:
                    await asyncio.sleep(0.05)
                except BaseException:
                    pass
                if self.over:
                    return "late"
        over = False
    plugin = ToolPlugin(create=lambda: [Own()])
"""


async def test_a_tool_that_never_returns_is_given_up_though_it_takes_no_notice(packages: Path):
    install(packages, "stubborn", "stubborn", STUBBORN, "tools")
    plugins = ToolPlugins()
    await plugins.load()
    kit = Toolbox((), more=lambda: plugins.tools)
    with capture_logs() as logs:
        result = await asyncio.wait_for(kit.run(ToolUse("t", "own", {}), OWNER), 10)
    assert "did not answer in time" in result.text
    assert [log["tool"] for log in logs if log["event"] == "tool.timeout"] == ["own"]
    sys.modules["stubborn"].Own.over = True
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_channel_that_never_starts_keeps_no_other_waiting(tmp_path, monkeypatch, logs):
    class Stuck(InMemoryChannel):
        async def start(self, engine: channel.Engine) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(channels, "START_SECONDS", 0.2)
    config, plugins = make_config(tmp_path)
    ready = InMemoryChannel()
    found: dict[str, channel.Channel] = {"a_stuck": Stuck(), "memory": ready}
    parts = Parts(remote=ScriptedModel(), channels=found, dashboard=False)
    async with App(config, plugins, parts) as app:
        engine = Engine(app, ready, ScriptedModel(), FakeClock(), tmp_path)
        assert await engine.ask("hello") == "You said: hello"
        (told,) = [each for each in app.core.connections.all() if each[0] == "a_stuck"]
    assert told[2:] == (Health.DOWN, "It did not start within 0.2 s.")
    failed = [log["channel"] for log in logs if log["event"] == "channel.start.failed"]
    assert failed == ["a_stuck"]


# --- hooks, embedders, searches -------------------------------------------------------------------


@pytest.mark.parametrize("code", [HOOK, EMBEDDER, SEARCH])
def test_each_example_is_short(code: str):
    lines = [line for line in code.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 20


async def hooks_of(folder: Path, **packages: str) -> packages_beside.Hooks:
    for name, code in packages.items():
        install(folder, name, name, code, "search" if name.startswith("search") else "hooks")
    hooks = packages_beside.Hooks()
    await hooks.load()
    return hooks


class Mails:
    """A tool that finds an address."""

    spec = ToolSpec("mails", "", {"type": "object"}, built_in=True)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return "write to ada@example.org"


async def test_the_hooks_of_the_example_change_results_and_hear_of_saves_and_ends(
    packages: Path, tmp_path: Path
):
    install(packages, "own_hooks", "own_hooks", HOOK, "hooks")
    async with running(tmp_path / "data", tools=(Mails(),)) as engine:
        hooks = engine.app.core.hooks
        await until(lambda: bool(hooks._hooks))
        toolbox = engine.app.agent.toolbox
        result = await toolbox.run(ToolUse("t", "mails", {}), OWNER)
        assert result.text == "write to (address)"
        counts = sys.modules["own_hooks"].counts
        await engine.ask("remember that the boiler is in the cellar")
        await until(lambda: counts["saved"] == 1)
        await engine.ask("/new")
        await until(lambda: counts["ended"] == 1)


BAD_HOOKS = {
    "hangs": "import threading\ndef before_store(result):\n    threading.Event().wait()\n",
    "raises": "def before_store(result):\n    raise KeyError('ada@example.org')\n",
    "exits": "def before_store(result):\n    raise SystemExit\n",
    "stops": "def before_store(result):\n    raise StopIteration\n",
    "answers_no_text": "def before_store(result):\n    return 3\n",
    "answers_too_much": "def before_store(result):\n    return 'x' * 100_001\n",
}


@pytest.mark.parametrize("name", sorted(BAD_HOOKS))
async def test_a_hook_that_misbehaves_is_named_and_changes_nothing(
    packages: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(packages_beside, "_failing", {})
    end = "from bot.plugins import *\nplugin = HookPlugin(before_store, None, before_store)\n"
    with capture_logs() as logs:
        hooks = await hooks_of(packages, **{name: BAD_HOOKS[name] + end, "works": HOOK})
        monkeypatch.setattr(hooks._hooks[0][0], "_seconds", 0.05)
        for _ in range(packages_beside.AT_ONCE + 2):
            assert await hooks.before_store("mails", "to a@b.c") == "to (address)"
        hooks.saved(packages_beside.Saved("main", "MEMORY.md", "x"))
        await until(lambda: not hooks._telling)
    named = {each["plugin"] for each in logs if each["event"] == "plugin.failed"}
    is_told = not name.startswith("answers")
    assert named == ({name} if is_told else set())
    assert set(packages_beside.failing()) == named
    assert "example.org" not in str(logs)
    checks = [check for check in housekeeping.of_program(0) if check.name == "plugins"]
    assert bool(checks) is is_told


async def test_a_package_that_cannot_be_loaded_is_named_and_the_others_work(
    packages: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packages_beside, "_failing", {})
    hooks = await hooks_of(packages, broken="1 / 0", other="plugin = 3", works=HOOK)
    assert await hooks.before_store("mails", "to a@b.c") == "to (address)"
    assert set(packages_beside.failing()) == {"broken", "other"}


async def test_the_search_of_the_example_is_asked_for_the_owner_alone(packages: Path):
    hooks = await hooks_of(packages, search_one=SEARCH, search_bad=SEARCH.replace("yield", "1/0 #"))
    (found,) = await hooks.find("how many days of holiday?")
    assert found == ("search_one", packages_beside.Passage("handbook, holidays", ANY))
    tool = MemorySearch(Nothing(), SpaceFiles(FolderNotes(packages)), Nothing(), None, hooks.find)
    seen: dict[str, bool] = {}
    for space in ("main", "people/ada"):
        view = MemoryView(space, ("k",), private=True)
        context = ToolContext(view, "s", datetime(2026, 7, 1, tzinfo=UTC))
        answer = str(await tool.run({"query": "holiday"}, context))
        seen[space] = "Thirty days" in answer
        assert bool(context.memory.foreign) is seen[space]
    assert seen == {"main": True, "people/ada": False}


class Nothing:
    """A memory, and transcripts, in which nothing is found."""

    async def search(self, *_: object, **_more: object) -> Findings:
        return Findings((), "keyword")

    async def entries(self, *_: object) -> list[object]:
        return []


async def test_the_embedder_of_the_example_is_chosen_by_its_name(packages: Path):
    install(packages, "letters", "letters", EMBEDDER, "embedders")
    made = embed.make(EmbedderConfig(plugin="letters"), packages)
    rows = await made.embed(["the boiler", "the boilers", "quite another"])
    assert (made.provider, made.model, made.dims) == ("letters", "letters", 64)
    near, far = rows[0] @ rows[1], rows[0] @ rows[2]
    assert near > far
    assert rows[0] @ rows[0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("[[1.0]]", "ValueError"),
        ("[[1.0], [1.0, 2.0]]", "ValueError"),
        ("[[float('nan')], [1.0]]", "ValueError"),
        ("[[], []]", "ValueError"),
        ("None", ""),
        ("__import__('threading').Event().wait()", "no answer within 0.05 s"),
    ],
)
async def test_an_embedder_that_answers_nonsense_is_refused(packages: Path, answer: str, why: str):
    code = (
        "from bot.plugins import EmbedderPlugin\n"
        f"plugin = EmbedderPlugin('m', lambda texts: {answer})\n"
    )
    install(packages, "odd", "odd", code, "embedders")
    made = embed.make(EmbedderConfig(plugin="odd", timeout=0.05), packages)
    with pytest.raises(EmbedderError, match=re.escape(f'the embedder "odd": {why}')):
        await made.embed(["one", "two"])


@pytest.mark.parametrize("code", ["", "1 / 0", "plugin = 3"])
def test_without_the_embedder_that_is_wanted_words_are_searched(packages: Path, code: str):
    install(packages, "odd", "odd", code, "embedders") if code else None
    made = embed.make(EmbedderConfig(plugin="odd"), packages)
    assert isinstance(made, embed.NoEmbedder)
    assert "odd" in made.why
