"""`write_elsewhere` and `send_file`: what a turn sends beside its reply.

A message goes to another chat of the same person or to a room they talk in, after they were asked
and shown every word; a file goes into the conversation it is called in. Either is put into the
outbox by the transaction that stores the turn, so it goes out as often as the reply does: once.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Self

from pydantic import Field, model_validator

from bot.agent.tools import Parameters, Stripped, ToolContext, Words
from bot.channel import DEFAULT_ACCOUNT, Attachment, Channel, Media
from bot.clock import DAY_MS, Clock
from bot.context import prompt
from bot.errors import ChannelError, NotVisible, ToolError
from bot.i18n import text
from bot.identity import MANY, ConversationResolver
from bot.messages import Picture
from bot.sessions import store
from bot.sessions.artifacts import ArtifactStore
from bot.sessions.reminders import ReplyTarget
from bot.sessions.store import Session
from bot.shares import FILES, Budget, Pool
from bot.storage import Database, Transaction
from bot.unicode import well_formed

MAX_TEXT = 2_000  # characters
MAX_PLACE = 200  # characters of a place's name
MOST_PLACES = 50
MAX_NAME = 64  # characters
_UNFIT = re.compile(r"[^\w .'-]+")  # in a name that stands in a message of the bot's
LATELY_MS = 30 * DAY_MS  # a room in which somebody was not answered for so long is not theirs
MOST, HOUR_MS = 20, 3_600_000  # messages of one person, and how long until it is as many again


class Write(Parameters):
    """Parameters: the message and the place."""

    to: Words = Field(
        max_length=MAX_PLACE,
        description='Where: the channel of a chat of theirs, such as "telegram", or a room as '
        "this tool lists it for a place it does not know.",
    )
    text: Words = Field(max_length=MAX_TEXT, description="The message, as it is to stand there.")


@dataclass(frozen=True, slots=True)
class _There:
    """A place of the person's; `sender` is their own id in its channel, for a room."""

    name: str
    target: ReplyTarget
    sender: str = ""


class WriteElsewhere:
    """Writes to other places of whoever is answered, and to nobody else's."""

    spec = Write.spec(
        "write_elsewhere",
        "Write a message to another chat of the person you talk with, or to a room they talk to "
        "you in, when they ask for it. They are shown it and asked first. It cannot reach others.",
        tells_origins=True,
        built_in=True,
        changes=True,
    )

    def __init__(self, database: Database, resolver: ConversationResolver, clock: Clock) -> None:
        self._database = database
        self._resolver = resolver
        self._used = Budget(MOST, MOST / HOUR_MS, clock)

    async def check(self, arguments: Mapping[str, Any], context: ToolContext) -> None:
        """Look before the person is asked whether it could be done.

        Raises:
            ToolError: it could not.
        """
        await self._there(Write.from_arguments(arguments), context)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Have it written when the turn is stored.

        Raises:
            ToolError: wrong arguments, no such place of theirs, or too many messages.
        """
        asked = Write.from_arguments(arguments)
        there = await self._there(asked, context)
        self._used.add(context.person, 1)
        key = "elsewhere.room" if there.sender else "elsewhere.own"
        name = " ".join(_UNFIT.sub(" ", context.name).split())[:MAX_NAME] or "?"
        by = {"name": name, "id": there.sender} if there.sender else {}
        words = text(there.target.language, key, text=asked.text.strip(), **by)
        context.memory.elsewhere.append((there.target, words))
        return f"it is written to {there.name} together with your reply"

    async def _there(self, asked: Write, context: ToolContext) -> _There:
        target = context.target
        if target is None or target.origin is None or target.origin.chat_type != "direct":
            raise ToolError("that can be asked for in a direct chat only; tell the person so")
        if self._used.is_used_up(target.person):
            raise ToolError(f"{MOST} messages in an hour are the most; try again later")
        since = int(context.now.timestamp() * 1000) - LATELY_MS
        found = await self._database.read(lambda tx: self._places(tx, target, since))
        wanted = asked.to.strip().casefold()
        exact = [each for each in found if each.name.casefold() == wanted]
        fitting = exact or [each for each in found if wanted in each.name.casefold()]
        if len(fitting) != 1:
            names = ", ".join(each.name for each in fitting or found) or "none"
            what = "several places are called so" if fitting else "they have no such place"
            raise ToolError(f"'to': {what}; there are: {names}")
        return fitting[0]

    def _places(self, tx: Transaction, target: ReplyTarget, since: int) -> list[_There]:
        """The other places of a person where they are served now, the latest first."""
        snapshot = self._resolver.now
        own = [session for name in snapshot.names_of(target.person)
               for session in store.directs(tx, name, MOST_PLACES)]  # fmt: skip
        rooms = store.rooms_of(tx, target.person, since, MOST_PLACES)
        found: dict[str, _There] = {}
        for session in (*own, *rooms):
            there = self._place(session, target)
            if there is not None and session.key != target.key:
                found.setdefault(there.name, there)
        return [*found.values()]

    def _place(self, session: Session, target: ReplyTarget) -> _There | None:
        """A session as a place of a person's; None where they are not served, or not alone."""
        origin, is_room = session.origin, session.chat_type != "direct"
        if session.thread and not is_room:  # of a program that talks for them, or a topic
            return None
        if is_room:
            names = (name.partition(":") for name in self._resolver.now.names_of(target.person))
            id_ = next((id_ for channel, _, id_ in names if channel == origin.channel and id_), "")
            origin = replace(origin, sender=id_)
        here = self._resolver.of(origin)
        if origin.sender in {"", MANY} or here.person != target.person or not here.is_served:
            return None
        if here.is_direct is is_room or here.key != session.key:
            return None
        account = "" if session.account == DEFAULT_ACCOUNT else f"/{session.account}"
        room = f" room {session.chat}{f' topic {session.thread}' if session.thread else ''}"
        return _There(
            f"{session.channel}{account}{room if is_room else ''}",
            ReplyTarget(here.key, here.person, here.address, here.language, origin),
            origin.sender if is_room else "",
        )


