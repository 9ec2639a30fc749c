"""The collector rests while the program loads, and works afterwards."""

import gc

import pytest

from bot.cli import startup


@pytest.fixture(autouse=True)
def _as_before():
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.enable()


def test_nothing_is_looked_for_while_the_program_loads():
    startup.hold()
    assert not gc.isenabled()


def test_what_was_loaded_is_never_looked_at_again_but_what_comes_is():
    before, loaded = gc.get_freeze_count(), [[] for _ in range(1000)]
    startup.hold()
    startup.settle()
    assert gc.isenabled()
    assert gc.get_freeze_count() > before + len(loaded)
    assert gc.get_threshold()[0] == startup.NEW_OBJECTS
