"""A pytest plugin that runs tests while an option is ignored, to see which of them notice.

`IGNORING` names a JSON file: for each test, the options to ignore while it runs. Those that were
noticed are written beside it. Only a failed assertion of the test itself counts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from pydantic import BaseModel

from bot import settings
from bot.settings.fields import child, extras_of, options_of, tables

Place = tuple[type[BaseModel], str]  # the class that declares an option, and its name there


def options() -> dict[str, Place]:
    """Every option of the reference, those in maps of tables too.

    What all channels have is listed once, as `channels.*.<option>`.
    """
    found: dict[str, Place] = {}
    model = settings.config_model(settings.installed_channels())
    # Those of freely named tables last: what these inherit is listed where it comes from.
    for key, table, listed in sorted(tables(model), key=lambda each: not each[1].model_fields):
        if not table.model_fields and (extra := extras_of(table)) is not None:
            key, table, listed = (*key, "*"), extra, options_of(extra, (*key, "*"))  # noqa: PLW2901
        for option in listed:
            _add(found, key, table, option.key[-1])
            inner = child(option.shape, "") if option.shape.kind in {"map", "list"} else None
            if inner is not None and inner.model is not None:
                for name in inner.model.model_fields:
                    _add(found, (*option.key, "*"), inner.model, name)
    return found


def _add(found: dict[str, Place], key: tuple[str, ...], table: type[BaseModel], name: str) -> None:
    place = declared(table, name), name
    if place not in found.values():
        if key[0] == "channels" and place[0].__module__ == "bot.channel.config":
            key = ("channels", "*", *key[2:])
        found[".".join((*key, name))] = place


def declared(table: type[BaseModel], name: str) -> type[BaseModel]:
    """The class of a table that an option is declared in."""
    return next(each for each in table.__mro__ if name in vars(each).get("__annotations__", ()))


@contextmanager
def ignored(place: Place) -> Iterator[None]:
    """Whoever acts on the option gets its default, whatever was configured.

    What only checks the configuration, or asks a test what it configured, gets the real value: an
    option that is checked and then does nothing has to be found out.
    """
    owner, field = place
    declaration = owner.model_fields[field]
    required = declaration.is_required()
    default = None if required else declaration.get_default(call_default_factory=True)
    before = owner.__getattribute__

    def read(self: Any, name: str) -> Any:
        if name == field and declared(type(self), name) is owner and acts():
            return default
        return before(self, name)

    own = "__getattribute__" in vars(owner)
    owner.__getattribute__ = read
    try:
        yield
    finally:
        if own:
            owner.__getattribute__ = before
        else:
            del owner.__getattribute__


def acts() -> bool:
    """True when a reading is neither a test's own nor part of a check of the configuration."""
    frame: FrameType | None = sys._getframe(2)
    if frame is not None and frame.f_globals["__name__"].startswith("tests."):
        return False
    while frame is not None:
        if frame.f_globals["__name__"].startswith(("pydantic.", "bot.settings.")):
            return False
        frame = frame.f_back
    return True


def _is_noticed(report: pytest.TestReport) -> bool:
    """True when an assertion of the test did not hold: no other error shows what an option does."""
    crash = getattr(report.longrepr, "reprcrash", None)
    words = ("assert", "AssertionError", "Failed: DID NOT RAISE")
    return report.when == "call" and crash is not None and crash.message.startswith(words)


class Ignoring:
    """Runs each test once for each option it has to notice, until one of its cases does."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._options: dict[str, list[str]] = json.loads(plan.read_text())
        self._places = options()
        self._noticed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for option in self._options[item.nodeid.partition("[")[0]]:
            if option not in self._noticed:
                with ignored(self._places[option]):
                    reports = runtestprotocol(item, nextitem=nextitem, log=False)
                if any(report.failed and _is_noticed(report) for report in reports):
                    self._noticed.add(option)
                item._initrequest()  # a test that runs again needs new fixtures
        # What all tests share, such as a server, goes on; this one's own ends, had it run or not.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def pytest_sessionfinish(self) -> None:
        self._plan.with_suffix(".noticed").write_text(json.dumps(sorted(self._noticed)))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Ignoring(Path(os.environ["IGNORING"])))
