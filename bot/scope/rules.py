"""Rules about sessions: which may see memory at all, and which are answered. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bot.channel import Rule, ScopeConfig
from bot.config import SendPolicyConfig


@dataclass(frozen=True, slots=True)
class Subject:
    """What rules look at; `also` are other ids the chat has or had (a group that has moved)."""

    channel: str
    account: str
    chat_type: str
    chat: str
    sender: str
    key: str
    also: tuple[str, ...] = ()


def allows(config: ScopeConfig, subject: Subject) -> bool:
    """Whether the first matching rule, or else the default, lets a subject see memory."""
    action = next((rule.action for rule in config.rules if _matches(rule, subject)), config.default)
    return action == "allow"


def permits(config: SendPolicyConfig, subject: Subject) -> bool:
    """Whether a subject is answered: any matching deny wins, then any allow, then the default."""
    actions = {rule.action for rule in config.rules if _matches(rule, subject)}
    if "deny" in actions:
        return False
    return "allow" in actions or config.default == "allow"


def _matches(rule: Rule, subject: Subject) -> bool:
    wanted = (
        (rule.channel, (subject.channel,)),
        (rule.account, (subject.account,)),
        (rule.chat_type, (subject.chat_type,)),
        (rule.chat, (subject.chat, *subject.also)),
        (rule.sender, (subject.sender,)),
    )
    return all(
        not want or any(want.lower() == each.lower() for each in have) for want, have in wanted
    ) and (not rule.key_prefix or subject.key.startswith(rule.key_prefix.lower()))
