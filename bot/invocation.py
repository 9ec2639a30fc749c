"""The command that starts this program here, so that commands in texts can be typed as they are."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

NAME = "confidant"
TYPED_AS = "TYPED_AS"  # a variable that says it, such as "docker exec -it {hostname} confidant"


def confidant(words: str = "") -> str:
    """One of this program's commands as it can be typed, such as ".venv/bin/confidant login me"."""
    return f"{_program()} {words}".rstrip()


def installing(extra: str) -> str:
    """The command that installs an extra beside this program, quoted for a shell."""
    python = _short(sys.executable, os.environ.get("PATH", ""))
    return f"{python} -m pip install 'confidant-bot[{extra}]'"


@cache
def _program() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec is not None else ""
    if sys.argv[:1] == ["-m"]:  # Python still looks for the module, and imports what it is in
        module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    return called(sys.argv, sys.executable, module, os.environ)


def called(argv: Sequence[str], python: str, module: str, environ: Mapping[str, str]) -> str:
    """The command that starts the program again, quoted for a shell.

    Args:
        argv: as it was called; a shell passes on the path that it found.
        python: the interpreter that runs.
        module: what `python -m` was given, or empty.
        environ: its PATH is looked at, and what a container's image says in `TYPED_AS`, because
            nothing inside a container can know how it is entered.
    """
    if said := environ.get(TYPED_AS, "").strip():
        return said.replace("{hostname}", environ.get("HOSTNAME") or socket.gethostname())
    path = environ.get("PATH", "")
    program = argv[0] if argv else ""
    if module.split(".", maxsplit=1)[0] == "bot":
        return f"{_short(python, path)} -m {module}"
    if Path(program).name == NAME:
        return _short(program, path)
    return NAME  # something else runs it, such as a test


def _short(program: str, path: str) -> str:
    """The name alone, where typing it finds this very program."""
    name = Path(program).name
    found = shutil.which(name, path=path)
    is_there = found is not None and os.path.abspath(found) == os.path.abspath(program)  # noqa: PTH100 - links are not followed: another name is another program
    return name if is_there else shlex.quote(program)
