"""Calling a platform over HTTP."""

from __future__ import annotations

import urllib.request

import aiohttp
from yarl import URL

Proxy = tuple[URL | None, dict[str, str] | None]  # and what it wants to hear


def proxy_for(address: str) -> Proxy:
    """The environment's proxy for a server.

    Looking it up takes a while; aiohttp's own `trust_env` does it for each request.
    """
    target = URL(address)
    scheme = {"wss": "https", "ws": "http"}.get(target.scheme, target.scheme)
    found = urllib.request.getproxies().get(scheme, "")
    if not found or urllib.request.proxy_bypass(target.host or ""):
        return None, None
    proxy = URL(found)
    if not proxy.user:
        return proxy, None
    login = aiohttp.encode_basic_auth(proxy.user, proxy.password or "")
    return proxy.with_user(None), {"Proxy-Authorization": login}
