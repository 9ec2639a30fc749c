"""`/memory` and `/whosees`: show, correct and forget what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from bot.agent.tools import ToolContext, TurnMemory
from bot.agent.tools.memory import MemoryWrite
from bot.agent.turn import confirmation
from bot.channel import Button
from bot.clock import moment
from bot.commands.base import Apply, Call, CommandAnswer, command, saying
from bot.commands.info import last_save
from bot.context import sentences
from bot.context.history import message_of
from bot.delivery.outbox import Extra
from bot.errors import NotVisible, ToolError
from bot.identity import MANY
from bot.identity.view import SHARED_SPACE
from bot.memory import claims, entries, markdown, note_store
from bot.memory.claims import Aging, Claim
from bot.memory.memory import Cleared, Forgetter, Lookup, Memory, Spot
from bot.memory.night.keeper import Keeper
from bot.messages import Quote
from bot.sessions import browsing, erasing, forgetting, store, unsaved
from bot.sessions.entries import Entry
from bot.sessions.store import Session
from bot.storage import Database, Transaction, fulltext
from bot.storage.records import drop, drop_under, keep, text_of
from bot.unicode import one_line
from bot.unit_of_work import UnitOfWork
from bot.upkeep import nights
from bot.views.memory import (
    MAX_WORDS,
    counted,
    how_far,
    mode_of,
    place_of,
    remembered,
    seen,
    source_of,
    status_of,
    told_of,
    went,
    where_found,
    why_found,
    words_found,
    would_go,
)

# `/undo night`, `/memory night`: what the last night changed and asked, and undoing it.

NIGHT = frozenset({"night", "昨夜", "昨晚", "夜里"})


class NightCommands:
    """Commands about the nightly changes in a person's notes."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def undo(self, call: Call) -> Apply:
        """Undo the changes in the sender's notes."""
        if not call.view.private:
            return saying(call.text("memory.closed"))
        try:
            done = await self._keeper.take_back(call.view)
        except ToolError as error:
            return saying(call.text("memory.refused", reason=str(error)))
        return saying(nights.undone(call.language, done))

    async def memory(self, call: Call, rest: str) -> Apply:
        """Show what was changed, or take the answer to a day's question ("yes 2026-07-01").

        Raises:
            ToolError: something was forgotten meanwhile.
        """
        if not call.view.private:
            return saying(call.text("memory.closed"))
        word, _, said = rest.partition(" ")
        if word in {"yes", "no"}:
            return await self._answer(call, said.strip(), agrees=word == "yes")
        night = (await self._keeper.of(call.view.space)).night
        if night is None or night.state == "undone" or not night.edits:
            return saying(call.text("night.nothing_done"))
        spots = await self._keeper.spots(call.view, night.edits)
        return saying(nights.receipt(night, spots, call.language))

    async def _answer(self, call: Call, said: str, *, agrees: bool) -> Apply:
        try:
            count = await self._keeper.answer(call.view, date.fromisoformat(said), agrees=agrees)
        except ValueError:
            count = None
        if count is None:
            return saying(call.text("night.not_asked"))
        return saying(call.text("night.struck" if agrees else "night.stays", count=count))


MAX_SHOWN = 10  # places or messages of one answer
MAX_NEWEST = 5  # entries of `/memory`
MAX_QUOTE = 120  # characters of a place's own words
ASKED_MS = 600_000  # how long "yes" is understood
QUESTION_KEPT_MS = 86_400_000  # an answer may wait for the program to be started again

YES = frozenset({"yes", "是", "确认"})
UNNAMED = "/memory forget …"  # as a transcript has it
NO = frozenset({"no", "cancel", "不", "不要", "否", "取消"})

Action = Callable[[Call, str], Awaitable[Apply]]
"""A subcommand, called with the rest of the text."""


