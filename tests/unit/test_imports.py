"""Importing without what is not used: in one thread, for a while, and only what is not loaded."""

import importlib
import sys
import threading

import pytest

from bot.imports import without


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
