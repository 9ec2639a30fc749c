"""The program's commands as they are typed, in a moment: all is imported once, then forked.

`argv()` begins a command line that behaves like `confidant` itself, in a process of its own with
its folder, variables, files and signals; `module(name)` one that behaves like `python -m name`.
`python -m tests.fakes.commands PATH` is what forks; it ends with its standard input.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from pkgutil import iter_modules

from bot import cli

ROOT = Path(__file__).resolve().parents[2]
# What commands import when they need it; all of them have it here.
_MODULES = (
    *("bot.app", "bot.cluster.node", "bot.cluster.visitor", "uvloop"),
    *("bot.agent.models.anthropic", "bot.agent.models.openai", "bot.agent.models.anthropic_client"),
    *("adapters.discord.channel", "adapters.nextcloud_talk.channel", "adapters.telegram.channel"),
    *("mcp", "telegram", "discord"),
)
# Knows nothing of the program, so that it starts at once. It passes signals on, and ends as the
# program did.
_CLIENT = """
import json, os, signal, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect(sys.argv[1])
wish = {"argv": sys.argv[2:], "folder": os.getcwd(), "variables": dict(os.environ)}
socket.send_fds(asked, [json.dumps(wish).encode() + b"\\n"], [0, 1, 2])
told = asked.makefile()
program = int(told.readline())
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda number, _: os.kill(program, number))
code = int(told.readline())
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def argv() -> tuple[str, ...]:
    """What to put before the arguments of a command; what forks is started with the first."""
    path = Path(tempfile.mkdtemp(prefix="confidant-commands-")) / "socket"
    forks = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.commands", path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert forks.stdout is not None
    assert forks.stdout.readline() == b"ready\n"
    atexit.register(_end, forks)
    return (sys.executable, "-I", "-S", "-c", _CLIENT, str(path))


def module(name: str) -> tuple[str, ...]:
    """What to put before the arguments of a module with a `__main__`."""
    return (*argv(), "-m", name)


def _end(forks: subprocess.Popen[bytes]) -> None:
    with forks:  # which closes its input, and waits
        pass


def _program(wish: Mapping[str, object], files: Sequence[int]) -> None:
    """Be the program, in a child."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(str(wish["folder"]))
    os.environ.clear()
    os.environ.update(wish["variables"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 - they stay
        for number, mode, errors in ((0, "r", None), (1, "w", None), (2, "w", "backslashreplace"))
    )
    match wish["argv"]:
        case ["-m", str(name), *words]:
            sys.argv = [name, *words]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case words:
            sys.argv = ["confidant", *words]
            cli.main()


def _serve(path: str) -> None:
    processes = get_context("fork")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    for module in (*_MODULES, *(f"bot.cli.{each.name}" for each in iter_modules(cli.__path__))):
        importlib.import_module(module)
    gc.freeze()
    print("ready", flush=True)
    running: dict[int, tuple[ForkProcess, socket.socket]] = {}
    while True:
        asked = {here.fileno(): sentinel for sentinel, (_, here) in running.items()}
        for ready in connection.wait([listener, 0, *running, *asked]):
            if ready == 0:
                return shutil.rmtree(Path(path).parent)
            if ready is listener:
                here, _ = listener.accept()
                words, files, _, _ = socket.recv_fds(here, 1_000_000, 3)
                while not words.endswith(b"\n"):
                    words += here.recv(1_000_000)
                child = processes.Process(target=_program, args=(json.loads(words), files))
                child.start()
                for file in files:
                    os.close(file)
                here.sendall(f"{child.pid}\n".encode())
                running[child.sentinel] = child, here
            elif ready in running:
                child, here = running.pop(ready)
                child.join()
                with here, contextlib.suppress(OSError):
                    here.sendall(f"{child.exitcode}\n".encode())
                child.close()
            elif asked[ready] in running:  # whoever asked is gone
                child, _ = running[asked[ready]]
                child.kill()


if __name__ == "__main__":
    _serve(sys.argv[1])