class MemoryCommands:
    """`/memory [search|show|sources|faded|confirm|wrong|night|forget|keep]`, `/whosees`."""

    def __init__(
        self,
        memory: Memory,
        database: Database,
        lookup: Lookup,
        forgetter: Forgetter,
        night: NightCommands,
    ) -> None:
        self._memory = memory
        self._database = database
        self._lookup = lookup
        self._forgetter = forgetter
        self._night = night

    @command(is_private=True)
    async def memory(self, call: Call) -> Apply:
        """Show the state of memory, or run one of its subcommands."""
        word, _, rest = call.rest.partition(" ")
        rest = rest.strip()
        actions: dict[str, Action] = {
            "": self._newest,
            "status": self._status,
            "search": self._search,
            "show": self._show,
            "faded": self._faded,
            "confirm": self._confirm,
            "wrong": self._wrong,
            "sources": self._sources,
            "night": self._night.memory,
            "forget": self._forget,
            "keep": self._keep,
            "save": self._save,
        }
        action = actions.get(word.lower())
        if action is None or len(rest) > MAX_WORDS:
            apply = saying(call.text("memory.usage", most=MAX_WORDS))
        elif not call.view.space:
            apply = saying(call.text("memory.closed"))
        elif action == self._forget and rest.lower() in YES | NO:
            apply = await self._told(call, action, rest)  # it does the forgetting itself
        else:
            apply = await self._unless_forgotten(call, partial(self._told, call, action, rest))
        names_words = action == self._forget and rest and rest.lower() not in YES | NO
        return _unnamed(apply) if names_words else apply

    @command(is_private=True)
    async def whosees(self, call: Call) -> Apply:
        """List the conversations that could surface some words of the person's memory."""
        words = call.rest[:MAX_WORDS]
        if not words or not call.view.space:
            key = "memory.whosees_usage" if call.view.space else "memory.closed"
            return saying(call.text(key))
        return await self._unless_forgotten(call, partial(self._seen_by, call, words))

    async def _unless_forgotten(self, call: Call, read: Callable[[], Awaitable[Apply]]) -> Apply:
        """Answer from what `read` finds, unless something is forgotten in between."""
        watch = await call.scope.enter_async_context(self._memory.notes.watching(call.view))
        tell = await read()

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            if note_store.heard_forgetting(unit.tx, watch):
                return CommandAnswer(call.text("memory.forgotten_meanwhile"))
            return tell(unit, session)

        return apply

    async def _told(self, call: Call, action: Action, rest: str) -> Apply:
        """Run a subcommand, and answer with the reason if it is refused."""
        try:
            return await action(call, rest)
        except NotVisible:
            return saying(call.text("memory.not_visible"))
        except ToolError as exc:
            return saying(call.text("memory.refused", reason=str(exc)))

    async def _seen_by(self, call: Call, words: str) -> Apply:
        spots = await self._memory.find(call.view, words)
        shared = [spot for spot in spots if spot.path.startswith("shared/")]
        held = await forgetting.find(self._database, call.view, words)
        talk = [mention for mention in held.mentions if mention.is_talk]
        if not spots and not talk:
            return saying(call.text("memory.nowhere"))
        # The conversation in which it is asked may have begun just now.
        keys = sorted({*held.keys, *call.view.keys})
        said = sum(mention.says for mention in talk)
        told = {"messages": said, "beside": len(talk) - said}
        lines = [*_spots(call, spots), *_bullets(counted(call.language, "would", told))]
        lines += ["", call.text("memory.seen_by"), *(f"- `{key}`" for key in keys)]
        if shared:
            lines.append(call.text("memory.seen_by_all"))
        return saying("\n".join(lines))

    async def _newest(self, call: Call, rest: str) -> Apply:
        """Show the newest entries and the state of memory."""
        listed, today = await self._memory.files.names(call.view), _today(call)
        found, _ = await remembered(self._memory, call.view, listed)
        newest = await asyncio.to_thread(entries.newest_first, found)
        lines = [call.text(f"memory.newest{'' if newest else '_none'}", count=len(newest))]
        for each in newest[:MAX_NEWEST]:
            source = source_of(call.language, each.claim, today)
            lines.append(f"- “{_quoted(each.words)}” · {source}")
        if newest:
            lines += ["", call.text("memory.newest_how")]
        tell = await self._status(call, rest)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            status = tell(unit, session)
            return replace(status, text="\n".join([*lines, "", status.text]))

        return apply

    async def _status(self, call: Call, rest: str) -> Apply:
        status = await status_of(self._memory, self._database, call.view, _today(call))
        lines = status.lines(call.language, call.now)
        if status.index.building is not None:
            lines.append(how_far(call.language, status.index.building))
        lines += status.trouble(call.language)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            return CommandAnswer("\n".join(f"- {line}" for line in (*lines, last_save(call, unit))))

        return apply

    async def _search(self, call: Call, rest: str) -> Apply:
        if not rest:
            return saying(call.text("memory.usage", most=MAX_WORDS))
        found = await self._lookup.find(call.view, rest, _today(call))
        lines: list[str] = []
        for hit in found.hits:
            where = where_found(call.language, hit, call.conversation.zone)
            quote = "\n".join(f"> {line}".rstrip() for line in words_found(hit))
            lines += [f"**{where}** · {why_found(call.language, hit)}", "", quote, ""]
        if not lines:
            lines.append(call.text("memory.nothing"))
        return saying("\n".join([*lines, mode_of(call.language, found)]).rstrip())

    async def _show(self, call: Call, rest: str) -> Apply:
        if not rest:
            return saying(call.text("memory.usage", most=MAX_WORDS))
        excerpt = await self._memory.files.read(call.view, rest)
        content = f"{excerpt.text}\n…" if excerpt.more else excerpt.text
        fence = "```"
        while fence in content:
            fence += "`"
        return saying(f"{fence}markdown\n{content}\n{fence}")

    async def _faded(self, call: Call, rest: str) -> Apply:
        """List entries that conversations begin without because they have faded."""
        today = _today(call)
        aging = await self._memory.uses.aging([call.view.space], today)
        found = await self._memory.faded(call.view, today)
        lines = [_claim(call, path, claim, aging) for path, claim in found]
        if not lines:
            return saying(call.text("memory.faded_none"))
        more = len(lines) - MAX_SHOWN
        told = [call.text("memory.faded_some"), *lines[:MAX_SHOWN]]
        told += [call.text("memory.more", count=more)] if more > 0 else []
        return saying("\n".join(told))

    async def _confirm(self, call: Call, rest: str) -> Apply:
        """Confirm the one entry that contains some words."""
        if not rest:
            return saying(call.text("memory.usage", most=MAX_WORDS))
        found = await self._entries(call, rest, lambda claim: claim.can_be_confirmed)
        if len(found) != 1:
            return _which(call, found, "memory.confirm_none")
        ((digest, ((spot, claim), *_)),) = found.items()
        day = _today(call)
        async with self._memory.notes.watching(call.view) as watch:
            place = await self._memory.notes.confirm(call.view, spot.path, digest, day, watch=watch)
        if place is None:
            return saying(call.text("memory.confirm_none"))
        where, words = f"{place.path}:{place.line}", _quoted(claim.text)
        return saying(call.text("memory.confirmed", where=where, words=words))

    async def _wrong(self, call: Call, rest: str) -> Apply:
        """Strike out, wherever it is, the one entry that contains some words."""
        if not rest:
            return saying(call.text("memory.usage", most=MAX_WORDS))
        found = await self._entries(call, rest, lambda claim: not claim.is_over)
        if len(found) != 1:
            return _which(call, found, "memory.wrong_none")
        ((digest, places),) = found.items()
        day, struck = _today(call), list[str]()
        async with self._memory.notes.watching(call.view) as watch:
            for path in dict.fromkeys(spot.path for spot, _ in places):
                if await self._memory.let_go(call.view, path, digest, day, watch=watch):
                    struck.append(path)
        words = _quoted(places[0][1].text)
        if not struck:
            return saying(call.text("memory.wrong_odd", words=words))
        return saying(call.text("memory.wrong", where=", ".join(struck), words=words))

    async def _entries(
        self, call: Call, words: str, is_meant: Callable[[Claim], bool]
    ) -> Mapping[str, Sequence[tuple[Spot, Claim]]]:
        """The entries of the view's own space that contain some words, by `Claim.digest`.

        Each has the places where it is.
        """
        found: dict[str, list[tuple[Spot, Claim]]] = {}
        for spot in await self._memory.find(call.view, words):
            if not spot.path.startswith(f"{SHARED_SPACE}/"):
                for claim in filter(is_meant, claims.of_note(spot.path, spot.text)):
                    found.setdefault(claim.digest, []).append((spot, claim))
        return found

    async def _sources(self, call: Call, rest: str) -> Apply:
        """Show what the last reply used from memory, as stored with its turn."""

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            # In a direct chat that several people share it may have been another one's.
            is_others = session.person != call.person or session.sender == MANY
            quotes = (
                []
                if call.is_direct and is_others
                else seen(call.view, browsing.quotes_of_reply(unit.tx, session))
            )
            if not quotes:
                return CommandAnswer(call.text("memory.sources_none"))
            lines = [call.text("memory.sources")]
            lines += [f"- {_source(call, each)}" for each in quotes[:MAX_SHOWN]]
            if len(quotes) > MAX_SHOWN:
                lines.append(call.text("memory.more", count=len(quotes) - MAX_SHOWN))
            return CommandAnswer("\n".join(lines))

        return apply

    async def _save(self, call: Call, rest: str) -> Apply:
        """Try again to save the conversations that could not be saved."""

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            keys = browsing.keys_of(unit.tx, call.view)
            count = unsaved.again(unit.tx, keys, call.now)
            return CommandAnswer(call.text("unsaved.trying" if count else "unsaved.none"))

        return apply

    async def _keep(self, call: Call, rest: str) -> Apply:
        """Keep what was offered of a message, once: what the button of that offer gives."""
        async with self._memory.notes.watching(call.view) as watch:
            entry = await self._database.read(lambda tx: _own_message(tx, call, rest))
            message = None if entry is None else message_of(entry)
            words = "" if message is None else sentences.sentence_of(message)
            if entry is None or message is None or not words:
                return saying(call.text("offline.offer_gone"))
            # In the note of its day: a press tomorrow finds that it stands there.
            said = moment(entry.said_or_at, call.conversation.zone)
            told = TurnMemory(words=(words,), seen=(message,))
            context = ToolContext(call.view, entry.session_id, said, memory=told, watch=watch)
            tool = MemoryWrite(self._memory.notes, self._memory.files)
            done = await tool.run({"text": words}, context)
        if done.already:
            where = {"path": done.path, "line": done.line}
            return saying(call.text("offline.stored_already", **where))
        stored = call.text("offline.stored", text=words)
        return saying(f"{stored}\n\n{confirmation(call.language, told.written)}")

    async def _forget(self, call: Call, rest: str) -> Apply:
        if rest.lower() in YES:
            # The answer may be worked on long after it was given: the program may have ended.
            since = min(call.inbound.sent_at, call.now) - ASKED_MS
            words = await self._database.read(lambda tx: text_of(tx, _question(call), since))
            if not words:
                return saying(call.text("memory.forget_nothing_asked"))
            return await self._forgotten(call, words)
        if rest.lower() in NO:
            await self._database.write(lambda tx: drop(tx, _question(call)))
            return saying(call.text("memory.forget_kept"))
        if not rest:
            return saying(call.text("memory.usage", most=MAX_WORDS))
        found = await self._forgetter.preview(call.view, rest)
        if found.is_empty:
            stays = counted(call.language, "would", {"folders": found.folders})
            return saying("\n".join((call.text("memory.nowhere"), *_bullets(stays))))
        lines = [call.text("memory.forget_ask"), *_spots(call, found.spots)]
        lines += _bullets(counted(call.language, "would", would_go(found)))
        answers = tuple(
            Button(call.text(f"button.{key}"), f"/memory forget {said}")
            for key, said in (("forget", "yes"), ("keep", "no"))
        )
        how = call.text("memory.forget_how")
        shown = call.text("memory.forget_shown")
        noted = f"{shown}\n\n{how}"  # what it quotes is what is not to be kept
        answer = CommandAnswer("\n".join([*lines, "", how]), extra=Extra(answers), noted=noted)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            drop_under(unit.tx, erasing.FORGETTING, before=unit.now - QUESTION_KEPT_MS)
            keep(unit.tx, _question(call), rest, unit.now)
            return answer

        return apply

    async def _forgotten(self, call: Call, words: str) -> Apply:
        work = self._forgetter.forgetting(call.view, words, call.now)
        complete = await call.scope.enter_async_context(work)

        def apply(unit: UnitOfWork, session: Session) -> CommandAnswer:
            done = complete(unit.tx)
            drop(unit.tx, _question(call))
            unsent = unit.forget(done.sessions, done.keys, words)
            cleared = done.cleared
            lines = [call.text("memory.forget_done")]
            lines += [
                call.text("memory.forget_file", path=path, count=entries)
                for path, entries in cleared.files
            ]
            lines.append(_in_index(call, cleared))
            lines += _bullets(counted(call.language, "did", went(done, unsent)))
            # A file may be called by the words.
            kept = [line for line in lines if fulltext.folded(words) not in fulltext.folded(line)]
            return CommandAnswer("\n".join(lines), noted="\n".join(kept) or "…")

        return apply


