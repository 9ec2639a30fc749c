"""Files by WebDAV as the API user: fetching those that came with messages, and showing ours."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

import orjson
import structlog
from cachetools import LRUCache

from adapters.nextcloud_talk.api import TalkApi, escaped, retry_after
from adapters.nextcloud_talk.rich import file_ref
from bot.channel import Attachment, Media
from bot.channel.kit.client import LATER, Answer, TooLong, failure
from bot.channel.kit.json_access import child, label, text
from bot.errors import SendLater, SendRefused

TIMEOUT = 90.0  # seconds for one file
_HREF = re.compile(r"<(?:\w+:)?href>([^<]{1,4096})</(?:\w+:)?href>")
# A file's path is another for everybody who sees it; its number is not.
_SEARCH = (
    '<?xml version="1.0"?><d:searchrequest xmlns:d="DAV:" xmlns:oc="http://owncloud.org/ns">'
    "<d:basicsearch><d:select><d:prop><d:getcontentlength/></d:prop></d:select>"
    "<d:from><d:scope><d:href>/files/{user}</d:href><d:depth>infinity</d:depth></d:scope></d:from>"
    "<d:where><d:eq><d:prop><oc:fileid/></d:prop><d:literal>{id}</d:literal></d:eq></d:where>"
    "</d:basicsearch></d:searchrequest>"
)
FOLDER = "Confidant"  # in the API user's files
REMEMBERED = 1024  # files of ours, whose messages come back to us
ROOM_SHARE = 10  # Nextcloud's number for sharing with a conversation
_SHARES = "/ocs/v2.php/apps/files_sharing/api/v1/shares"
_UNSAFE = re.compile(r"[^\w.()+-]+")
_NUMBER = re.compile(r"0*(\d{1,20})")

_log = structlog.get_logger()


class Files:
    """The files of one API user, who has to be in the conversations they are shared with."""

    def __init__(self, account: str, api: TalkApi, api_user: str, base_path: str) -> None:
        self._account = account
        self._api = api
        self._user, self._base_path = api_user, base_path
        self._home = f"/remote.php/dav/files/{escaped(api_user)}"
        self._own: LRUCache[str, None] = LRUCache(REMEMBERED)

    # --- fetching --------------------------------------------------------------------------------

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file.

        Raises:
            SendLater, SendTransient: it may work later.
            SendRefused: it never will.
        """
        number, _ = file_ref(media.ref)
        if not self._api.has_login or not number:
            raise SendRefused("files are fetched only with api_user set")
        query = _SEARCH.format(user=html.escape(escaped(self._user)), id=number).encode()
        found = await self._call("SEARCH", "/remote.php/dav/", query, "text/xml")
        return self._found(await self._call("GET", self._path(self._found(found)), most=most)).body

    def _found(self, answer: Answer) -> Answer:
        if answer.status not in {200, 207}:
            raise failure("Nextcloud", answer.status, retry_after(answer))
        return answer

    def _path(self, answer: Answer) -> str:
        """The path of the file, below the server's address.

        Raises:
            SendRefused: the API user does not see it.
        """
        found = _HREF.search(answer.body.decode("utf-8", "replace"))
        path = html.unescape(found[1]).removeprefix(self._base_path) if found is not None else ""
        own = f"/remote.php/dav/files/{self._user}/"
        if not unquote(path).startswith(own) or ".." in unquote(path).split("/"):
            raise SendRefused("api_user does not see this file")
        return "/".join(escaped(unquote(part)) for part in path.split("/"))

    # --- showing: bots cannot in Talk, so the API user uploads files and shares them there -------

    def is_own(self, number: str) -> bool:
        """True if a file, by its number, was put there by us a moment ago."""
        return number in self._own

    async def share(self, room: str, attachment: Attachment, reference: str) -> bool:
        """Show one file in a room; False when the server never will.

        `reference` is the same for each try, so that a second one changes nothing.

        Raises:
            SendLater: the server asks to wait.
            SendTransient: it may work later.
        """
        if not self._api.has_login:
            return False
        folder = f"{FOLDER}/{reference[:16]}"
        path = f"{folder}/{_UNSAFE.sub('_', label(attachment.name))[-64:] or 'file'}"
        for each in (FOLDER, folder):
            if not self._well(await self._call("MKCOL", f"{self._home}/{each}"), {201, 405}):
                return False
        kind = label(attachment.mime) or "application/octet-stream"
        url = f"{self._home}/{'/'.join(map(escaped, path.split('/')))}"
        stored = await self._call("PUT", url, attachment.data, kind)
        if not self._well(stored, {200, 201, 204}):
            return False
        if number := _NUMBER.match(stored.headers.get("OC-FileId", "")):
            self._own[number[1]] = None
        body = {
            "shareType": ROOM_SHARE,
            "shareWith": room,
            "path": f"/{path}",
            "referenceId": reference,
        }
        shared = await self._call("POST", _SHARES, orjson.dumps(body), "application/json")
        return _shared_before(shared) or self._well(shared, {200, 201})

    def _well(self, answer: Answer, good: set[int]) -> bool:
        if answer.status in good:
            return True
        status = answer.status
        if status == 423:  # somebody is writing to it
            raise SendLater(retry_after(answer) or LATER)
        error = failure("Nextcloud", status, retry_after(answer))
        if not isinstance(error, SendRefused):
            raise error
        _log.warning("nextcloud_talk.file.not_shown", account=self._account, status=status)
        return False

    async def _call(
        self, method: str, path: str, data: bytes | None = None, mime: str = "", most: int = 1 << 20
    ) -> Answer:
        try:
            return await self._api.call(
                *(method, path),
                as_user=True,
                data=data,
                headers={"Content-Type": mime} if mime else None,
                most=most,
                patience=TIMEOUT,
            )
        except TooLong:
            raise SendRefused("this file is too large") from None


def _shared_before(answer: Answer) -> bool:
    """True if a try before this one shared the file already."""
    if answer.status != 403:
        return False
    meta = child(child(answer.json, "ocs"), "meta")
    return "already shared" in text(meta, "message").lower()
