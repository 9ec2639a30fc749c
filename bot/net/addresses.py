"""Addresses that may be opened, as a page can ask for any, and proxies. Pure.

An address passes twice: as it is written (`Guard.url`), and each address its host turns out to have
(`Guard.may_connect`). Both hold again for every redirect.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Self

from yarl import URL

from bot.errors import AddressRefused

LONGEST = 2_000  # characters of an address
LONGEST_HOST = 253  # RFC 1035, 2.3.4, without the length bytes
WEB_PORTS = frozenset({80, 443})
FIRST_FREE_PORT = 1_024
# Ports from there on that belong to other protocols: those browsers refuse, too
# (https://fetch.spec.whatwg.org/#port-blocking).
OTHER_PORTS = frozenset(
    {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6679, 6697, 10080}
) | frozenset(range(6665, 6670))

# IANA's special-purpose registries (RFC 6890): what is not for everybody to reach.
_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers' own (CGNAT); the metadata of Alibaba's clouds
            "127.0.0.0/8",
            "168.63.129.16/32",  # a public address that is each Azure machine's own platform
            "169.254.0.0/16",  # link-local; the metadata of most clouds
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_OPEN_6 = IPv6Network("2000::/3")  # all that is given to anybody so far
_CLOSED_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols' own: Teredo, ORCHID, benchmarks, …
            "2001:db8::/32",
            "2002::/16",  # 6to4: an IPv4 address in disguise
            "3fff::/20",
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the IPv4 address is in the last 32 bits
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})  # RFC 5214: before an IPv4 address

# What an operator may open by naming a host: their own networks and machine, never the rest.
_OWN = (
    *map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")),
    *map(IPv4Network, ("127.0.0.0/8",)),
    *map(IPv6Network, ("fc00::/7", "::1/128")),
)
# What tells a machine of a cloud its passwords, inside of such networks.
_METADATA = frozenset({"100.100.100.200", "fd00:ec2::254", "fd20:ce::254"})

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_NOT_PLAIN = re.compile(r"[\x00-\x20\x7f\\\s]")


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets through everything public, and of the rest the hosts an operator named.

    `internal` has these as host and port.
    """

    internal: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def from_hosts(cls, internal_hosts: Iterable[str]) -> Self:
        """A guard that lets through "wiki.example", at the web's ports, or "10.0.0.7:8080".

        Raises:
            ValueError: one of them is no host; the message names it.
        """
        return cls(frozenset(pair for host in internal_hosts for pair in _places(host)))

    def url(self, written: str) -> URL:
        """The address to open, in one form only, without what browsers keep to themselves (#…).

        Raises:
            AddressRefused: it is none, or may not be opened; it never repeats the address.
        """
        written = written.strip()
        if len(written) > LONGEST:
            raise AddressRefused(f"the address has more than {LONGEST} characters")
        if _NOT_PLAIN.search(written):
            raise AddressRefused("the address has blanks or other characters that none has")
        try:
            url = URL(written)
            port = url.port
        except ValueError:
            raise AddressRefused("that is no address of the web") from None
        if url.scheme not in {"http", "https"}:
            raise AddressRefused("only addresses that begin with https:// or http:// are opened")
        if url.user is not None or url.password is not None:
            raise AddressRefused("addresses with a name or password before the host are refused")
        host = (url.raw_host or "").removesuffix(".")
        literal = _literal(host)
        if port is None or not (_is_usual(port) or (host, port) in self.internal):
            raise AddressRefused("that port is not for web pages")
        if literal is not None and not self.may_connect(host, port, str(literal)):
            raise AddressRefused
        return url.with_host(host).with_fragment(None)

    def may_connect(self, host: str, port: int, address: str) -> bool:
        """True when a connection for this host may go to this IP address."""
        if is_public(address):
            return True
        return (host, port) in self.internal and _is_own(address)


def is_public(address: str) -> bool:
    """True when an IP address is one that everybody reaches."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        return _is_public_4(found)
    if found.scope_id is not None:
        return False
    inner = IPv4Address(int(found) & 0xFFFF_FFFF)
    if found in _NAT64:
        return _is_public_4(inner)
    if found not in _OPEN_6 or any(found in network for network in _CLOSED_6):
        return False
    is_isatap = (int(found) >> 32) & 0xFFFF_FFFF in _ISATAP
    return not is_isatap or _is_public_4(inner)


def _is_public_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _CLOSED_4)


def _is_own(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if str(found) in _METADATA or (isinstance(found, IPv6Address) and found.scope_id is not None):
        return False
    return any(found.version == network.version and found in network for network in _OWN)


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """The IP address a host is; None for a name.

    Raises:
        AddressRefused: it is neither, or an IP address in disguise.
    """
    try:
        if ":" in host:
            return IPv6Address(host)
        if _NUMBER.fullmatch(host.rpartition(".")[2]):
            # "2130706433", "0x7f.1", "0177.0.0.1": some programs read them as addresses.
            return IPv4Address(host)
    except ValueError:
        raise AddressRefused("the host is a number, and not an IP address as it is written") from (
            None
        )
    if len(host) > LONGEST_HOST or not _NAME.fullmatch(host):
        raise AddressRefused("the address has no host that could be looked up")
    return None


def _is_usual(port: int) -> bool:
    return port in WEB_PORTS or (port >= FIRST_FREE_PORT and port not in OTHER_PORTS)


def _places(host: str) -> Iterable[tuple[str, int]]:
    """A host an operator named, with each port it is open at."""
    try:
        url = URL(f"http://{host.strip().lower()}")
        name, port = (url.raw_host or "").removesuffix("."), url.explicit_port
        is_host = url.user is None and url.path == "/" and not url.query_string and port != 0
        _literal(name)
    except (ValueError, AddressRefused):
        is_host, name, port = False, "", None
    if not is_host:
        raise ValueError(f'"{host}" is no host: write "wiki.example" or "10.0.0.7:8080"')
    return [(name, each) for each in (WEB_PORTS if port is None else (port,))]


# --- proxies: from an option, or from the environment ---------------------------------------------


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
