"""`memory_write`: the model keeps something, in the day's note or a file it names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bot.agent.models import ToolSpec
from bot.agent.tools import Recalled, ToolContext, arguments
from bot.agent.tools.provenance import already, provenance_of
from bot.errors import ToolError
from bot.memory import paths
from bot.memory.disk import MAX_WRITE
from bot.memory.files import SpaceFiles
from bot.memory.markdown import Provenance
from bot.memory.notes import Notes, Place, Replaced, day_note
from bot.scope import MemoryView

MAX_TEXT = 4_000  # characters
MAX_NAME = 500
MAX_TITLE = 100

SPEC: Final = ToolSpec(
    name="memory_write",
    description=(
        "Keep something worth remembering in a Markdown file the person can read and edit. Use it "
        "when the person asks you to remember something, and for lasting facts, decisions and "
        "preferences. Write one self-contained statement. Without a path it goes to today's note; "
        "MEMORY.md (in a room: ROOM.md) is for the few facts every conversation needs. When a fact "
        "has changed, give the old one in `replaces`. Say that something is remembered only after "
        "this tool answered that it is stored."
    ),
    schema={
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "description": f"What to keep, at most {MAX_TEXT} characters.",
            },
            "path": {
                "type": "string",
                "description": "MEMORY.md, USER.md, ROOM.md or a topic such as memory/travel.md.",
            },
            "section": {
                "type": "string",
                "description": "A heading of that file: the text takes the place of what stands "
                "below it.",
            },
            "replaces": {
                "type": "string",
                "description": "The entry that is no longer true, word for word; the text takes "
                "its place and the old entry moves to today's note.",
            },
            "untrusted": {
                "type": "boolean",
                "description": "True for what neither the person said nor you concluded: quoted "
                "messages, files, pages.",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    },
    tells_origins=True,
)


class MemoryWrite:
    """Writes to the view's own space."""

    def __init__(self, notes: Notes, files: SpaceFiles) -> None:
        self._notes = notes
        self._files = files

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return SPEC

    async def run(self, arguments_: Mapping[str, Any], context: ToolContext) -> str:
        """Store the text; answers only when it is on disk.

        Raises:
            ToolError: wrong arguments, no space to write to, something was forgotten there
                meanwhile, or the disk did not take it.
        """
        arguments.only(arguments_, "text", "path", "section", "replaces", "untrusted")
        text = arguments.text(arguments_, "text", longest=MAX_TEXT)
        path = arguments.optional(arguments_, "path", longest=MAX_NAME)
        section = arguments.optional(arguments_, "section", longest=MAX_TITLE)
        old = arguments.optional(arguments_, "replaces", longest=MAX_TEXT)
        if section and old:
            raise ToolError("give 'section' or 'replaces', not both")
        doubted = arguments.flag(arguments_, "untrusted", default=False)
        by = await asyncio.to_thread(provenance_of, text, context, untrusted=doubted, title=section)
        path = path or self._default_path(context, curated=bool(section or old))
        paths.resolve(context.view, path, writing=True)
        _must_be_trusted(by, path, context.view, whole=bool(section or old))
        # What the person says now is news, also when it was recalled; the bot's echo of it is not.
        news = by == "owner" or bool(old)
        known = await self._known(text, path, context, () if news else context.memory.recalled)
        if known is not None:
            return f"already in {known.path} line {known.line}; nothing was written"
        if section or old:
            done = await self._change(context, path, section, old, text=text, by=by)
            context.memory.written.append(done.new)
            kept = f"; the old words are in {_said(done.old)}" if done.old else ""
            return f"stored in {_said(done.new)}{kept}"
        if path == day_note(context.now):
            place = await self._notes.remember(
                context.view, text, context.now, by, watch=context.watch
            )
        else:
            place = await self._notes.add(
                context.view, path, text, context.now.date(), by, watch=context.watch
            )
        context.memory.written.append(place)
        return f"stored in {_said(place)}"

    def _default_path(self, context: ToolContext, *, curated: bool) -> str:
        return paths.main_file(context.view) if curated else day_note(context.now)

    async def _change(
        self,
        context: ToolContext,
        path: str,
        section: str,
        old: str,
        *,
        text: str,
        by: Provenance,
    ) -> Replaced:
        view, now, watch = context.view, context.now, context.watch
        if old:
            return await self._notes.supersede(
                view, path, old=old, text=text, now=now, by=by, watch=watch
            )
        return await self._notes.replace_section(
            view, path, title=section, text=text, now=now, by=by, watch=watch
        )

    async def _known(
        self, text: str, path: str, context: ToolContext, recalled: Sequence[Recalled]
    ) -> Place | None:
        """Where these very words stand already: in what was recalled, or in the file itself."""
        names = dict.fromkeys((path, *paths.curated_files(context.view)))
        files = {name: await self._files.text(context.view, name, MAX_WRITE) for name in names}
        return await asyncio.to_thread(already, text, recalled, files)


def _must_be_trusted(by: Provenance, path: str, view: MemoryView, *, whole: bool) -> None:
    """What came from elsewhere is noted apart: it never becomes a lasting fact.

    Raises:
        ToolError: it would.
    """
    if by == "untrusted" and (whole or path in paths.curated_files(view)):
        raise ToolError(
            "what comes from elsewhere can only be added to a note, never to lasting facts. What "
            "the person said themselves can be kept when it is written in their own words, and "
            "what they were sent once they have said it themselves"
        )


def _said(place: Place) -> str:
    return f"{place.path} line {place.line}"
