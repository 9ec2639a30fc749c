"""Ports for servers that are told where to listen before they start."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

# Below those that a system gives to connections, as it could give this one meanwhile.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port where nobody listens on 127.0.0.1."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
