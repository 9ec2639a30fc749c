"""docs/writing-a-tool.md shows a tool that works as it stands there; broken packages do no harm."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from bot.agent.tools import ToolContext
from bot.agent.tools.plugins import ToolPlugins, installed
from bot.agent.tools.toolbox import NOT_GIVEN, Toolbox
from bot.identity.rights import ToolRights
from bot.identity.view import MemoryView
from bot.messages import ToolUse

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "writing-a-tool.md"
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
(ENTRY,) = re.findall(r"^```toml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
STRANGER = ToolContext(MemoryView("", (), private=False), "s", datetime(2026, 7, 1, tzinfo=UTC))
OWNER = ToolContext(
    MemoryView("", (), private=False),
    "s",
    datetime(2026, 7, 1, tzinfo=UTC),
    rights=(ToolRights(is_private=True),),
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages; what is imported from it is forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def install(folder: Path, module: str, code: str, name: str = "") -> None:
    """Put a package with one plug-in into a folder, as an installer would."""
    (folder / f"{module}.py").write_text(dedent(code))
    meta = folder / f"{module}-1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (meta / "entry_points.txt").write_text(
        f"[confidant.tools]\n{name or module} = {module}:plugin\n"
    )


def test_the_example_is_short_and_its_entry_point_is_the_one_that_is_looked_for():
    lines = [
        line for line in EXAMPLE.splitlines() if line and not line.startswith(("import", "from"))
    ]
    assert len(lines) <= 20
    assert ENTRY == '[project.entry-points."confidant.tools"]\ndice = "dice_tool:plugin"\n'


async def test_the_example_works_as_it_stands_there(packages: Path):
    install(packages, "dice_tool", EXAMPLE, "dice")
    plugins = ToolPlugins()
    toolbox = Toolbox((), more=plugins.tools)
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
    from bot.agent.tools.plugins import ToolPlugin
    class Own:
        spec = ToolSpec({name!r}, "", {schema}, built_in=True)
        async def run(self, arguments, context):
            return "done"
    plugin = ToolPlugin(create=lambda: [Own()])
"""
OBJECT = {"type": "object"}


async def test_a_tool_cannot_give_itself_to_everybody(packages: Path):
    install(packages, "own_tool", TOOL.format(name="own", schema=OBJECT))
    plugins = ToolPlugins()
    await plugins.load()
    toolbox = Toolbox((), more=plugins.tools)
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
    install(packages, "dice_tool", EXAMPLE, "dice")
    install(packages, "broken", code)
    tools, problems = installed()
    assert [tool.spec.name for tool in tools] == ["roll_dice"]
    ((package, why),) = problems
    assert package == "broken"
    assert why.startswith(problem)


def test_of_two_tools_with_a_name_the_second_is_named(packages: Path):
    for package in ("first", "second"):
        install(packages, package, TOOL.format(name="own", schema=OBJECT))
    tools, problems = installed()
    assert len(tools) == 1
    assert problems == [("second", "another package has a tool own")]
