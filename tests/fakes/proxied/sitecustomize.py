"""What a proxy of the tests begins with: to it, every host below "example" is this machine."""

import socket

_found = socket.getaddrinfo


def _here(host, port, *how, **named):  # noqa: ANN002
    name = host.decode() if isinstance(host, bytes) else str(host)
    return _found("127.0.0.1" if name.endswith(".example") else host, port, *how, **named)


socket.getaddrinfo = _here
