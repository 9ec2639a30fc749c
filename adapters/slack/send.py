"""Sending: one `Piece` → one message, whose Markdown Slack renders itself."""

from __future__ import annotations

import re
from dataclasses import replace

from adapters.slack.api import Api
from adapters.slack.inbound import private_to
from bot.channel import Address, Button, Piece
from bot.channel.kit.drafts import Draft, MessageDrafts, MessageGone
from bot.channel.kit.json_access import Json, child, text
from bot.channel.kit.supervisor import Supervisor
from bot.channel.kit.text import closed, file_name, written_in
from bot.errors import SendRefused, SendUnreachable

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


class Sender(MessageDrafts):
    """Sends the messages of one account: finished ones, and one while it is being written."""

    def __init__(self, api: Api, supervisor: Supervisor, first: float, every: float) -> None:
        super().__init__(supervisor, first, every)
        self._api = api

    async def write(self, draft: Draft[Address]) -> None:
        """Show a draft; see `MessageDrafts.write`."""
        body = message(f"{closed(draft.text[:SHOWN])} {MARK}")
        body["text"] += MARK
        draft.message = await self._post(draft.place, body, draft.message)

    async def delete(self, place: Address, message: str) -> None:
        """Delete a message; see `MessageDrafts.delete`."""
        await self._api("chat_delete", channel=place.chat, ts=message)

    async def send(self, piece: Piece) -> str:
        """Send one message, and the files that come with it; see `Channel.send`."""
        place, body = piece.address, message(piece.text, piece.buttons)
        person = private_to(piece.whole.reply_to)
        if piece.attachments:
            return await self._upload(piece, person)
        if person:
            return await self._alone(person, piece, body)
        return await self.finish(
            piece, lambda stamp: self._post(place, body, stamp), lambda: self._post(place, body)
        )

    async def _alone(self, person: str, piece: Piece, body: Json) -> str:
        """Answer in a room so that one person sees it; where that is impossible, in their chat."""
        try:
            chat = piece.address.chat
            shown = await self._api("chat_postEphemeral", channel=chat, user=person, **body)
            return text(shown, "message_ts") or "sent"
        except SendUnreachable:
            # A button would be pressed in another conversation than the one it is about.
            why = "" if piece.index else f"{_WHY_HERE[written_in(piece.text)]}\n\n"
            return await self._post(
                replace(piece.address, chat=person, thread=""), message(why + piece.text)
            )

    async def _upload(self, piece: Piece, person: str) -> str:
        chat, thread = piece.address.chat, piece.address.thread
        if person:
            opened = await self._api("conversations_open", users=person)
            chat, thread = text(child(opened, "channel"), "id"), ""
        files = [
            {"content": file.data, "filename": (name := file_name(file)), "title": name}
            for file in piece.attachments
        ]
        where = {"channel": chat, "thread_ts": thread or None}
        await self._api("files_upload_v2", patience=UPLOAD, file_uploads=files, **where)
        return f"files-{piece.id}"

    async def _post(self, place: Address, body: Json, stamp: str = "") -> str:
        """Send a message, or put it in place of the one with this `stamp`; its id.

        Raises:
            MessageGone: there is none with this stamp.
        """
        if stamp:
            try:
                edited = await self._api("chat_update", channel=place.chat, ts=stamp, **body)
            except SendRefused as error:
                if "message_not_found" not in str(error):
                    raise
                raise MessageGone from None
            return text(edited, "ts")
        where = {"channel": place.chat, "thread_ts": place.thread or None}
        more = {"unfurl_links": False, "unfurl_media": False}
        sent = await self._api("chat_postMessage", **more, **where, **body)
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
