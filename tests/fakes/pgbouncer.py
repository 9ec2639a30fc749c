"""A real PgBouncer before a real PostgreSQL, each transaction on whichever connection is free.

Nothing is set for Confidant's sake: what is refused by default (unknown startup parameters) is
refused here.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from tests.fakes.programs import Program

_CONFIGURATION = """\
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
server_login_retry = 0.1
query_wait_timeout = 10
"""


class PgBouncer(Program):
    """Before the server of a URL. Not started yet."""

    def __init__(self, url: str, mode: str = "transaction") -> None:
        super().__init__("pgbouncer")
        server = urlsplit(url)
        self._at = f"127.0.0.1:{self.port}"
        (self.folder / "users").write_text(f'"{server.username}" "{server.password or ""}"\n')
        (self.folder / "pgbouncer.ini").write_text(
            _CONFIGURATION.format(
                host=server.hostname, port=server.port, own=self.port, folder=self.folder, mode=mode
            )
        )

    def start(self) -> None:
        """Start it, also after `kill`; returns when it takes connections."""
        self.run([self.folder / "pgbouncer.ini"])

    def url(self, url: str) -> str:
        """A URL of the server as it is reached through the pooler."""
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{self._at}"))
