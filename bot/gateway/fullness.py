"""How full a conversation is, and of what: for `/context`, `/status` and notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from bot.agent.models import ToolSpec, Usage
from bot.agent.prefix import name_of, tools_of
from bot.agent.recall import OPENING
from bot.agent.windows import Room, Windows
from bot.channel import Button, Channel
from bot.config import Config
from bot.context import budget, notices, persona, report, tokens
from bot.context.conversation import PICTURE_TOKENS
from bot.context.report import Part, Report
from bot.delivery.outbox import Extra
from bot.gateway.aftercare import Aftercare, Fill, Talk
from bot.i18n import text
from bot.identity import Conversation
from bot.identity.directory import Directory
from bot.ledger import Draft, Ledger
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse
from bot.sessions import store
from bot.sessions.snapshots import Snapshot
from bot.sessions.store import Session
from bot.storage import Database

LATELY_MS = 7 * 86_400_000  # who wrote before that is told with their next turn


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told when a conversation gets full; `level` is the percentage it has passed."""

    level: int
    words: str
    extra: Extra


def report_of(talk: Talk, view: str, fill: Fill, said: Sequence[Message] = ()) -> Report:
    """What fills a conversation, seen through a view; `said` is what a turn is adding to it."""
    live, room = talk.live, talk.room
    prefix = live.snapshots.get(view)
    weighed = _of_prefix(prefix) if prefix is not None else []
    weighed.append(Part("summary", tokens.estimate(live.conversation.summary)))
    weighed += _of_messages([*live.conversation.shown, *said])
    return Report(
        parts=tuple(_scaled(part, room.factor) for part in weighed),
        used=fill.used,
        budget=room.budget,
        window=room.window,
        model=room.name,
        measured=live.conversation.is_reported,
    )


def notice(made: Report, language: str, *, level: int, buttons: bool, remembers: bool) -> Notice:
    """The notice for a level; commands are spelled out where there are no buttons.

    It says what a new conversation would begin with, where it `remembers` anything.
    """
    words = text(
        language,
        "notice.full",
        percent=made.percent,
        used=report.grouped(made.used),
        limit=report.grouped(made.budget.compact_above),
        parts=report.brief(made, language),
    )
    along = text(language, "notice.along" if remembers else "notice.along_nothing")
    words = f"{words}\n\n{along}"
    if not buttons:
        words = f"{words} {text(language, 'notice.full_how')}"
    commands = {"compact": "/compact", "new": "/new", "later": "/notices later"}
    pressed = (Button(text(language, f"button.{k}"), command) for k, command in commands.items())
    return Notice(level, words, Extra(tuple(pressed)))


def footer(language: str, usage: Usage, used: int, room: Room) -> str:
    """The line below a reply that says what it cost."""
    line = text(
        language,
        "command.usage.line_cached" if usage.cache_read_tokens else "command.usage.line",
        input=report.grouped(usage.input_tokens + usage.cache_write_tokens),
        cached=report.grouped(usage.cache_read_tokens),
        output=report.grouped(usage.output_tokens),
        percent=budget.percent_full(used, room.budget),
    )
    return f"\n\n_{line}_"


def _of_prefix(prefix: Snapshot) -> list[Part]:
    sections = persona.sections(prefix.system)
    remembered = tuple((name, tokens.estimate(body)) for name, body, about in sections if about)
    own = tuple((name, tokens.estimate(body)) for name, body, about in sections if not about)
    memory = sum(size for _, size in remembered)
    tools = tuple((tool.name, _weight(tool)) for tool in tools_of(prefix))
    return [
        Part("persona", tokens.estimate(prefix.system) - memory, own),
        Part("memory", memory, remembered),
        Part("tools", tokens.estimate(prefix.tools), tools),
    ]


def _weight(tool: ToolSpec) -> int:
    return tokens.estimate(f"{tool.description}{orjson.dumps(dict(tool.schema)).decode()}")


