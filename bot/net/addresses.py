"""Guards which addresses may be opened, as a page can ask the bot to open any. Pure.

An address passes twice: as it is written (`Guard.url`), and each address its host turns out to have
(`Guard.may_connect`). Both hold again for every redirect.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Self

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
