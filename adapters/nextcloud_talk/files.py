"""Fetching files that came with messages, by WebDAV as the API user."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

from adapters.nextcloud_talk.api import Answer, TalkApi, Unreachable, escaped
from adapters.nextcloud_talk.rich import file_ref
from bot.channel import Media
from bot.channel.kit.client import TooLarge, failure
from bot.errors import SendRefused, SendTransient

TIMEOUT = 60.0  # seconds for one file
_HREF = re.compile(r"<(?:\w+:)?href>([^<]{1,4096})</(?:\w+:)?href>")
# A file's path is another for everybody who sees it; its number is not.
_SEARCH = (
    '<?xml version="1.0"?><d:searchrequest xmlns:d="DAV:" xmlns:oc="http://owncloud.org/ns">'
    "<d:basicsearch><d:select><d:prop><d:getcontentlength/></d:prop></d:select>"
    "<d:from><d:scope><d:href>/files/{user}</d:href><d:depth>infinity</d:depth></d:scope></d:from>"
    "<d:where><d:eq><d:prop><oc:fileid/></d:prop><d:literal>{id}</d:literal></d:eq></d:where>"
    "</d:basicsearch></d:searchrequest>"
)


class Fetcher:
    """Fetches files as one API user, who has to be in the conversation they were shared with."""

    def __init__(self, api: TalkApi, api_user: str, base_path: str) -> None:
        self._api = api
        self._user = api_user
        self._base_path = base_path

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file.

        Raises:
            SendLater, SendTransient: it may work later.
            SendRefused: it never will.
        """
        number, _ = file_ref(media.ref)
        if not self._api.has_login or not number:
            raise SendRefused("files are fetched only with api_user set")
        if media.size > most:
            raise SendRefused("this file is too large")
        query = _SEARCH.format(user=html.escape(escaped(self._user)), id=number).encode()
        kind = {"Content-Type": "text/xml"}
        found = await self._call("SEARCH", "/remote.php/dav/", data=query, headers=kind)
        path = self._path(found)
        answer = await self._call("GET", path, most=most)
        return answer.body

    def _path(self, answer: Answer) -> str:
        """Where the file is, below the server's address.

        Raises:
            SendRefused: the API user does not see it.
        """
        found = _HREF.search(answer.body.decode("utf-8", "replace"))
        path = html.unescape(found[1]).removeprefix(self._base_path) if found is not None else ""
        own = f"/remote.php/dav/files/{self._user}/"
        if not unquote(path).startswith(own) or ".." in unquote(path).split("/"):
            raise SendRefused("api_user does not see this file")
        return "/".join(escaped(unquote(part)) for part in path.split("/"))

    async def _call(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        most: int = 1 << 20,
    ) -> Answer:
        try:
            answer = await self._api.as_user(
                method, path, data=data, headers=headers, most=most, patience=TIMEOUT
            )
        except Unreachable as error:
            raise SendTransient(f"Nextcloud cannot be reached: {error}") from None
        except TooLarge:
            raise SendRefused("this file is too large") from None
        if answer.status not in {200, 207}:
            raise failure("Nextcloud", answer.status, answer.retry_after)
        return answer
