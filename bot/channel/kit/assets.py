"""The files of a page, read once and served with what lets a browser keep them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

PACKED = "-gzip"  # ends the tag of what is packed: it is another body
WEIGHTLESS = re.compile(r"q\s*=\s*0(\.0*)?")
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
    "png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    body: bytes
    content_type: str
    etag: str
    packed: bytes = b""  # the same in gzip, where that is smaller

    async def serve(self, request: web.Request) -> web.Response:
        """Send it, unless the browser has it."""
        # Kept by the browser, but asked about each time: an upgrade shows at the next load.
        headers = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
        is_packed = bool(self.packed) and takes_gzip(request.headers.get("Accept-Encoding", ""))
        etag = f"{self.etag}{PACKED}" if is_packed else self.etag
        known = request.if_none_match or ()
        if any(tag.value in {etag, "*"} for tag in known):
            response = web.Response(status=304, headers=headers)
        else:
            headers["Content-Type"] = self.content_type
            if is_packed:
                headers["Content-Encoding"] = "gzip"
            response = web.Response(body=self.packed if is_packed else self.body, headers=headers)
        response.etag = etag
        return response


def takes_gzip(accepted: str) -> bool:
    """True when an `Accept-Encoding` header names gzip, and does not refuse it."""
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return not WEIGHTLESS.fullmatch(weight.strip())
    return False


def routes(package: str, prefix: str, *, index: str = "") -> list[web.RouteDef]:
    """One route for each file in the `static` folder of a package, and for nothing else there.

    With `index`, the file of that name is served at "/" as well.
    """
    assets = _load(package)
    found = [web.get(f"{prefix}/{name}", asset.serve) for name, asset in assets.items()]
    return [web.get("/", assets[index].serve), *found] if index else found


def versions(served: Iterable[web.RouteDef]) -> dict[str, str]:
    """The version of each file among these routes, by path."""
    owners = ((route.path, getattr(route.handler, "__self__", None)) for route in served)
    return {path: asset.etag for path, asset in owners if isinstance(asset, Asset)}


def _load(package: str) -> dict[str, Asset]:
    assets: dict[str, Asset] = {}
    for file in resources.files(package).joinpath("static").iterdir():
        content_type = TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            body = file.read_bytes()
            # These files say the same to everybody, so what they come to in gzip tells nothing. No
            # page with somebody's words in it is packed: its length would tell what it holds.
            packed = gzip.compress(body, mtime=0)
            assets[file.name] = Asset(
                body,
                content_type,
                hashlib.sha256(body).hexdigest()[:32],
                packed if len(packed) < len(body) else b"",
            )
    return assets
