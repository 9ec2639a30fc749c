"""Measure Confidant next to the same bot with no engine, in one run on one machine.

`python -m bench engine [--quick]`. The table is printed and written to bench/out/.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import uvloop

from bench.bots import AIOHTTP, ALL_CHANNELS, BOTS, CONFIDANT, ROOT, WHOLE, WORDS_ONLY, server
from bench.load import Size, WrongAnswers, measure
from bench.sized import parsed
from bench.table import Measured, busy_note, goals, goals_markdown, markdown, medians

OUT = ROOT / "bench" / "out"
LIMIT = 1800.0  # seconds the whole run may take


def main() -> int:
    """Run the benchmark; 1 when a program did not answer every message exactly once."""
    options = _options()
    size = Size(options.messages, options.chats, options.each, options.bursts)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        results = uvloop.run(_run(size, options.rounds, options.out))
    except WrongAnswers as wrong:
        print(f"bench: {wrong}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 130
    except TimeoutError:
        print(f"bench: not finished within {LIMIT:g} s", file=sys.stderr)
        return 1
    report = _report(results, size, options.rounds)
    (options.out / "bench.md").write_text(report, encoding="utf-8")
    print(report)
    return 0


async def _run(size: Size, rounds: int, out: Path) -> dict[str, Measured]:
    """Every program in turn, again and again, so that a busy moment hits none of them alone."""
    task = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        # However it is told to end, it ends what it started.
        asyncio.get_running_loop().add_signal_handler(number, lambda: task and task.cancel())
    found: dict[str, list[Measured]] = {bot.title: [] for bot in BOTS}
    async with asyncio.timeout(LIMIT), server("bench.model_server") as (model_url, model_costs):
        for number in range(1, rounds + 1):
            for bot in BOTS:
                # Not in /tmp: that may be memory, where writing costs nothing.
                folder = Path(tempfile.mkdtemp(prefix="data-", dir=out))
                try:
                    measured = await measure(bot, model_url, model_costs, size, folder)
                except WrongAnswers as wrong:
                    raise WrongAnswers(f"{bot.title}: {wrong}\n{_tail(folder)}") from None
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                found[bot.title].append(measured)
                print(
                    f"round {number}/{rounds}, {bot.title}: "
                    f"{measured.turns_per_second:.0f} turns/s, p50 {measured.p50:.1f} ms",
                    file=sys.stderr,
                )
    return {title: medians(measured) for title, measured in found.items()}


def _report(results: Mapping[str, Measured], size: Size, rounds: int) -> str:
    machine = f"{os.cpu_count()} processors, Python {platform.python_version()}"
    load = (
        f"Medians of {rounds} alternating rounds on {machine}. First message: from when it can be "
        "fetched, after the first poll. All after it are of conversations that go on. One by one: "
        f"{size.messages} messages in one chat. Burst: {size.chats} chats × {size.each} messages "
        f"at once, {size.bursts} times. Every message was answered exactly once."
    )
    floors = {each.title: results[each.title] for each in (AIOHTTP, WHOLE)}
    words_only = results[WORDS_ONLY.title]
    parts = (
        markdown(results, CONFIDANT.title),
        goals_markdown(goals(results[CONFIDANT.title], floors, words_only)),
        f"The same with {ALL_CHANNELS.title.partition(', ')[2]}:\n",
        goals_markdown(goals(results[ALL_CHANNELS.title], floors)),
        f"{load} {busy_note(results)}\n",
    )
    return "\n".join(parts)


def _tail(folder: Path) -> str:
    """The end of what a program said."""
    return (folder / "output.log").read_text("utf-8", "replace")[-2000:]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench engine", description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each program is measured")
    parser.add_argument("--messages", type=int, help="messages written one by one")
    parser.add_argument("--chats", type=int, help="chats of a burst")
    parser.add_argument("--each", type=int, help="messages of each chat in a burst")
    parser.add_argument("--bursts", type=int, help="bursts that count")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the table")
    usual = {"rounds": 3, "messages": 200, "chats": 100, "each": 4, "bursts": 5}
    small = {"rounds": 1, "messages": 10, "chats": 10, "each": 2, "bursts": 1}
    return parsed(parser, usual, small)


if __name__ == "__main__":
    sys.exit(main())
