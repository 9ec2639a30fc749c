"""Showing files: bots cannot in Talk, so the API user uploads them and shares them there."""

from __future__ import annotations

import re

import orjson
import structlog
from cachetools import LRUCache

from adapters.nextcloud_talk.api import Answer, TalkApi, Unreachable, escaped
from bot.channel import Attachment
from bot.channel.kit.client import LATER, TooLarge, failure
from bot.channel.kit.json_access import child, label, mapping, parse_json, text
from bot.errors import SendLater, SendRefused, SendTransient

FOLDER = "Confidant"  # in the API user's files
TIMEOUT = 90.0  # seconds for one upload
REMEMBERED = 1024  # files of ours, whose messages come back to us
ROOM_SHARE = 10  # Nextcloud's number for sharing with a conversation
_SHARES = "/ocs/v2.php/apps/files_sharing/api/v1/shares"
_UNSAFE = re.compile(r"[^\w.()+-]+")
_NUMBER = re.compile(r"0*(\d{1,20})")

_log = structlog.get_logger()


class Sharer:
    """Shares files with rooms that one API user is in."""

    def __init__(self, account: str, api: TalkApi, api_user: str) -> None:
        self._account = account
        self._api = api
        self._home = f"/remote.php/dav/files/{escaped(api_user)}"
        self._own: LRUCache[str, None] = LRUCache(REMEMBERED)

    def is_own(self, number: str) -> bool:
        """Whether a file, by its number, was put there by us a moment ago."""
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
        kind = {"Content-Type": label(attachment.mime) or "application/octet-stream"}
        url = f"{self._home}/{'/'.join(map(escaped, path.split('/')))}"
        stored = await self._call("PUT", url, attachment.data, kind)
        if not self._well(stored, {200, 201, 204}):
            return False
        self._remember(stored.file)
        body = {
            "shareType": ROOM_SHARE,
            "shareWith": room,
            "path": f"/{path}",
            "referenceId": reference,
        }
        kind = {"Content-Type": "application/json"}
        shared = await self._call("POST", _SHARES, orjson.dumps(body), kind)
        return _shared_before(shared) or self._well(shared, {200, 201})

    def _remember(self, file: str) -> None:
        found = _NUMBER.match(file)
        if found is not None:
            self._own[found[1]] = None

    def _well(self, answer: Answer, good: set[int]) -> bool:
        if answer.status in good:
            return True
        status = answer.status
        if status == 423:  # somebody is writing to it
            raise SendLater(answer.retry_after or LATER)
        error = failure("Nextcloud", status, answer.retry_after)
        if not isinstance(error, SendRefused):
            raise error
        _log.warning("nextcloud_talk.file.not_shown", account=self._account, status=status)
        return False

    async def _call(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        try:
            return await self._api.as_user(
                method, path, data=data, headers=headers, patience=TIMEOUT
            )
        except (Unreachable, TooLarge) as error:
            raise SendTransient(f"Nextcloud cannot be reached: {error}") from None


def _shared_before(answer: Answer) -> bool:
    """Whether a try before this one shared the file already."""
    if answer.status != 403:
        return False
    try:
        meta = child(child(mapping(parse_json(answer.body)), "ocs"), "meta")
    except ValueError:
        return False
    return "already shared" in text(meta, "message").lower()
