"""Texts and files as the contents of events. Pure."""

from __future__ import annotations

from hashlib import blake2b

from bot.channel import Outbound, Piece
from bot.channel.kit.json_access import Json, is_blank, media_kind, storable
from bot.channel.kit.markdown_html import render as html
from bot.channel.kit.text import numbered, seen, split

LIMIT = 8000  # characters of one message
MOST_BYTES = 40_000  # of words and HTML: 65 536 is Matrix's bound for an event, encrypted too
_SILENT = frozenset({"notice", "receipt"})
_LATER = {
    "en": "I can't read this message yet, because its key hasn't reached me. I'll answer as soon "
    "as it does. If you get no answer, please send the message again.",
    "zh": "我暂时读不了这条消息，因为还没有收到它的密钥。"
    "收到后我会马上回答；如果一直没有回答，请重新发送。",
}


def messages(outbound: Outbound) -> list[Piece]:
    """The messages a text and its files become: each file is one of its own.

    Raises:
        SendRefused: there is nothing to show.
    """
    chunks = (chunk for chunk in split(outbound.text, LIMIT) if not is_blank(chunk))
    words = [Piece(outbound, storable(seen(chunk))) for chunk in chunks]
    files = [Piece(outbound, "", attachments=(file,)) for file in outbound.attachments]
    return numbered([*words, *files])


def words_content(piece: Piece) -> Json:
    """The content of a message; it mentions nobody."""
    made: Json = {
        "msgtype": "m.notice" if piece.kind in _SILENT else "m.text",
        "body": piece.text,
        "m.mentions": {},
    }
    shown = html(piece.text)
    if len(piece.text.encode()) + len(shown.encode()) <= MOST_BYTES:
        made |= {"format": "org.matrix.custom.html", "formatted_body": shown}
    return made | _relation(piece)


def file_content(piece: Piece, place: Json) -> Json:
    """The content of a message that is a file; `place` says where it is."""
    file = piece.attachments[0]
    kind = media_kind(file.mime)
    sorts = {"photo": "m.image", "audio": "m.audio", "video": "m.video"}
    made: Json = {
        "msgtype": sorts.get(kind, "m.file"),
        "body": storable(file.name) or "file",
        "info": {"mimetype": file.mime, "size": len(file.data)},
        "m.mentions": {},
    }
    voice: Json = {"org.matrix.msc3245.voice": {}} if file.mime == "audio/ogg" else {}
    return made | voice | place | _relation(piece)


def tell_later(language: str) -> Json:
    """The notice about a message that cannot be read."""
    return {"msgtype": "m.notice", "body": _LATER.get(language, _LATER["en"]), "m.mentions": {}}


def transaction(name: str) -> str:
    """The transaction id of a message, the same however often it is sent."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _relation(piece: Piece) -> Json:
    root, answers = piece.address.thread, piece.reply_to
    reply: Json = {"m.in_reply_to": {"event_id": answers or root}} if answers or root else {}
    if root:
        reply |= {"rel_type": "m.thread", "event_id": root, "is_falling_back": not answers}
    return {"m.relates_to": reply} if reply else {}
