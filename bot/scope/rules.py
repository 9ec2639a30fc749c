"""Scope rules: which sessions may see memory at all. Default deny; the first match wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.channel import Rule, ScopeConfig


@dataclass(frozen=True, slots=True)
class Subject:
    """What rules look at."""

    channel: str
    account: str
    chat_type: str
    chat: str
    sender: str
    key: str


def allows(config: ScopeConfig, subject: Subject) -> bool:
    """Whether the first matching rule, or else the default, allows this subject."""
    return _first_action(config.rules, subject, config.default) == "allow"


def _first_action(rules: Sequence[Rule], subject: Subject, default: str) -> str:
    for rule in rules:
        if _matches(rule, subject):
            return rule.action
    return default


def _matches(rule: Rule, subject: Subject) -> bool:
    wanted = (
        (rule.channel, subject.channel),
        (rule.account, subject.account),
        (rule.chat_type, subject.chat_type),
        (rule.chat, subject.chat),
        (rule.sender, subject.sender),
    )
    return all(not want or want.lower() == have.lower() for want, have in wanted) and (
        not rule.key_prefix or subject.key.startswith(rule.key_prefix.lower())
    )
