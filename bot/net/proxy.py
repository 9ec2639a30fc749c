"""Chooses the proxy for an address: from an option, or from the environment. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from yarl import URL

from bot.net.addresses import is_public

DIRECT: Final = "none"  # as an option: no proxy, whatever the environment says
HTTP: Final = frozenset({"http", "https"})
# "socks" is what desktops write into ALL_PROXY. A SOCKS5 proxy looks names up itself either way, as
# curl's "socks5h" does: where a proxy is needed, lookups of this machine are often wrong.
_SCHEMES: Final[Mapping[str, str]] = {
    "http": "http",
    "https": "https",
    "socks5": "socks5",
    "socks5h": "socks5",
    "socks": "socks5",
}
_FORM: Final = 'a proxy is written as "host:port", or "socks5://user:password@host:port"'
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443, "socks5": 1080}
_WEB: Final[Mapping[str, str]] = {"ws": "http", "wss": "https"}
# Names that only a local network knows (RFC 6762, RFC 8375, ICANN's .internal, routers' habits).
_LOCAL_ENDINGS: Final = (".localhost", ".local", ".internal", ".home.arpa", ".lan")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy: its `scheme` is "http", "https" or "socks5"."""

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def url(self) -> URL:
        """Its address, without user and password; also what people are told."""
        return URL.build(scheme=self.scheme, host=self.host, port=self.port)

    @property
    def with_login(self) -> str:
        """Its address with user and password, for a library that takes one."""
        return str(
            self.url.with_user(self.user).with_password(self.password or None)
            if self.user
            else self.url
        )


def parse(written: str) -> Proxy | None:
    """The proxy that is written as "host:port" or as an address; None for "none".

    Raises:
        ValueError: it is neither; the message is a sentence that does not repeat it.
    """
    written = written.strip()
    if written.lower() == DIRECT:
        return None
    try:
        url = URL(written if "://" in written else f"http://{written}")
        scheme, host, port = _SCHEMES.get(url.scheme, ""), url.host or "", url.explicit_port
    except ValueError:
        raise ValueError(_FORM) from None
    if not scheme:
        raise ValueError("a proxy's address begins with http://, https://, socks5:// or socks5h://")
    if not host or port == 0 or re.search(r"\s", host):
        raise ValueError(_FORM)
    return Proxy(scheme, host, port or _PORTS[scheme], url.user or "", url.password or "")


def choose(url: URL, chosen: str, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address; None where it is called directly.

    Args:
        url: what is called.
        chosen: the option, which beats everything; empty asks the environment.
        environment: as `urllib.request.getproxies()` gives it: "http", "https", "all" and "no".

    Raises:
        ValueError: what is written is no proxy; the message says where it is written.
    """
    if chosen:
        return parse(chosen)
    scheme = _WEB.get(url.scheme, url.scheme)
    name = scheme if environment.get(scheme) else "all"
    written = environment.get(name, "")
    if not written or is_local(url.host or "") or _is_exempt(url, environment.get("no", "")):
        return None
    try:
        return parse(written)
    except ValueError as error:
        raise ValueError(f"{name.upper()}_PROXY cannot be used: {error}") from None


def is_local(host: str) -> bool:
    """True for this machine and its own network: a proxy elsewhere would not reach them."""
    host = host.lower().rstrip(".")
    try:
        return not is_public(str(ipaddress.ip_address(host.partition("%")[0])))
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_ENDINGS)


def _is_exempt(url: URL, exempt: str) -> bool:
    """True for what NO_PROXY names: hosts with all below them, networks, each perhaps at a port."""
    host = (url.host or "").lower().rstrip(".")
    for each in re.split(r"[,\s]+", exempt.lower()):
        if each == "*" or any(_covers(name, host) for name in _named(each, url.port)):
            return True
    return False


def _named(written: str, port: int | None) -> Iterator[str]:
    """The host an entry names, if it is for this port."""
    yield written.strip("[]")
    name, colon, wanted = written.rpartition(":")
    if colon and wanted == str(port):
        yield name.strip("[]")


def _covers(name: str, host: str) -> bool:
    name = name.removeprefix("*").strip(".")
    if not name:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except (ValueError, TypeError):
        return host == name or host.endswith(f".{name}")
