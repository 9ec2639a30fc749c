"""Run every benchmark, one after another: `make bench`, or `python -m bench [--quick]`.

`python -m bench NAME …` runs one of them with arguments of its own, `python -m bench NAME --help`
lists those. LoCoMo's conversations are looked for where CONFIDANT_LOCOMO says.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from bench.bots import ROOT

# What each measures, and its arguments when it only has to be seen that it runs.
BENCHMARKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "engine": ("Confidant next to the same bot with no engine", ("--quick",)),
    "cluster": ("One, two and four nodes on PostgreSQL, and one on SQLite", ("--quick",)),
    "sizes": ("What a turn leaves in PostgreSQL, and what a million people would", ("--quick",)),
    "memory": ("What searching and indexing cost", ("600",)),
    "embedding": ("What the built-in embedder costs", ("--quick",)),
    "large": ("What years of many people cost", ("--quick",)),
    "rooms": ("What silent talk in rooms costs", ("100", "10")),
    "context": ("What keeping a conversation within its window costs", ("--quick",)),
    "notes": ("What many notes cost in the page", ("100",)),
    "page": ("How light and how fast the chat page is", ("2",)),
    "fairness": ("What one person's abuse costs another", ("--quick",)),
    "journey": ("What one message passes in the code", ("--messages", "1")),
    "tokens": ("How far the estimate of tokens is off", ()),
    "chinese": ("How much is found in Chinese", ("--quick",)),
    "facts": ("How much is found in other words", ("--quick",)),
    "aging": ("What fading changes in searches", ("--quick",)),
    "talks": ("How much is found of talks: one thing, lists, dates", ("--mode", "fused")),
    "offline": ("How well the offline model answers", ("--quick",)),
    "keeping": ("How much of what is kept is worth keeping", ()),
    "recall": ("What memory adds to each message", ("--every", "10")),
    "pieces": ("What a new conversation begins with", ("--quick",)),
    "fits": ("Whether a search can tell that nothing fits", ("--quick",)),
    "locomo": ("How much is found of long conversations", ("--mode", "fused")),
}
_HELP = ("-h", "--help")


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 when a goal was missed or something failed."""
    if arguments and arguments[0] in BENCHMARKS:
        return _run(arguments[0], arguments[1:])
    if [each for each in arguments if each != "--quick"]:
        print(__doc__)
        print("\n".join(f"  {name:9} {what}" for name, (what, _) in BENCHMARKS.items()))
        return 0 if arguments[0] in _HELP else 2
    worst = 0
    for name, (what, quickly) in BENCHMARKS.items():
        print(f"\n## {what} ({name})\n", flush=True)
        worst = max(worst, _run(name, quickly if arguments else ()))
    return worst


def _run(name: str, arguments: Sequence[str]) -> int:
    # A process for each, so that none measures what another one left in memory.
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    try:
        return abs(subprocess.run(command, check=False, cwd=ROOT).returncode)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
