"""What the offline model does beside talking: summaries, and saving what was said. Pure.

It picks whole sentences and never makes any, so what it keeps was said in these words.
"""

from __future__ import annotations

from typing import Final

from bot.agent.models import Request
from bot.agent.models.intent import Remind, Reminders, understand
from bot.agent.silence import TOKENS
from bot.context import compaction, extract
from bot.context.extract import Said
from bot.messages import Message, Text, ToolResult, ToolUse

WRITE: Final = "memory_write"
AT_ONCE = 8  # entries in one step
NOTHING = "- (Little was said.)"
SUMMARY_SHARE = 2  # what is asked for is this part of what may be written


def reply(request: Request) -> Message:
    """The whole reply to a request whose purpose is not to chat."""
    said = [
        each
        for message in request.messages
        for block in message.blocks
        if isinstance(block, Text) and message.role == "user"
        for each in compaction.read(block.text)
    ]
    if request.purpose == "summary":
        summary = extract.summarise(said, request.max_tokens // SUMMARY_SHARE)
        few = f"{NOTHING}\n{summary}".strip()
        return Message("assistant", (Text(summary if len(summary) > len(NOTHING) else few),))
    blocks = _writes(request, said)
    return Message("assistant", blocks or (Text(TOKENS[0]),))


def _writes(request: Request, said: list[Said]) -> tuple[ToolUse, ...]:
    """The next entries to write; none when all are there, or when writing does not work."""
    if WRITE not in {spec.name for spec in request.tools} or _failed(request):
        return ()
    blocks = [block for message in request.messages for block in message.blocks]
    written = [str(b.input.get("text", "")) for b in blocks if isinstance(b, ToolUse)]
    known = [each.text for each in said if each.who == "memory"]
    # What the program keeps by itself is no memory: reminders, and asking for them.
    person = (each.text for each in said if each.who == "person")
    facts = extract.facts(text for text in person if not _is_reminder(text))
    news = extract.unknown(facts, (*written, *known))
    start = len(written)
    return tuple(
        ToolUse(f"offline-flush-{start + number}", WRITE, {"text": fact})
        for number, fact in enumerate(news[:AT_ONCE])
    )


def _is_reminder(text: str) -> bool:
    return isinstance(understand(text), Remind | Reminders)


def _failed(request: Request) -> bool:
    """Whether the last writes were all refused."""
    last = request.messages[-1].blocks if request.messages else ()
    results = [block for block in last if isinstance(block, ToolResult)]
    return bool(results) and all(block.is_error for block in results)
