"""The files of a page, read once and served with what lets a browser keep them."""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

STYLE = web.ResponseKey("style", str)  # of a response: what its content policy has to let through
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
    style: str = ""  # the hash of the style within it, as a content policy names it

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
        if self.style:
            response[STYLE] = self.style
        return response


def takes_gzip(accepted: str) -> bool:
    """True when an `Accept-Encoding` header names gzip, and does not refuse it."""
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return not WEIGHTLESS.fullmatch(weight.strip())
    return False


def routes(
    package: str, prefix: str, *, index: str = "", styles: Mapping[str, str] | None = None
) -> list[web.RouteDef]:
    """One route for each file in the `static` folder of a package, and for nothing else there.

    With `index`, the file of that name is served at "/" as well, where the sheets of `styles`, the
    package of each by its address, stand in it: it is drawn without waiting for another answer.
    """
    assets = _load(package)
    found = [web.get(f"{prefix}/{name}", asset.serve) for name, asset in assets.items()]
    if not index:
        return found
    sheets = {
        path: (assets if owner == package else _load(owner))[path.rpartition("/")[2]].body
        for path, owner in (styles or {}).items()
    }
    return [web.get("/", _styled(assets[index], sheets).serve), *found]


def versions(served: Iterable[web.RouteDef]) -> dict[str, str]:
    """The version of each file among these routes, by path."""
    owners = ((route.path, getattr(route.handler, "__self__", None)) for route in served)
    return {path: asset.etag for path, asset in owners if isinstance(asset, Asset)}


def _load(package: str) -> dict[str, Asset]:
    assets: dict[str, Asset] = {}
    for file in resources.files(package).joinpath("static").iterdir():
        content_type = TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            assets[file.name] = _asset(file.read_bytes(), content_type)
    return assets


def _styled(page: Asset, sheets: Mapping[str, bytes]) -> Asset:
    """A page with its style sheets, by the addresses that name them, in an element of its own."""
    body = page.body
    for path in sheets:
        body = body.replace(b'  <link rel="stylesheet" href="%s">\n' % path.encode(), b"")
    style = b"".join(sheets.values())
    if not style:
        return page
    body = body.replace(b"</head>", b"<style>%s</style>\n</head>" % style, 1)
    digest = b64encode(hashlib.sha256(style).digest()).decode()
    return _asset(body, page.content_type, f"'sha256-{digest}'")


def _asset(body: bytes, content_type: str, style: str = "") -> Asset:
    # These files say the same to everybody, so what they come to in gzip tells nothing. No page
    # with somebody's words in it is packed: its length would tell what it holds.
    packed = gzip.compress(body, mtime=0)
    etag = hashlib.sha256(body).hexdigest()[:32]
    return Asset(body, content_type, etag, packed if len(packed) < len(body) else b"", style)