# --- files ----------------------------------------------------------------------------------------


MOST_FILES = 4  # with one reply
MOST_BYTES = 2_000_000  # of them together; what the page shows of one message
MAX_FILE_NAME = 100  # characters
MAX_FILE_TEXT = 200_000  # characters that the model writes

# What the model writes is plain text, also to whatever opens it: no page, script or picture.
_WRITTEN = {".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv"}
_ARTIFACT = re.compile(r"a-[0-9a-f]{12}")
_UNFIT_IN_NAMES = re.compile(r"[^\w .()+,=@~-]+")


class Send(Parameters):
    """The file: written now, or one that is there."""

    name: Words = Field(
        max_length=MAX_FILE_NAME,
        description="The file's name, such as trip.csv. One you write ends in .txt, .md or .csv.",
    )
    text: str = Field("", max_length=MAX_FILE_TEXT, description="What is in it, if you write it.")
    source: Stripped = Field(
        "",
        max_length=MAX_FILE_NAME * 2,
        description="Instead of `text`: the name of a file or picture that was sent here, or the "
        "id of a result that was cut.",
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if bool(self.source) == bool(self.text.strip()):
            raise ValueError("give either 'text' or 'source'")
        return self


class SendFile:
    """Sends files where the turn takes place."""

    spec = Send.spec(
        "send_file",
        "Send a file with your reply: text, Markdown or a table (CSV) that you write, or a file "
        f"or picture from this conversation. At most {MOST_FILES} with a reply. It goes out when "
        "your reply does; use it when the person asks for a file, or the text is for keeping.",
        tells_origins=True,
        built_in=True,
        repeatable=True,
    )

    def __init__(self, channels: Mapping[str, Channel], artifacts: ArtifactStore) -> None:
        self._channels = channels
        self._artifacts = artifacts
        self._pool = Pool(FILES)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Have a file sent with the reply.

        Raises:
            ToolError: wrong arguments, no such file, too large, or the channel takes none.
        """
        asked = Send.from_arguments(arguments)
        if context.target is None:
            raise ToolError("files are sent only while the person is talking with you")
        channel = self._channels.get(context.target.address.channel)
        if channel is None or not channel.capabilities.attachments:
            raise ToolError("this channel takes no files from you: put it into your reply")
        files = context.memory.files
        if len(files) >= MOST_FILES:
            raise ToolError(f"a reply takes {MOST_FILES} files at most")
        room = MOST_BYTES - sum(len(file.data) for file in files)
        made = await self._made(asked, context, room)
        if len(made.data) > room:
            raise ToolError(f"it has {len(made.data)} bytes, and there is room for {room}")
        files.append(made)
        return f"“{made.name}” ({len(made.data)} bytes) goes out with your reply"

    async def _made(self, asked: Send, context: ToolContext, room: int) -> Attachment:
        if asked.text:
            return _written(asked.name, asked.text)
        if _ARTIFACT.fullmatch(asked.source):
            kept = await self._artifacts.read(context.view, context.session_id, asked.source)
            if kept is None:
                raise NotVisible
            return _written(asked.name, kept)
        for address, media in context.memory.came:
            if asked.source == media.name:
                channel = self._channels[address.channel]
                try:
                    async with self._pool.place(context.person):
                        data = await channel.fetch(address, media, room)
                except ChannelError as error:
                    raise ToolError(f"it cannot be fetched: {error}") from None
                return Attachment(_called(asked.name, _suffix(media)), media.mime, data)
        found = [
            each
            for message in reversed(context.memory.seen)
            for name, each in prompt.attachments(message)
            if asked.source in {name, name.partition(" ")[2]}  # "document cat.png"
        ]
        if not found:
            raise ToolError(f"there is no such file here; there are: {_names(context) or 'none'}")
        if isinstance(found[0], Picture):
            data = found[0].data or await self._artifacts.picture(found[0].ref)
            if not data:
                raise ToolError("that picture is not kept any more")
            return Attachment(_called(asked.name, ".jpg"), found[0].media_type, b64decode(data))
        return _written(asked.name, prompt.unquoted(found[0].text))


def _written(name: str, text: str) -> Attachment:
    suffix = PurePath(name).suffix.lower()
    suffix = suffix if suffix in _WRITTEN else ".txt"
    return Attachment(_called(name, suffix), _WRITTEN[suffix], well_formed(text).encode())


def _called(name: str, suffix: str) -> str:
    """A name that is no path, with this suffix whatever it had."""
    flat = " ".join(_UNFIT_IN_NAMES.sub(" ", name).split()).lstrip(". ")
    stem = flat.removesuffix(PurePath(flat).suffix)[: MAX_FILE_NAME - len(suffix)].strip()
    return f"{stem or 'file'}{suffix}"


def _suffix(media: Media) -> str:
    found = PurePath(media.name).suffix
    return found if re.fullmatch(r"\.\w{1,10}", found) else ""


def _names(context: ToolContext) -> str:
    seen: Sequence[str] = [
        *(media.name for _, media in context.memory.came),
        *(name for each in reversed(context.memory.seen) for name, _ in prompt.attachments(each)),
    ]
    return ", ".join([*dict.fromkeys(filter(None, seen))][:20])