def _question(call: Call) -> str:
    """The key of a pending question: only the same person in the same chat can answer it."""
    return f"{erasing.FORGETTING}{call.person}/{call.place.key}"


def _own_message(tx: Transaction, call: Call, id_: str) -> Entry | None:
    """A message by its id, if the sender wrote it in this conversation."""
    entry = store.entry(tx, id_)
    session = None if entry is None else store.get(tx, entry.session_id)
    if entry is None or session is None or (entry.kind, entry.role) != ("message", "user"):
        return None
    if session.key != call.place.key or entry.id in browsing.forgotten(tx, session.id):
        return None
    if call.is_direct:
        is_own = session.person == call.person and session.sender != MANY
    else:
        speaker = erasing.speaker_of(entry)
        is_own = speaker is not None and speaker.account == erasing.tag_of(call.inbound.sender)
    return next(iter(store.veiled(tx, session.id, [entry])), None) if is_own else None


def _source(call: Call, quote: Quote) -> str:
    """The place or time of a quote, and its beginning."""
    return f"{place_of(call.language, quote)} “{_quoted(quote.text)}”"


def _which(call: Call, found: Mapping[str, Sequence[tuple[Spot, Claim]]], none: str) -> Apply:
    """Say that no entry contains some words, or list those that do."""
    if not found:
        return saying(call.text(none))
    listed = _spots(call, [places[0][0] for places in found.values()])
    return saying("\n".join([call.text("memory.confirm_which"), *listed]))