def _of_messages(messages: Sequence[Message]) -> list[Part]:
    recalled = said = 0
    results: dict[str, int] = {}
    names: dict[str, str] = {}
    for message in messages:
        for block in message.blocks:
            match block:
                case Text(words, note) if note and words.startswith(OPENING):
                    recalled += tokens.estimate(words)
                case Text(words):
                    said += tokens.estimate(words)
                case ToolUse(id_, name, arguments):
                    names[id_] = name
                    said += tokens.estimate(f"{name} {arguments}")
                case ToolResult(id_, words):
                    name = names.get(id_, "?")
                    results[name] = results.get(name, 0) + tokens.estimate(words)
                case Picture():
                    said += PICTURE_TOKENS
                case Opaque(data):
                    said += tokens.estimate(str(data))
    return [
        Part("memory", recalled),
        Part("history", said),
        Part("tool_results", sum(results.values()), tuple(sorted(results.items()))),
    ]


def _scaled(part: Part, factor: float) -> Part:
    """A part in the model's own tokens."""
    detail = tuple((name, round(size * factor)) for name, size in part.detail)
    return Part(part.name, round(part.tokens * factor), detail)


class NoticeSweep:
    """Tells of conversations that became nearly full without a turn, once for each level.

    That is when their model got a smaller window, or another model answers them.
    """

    def __init__(
        self,
        *,
        config: Config,
        directory: Directory,
        windows: Windows,
        aftercare: Aftercare,
        database: Database,
        ledger: Ledger,
        channels: Mapping[str, Channel],
    ) -> None:
        self._levels = sorted((n for n in config.context.notice_percent if n > 0), reverse=True)
        self._directory = directory
        self._windows = windows
        self._aftercare = aftercare
        self._database = database
        self._ledger = ledger
        self._channels = channels

    async def sweep(self, now: int) -> int:
        """Tell everybody who is to be told at `now` (ms since the epoch); how many there were.

        Raises:
            StorageError: the disk did not take it; the next sweep tells the rest.
        """
        count = 0
        for model in await self._database.read(store.open_models) if self._levels else ():
            room = await self._windows.named(model)
            for level in self._levels:
                used = -(-level * room.budget.compact_above // 100)
                found = await self._database.read(
                    lambda tx, m=model, u=used, n=level: store.filling(tx, m, u, n, now - LATELY_MS)
                )
                for session in found:
                    count += await self._tell(session, level, now)
        return count

    async def _tell(self, session: Session, level: int, now: int) -> bool:
        conversation = self._directory.of(session.facts)
        channel = self._channels.get(session.channel)
        if channel is None or not self._may_tell(session, conversation):
            return False
        talk = await self._aftercare.talk(session, conversation)
        view, language = conversation.view, conversation.language
        fill = Fill(session.context_tokens, self._aftercare.fill(talk).fixed)
        made = notice(
            report_of(talk, name_of(view), fill),
            language,
            level=level,
            buttons=channel.capabilities.buttons,
            remembers=bool(view.space),
        )

        def work(draft: Draft) -> bool:
            current = store.current(draft.tx, session.key)
            if current is None or current.id != session.id or current.ended_by:
                return False
            # A turn that ended meanwhile has told of it, or has made room.
            if current.told >= level or current.context_tokens != session.context_tokens:
                return False
            store.change(draft.tx, session.id, told=level)
            draft.tell(
                *(session.id, conversation.address, made.words, "notice"),
                extra=made.extra,
                language=language,
            )
            draft.touch(session.id)
            return True

        return (await self._ledger.write(now, work)).result

    def _may_tell(self, session: Session, conversation: Conversation) -> bool:
        """Whether it is still whose it was, may be answered there, and wants to be told."""
        if not session.sender or conversation.key != session.key:
            return False
        if conversation.is_direct and not conversation.is_admitted:
            return False
        wish = notices.wanted(
            self._aftercare.wish(conversation), session.notices, session.chat_type
        )
        return conversation.is_answered and wish
