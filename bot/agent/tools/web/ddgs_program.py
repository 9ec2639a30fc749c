"""Asks public search engines with the package ddgs, as a program: `python ddgs_program.py`.

It reads a question in JSON from standard input (`query`, `count`, `seconds`) and answers in JSON:
`hits`, or in `error` one word. It runs in a process of its own, because a search cannot be ended
otherwise, and because what the engines send is taken apart by code that is not Python.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

# Engines that promise not to follow people; the first two are asked together, then the others.
ENGINES = "duckduckgo, mojeek, brave"
LONGEST = 3_000  # characters of a title, an address, or what is quoted of a page
MEMORY = 1 << 30  # bytes of address space, most of it never used


def answer(query: str, count: int, seconds: int) -> dict[str, Any]:
    """The results of the engines."""
    from ddgs.ddgs import DDGS  # noqa: PLC0415 - an extra
    from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException  # noqa: PLC0415

    try:
        found = DDGS(timeout=seconds).text(query, max_results=count, backend=ENGINES)
    except RatelimitException:
        return {"error": "rate"}
    except TimeoutException:
        return {"error": "slow"}
    except DDGSException as error:
        return {"error": "nothing" if "No results" in str(error) else "unreachable"}
    rows = ((each.get("title"), each.get("href"), each.get("body")) for each in found)
    return {"hits": [[str(part or "")[:LONGEST] for part in row] for row in rows]}


def main() -> None:
    """Answer one question."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    asked = json.loads(sys.stdin.buffer.read())
    try:
        told = answer(asked["query"], asked["count"], asked["seconds"])
    except ImportError:
        told = {"error": "missing"}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
