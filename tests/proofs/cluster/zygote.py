"""Starts nodes in a moment: the program is imported once, then forked for each of them.

A node is `confidant run` itself, with an environment and a folder of its own. Each line on
standard input is a JSON object: `{"start": [arguments], "environment": {…}, "folder": …}` forks a
node and prints its process id, `{"reap": pid}` waits for one and prints how it ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

# Loaded once, before the fork.
import procrastinate  # noqa: F401
import psycopg_pool  # noqa: F401

from adapters.telegram import channel as telegram  # noqa: F401
from adapters.web import channel as web  # noqa: F401
from bot import app  # noqa: F401
from bot.agent.models import connection  # noqa: F401
from bot.cli import serve  # noqa: F401
from bot.cli.main import main as confidant
from bot.cluster import node  # noqa: F401
from tests.proofs.cluster import without

LOG = "node.log"


def main() -> None:
    """Do what each line says, until there is none."""
    print("ready", flush=True)
    for line in sys.stdin:
        match json.loads(line):
            case {"start": arguments, "environment": environment, "folder": folder}:
                print(_start(arguments, environment, Path(folder)), flush=True)
            case {"reap": pid}:
                print(os.waitstatus_to_exitcode(os.waitpid(int(pid), 0)[1]), flush=True)
            case _:
                raise ValueError(line)


def _start(arguments: list[str], environment: Mapping[str, str], folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with (folder / LOG).open("ab") as log, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        without.apply(environment)
        sys.argv[:] = ["confidant", *arguments]
        confidant()
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    except BaseException:  # noqa: BLE001 - a forked child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
