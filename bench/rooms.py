"""What silent talk in rooms costs: `python -m bench rooms`, 1 000 groups with 50 people each.

Everybody says one thing, and none of it is for the bot. What is measured is all that the engine
does with it, from `Engine.receive` on, as processor time of the whole process; making the messages
is measured apart and not counted. Other sizes are arguments: `python -m bench rooms 100 50`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import quiet
from bot.app import App, Parts
from bot.channel import ChannelConfig, ChannelPlugin, Inbound
from bot.settings import config_model
from bot.testing import InMemoryChannel, ScriptedModel

GROUPS, MEMBERS = 1_000, 50
GOAL_MS = 1.0  # of processor time a message
WORDS = "so the train is late again and nobody knows why, but it may come at nine or at ten"


def talk(groups: int, members: int) -> Iterator[Inbound]:
    """What everybody says, one after another through all groups."""
    chance = random.Random(groups)  # noqa: S311
    for member in range(members):
        for group in range(groups):
            yield Inbound(
                channel="memory",
                account="default",
                chat=f"-100{group:07d}",
                chat_type="group",
                sender=f"{group * members + member}",
                sender_name=f"Member {member}",
                message_id=f"{member}",
                text=WORDS[: chance.randrange(20, len(WORDS))],
                sent_at=1_800_000_000_000 + member,
                locale="en",
            )


def cpu() -> float:
    """Seconds of processor time this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(groups: int, members: int) -> tuple[float, float, float, int]:
    """Milliseconds of processor time and of time a message, MB grown, and answers."""
    channel = InMemoryChannel()
    plugins = {"memory": ChannelPlugin("memory", ChannelConfig, lambda _config: channel)}
    with tempfile.TemporaryDirectory() as name:
        data = {
            "storage": {"dir": Path(name), "backup_hours": 0},
            "memory": {"embedder": {"provider": "none"}, "watch": False},
            "channels": {"memory": {"group_policy": "open"}},
        }
        config = config_model(plugins).model_validate(data)
        parts = Parts(remote=ScriptedModel(), channels={"memory": channel}, dashboard=False)
        async with App(config, plugins, parts):
            said = list(talk(groups, members))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            used, started = cpu(), time.perf_counter()
            for inbound in said:
                await channel.push(inbound)
            used, seconds = cpu() - used, time.perf_counter() - started
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            answers = len(channel.sent)
    return used * 1000 / len(said), seconds * 1000 / len(said), grown, answers


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when the goal was missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", type=int, nargs="?", default=GROUPS)
    parser.add_argument("members", type=int, nargs="?", default=MEMBERS)
    asked = parser.parse_args(arguments)
    used, waited, grown, answers = asyncio.run(measure(asked.groups, asked.members))
    print(f"| {asked.groups} groups × {asked.members} silent members | | goal |")
    print("|---|---|---|")
    print(f"| processor time a message | {used:.3f} ms | ≤ {GOAL_MS:g} ms |")
    print(f"| time a message | {waited:.3f} ms | |")
    print(f"| memory grown | {grown:.0f} MB | |")
    print(f"| answers | {answers} | 0 |")
    return 0 if used <= GOAL_MS and answers == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
