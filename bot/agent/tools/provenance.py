"""Provenance of words: in a conversation, about to be kept, and in memory already. Pure.

It judges from the origins that blocks carry, which adapters and tools gave them, never from how a
text looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.agent.tools import MemoryPassage, ToolContext, TurnMemory
from bot.context import sentences
from bot.memory import markdown
from bot.memory.markdown import Provenance
from bot.memory.notes import Place
from bot.messages import CARRIED, CLEAN, Message, Text, ToolResult, Whose, mixture

OWN_SHARE = 0.6  # of the words must be the person's, for it to be what they said
LONG = 30  # characters; a shorter text may stand inside another by chance

_ONLY_CARRIED: frozenset[Whose] = frozenset({CARRIED})
_TOOL: frozenset[Whose] = frozenset({"tool"})
_FIRST_CJK = "\u2e80"
# How a fact speaks of whom it is about, whatever it says.
_SUBJECTS = frozenset("user users person owner name named called 用户 主人".split())  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Sources:
    """The texts a model was shown: the person's own words, and those that hold or may hold others'.

    While anything `foreign` is in sight, only what is plainly the person's own can be kept as
    theirs: the rest may be its sense in other words. What was `carried` over from a conversation
    before the last counts by its words alone.
    """

    own: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()


def sources_of(memory: TurnMemory) -> Sources:
    """Splits what a turn's model was shown by whose words it is."""
    own: list[str] = []
    foreign = list(memory.foreign)
    carried: list[str] = []
    for message in memory.seen:
        for block in message.blocks:
            if not isinstance(block, (Text, ToolResult)):
                continue
            if block.origin == CARRIED:
                carried.append(block.text)
            elif block.origin not in CLEAN:
                foreign.append(block.text)
            elif message.role == "user" and isinstance(block, Text) and not block.note:
                own.append(block.text)
    return Sources(tuple(own), tuple(foreign), tuple(carried))


def provenance_of(
    text: str, context: ToolContext, *, untrusted: bool = False, title: str = ""
) -> Provenance:
    """The origin of a text: the person's words, somebody else's, or the bot's conclusion.

    A word of it, or of its `title`, that only somebody else said makes it untrusted; so does
    somebody else's part in sight when the text is not in the person's own words. In a room nobody's
    words count as the owner's.
    """
    if untrusted:
        return "untrusted"
    sources = sources_of(context.memory)
    is_own = _share(text, sources.own) >= OWN_SHARE
    if (sources.foreign and not is_own) or _has_strange(f"{title}\n{text}", sources):
        return "untrusted"
    return "owner" if context.view.private and is_own else "agent"


def is_asked_for(text: str, context: ToolContext) -> bool:
    """True unless somebody else may have asked for what is done with something of this text.

    With somebody else's words in sight, the person's message of this turn has to have most of it.
    """
    memory = context.memory
    return not sources_of(memory).foreign or _share(text, memory.words) >= OWN_SHARE


def spoken_by_bot(messages: Sequence[Message], memory: TurnMemory) -> tuple[Message, ...]:
    """A turn's messages, in which what the model said bears the mark of what it was shown."""
    shown: set[Whose] = {
        block.origin
        for message in (*memory.seen, *messages)
        for block in message.blocks
        if isinstance(block, (Text, ToolResult))
    }
    if memory.foreign:
        shown |= _TOOL
    origin = mixture(shown)
    if origin and shown - CLEAN <= _ONLY_CARRIED:
        sources = sources_of(replace(memory, seen=(*memory.seen, *messages)))
        said = "\n".join(message.text for message in messages if message.role == "assistant")
        origin = CARRIED if _has_strange(said, sources) else ""
    return tuple(
        _marked(message, origin or "bot") if message.role == "assistant" else message
        for message in messages
    )


def as_others(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages of a conversation that several people share, none of them taken for one person's."""
    return tuple(
        _marked(message, "unknown") if message.begins_turn else message for message in messages
    )


def already(
    text: str,
    recalled: Sequence[MemoryPassage],
    files: Mapping[str, str],
    *,
    trusted: bool = False,
) -> Place | None:
    """The place of exactly these words, in what was recalled in this turn or in one of the files.

    With `trusted` what came from elsewhere does not count: once the person says it, it is theirs.
    """
    wanted = markdown.normal(text)
    for path, content in files.items():
        line = markdown.says(content, text, trusted=trusted)
        if line:
            return Place(path, line)
    for passage in recalled:
        for number, line in enumerate(passage.text.split("\n")):
            if _standing(line) == wanted:
                return Place(passage.place.path, passage.place.line + number)
        lines = markdown.plain(passage.text).split("\n")
        if len(wanted) >= LONG and wanted in markdown.normal("\n".join(filter(_standing, lines))):
            return passage.place
    return None


def _standing(line: str) -> str:
    """The words of an entry's line for comparing; nothing if it is struck out."""
    return markdown.entry_words(line.strip().lstrip("-*+ "))


def _marked(message: Message, origin: Whose) -> Message:
    """The message with its clean words as others'."""
    blocks = [
        replace(block, origin=origin)
        if isinstance(block, Text) and not block.note and block.origin in CLEAN
        else block
        for block in message.blocks
    ]
    return Message(message.role, tuple(blocks))


def _has_strange(text: str, sources: Sources) -> bool:
    """True if a word of the text was said by others and not by the person."""
    left = sentences.words(text) - _SUBJECTS
    if not left or not (sources.foreign or sources.carried):
        return False
    for own in sources.own:
        left -= _common(left, own)
    return any(_common(left, other) for other in (*sources.foreign, *sources.carried))


def _common(wanted: frozenset[str], text: str) -> frozenset[str]:
    """Those of some words that a text has; most texts are not worth taking apart."""
    folded = text.casefold()
    likely = frozenset(word for word in wanted if word in folded)
    return likely & sentences.words(text) if likely else likely


def _share(text: str, others: Sequence[str]) -> float:
    """The share of a text's words, from 0 to 1, that stand in one of the others.

    In one, not in all together: a long conversation has nearly every word somewhere.
    """
    words = Counter(_words(text))
    if not words:
        return 0.0
    shares = (sum(words[w] for w in words.keys() & set(_words(other))) for other in others)
    return max(shares, default=0) / words.total()


def _words(text: str) -> list[str]:
    """The words of a text; scripts without spaces give their characters."""
    found: list[str] = []
    for word in markdown.normal(text).split():
        found.extend([word] if word[0] < _FIRST_CJK else word)
    return found
