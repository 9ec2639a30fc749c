"""`send_file` sends a file in the conversation it is called in, together with the reply.

The file is put into the outbox by the transaction that stores the turn, so it goes out as often as
the reply does: once.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Self

from pydantic import Field, model_validator

from bot.agent.tools import Parameters, Stripped, ToolContext, Words
from bot.channel import Attachment, Channel, Media
from bot.context import prompt
from bot.errors import ChannelError, NotVisible, ToolError
from bot.messages import Picture
from bot.sessions.approvals import ArtifactStore
from bot.shares import FILES, Pool
from bot.unicode import well_formed

MOST_FILES = 4  # with one reply
MOST_BYTES = 2_000_000  # of them together; what the page shows of one message
MAX_NAME = 100  # characters
MAX_TEXT = 200_000  # characters that the model writes

# What the model writes is plain text, also to whatever opens it: no page, script or picture.
_WRITTEN = {".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv"}
_ARTIFACT = re.compile(r"a-[0-9a-f]{12}")
_UNFIT = re.compile(r"[^\w .()+,=@~-]+")


class Send(Parameters):
    """The file: written now, or one that is there."""

    name: Words = Field(
        max_length=MAX_NAME,
        description="The file's name, such as trip.csv. One you write ends in .txt, .md or .csv.",
    )
    text: str = Field("", max_length=MAX_TEXT, description="What is in it, if you write it.")
    source: Stripped = Field(
        "",
        max_length=MAX_NAME * 2,
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
    flat = " ".join(_UNFIT.sub(" ", name).split()).lstrip(". ")
    stem = flat.removesuffix(PurePath(flat).suffix)[: MAX_NAME - len(suffix)].strip()
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
