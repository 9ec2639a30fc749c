"""A real nginx with TLS before the nodes, set up as docs/cluster.md says."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.programs import Program, find

# One process, which ends when it is killed: a master would leave its workers behind.
_AROUND = """\
daemon off;
master_process off;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {block}
}}
"""
_NODE = "    server {} fail_timeout=1s;\n"
_NODES = "".join(_NODE.format(f"node-{number}:8420") for number in (1, 2, 3))


class PathProxy(Program):
    """Shows a server on 127.0.0.1 below a path, which it takes off. Not started yet."""

    def __init__(self, path: str) -> None:
        super().__init__("nginx")
        self.origin, self._path = f"http://localhost:{self.port}", path

    def start(self, port: int) -> None:
        """Start it before the server on this port; returns when it takes connections."""
        block = f"""server {{
            listen 127.0.0.1:{self.port};
            location {self._path}/ {{
                proxy_pass http://127.0.0.1:{port}/;
                proxy_http_version 1.1;
                proxy_set_header Host $http_host;
                proxy_set_header Upgrade $http_upgrade;
                proxy_set_header Connection upgrade;
            }}
        }}"""
        configuration = self.folder / "nginx.conf"
        configuration.write_text(_AROUND.format(folder=self.folder, block=block))
        self.run(["-e", "stderr", "-p", self.folder, "-c", configuration])


class Nginx(Program):
    """Before nodes on 127.0.0.1. Not started yet."""

    def __init__(self, block: str, ports: Sequence[int]) -> None:
        """`block` is the page's configuration; the places in it are exchanged for ours."""
        super().__init__("nginx")
        self.url = f"https://localhost:{self.port}/"
        certificate, key = _certificate(self.folder)
        for theirs, ours in (
            (_NODES, "".join(_NODE.format(f"127.0.0.1:{port}") for port in ports)),
            ("listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            ("/etc/ssl/bot.pem", str(certificate)),
            ("/etc/ssl/private/bot.key", str(key)),
        ):
            assert block.count(theirs) == 1, theirs
            block = block.replace(theirs, ours)
        (self.folder / "nginx.conf").write_text(_AROUND.format(folder=self.folder, block=block))

    def start(self) -> None:
        """Start it; returns when it takes connections."""
        configuration = self.folder / "nginx.conf"
        self.run(["-e", "stderr", "-p", self.folder, "-c", configuration])


def _certificate(folder: Path) -> tuple[Path, Path]:
    """One for localhost that nobody vouches for, and its key."""
    certificate, key = folder / "bot.pem", folder / "bot.key"
    subprocess.run(
        [
            *(find("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o644)  # nginx reads it as another user, in a folder that is removed
    return certificate, key
