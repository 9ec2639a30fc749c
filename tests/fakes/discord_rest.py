"""The REST half of the fake Discord: its routes, as strict as the real ones where it matters."""

from __future__ import annotations

import re
import time
from collections import OrderedDict, defaultdict
from typing import Any

from tests.fakes.discord_parts import (
    ACK_SECONDS,
    ADMIN_ROLE,
    APPLICATION_ID,
    GUILD_ID,
    MAX_CONTENT,
    POSTED_IN,
    TOKEN_SECONDS,
    ApiError,
    Json,
    Session,
    Shown,
    bot_user,
    message,
    user,
)
from tests.fakes.sites import Changed

MAX_UPLOAD = 10 << 20
INVISIBLE = re.compile(r"[\s\u200b-\u200f\u2060\ufeff]+")


class Chats:
    """Channels with their messages, commands, interactions, and what bots may do with them."""

    def __init__(self) -> None:
        self.guilds: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self.messages: defaultdict[str, list[Json]] = defaultdict(list)
        self.commands: list[Json] = []
        self.application: Json = {"id": APPLICATION_ID, "flags": 1 << 19}
        self.interactions: dict[str, Shown] = {}
        self.admins: set[str] = set()
        self.forbidden: dict[str, int] = {}  # channels → the code they are refused with
        self.typed: list[str] = []
        self.reactions: list[tuple[str, str, str, str]] = []  # method, channel, message, emoji
        self.edits: list[Json] = []
        self.deleted: list[str] = []
        self.uploads: list[tuple[str, str, bytes]] = []
        self.sessions: dict[str, Session] = {}
        self.changed = Changed()
        self.recognised: list[str] = []  # nonces that came again, and made no second message
        self._nonces: OrderedDict[str, Json] = OrderedDict()

    async def dispatch(self, event: str, data: Json) -> None:
        raise NotImplementedError

    @property
    def sent(self) -> list[Json]:
        """The bot's messages that still stand, oldest first."""
        own = bot_user()["id"]
        found = [m for messages in self.messages.values() for m in messages]
        return sorted((m for m in found if m["author"]["id"] == own), key=lambda m: int(m["id"]))

    def texts(self, channel: str) -> list[str]:
        """What the bot's messages in a channel say."""
        return [sent["content"] for sent in self.sent if sent["channel_id"] == channel]

    # --- routes ------------------------------------------------------------------------------

    async def route(self, method: str, path: str, body: Any, query: Any, files: list[Any]) -> Any:
        """What a call answers; None is 204."""
        for verb, pattern, work in self._routes():
            found = re.fullmatch(pattern, path)
            if found and verb == method:
                result = work(*found.groups(), body=body, query=query, files=files)
                return await result if hasattr(result, "__await__") else result
        raise ApiError(404, 0, "404: Not Found")

    def _routes(self) -> list[tuple[str, str, Any]]:
        channel, number = r"/channels/(\d+)", r"/messages/(\d+)"
        hook = rf"/webhooks/{APPLICATION_ID}/([^/]+)"
        return [
            ("GET", r"/users/@me", lambda **_: bot_user()),
            ("POST", r"/users/@me/channels", self._open_direct),
            ("GET", r"/users/@me/guilds", lambda **_: [{"id": n} for n in self.guilds]),
            ("GET", r"/applications/@me", lambda **_: self.application),
            ("GET", channel, self._channel),
            ("GET", rf"{channel}/messages", self._history),
            ("GET", channel + number, self._message),
            ("POST", rf"{channel}/messages", self._create),
            ("PATCH", channel + number, self._edit),
            ("DELETE", channel + number, self._delete),
            ("POST", rf"{channel}/typing", self._typing),
            ("PUT", rf"{channel}{number}/reactions/([^/]+)/@me", self._put_reaction),
            ("DELETE", rf"{channel}{number}/reactions/([^/]+)/@me", self._delete_reaction),
            ("GET", rf"/applications/{APPLICATION_ID}/commands", lambda **_: self.commands),
            ("PUT", rf"/applications/{APPLICATION_ID}/commands", self._put_commands),
            ("GET", r"/guilds/(\d+)", self._guild),
            ("GET", r"/guilds/(\d+)/members/(\d+)", self._member),
            ("POST", r"/interactions/(\d+)/([^/]+)/callback", self._callback),
            ("PATCH", rf"{hook}/messages/@original", self._edit_original),
            ("DELETE", rf"{hook}/messages/@original", self._delete_original),
            ("POST", hook, self._follow_up),
        ]

    def _known(self, channel: str) -> Json:
        if channel in self.forbidden:
            code = self.forbidden[channel]
            raise ApiError(403, code, {50007: "Cannot send messages to this user"}.get(code, "No"))
        if channel not in self.channels:
            raise ApiError(404, 10003, "Unknown Channel")
        return self.channels[channel]

    def _channel(self, channel: str, **_: Any) -> Json:
        return self._known(channel)

    def _open_direct(self, body: Json, **_: Any) -> Json:
        """The direct chat with a person, made when there is none; it may still take nothing."""
        person = body["recipient_id"]
        if not re.fullmatch(r"\d{1,20}", person):
            raise ApiError(400, 50035, "Invalid Form Body")
        return self.channels[self.dm(person)]

    def dm(self, person: str) -> str:
        raise NotImplementedError

    def _history(self, channel: str, query: Any, **_: Any) -> list[Json]:
        if self._known(channel)["type"] in POSTED_IN:
            raise ApiError(400, 50024, "Cannot execute action on this channel type")
        found = sorted(self.messages[channel], key=lambda m: int(m["id"]))
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise ApiError(400, 50035, "Invalid Form Body")
        if "after" in query:
            newer = [m for m in found if int(m["id"]) > int(query["after"])]
            found = newer[:limit]
        elif "before" in query:
            found = [m for m in found if int(m["id"]) < int(query["before"])][-limit:]
        else:
            found = found[-limit:]
        # What is read over REST does not say which server it is from.
        return [{k: v for k, v in m.items() if k != "guild_id"} for m in reversed(found)]

    def _message(self, channel: str, number: str, **_: Any) -> Json:
        self._known(channel)
        found = next((m for m in self.messages[channel] if m["id"] == number), None)
        if found is None:
            raise ApiError(404, 10008, "Unknown Message")
        return found

    async def _create(self, channel: str, body: Json, files: list[Any], **_: Any) -> Json:
        place = self._known(channel)
        body = self._checked(body, files)
        nonce = str(body.get("nonce", ""))
        if nonce and body.get("enforce_nonce") and nonce in self._nonces:
            self.recognised.append(nonce)
            return self._nonces[nonce]
        extra: Json = {"components": body.get("components", []), "flags": body.get("flags", 0)}
        asked = body.get("message_reference")
        if asked:
            known = {m["id"] for m in self.messages[channel]}
            if asked["message_id"] in known:
                extra |= {"type": 19, "message_reference": {**asked, "channel_id": channel}}
            elif asked.get("fail_if_not_exists", True):
                errors = {"message_reference": {"_errors": [{"code": "REPLIES_UNKNOWN_MESSAGE"}]}}
                raise ApiError(400, 50035, "Invalid Form Body", errors=errors)
        extra["attachments"] = self._stored(files)
        made = message(channel, bot_user(), body.get("content", "").strip(), **extra)
        self._post(made)
        if nonce:
            self._nonces[nonce] = made
        server = place.get("guild_id")
        await self.dispatch("MESSAGE_CREATE", made | ({"guild_id": server} if server else {}))
        return made | ({"nonce": nonce} if nonce else {})

    def _post(self, made: Json) -> None:
        self.messages[made["channel_id"]].append(made)

    def _own(self, channel: str, number: str) -> Json:
        self._known(channel)
        found = next((m for m in self.messages[channel] if m["id"] == number), None)
        if found is None:
            raise ApiError(404, 10008, "Unknown Message")
        return found

    def _edit(self, channel: str, number: str, body: Json, files: list[Any], **_: Any) -> Json:
        found = self._own(channel, number)
        if found["author"]["id"] != bot_user()["id"]:
            raise ApiError(403, 50005, "Cannot edit a message authored by another user")
        body = self._checked(body, files, found)
        self.edits.append({"id": number, "at": time.monotonic(), **body})
        keep = {k: body[k] for k in ("content", "components", "flags") if k in body}
        found |= keep
        found["content"] = found["content"].strip()
        if files:
            found["attachments"] = self._stored(files)
        return found

    def _delete(self, channel: str, number: str, **_: Any) -> None:
        self.messages[channel].remove(self._own(channel, number))
        self.deleted.append(number)

    def _typing(self, channel: str, **_: Any) -> None:
        self._known(channel)
        self.typed.append(channel)

    def _put_reaction(self, channel: str, number: str, emoji: str, **_: Any) -> None:
        self._own(channel, number)
        self.reactions.append(("PUT", channel, number, emoji))

    def _delete_reaction(self, channel: str, number: str, emoji: str, **_: Any) -> None:
        self.reactions.append(("DELETE", channel, number, emoji))

    def _put_commands(self, body: list[Json], **_: Any) -> list[Json]:
        for command in body:
            if not re.fullmatch(r"[-_\w]{1,32}", command["name"]):
                raise ApiError(400, 50035, "Invalid Form Body")
            for described in (command, *command.get("options", [])):
                words = [described["description"]]
                words += list((described.get("description_localizations") or {}).values())
                if not all(1 <= len(text) <= 100 for text in words):
                    raise ApiError(400, 50035, "Invalid Form Body")
        defaults = {
            "default_permission": True,
            "nsfw": False,
            "version": "1",
            "dm_permission": True,
        }
        self.commands = [
            {**defaults, "id": str(800 + at), "application_id": APPLICATION_ID, **command}
            for at, command in enumerate(body)
        ]
        return self.commands

    def _guild(self, guild: str, **_: Any) -> Json:
        if guild not in self.guilds:
            raise ApiError(404, 10004, "Unknown Guild")
        told = {"id", "name", "owner_id", "roles"}
        return {key: value for key, value in self.guilds[guild].items() if key in told}

    def _member(self, server: str, person: str, **_: Any) -> Json:
        if server != GUILD_ID:
            raise ApiError(404, 10004, "Unknown Guild")
        return {"user": user(person), "roles": [ADMIN_ROLE] if person in self.admins else []}

    # --- interactions ------------------------------------------------------------------------

    def _callback(self, number: str, token: str, body: Json, **_: Any) -> None:
        found = self.interactions.get(token)
        if found is None or found.id != number or time.time() - found.made > ACK_SECONDS:
            raise ApiError(404, 10062, "Unknown interaction")
        if found.callback is not None:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        found.callback = body
        if body["type"] == 5:
            found.original = {"id": number, "content": None}
        if body["type"] == 7:
            for message_ in self.messages[found.channel]:
                message_["components"] = body["data"].get("components", message_["components"])

    def _shown(self, token: str) -> Shown:
        found = self.interactions.get(token)
        if found is None or time.time() - found.made > TOKEN_SECONDS:
            raise ApiError(401, 50027, "Invalid Webhook Token")
        return found

    def _edit_original(self, token: str, body: Json, files: list[Any], **_: Any) -> Json:
        found = self._shown(token)
        if found.original is None or found.deleted:
            raise ApiError(404, 10008, "Unknown Message")
        found.original |= self._checked(body, files)
        self._stored(files)
        return found.original

    def _delete_original(self, token: str, **_: Any) -> None:
        self._shown(token).deleted = True

    def _follow_up(self, token: str, body: Json, files: list[Any], **_: Any) -> Json:
        found = self._shown(token)
        made = message(found.channel, bot_user(), "") | self._checked(body, files)
        found.followups.append(made)
        return made

    # --- checks ------------------------------------------------------------------------------

    def _checked(self, body: Json, files: list[Any], before: Json | None = None) -> Json:
        content = body.get("content", (before or {}).get("content", "")) or ""
        if len(content) > MAX_CONTENT:
            errors = {"content": {"_errors": [{"code": "BASE_TYPE_BAD_LENGTH"}]}}
            raise ApiError(400, 50035, "Invalid Form Body", errors=errors)
        if not INVISIBLE.sub("", content) and not files:
            raise ApiError(400, 50006, "Cannot send an empty message")
        if len(str(body.get("nonce", ""))) > 25:
            raise ApiError(400, 50035, "Invalid Form Body", errors={"nonce": {}})
        self._check_components(body.get("components", []))
        if sum(len(data) for _, _, data in files) > MAX_UPLOAD:
            raise ApiError(413, 40005, "Request entity too large")
        return body

    def _check_components(self, components: list[Json]) -> None:
        buttons = [button for row in components for button in row["components"]]
        ids = [button["custom_id"] for button in buttons]
        wrong = len(components) > 5 or any(len(row["components"]) > 5 for row in components)
        wrong |= len(ids) != len({*ids}) or not all(1 <= len(name) <= 100 for name in ids)
        if wrong or not all(1 <= len(button["label"]) <= 80 for button in buttons):
            raise ApiError(400, 50035, "Invalid Form Body", errors={"components": {}})

    def _stored(self, files: list[Any]) -> list[Json]:
        self.uploads.extend(files)
        return [{"id": "1", "filename": name, "content_type": kind} for name, kind, _ in files]
