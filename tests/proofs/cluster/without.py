"""What a proof changes in a node before it starts. Nothing of this is read by the program.

`PROOF_CLOCK_OFF` is by how many seconds the node's clock is ahead of the others'.
`PROOF_WITHOUT` names a protection the node is to do without, so that a proof can be seen to fail:
`fence` (a turn that was taken over is stored all the same), `deduplication` (a message that comes
again is another one), `lease` (every node listens, and sends).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from bot import fencing
from bot.channel import Inbound
from bot.cluster.node import Node
from bot.sessions import inbox
from bot.storage import Transaction

CLOCK_OFF = "PROOF_CLOCK_OFF"
WITHOUT = "PROOF_WITHOUT"


def apply(environment: Mapping[str, str]) -> None:
    """Change this process as its environment says."""
    ahead = float(environment.get(CLOCK_OFF, 0))
    if ahead:
        _shift(ahead)
    if name := environment.get(WITHOUT):
        _PROTECTIONS[name]()


def _shift(ahead: float) -> None:
    now, now_ns, shift = time.time, time.time_ns, round(ahead * 1e9)
    time.time = lambda: now() + ahead
    time.time_ns = lambda: now_ns() + shift


def _no_fence() -> None:
    fencing.current = lambda: None


def _no_deduplication() -> None:
    store = inbox.store

    def store_anew(
        tx: Transaction, inbound: Inbound, body: str, key: str, now: int, **more: bool
    ) -> int | None:
        another = replace(inbound, message_id=f"{inbound.message_id}-{secrets.token_hex(4)}")
        return store(tx, another, body, key, now, **more)

    inbox.store = store_anew


def _no_lease() -> None:
    @asynccontextmanager
    async def owning(_node: Node, _name: str) -> AsyncGenerator[asyncio.Event]:
        yield asyncio.Event()

    Node.owning = owning
    Node.owns = lambda _node, _name: True
    Node.fence = lambda _node, _name: None


_PROTECTIONS: Mapping[str, Callable[[], None]] = {
    "fence": _no_fence,
    "deduplication": _no_deduplication,
    "lease": _no_lease,
}