def _unnamed(apply: Apply) -> Apply:
    """Keep the words to forget out of the transcript."""
    return lambda unit, session: replace(apply(unit, session), typed=UNNAMED)


def _spots(call: Call, spots: Sequence[Spot]) -> list[str]:
    lines = [f"- {_spot(spot)}" for spot in spots[:MAX_SHOWN]]
    if len(spots) > MAX_SHOWN:
        lines.append(call.text("memory.more", count=len(spots) - MAX_SHOWN))
    return lines


def _in_index(call: Call, cleared: Cleared) -> str:
    if cleared.is_indexed:
        return call.text("memory.forget_index_later")
    return call.text("memory.forget_index", chunks=cleared.chunks, cached=cleared.cached)


def _bullets(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _today(call: Call) -> date:
    return moment(call.now, call.conversation.zone).date()


def _claim(call: Call, path: str, claim: Claim, aging: Aging) -> str:
    """A claim with its place and age."""
    whose = call.text(f"memory_page.whose.{claim.whose}")
    told = " · ".join((whose, *told_of(call.language, claim, aging, call.view.space)))
    return f"- {path}:{claim.first} “{_quoted(claim.text)}” · {told}"


def _spot(spot: Spot) -> str:
    return f"{spot.path}:{spot.line} “{_quoted(markdown.plain(spot.text))}”"


def _quoted(words: str) -> str:
    """Words in one line, cut if they are long."""
    return one_line(words, MAX_QUOTE)
