"""Faults made by hand in the code that decides, one at a time, each with tests that must fail.

Four of them once survived (a reply that takes the next session's messages, the hour of silence
before a daily reset, a signature compared in part, a database that does not sync). A fault is put
into a copy of the program; the same tests pass on the copy without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ("bot", "adapters", "tests")
LINKED = ("config", "docs", "scripts", "bench", "pyproject.toml", "README.md")

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True)
class Fault:
    """A piece of code, what stands there instead, and the tests that notice (`-k` in a file)."""

    name: str
    path: str
    code: str
    wrong: str
    tests: str
    matching: str = ""


FAULTS = (
    Fault(
        "a reply takes the next session's messages",
        "bot/gateway/lanes.py",
        "if following.session_id != rows[0].session_id or following.is_suspect:",
        "if following.is_suspect:",
        "tests/integration/test_engine.py",
        "session or new",
    ),
    Fault(
        "no hour of silence before a daily reset",
        "bot/sessions/reset.py",
        "QUIET_MINUTES = 60",
        "QUIET_MINUTES = 0",
        "tests/unit/test_reset.py",
        "silence or hour",
    ),
    Fault(
        "a signature compared in part",
        "adapters/nextcloud_talk/api.py",
        "hmac.compare_digest(sign(secret, random, body), signature.lower())",
        "hmac.compare_digest(sign(secret, random, body)[:-1], signature.lower()[:-1])",
        "tests/unit/test_nextcloud_parts.py",
        "signature",
    ),
    Fault(
        "a database that does not sync",
        "bot/storage/sqlite.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = OFF",
        "tests/unit/test_power_loss.py",
    ),
    Fault(
        "a room sees its owner's memory",
        "bot/identity/view.py",
        '    is_direct = subject.chat_type == "direct"\n',
        '    is_direct = subject.chat_type == "direct" or is_owner\n',
        "tests/unit/test_routing.py",
    ),
    Fault(
        "a scope rule's default is to allow",
        "bot/identity/view.py",
        '    if (rule.action if rule else config.default) != "allow":',
        '    if rule and rule.action != "allow":',
        "tests/unit/test_routing.py",
    ),
    Fault(
        "copies of a message in a thread are stored twice",
        "bot/sessions/inbox.py",
        '"ON CONFLICT(channel, account, chat, thread, message_id) DO NOTHING RETURNING id"',
        '"ON CONFLICT(channel, account, chat, thread, message_id) DO UPDATE SET state = '
        "'waiting' RETURNING id\"",
        "tests/integration/test_engine.py",
        "copy or twice",
    ),
    Fault(
        "what was withdrawn is sent to its end",
        "bot/delivery/outbox.py",
        "return bool(left)",
        "return True",
        "tests/unit/test_outbox.py tests/integration/test_forgetting_meanwhile.py",
        "withdraw or taken_back or no_further or forgotten",
    ),
    Fault(
        "a tool's rights are looked at only when it is offered",
        "bot/agent/tools/toolbox.py",
        "        if not found.is_given:\n",
        "        if not found.is_given and found.asks:\n",
        "tests/unit/test_approvals.py",
        "rights_that_are_gone or no_rule_gives",
    ),
    Fault(
        "a limit counts only what was spent, not what is being spent",
        "bot/money.py",
        "any(each.used + each.held >= each.limit.most",
        "any(each.used >= each.limit.most",
        "tests/integration/test_usage.py",
        "test_turns_that_run_at_the_same_time",
    ),
    Fault(
        "a summary may put words into the person's mouth",
        "bot/memory/guard.py",
        'return None if is_said else "unsaid"',
        "return None",
        "tests/unit/test_flush.py",
    ),
    Fault(
        "addresses within a network are public",
        "bot/net/addresses.py",
        "return not any(address in network for network in _CLOSED_4)",
        "return not address.is_loopback",
        "tests/unit/test_net.py",
        "public",
    ),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program and its tests, in which faults are made."""
    root = tmp_path_factory.mktemp("faulty")
    for name in COPIED:
        shutil.copytree(PROJECT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LINKED:
        (root / name).symlink_to(PROJECT / name)
    return root


def outcome(root: Path, fault: Fault) -> tuple[int, str]:
    """The exit code of a fault's tests in the copy, and the end of what they printed."""
    named = ["-k", fault.matching] if fault.matching else []
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
            *("-p", "no:xdist", "-m", "not proof and not slow", *named, *fault.tests.split()),
        ],
        cwd=root,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
            "PYTHONPATH": str(root),
            "PYTHONDONTWRITEBYTECODE": "1",  # a file changes within a second
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ran.returncode, (ran.stdout + ran.stderr)[-2000:]


@pytest.mark.parametrize("fault", [pytest.param(each, id=each.name) for each in FAULTS])
def test_a_test_fails_for_each(copy: Path, fault: Fault):
    path = copy / fault.path
    right = path.read_text("utf-8")
    assert right.count(fault.code) == 1, "the code has changed: make the fault in what is there now"
    code, end = outcome(copy, fault)
    assert code == 0, f"the tests fail without the fault:\n{end}"
    path.write_text(right.replace(fault.code, fault.wrong), "utf-8")
    try:
        code, end = outcome(copy, fault)
    finally:
        path.write_text(right, "utf-8")
    assert code == 1, f"no test noticed:\n{end}"
