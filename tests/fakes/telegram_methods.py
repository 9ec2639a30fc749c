"""The methods a bot calls to be seen: messages, pictures, keyboards, menus, and their rules."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from tests.fakes.telegram_entities import units
from tests.fakes.telegram_parts import (
    ApiError,
    BotState,
    Json,
    Sent,
    bot_user,
    keyboard_of,
    nested,
    shown_text,
    upload_of,
)

MAX_CAPTION = 1024  # UTF-16 units
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are "
    "exactly the same as a current content and reply markup of the message"
)


class Chats:
    """What people see in their chats with the bots."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.edits: list[Json] = []
        self.blocked: set[int] = set()
        self.chats: set[int] = set()
        self.moved: dict[int, int] = {}
        self.rooms: dict[int, Json] = {}  # groups and channels, as Telegram describes them
        self.reads_all = False  # whether privacy mode is off
        self.topics: defaultdict[int, set[int]] = defaultdict(set)
        self.keyboards: dict[tuple[int, int], list[list[Json]]] = {}  # by chat and message, now
        self.files: dict[tuple[int, int], bytes] = {}  # what came with a message
        self.queries: dict[str, bool] = {}  # every press, and whether it was answered
        self._messages: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._next_message: Counter[int] = Counter()

    def methods(self) -> dict[str, Callable[[BotState, Json], Any]]:
        """By name in lower case."""
        return {
            "getme": self._get_me,
            "sendmessage": self._send_message,
            "sendphoto": self._send_photo,
            "senddocument": self._send_document,
            "sendvoice": self._send_voice,
            "editmessagetext": self._edit_message_text,
            "editmessagereplymarkup": self._edit_message_reply_markup,
            "answercallbackquery": self._answer_callback_query,
            "sendchataction": self._send_chat_action,
            "setmycommands": self._set_my_commands,
            "getmycommands": self._get_my_commands,
        }

    def _get_me(self, bot: BotState, _params: Json) -> Json:
        return (
            bot_user(bot)
            | {"can_join_groups": True}
            | {"can_read_all_group_messages": self.reads_all}
        )

    def _send_message(self, bot: BotState, params: Json) -> Json:
        chat = self._chat(params)
        shown = shown_text(params)
        return self._post(bot, params, chat, shown) | {"text": shown[0]}

    def _send_photo(self, bot: BotState, params: Json) -> Json:
        return self._send_file(bot, params, "photo")

    def _send_document(self, bot: BotState, params: Json) -> Json:
        return self._send_file(bot, params, "document")

    def _send_voice(self, bot: BotState, params: Json) -> Json:
        return self._send_file(bot, params, "voice")

    def _send_file(self, bot: BotState, params: Json, kind: str) -> Json:
        chat = self._chat(params)
        name, mime, data = upload_of(params, kind)
        has_words = bool(params.get("caption"))
        shown = shown_text(params, MAX_CAPTION, "caption") if has_words else ("", list[Json]())
        text = shown[0]
        result = self._post(
            bot, params, chat, shown, kind=kind, file=name, mime=mime, size=len(data)
        )
        self.files[chat, result["message_id"]] = data
        size: Json = {"file_id": f"file{result['message_id']}", "file_unique_id": "u"}
        size["file_size"] = len(data)
        if kind == "photo":
            return result | {"caption": text, "photo": [size | {"width": 1, "height": 1}]}
        if kind == "voice":
            return result | {"caption": text, "voice": size | {"duration": 1}}
        return result | {"caption": text, "document": size | {"file_name": name}}

    def _post(
        self, bot: BotState, params: Json, chat: int, shown: tuple[str, list[Json]], **file: Any
    ) -> Json:
        """Put a message into a chat, after the checks every kind of message goes through."""
        text, entities = shown
        thread = params.get("message_thread_id")
        if thread is not None and int(thread) not in self.topics[chat]:
            raise ApiError(400, "Bad Request: message thread not found")
        reply = nested(params.get("reply_parameters"))
        answered = reply.get("message_id")
        if answered is not None and int(answered) not in self._messages[chat]:
            if not reply.get("allow_sending_without_reply"):
                raise ApiError(400, "Bad Request: message to be replied not found")
            answered = None
        rows = keyboard_of(params)
        now = time.monotonic()
        self.spend(chat)
        number = self._new_message_id(chat)
        self._messages[chat][number] = text
        if rows:
            self.keyboards[chat, number] = rows
        self.sent.append(
            Sent(
                now,
                bot.token,
                chat,
                number,
                text,
                entities,
                None if thread is None else int(thread),
                None if answered is None else int(answered),
                buttons=[[(b["text"], b["callback_data"]) for b in row] for row in rows],
                **file,
            )
        )
        asked = {} if answered is None else {"reply_to_message": {"message_id": int(answered)}}
        return asked | self._of_bot(bot, chat, number)

    def _of_bot(self, bot: BotState, chat: int, number: int) -> Json:
        """A message of the bot's, without what it says."""
        said: Json = {"message_id": number, "from": bot_user(bot), "chat": self._described(chat)}
        return said | {"date": int(time.time())}

    def _edit_message_text(self, bot: BotState, params: Json) -> Json:
        chat = self._chat(params)
        number = int(params.get("message_id") or 0)
        if number not in self._messages[chat]:
            raise ApiError(400, "Bad Request: message to edit not found")
        text, entities = shown_text(params)
        if self._messages[chat][number] == text:
            raise ApiError(400, NOT_MODIFIED)
        self.spend(chat)
        self._messages[chat][number] = text
        self._replace(chat, number, (text, entities), params)
        self.edits.append({"chat_id": chat, "message_id": number, "text": text})
        return self._of_bot(bot, chat, number) | {"edit_date": int(time.time()), "text": text}

    def _replace(self, chat: int, number: int, shown: tuple[str, list[Json]], params: Json) -> None:
        """What people see where the message stood before."""
        rows = keyboard_of(params)
        self.keyboards.pop((chat, number), None)
        if rows:
            self.keyboards[chat, number] = rows
        for index, sent in enumerate(self.sent):
            if (sent.chat_id, sent.message_id) == (chat, number):
                buttons = [[(b["text"], b["callback_data"]) for b in row] for row in rows]
                text, entities = shown
                changed = dataclasses.replace(sent, text=text, entities=entities, buttons=buttons)
                self.sent[index] = changed

    def spend(self, chat: int) -> None:
        """Count a message against the limit of its chat."""

    def _described(self, chat: int) -> Json:
        return self.rooms.get(chat) or {"id": chat, "type": "private", "first_name": f"User{chat}"}

    def _edit_message_reply_markup(self, bot: BotState, params: Json) -> Json:
        chat, number = self._chat(params), int(params.get("message_id") or 0)
        if number not in self._messages[chat]:
            raise ApiError(400, "Bad Request: message to edit not found")
        rows = keyboard_of(params)
        if rows == self.keyboards.get((chat, number), []):
            raise ApiError(400, NOT_MODIFIED)
        self.keyboards.pop((chat, number), None)
        if rows:
            self.keyboards[chat, number] = rows
        said = {"edit_date": int(time.time()), "text": self._messages[chat][number]}
        return self._of_bot(bot, chat, number) | said

    def _answer_callback_query(self, _bot: BotState, params: Json) -> bool:
        query = str(params.get("callback_query_id") or "")
        if self.queries.get(query) is not False:
            raise ApiError(
                400,
                "Bad Request: query is too old and response timeout expired or query ID is invalid",
            )
        if units(str(params.get("text") or "")) > 200:
            raise ApiError(400, "Bad Request: MESSAGE_TOO_LONG")
        self.queries[query] = True
        return True

    def _send_chat_action(self, _bot: BotState, params: Json) -> bool:
        self._chat(params)
        if params.get("action") not in {"typing", "upload_photo", "upload_document"}:
            raise ApiError(400, "Bad Request: wrong parameter action in request")
        return True

    def _set_my_commands(self, bot: BotState, params: Json) -> bool:
        language = str(params.get("language_code") or "")
        if language and not re.fullmatch(r"[a-z]{2}", language):
            raise ApiError(400, "Bad Request: LANG_CODE_INVALID")
        listed = params.get("commands")
        commands: list[Json] = json.loads(listed) if isinstance(listed, str) else listed or []
        if len(commands) > 100:
            raise ApiError(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
        for command in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", str(command.get("command", ""))):
                raise ApiError(400, "Bad Request: BOT_COMMAND_INVALID")
            if not 1 <= units(str(command.get("description", ""))) <= 256:
                raise ApiError(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
        bot.commands[language] = commands
        return True

    def _get_my_commands(self, bot: BotState, params: Json) -> list[Json]:
        return bot.commands.get(str(params.get("language_code") or ""), [])

    def _chat(self, params: Json) -> int:
        raw = params.get("chat_id")
        if raw is None or raw == "":
            raise ApiError(400, "Bad Request: chat_id is empty")
        chat = int(raw) if re.fullmatch(r"-?\d+", str(raw)) else 0
        if chat in self.moved:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self.moved[chat],
            )
        if chat in self.blocked:
            raise ApiError(403, "Forbidden: bot was blocked by the user")
        if chat not in self.chats:
            raise ApiError(400, "Bad Request: chat not found")
        return chat

    def _new_message_id(self, chat: int) -> int:
        self._next_message[chat] += 1
        while self._next_message[chat] in self._messages[chat]:
            self._next_message[chat] += 1
        return self._next_message[chat]
