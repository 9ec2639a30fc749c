"""How full a conversation is, and of what: for `/context`, `/status` and notices."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from bot.agent.limits import ModelLimits
from bot.agent.models import ToolSpec, Usage
from bot.agent.prefix import tools_of
from bot.context import budget, report, tokens
from bot.context.history import PICTURE_TOKENS, tool_names
from bot.context.report import Part, Report
from bot.i18n import text
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse
from bot.money import prices
from bot.sessions.compactions import Snapshot
from bot.tool_results import Quoted
from bot.upkeep.active_session import ActiveSession, Fill


def report_of(active: ActiveSession, view: str, fill: Fill, said: Sequence[Message] = ()) -> Report:
    """What fills a conversation, seen through a view; `said` is what a turn is adding to it."""
    cached, limits = active.cached, active.limits
    prefix = cached.snapshots.get(cached.snapshot_of(view))
    weighed = _of_prefix(prefix) if prefix is not None else []
    weighed.append(Part("summary", tokens.estimate(cached.history.summary)))
    weighed += _of_messages([*cached.history.shown, *said])
    return Report(
        parts=tuple(_scaled(part, limits.factor) for part in weighed),
        used=fill.used,
        budget=limits.budget,
        window=limits.window,
        model=limits.name,
        measured=cached.history.is_reported,
    )


def footer(language: str, usage: Usage, used: int, limits: ModelLimits, usd: float | None) -> str:
    """The line below a reply that says what it cost; `usd` is None without a known price."""
    line = text(
        language,
        "command.usage.line_cached" if usage.cache_read_tokens else "command.usage.line",
        input=report.grouped(usage.input_tokens + usage.cache_write_tokens),
        cached=report.grouped(usage.cache_read_tokens),
        output=report.grouped(usage.output_tokens),
        percent=budget.percent_full(used, limits.budget),
    )
    if usd is not None:
        line = f"{line} · {prices.shown(usd)}"
    return f"\n\n_{line}_"


def _of_prefix(prefix: Snapshot) -> list[Part]:
    memory = sum(size for _, size in prefix.remembered)
    tools = tuple((tool.name, _weight(tool)) for tool in tools_of(prefix))
    return [
        Part("persona", tokens.estimate(prefix.system) - memory, prefix.own),
        Part("memory", memory, prefix.remembered),
        Part("tools", tokens.estimate(prefix.tools), tools),
    ]


def _weight(tool: ToolSpec) -> int:
    return tokens.estimate(f"{tool.description}{orjson.dumps(dict(tool.schema)).decode()}")


def _of_messages(messages: Sequence[Message]) -> list[Part]:
    recalled = said = 0
    results: dict[str, int] = {}
    names = tool_names(messages)
    for message in messages:
        for block in message.blocks:
            match block:
                case Text(words, note=True, value=Quoted()):
                    recalled += tokens.estimate(words)
                case Text(words):
                    said += tokens.estimate(words)
                case ToolUse(_, name, arguments):
                    said += tokens.estimate(f"{name} {arguments}")
                case ToolResult(id_, words):
                    name = names.get(id_, "?")
                    results[name] = results.get(name, 0) + tokens.estimate(words)
                case Picture():
                    said += PICTURE_TOKENS
                case Opaque():
                    said += tokens.estimate(block.weighed)
    return [
        Part("memory", recalled),
        Part("history", said),
        Part("tool_results", sum(results.values()), tuple(sorted(results.items()))),
    ]


def _scaled(part: Part, factor: float) -> Part:
    """A part in the model's own tokens."""
    detail = tuple((name, round(size * factor)) for name, size in part.detail)
    return Part(part.name, round(part.tokens * factor), detail)
