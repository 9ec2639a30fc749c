"""Public search engines without a key, by the package ddgs, in a process for each search."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import orjson
from yarl import URL

from bot.agent.tools.web.search import Hit, SearchFailed
from bot.net.proxy import choose

PROGRAM = Path(__file__).with_name("ddgs_program.py")
EXTRA = "confidant-bot[search]"
TIMEOUT = 20.0  # seconds for the whole search; a tool has 30
ENGINE_SECONDS = 7  # for one engine
_ENGINES = URL("https://duckduckgo.com")
AT_ONCE = 2  # searches; others wait
# None of this process's environment goes along but what the engines are reached by.
_KEPT = frozenset(
    {"LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "DDGS_PROXY", "SSL_CERT_FILE", "PRIMP_CA_BUNDLE"}
)
_REASONS = {
    "missing": f"a package is missing: whoever runs the bot has to install {EXTRA}",
    "rate": "the search engines are asked too often; they answer again after a while",
    "slow": "the search engines did not answer in time; they may later",
    "nothing": "the search engines found nothing, or refuse to answer programs now",
    "unreachable": "none of the search engines answers programs now; some may later",
}


def is_installed() -> bool:
    """True when the package is there; it is not loaded."""
    return find_spec("ddgs") is not None


class Ddgs:
    """Engines asked as a browser would; they promise nothing, and may refuse at any time."""

    name = "ddgs"

    def __init__(
        self, *, proxy: str = "", timeout: float = TIMEOUT, program: Path = PROGRAM
    ) -> None:
        self._proxy = proxy
        self._timeout = timeout
        self._program = program
        self._places = asyncio.Semaphore(AT_ONCE)

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        """What the engines find.

        Raises:
            SearchFailed: none of them answers, or the package is missing.
        """
        question = orjson.dumps({"query": query, "count": count, "seconds": ENGINE_SECONDS})
        try:
            async with asyncio.timeout(self._timeout), self._places:
                told = await self._asked(question)
        except TimeoutError:
            raise SearchFailed(_REASONS["slow"]) from None
        try:
            answer = cast("dict[str, Any]", orjson.loads(told))
            if reason := answer.get("error"):
                raise SearchFailed(_REASONS[reason])
            return [Hit(*row) for row in answer["hits"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SearchFailed("the search ended without an answer") from None

    async def _asked(self, question: bytes) -> bytes:
        """What the program says; it does not outlive this."""
        environment = {name: value for name, value in os.environ.items() if name in _KEPT}
        if self._proxy or "DDGS_PROXY" not in environment:
            environment.pop("DDGS_PROXY", None)
            if found := choose(_ENGINES, self._proxy, urllib.request.getproxies()):
                environment["DDGS_PROXY"] = found.with_login
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(self._program),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,  # an operator's Ctrl-C is for the bot
        )
        try:
            told, _ = await process.communicate(question)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return told
