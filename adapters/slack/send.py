"""Sending: one `Piece` → one message, whose Markdown Slack renders itself."""

from __future__ import annotations

import re
from typing import Any

import structlog

from adapters.slack.api import Api, waits
from adapters.slack.inbound import private_to
from bot.channel import Button, Piece
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import Json, child, text
from bot.channel.kit.text import closed, written_in
from bot.errors import ChannelError, SendRefused, SendUnreachable

UPLOAD = 120.0  # seconds for the files of a message
SHOWN = 3000  # characters that are shown before the reply is finished
FALLBACK = 300  # characters of what a notification shows
MARK = "▍"  # ends a reply that is being written; one that still does after a restart is taken away
MAX_BUTTONS, MAX_LABEL, MAX_COMMAND = 25, 75, 2000  # Slack's limits
_MENTION = re.compile(r"<(?=[@!#])")
_WHY_HERE = {
    "en": "*You asked in a channel. It cannot be shown to you alone there, so it is here.*",
    "zh": "*这是你在频道里要的。那里不能只给你一个人看，所以发在这里。*",
}
_log = structlog.get_logger()

Place = tuple[str, str]  # chat and thread


class SlackDrafts(Drafts[Place]):
    """Replies while they are being written: one message, edited at the pace that Slack allows."""

    def __init__(self, api: Api, spawn: Any, first: float, every: float) -> None:
        super().__init__(spawn, first)
        self._api, self._every = api, every

    async def remove(self, draft: Draft[Place]) -> None:
        """Take away what shows of a draft."""
        await self._api.quick("chat_delete", channel=draft.place[0], ts=draft.message)

    async def put(self, draft: Draft[Place]) -> float:
        """Show a draft; see `Drafts.put`."""
        body = message(f"{closed(draft.text[:SHOWN])} {MARK}")
        body["text"] += MARK
        try:
            draft.message = await post(self._api, draft.place, body, draft.message)
        except ChannelError as error:
            wait = waits(error)
            draft.is_dead = wait is None  # no later step will fare better
            _log.info("slack.draft.failed", error=str(error))
            return max(self._every, wait or 0.0)
        return self._every


class Sender:
    """Sends the messages of one account."""

    def __init__(self, api: Api, drafts: SlackDrafts) -> None:
        self._api, self._drafts = api, drafts

    async def send(self, piece: Piece) -> str:
        """Send one message, and the files that come with it; its id.

        Raises:
            SendLater, SendTransient: it may work later.
            SendUnreachable, SendRefused: Slack does not deliver this.
        """
        place, body = (piece.address.chat, piece.address.thread), message(piece.text, piece.buttons)
        person = private_to(piece.whole.reply_to)
        if piece.attachments:
            return await self._upload(piece, place, person)
        if person:
            return await self._alone(person, piece, body)
        draft = await self._drafts.take(place, piece.draft) if piece.draft else None
        try:
            if draft is not None:
                try:
                    return await post(self._api, place, body, draft.message)
                except SendRefused as error:
                    if "message_not_found" not in str(error):
                        raise
            return await post(self._api, place, body)
        except ChannelError:
            self._drafts.leave(draft)  # for the next try
            raise

    async def _alone(self, person: str, piece: Piece, body: Json) -> str:
        """Answer in a room so that one person sees it; where that is impossible, in their chat."""
        try:
            chat = piece.address.chat
            shown = await self._api("chat_postEphemeral", channel=chat, user=person, **body)
            return text(shown, "message_ts") or "sent"
        except SendUnreachable:
            # A button would be pressed in another conversation than the one it is about.
            why = "" if piece.index else f"{_WHY_HERE[written_in(piece.text)]}\n\n"
            return await post(self._api, (person, ""), message(why + piece.text))

    async def _upload(self, piece: Piece, place: Place, person: str) -> str:
        if person:
            opened = await self._api("conversations_open", users=person)
            place = text(child(opened, "channel"), "id"), ""
        names = [
            re.sub(r"[^\w.+()-]", "_", file.name)[-100:] or "file" for file in piece.attachments
        ]
        files = [
            {"content": file.data, "filename": name, "title": name}
            for file, name in zip(piece.attachments, names, strict=True)
        ]
        where = {"channel": place[0], "thread_ts": place[1] or None}
        await self._api("files_upload_v2", patience=UPLOAD, file_uploads=files, **where)
        return f"files-{piece.id}"


async def post(api: Api, place: Place, body: Json, stamp: str = "") -> str:
    """Send a message, or put it in place of the one with this `stamp`; its id."""
    if stamp:
        return text(await api("chat_update", channel=place[0], ts=stamp, **body), "ts")
    where = {"channel": place[0], "thread_ts": place[1] or None}
    sent = await api("chat_postMessage", unfurl_links=False, unfurl_media=False, **where, **body)
    return text(sent, "ts") or "sent"


def message(words: str, buttons: tuple[Button, ...] = ()) -> Json:
    """A Markdown text and its buttons as Slack takes them; nothing in it mentions anybody."""
    safe = _MENTION.sub("<\u200b", words)
    plain = safe[:FALLBACK].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks: list[Json] = [{"type": "markdown", "text": safe}]
    shown = {
        button.command: button.label.strip()[:MAX_LABEL]
        for button in buttons
        if button.label.strip() and button.command[:1] == "/" and len(button.command) <= MAX_COMMAND
    }
    made = [
        {"type": "button", "action_id": f"press-{at}", "value": command}
        | {"text": {"type": "plain_text", "text": label}}
        for at, (command, label) in enumerate(list(shown.items())[:MAX_BUTTONS])
    ]
    return {"text": plain, "blocks": blocks + [{"type": "actions", "elements": made}] * bool(made)}
