"""What a message asks for: the command it is, and whether it is said to the bot at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from bot.channel import ChannelConfig, Inbound
from bot.identity.values import Activation

ABORT_WORDS = frozenset({"stop", "停止"})

# What somebody types who writes Chinese; "／" is the slash of many of their keyboards.
CHINESE: Final[Mapping[str, str]] = {
    "帮助": "help",
    "新对话": "new",
    "撤销": "undo",
    "停止": "stop",
    "状态": "status",
    "提醒": "remind",
    "提醒列表": "reminders",
    "任务": "task",
    "时区": "timezone",
    "记忆": "memory",
    "模型": "model",
    "工具": "tools",
    "允许": "allow",
    "拒绝": "deny",
}

MAX_SEARCHED = 4_000  # characters of a message in which a mention is looked for

# A letter or digit of a script that puts spaces between words.
_WORD = r"[^\W\u2e80-\U0010ffff]"

_COMMAND = re.compile(
    rf"[/／]([A-Za-z0-9_]{{1,32}}|{'|'.join(CHINESE)})(?:@(\w+))?(?:\s+(.*))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command as typed: its name in lower case, the rest of the text, and which bot it names."""

    name: str
    rest: str = ""
    to: str = ""


def parse(text: str) -> Parsed | None:
    """The command a text is, or None when it is something to talk about.

    A name is one word after a slash at the very beginning: "/etc/passwd?" is no command.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    name = CHINESE.get(match[1]) or match[1].lower()
    return Parsed(name, (match[3] or "").strip(), match[2] or "")


def is_abort(text: str) -> bool:
    """Whether a text asks to stop a running reply without being a command."""
    return text.strip().strip(".!。！").lower() in ABORT_WORDS


def command_of(inbound: Inbound, parsed: Parsed) -> Parsed | None:
    """The command that a message gives, if it does; `parsed` is what its text is.

    Correcting an old command does not give it again. In rooms there may be other bots:
    "/help@another" is for that one.
    """
    if inbound.edit_of or (parsed.to and inbound.chat_type != "direct"):
        return None
    return parsed


# --- the mention gate -----------------------------------------------------------------------------


def addressed(
    config: ChannelConfig,
    inbound: Inbound,
    activation: Activation,
    agent_name: str,
    *,
    is_command: bool = False,
) -> bool:
    """Whether something said in a room is for the bot; `config` is the room's.

    `is_command` says that it is one of the bot's own commands. What an admin chose for the room
    (`activation`) comes before what the configuration says.
    """
    return is_always(config, activation) or is_command or named(config, inbound, agent_name)


def is_always(config: ChannelConfig, activation: Activation) -> bool:
    """Whether everything said in a room is for the bot."""
    return activation == "always" if activation else not config.require_mention


def named(config: ChannelConfig, inbound: Inbound, agent_name: str) -> bool:
    """Whether a message mentions the bot: natively, as a reply to it, or by a pattern.

    Without patterns of its own, a room listens for "@Name" and for "Name," at the beginning.
    """
    if pointed(inbound):
        return True
    text = inbound.text[:MAX_SEARCHED]
    patterns = config.mention_patterns or _patterns_of(agent_name)
    return any(_compiled(pattern).search(text) for pattern in patterns)


def pointed(inbound: Inbound) -> bool:
    """Whether a message is meant for the bot by the platform's own means."""
    return inbound.mentions_bot or (inbound.reply_to is not None and inbound.reply_to.from_bot)


@lru_cache(1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(100)
def _patterns_of(name: str) -> tuple[str, ...]:
    plain = re.escape(name.strip())
    if not plain:
        return ()
    ends = rf"(?!{_WORD})" if name.strip()[-1] < "\u2e80" else ""
    return (rf"(?<!{_WORD})@{plain}{ends}", rf"\A\s*{plain}\s*(?:[,:;!?，：；！？、]|\Z)")
