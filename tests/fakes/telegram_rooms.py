"""Groups, topics and channels of the fake server, their members, and files to fetch."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from aiohttp import web
from telegram.constants import ReactionEmoji

from tests.fakes.telegram_methods import Chats
from tests.fakes.telegram_parts import ApiError, BotState, Json, shown_text

MAX_DOWNLOAD = 20_000_000  # bytes
REACTIONS = {emoji.value for emoji in ReactionEmoji}


class Rooms(Chats):
    """What happens where several people are."""

    def __init__(self) -> None:
        super().__init__()
        self.group_limit = 0  # messages and edits a minute in one group; more is 429
        self.members: dict[tuple[int, int], str] = {}  # status by chat and person
        self.reactions: dict[tuple[int, int], list[str]] = {}
        self.drafts: list[Json] = []
        self.deleted: list[tuple[int, int]] = []
        self.downloads: dict[str, bytes] = {}  # by file_id
        self.knows_drafts = True
        self._spent: defaultdict[int, deque[float]] = defaultdict(deque)

    def methods(self) -> dict[str, Callable[[BotState, Json], Any]]:
        return super().methods() | {
            "getfile": self._get_file,
            "getchat": self._get_chat,
            "getchatmember": self._get_chat_member,
            "setmessagereaction": self._set_message_reaction,
            "deletemessage": self._delete_message,
            "sendmessagedraft": self._send_message_draft,
        }

    # --- what tests say ----------------------------------------------------------------------

    def room(self, chat_id: int, kind: str = "supergroup", **extra: Any) -> Json:
        """A group or channel the bot is in, as Telegram describes it."""
        self.chats.add(chat_id)
        self.rooms[chat_id] = {"id": chat_id, "type": kind, "title": f"Room{-chat_id}", **extra}
        return self.rooms[chat_id]

    def topic(self, chat_id: int, thread: int) -> int:
        """A topic of a forum."""
        self.topics[chat_id].add(thread)
        return thread

    def room_message(self, chat_id: int, user_id: int, text: str | None, **extra: Any) -> Json:
        """Something said in a room; `extra` replaces or adds fields, None takes them away."""
        number: int = extra.pop("message_id", 0) or self._new_message_id(chat_id)
        self._messages[chat_id][number] = text or ""
        who: Json = {"id": user_id, "is_bot": False, "first_name": f"User{user_id}"}
        base: Json = {"message_id": number, "from": who | {"language_code": "en"}}
        base |= {"chat": self.rooms[chat_id], "date": int(time.time())}
        if text is not None:
            base["text"] = text
            base["entities"] = mentions_in(text)
        return {key: value for key, value in (base | extra).items() if value is not None}

    def say(self, chat_id: int, user_id: int, text: str | None, **extra: Any) -> int:
        """Somebody writes in a room; the message id."""
        message = self.room_message(chat_id, user_id, text, **extra)
        kind = "channel_post" if message["chat"]["type"] == "channel" else "message"
        self.push({kind: message})
        number: int = message["message_id"]
        return number

    def album(self, chat_id: int, user_id: int, count: int, caption: str = "") -> list[int]:
        """Somebody sends pictures together; the ids of their messages."""
        name, numbers = f"album{time.monotonic_ns()}", list[int]()
        for index in range(count):
            photo = [{"file_id": f"{name}-{index}", "file_unique_id": "u", "file_size": 9}]
            extra: Json = {"media_group_id": name, "photo": photo}
            if caption and index == 0:
                extra |= {"caption": caption, "caption_entities": mentions_in(caption)}
            if chat_id in self.rooms:
                numbers.append(self.say(chat_id, user_id, None, **extra))
            else:
                numbers.append(self.push_text(user_id, None, **extra))
        return numbers

    def migrate(self, old: int, new: int) -> None:
        """A group becomes a supergroup, which both of them are told."""
        self.room(new)
        self.push({"message": self.room_message(old, 7, None, migrate_to_chat_id=new)})
        self.moved[old] = new
        self.push({"message": self.room_message(new, 7, None, migrate_from_chat_id=old)})

    def join(self, chat_id: int, status: str = "member", was: str = "left") -> None:
        """The bot's own place in a chat changes."""
        chat = self.rooms.get(chat_id) or {"id": chat_id, "type": "private"}
        who = {"id": 7, "is_bot": False, "first_name": "User7"}
        bot: Json = {"id": 123456789, "is_bot": True, "first_name": "Confidant"}
        change: Json = {"chat": chat, "from": who, "date": int(time.time())}
        change |= {"old_chat_member": {"user": bot, "status": was}}
        self.push({"my_chat_member": change | {"new_chat_member": {"user": bot, "status": status}}})

    def push(self, update: Json, token: str = "") -> int:
        raise NotImplementedError

    def push_text(self, user_id: int, text: str | None, token: str = "", **extra: Any) -> int:
        raise NotImplementedError

    # --- methods -----------------------------------------------------------------------------

    def spend(self, chat: int) -> None:
        """Count a message of a group, or refuse one too many."""
        if not self.group_limit or chat > 0:
            return
        now, spent = time.monotonic(), self._spent[chat]
        while spent and now - spent[0] > 60:
            spent.popleft()
        if len(spent) >= self.group_limit:
            raise ApiError(429, "Too Many Requests: retry after 30", retry_after=30)
        spent.append(now)

    def _get_file(self, _bot: BotState, params: Json) -> Json:
        name = str(params.get("file_id") or "")
        if name not in self.downloads:
            raise ApiError(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        size = len(self.downloads[name])
        if size > MAX_DOWNLOAD:
            raise ApiError(400, "Bad Request: file is too big")
        return {"file_id": name, "file_size": size, "file_path": f"documents/{name}"}

    def download(self, path: str) -> web.Response:
        """The answer to GET /file/bot<token>/<path>."""
        data = self.downloads.get(path.removeprefix("documents/"))
        return web.Response(status=404) if data is None else web.Response(body=data)

    def _get_chat(self, _bot: BotState, params: Json) -> Json:
        return self._described(self._chat(params))

    def _get_chat_member(self, bot: BotState, params: Json) -> Json:
        chat, person = self._chat(params), int(params.get("user_id") or 0)
        default = "member" if person == bot.id else "left"
        status = self.members.get((chat, person), default)
        who = {"id": person, "is_bot": person == bot.id, "first_name": f"User{person}"}
        return {"user": who, "status": status}

    def _set_message_reaction(self, _bot: BotState, params: Json) -> bool:
        chat, number = self._chat(params), int(params.get("message_id") or 0)
        if number not in self._messages[chat]:
            raise ApiError(400, "Bad Request: message to react not found")
        wanted: list[Json] = params.get("reaction") or []
        signs = [str(each.get("emoji")) for each in wanted]
        if len(signs) > 1 or not REACTIONS.issuperset(signs):
            raise ApiError(400, "Bad Request: REACTION_INVALID")
        self.reactions[chat, number] = signs
        return True

    def _delete_message(self, _bot: BotState, params: Json) -> bool:
        chat, number = self._chat(params), int(params.get("message_id") or 0)
        if self._messages[chat].pop(number, None) is None:
            raise ApiError(400, "Bad Request: message to delete not found")
        self.deleted.append((chat, number))
        self.sent[:] = [s for s in self.sent if (s.chat_id, s.message_id) != (chat, number)]
        return True

    def _send_message_draft(self, bot: BotState, params: Json) -> bool:
        if not self.knows_drafts:
            raise ApiError(404, "Not Found")
        chat = self._chat(params)
        if chat < 0:
            raise ApiError(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        if not int(params.get("draft_id") or 0):
            raise ApiError(400, "Bad Request: draft_id must be non-zero")
        text, _ = shown_text(params)
        self.drafts.append({"chat_id": chat, "draft_id": params["draft_id"], "text": text})
        return True

    def reply_to(self, chat_id: int, message_id: int) -> Json:
        """A message of the bot's as it stands in the one that answers it."""
        bot = next(iter(self.bots.values()))
        words = self._messages[chat_id].get(message_id, "")
        return self._of_bot(bot, chat_id, message_id) | {"text": words}

    bots: dict[str, BotState]


def mentions_in(text: str) -> list[Json]:
    """The entities Telegram finds in a text: names and commands, in UTF-16 units."""
    found: list[Json] = []
    at = 0
    for word in text.split(" "):
        kind = {"@": "mention", "/": "bot_command"}.get(word[:1])
        size = len(word.encode("utf-16-le", "surrogatepass")) // 2
        if kind and len(word) > 1:
            found.append({"type": kind, "offset": at, "length": size})
        at += size + 1
    return found
