"""What CONTRIBUTING.md promises to fail until it is done, and that what it names is there."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.agent import tools
from bot.agent.tools import ToolSpec
from tests.contract.channel_cases import CASES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CHANNELS = sorted(PROJECT["entry-points"]["confidant.channels"])
PAGES = {"console": "web"}  # the terminal is told of with the page


def specs() -> Iterator[ToolSpec]:
    """Those of all tools that come with the program."""
    for module in pkgutil.walk_packages(tools.__path__, "bot.agent.tools."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and isinstance(spec := vars(found).get("spec"), ToolSpec):
                yield spec


TOOLS = sorted({spec.name for spec in specs()})


@pytest.mark.parametrize("name", CHANNELS)
def test_every_channel_passes_the_suite_of_all_and_has_a_page(name):
    assert [case for case in CASES if case.__name__.startswith(name)]
    page = f"docs/{PAGES.get(name, name)}.md"
    assert (ROOT / page).exists()
    assert f"({page})" in (ROOT / "README.md").read_text("utf-8")


def test_the_tools_are_found():
    assert {"memory_search", "memory_write", "schedule_message", "web_fetch"} <= {*TOOLS}


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_is_told_of_and_called_in_a_test(name):
    assert f"`{name}`" in (ROOT / "docs" / "tools.md").read_text("utf-8")
    tests = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert any(f'"{name}"' in text for text in tests)


def test_what_is_named_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`((?:bot|adapters|config|docs|scripts|tests)/[\w./-]+)`", page)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []
    goals = (ROOT / "Makefile").read_text("utf-8")
    for goal in re.findall(r"`make (\w+)", page):
        assert re.search(rf"^{goal}:", goals, re.MULTILINE), goal
    for link in re.findall(r"\]\(([\w./-]+\.md)", page):
        assert (ROOT / link).exists()
