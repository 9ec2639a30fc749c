"""`/channels/scope`, for the owner: where memory may be used, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson
from aiohttp import web
from pydantic import ValidationError

from bot.channel import ScopeRule
from bot.config import Config
from bot.dashboard.pages import NO_STORE, Pages, Visit, route, see, whole
from bot.dashboard.settings import options
from bot.errors import ConfigError
from bot.i18n import text
from bot.sessions import rooms
from bot.settings.changes import Overruled, ServedSettings
from bot.settings.checks import Mistakes
from bot.settings.fields import Key
from bot.settings.sources import LONGEST_VALUE
from bot.storage import Database
from bot.views.people import shortened

PATH: Final = "/channels/scope"
RULES: Final[Key] = ("scope", "rules")
LONGEST_ID: Final = 200  # characters
KINDS: Final = ("", "direct", "group", "channel", "thread")
# What a rule comes to: its action and how often memory is searched unasked.
EFFECTS: Final = {
    "allow": ("allow", ""),
    "allow_every_turn": ("allow", "every_turn"),
    "allow_start": ("allow", "start"),
    "allow_off": ("allow", "off"),
    "deny": ("deny", ""),
}
_ROOMS: Final = frozenset({"group", "channel", "thread"})


@dataclass(frozen=True, slots=True)
class Stated:
    """A rule as a sentence; `id` is the rule itself, as its form names it."""

    sentence: str
    id: str


class ScopePages(Pages):
    """The rules of `[scope]`, read and changed as sentences. The first that fits decides."""

    def __init__(self, settings: ServedSettings, database: Database) -> None:
        self._settings = settings
        self._database = database

    @property
    def _rules(self) -> Sequence[ScopeRule]:
        return self._settings.config.scope.rules

    @route("GET", PATH)
    async def _show(self, visit: Visit) -> web.Response:
        return await self._page(visit)

    @route("POST", f"{PATH}/check")
    async def _check(self, visit: Visit) -> web.Response:
        """The sentence of a rule that is being typed, or what is wrong with it."""
        form = await options.fields(visit)
        rule, problem = await self._looked(visit, form)
        said = "" if rule is None else sentence(visit.language, rule)
        hint = await self._hint(visit, form) if not problem else ""
        body = {"sentence": said, "problem": problem, "hint": hint}
        return web.json_response(body, headers=NO_STORE)

    @route("POST", f"{PATH}/add")
    async def _add(self, visit: Visit) -> web.Response:
        """Add a rule before the others."""
        form = await options.fields(visit)
        rule, problem = await self._looked(visit, form)
        if rule is None or problem:
            return await self._page(visit, problem, form)
        return await self._save(visit, [rule, *self._rules], "added")

    @route("POST", f"{PATH}/remove", f"{PATH}/up")
    async def _change(self, visit: Visit) -> web.Response:
        """Remove a rule, or move it before the one above; not one that changed meanwhile."""
        form, rules = await options.fields(visit), list(self._rules)
        number = whole(form.get("number", ""), len(rules))
        if number >= len(rules) or written([rules[number]]) != form.get("rule"):
            return see(f"{PATH}?told=gone")
        rule, told = rules.pop(number), "removed"
        if visit.request.path.endswith("/up"):
            rules.insert(max(0, number - 1), rule)
            told = "moved"
        return await self._save(visit, rules, told)

    async def _save(self, visit: Visit, rules: Sequence[ScopeRule], told: str) -> web.Response:
        try:
            await self._settings.change({RULES: written(rules)})
        except ConfigError as error:
            return await self._page(visit, self._why(visit, error))
        return see(f"{PATH}?told={told}")

    async def _looked(self, visit: Visit, form: Mapping[str, str]) -> tuple[ScopeRule | None, str]:
        """A rule as it was typed, and what is wrong with it, if anything is."""
        say = visit.say
        action, recall = EFFECTS.get(form.get("effect", ""), ("", ""))
        named = {name: form.get(name, "") for name in ("channel", "chat_type", "chat", "sender")}
        if any(len(each) > LONGEST_ID or not each.isprintable() for each in named.values()):
            return None, say("scope.wrong.id")
        try:
            rule = ScopeRule.model_validate({"action": action, "recall": recall, **named})
        except ValidationError:
            return None, say("scope.wrong.choice")
        if rule in self._rules:
            return rule, say("scope.wrong.twice")
        wanted = written([rule, *self._rules])
        if len(wanted) > LONGEST_VALUE:
            return None, say("scope.wrong.many")
        try:
            await self._settings.tried({RULES: wanted})
        except Overruled:
            pass  # by what nodes share, or told when it is kept
        except ConfigError as error:
            return None, self._why(visit, error)
        return rule, ""

    async def _hint(self, visit: Visit, form: Mapping[str, str]) -> str:
        """A word on an id that nobody has written from yet, which may be a slip."""
        chat, channel = form.get("chat", ""), form.get("channel", "")
        if not chat:
            return ""
        known = await self._database.read(rooms.chats)
        is_known = any(chat == each and channel in {"", where} for where, each in known)
        return "" if is_known else visit.say("scope.unknown_chat")

    def _why(self, visit: Visit, error: ConfigError) -> str:
        """The problem of a form field, in the words of the page."""
        if isinstance(error, Mistakes) and not isinstance(error, Overruled):
            fields = {key[3] for key in error.keys if key[:2] == RULES and len(key) > 3}
            if fields and fields <= {"chat", "sender"}:
                return visit.say("scope.wrong.id")
            if "channel" in fields:
                return visit.say("scope.wrong.channel")
        return " ".join(options.sentences(visit, error))

    async def _page(
        self, visit: Visit, problem: str = "", typed: Mapping[str, str] | None = None
    ) -> web.Response:
        config, language = self._settings.config, visit.language
        known = sorted(await self._database.read(rooms.chats))
        return visit.page(
            "scope.html",
            422 if problem else 200,
            rules=[Stated(sentence(language, each), written([each])) for each in self._rules],
            default=text(language, f"scope.default.{config.scope.default}"),
            before=_before(config, language),
            origin=self._settings.origins.get(RULES, ""),
            channels=list(type(config.channels).model_fields),
            kinds=KINDS,
            effects=tuple(EFFECTS),
            chats=[chat for _, chat in known if chat.isprintable()][:500],
            typed=typed or {},
            problem=problem,
            longest=LONGEST_ID,
        )


def written(rules: Sequence[ScopeRule]) -> str:
    """Rules as their variable has them: what each says itself, as JSON."""
    return orjson.dumps(
        [each.model_dump(exclude_defaults=True) for each in rules], option=orjson.OPT_SORT_KEYS
    ).decode()


def sentence(language: str, rule: ScopeRule) -> str:
    """A rule in words: where, for whom, and what holds there."""
    say = partial(text, language)
    where = say("scope.chat", chat=shortened(rule.chat)) if rule.chat else ""
    where = where or say(f"scope.kind.{rule.chat_type or 'any'}")
    effect = "deny" if rule.action == "deny" else f"allow_{rule.recall}".rstrip("_")
    if effect == "allow" and rule.chat_type in _ROOMS:
        effect = "allow_room"
    more = [
        say(f"scope.more.{name}", value=shortened(value))
        for name in ("channel", "account", "sender", "key_prefix")
        if (value := getattr(rule, name))
    ]
    return say(
        "scope.sentence", where="".join([where, *more]), effect=say(f"scope.effect.{effect}")
    )


def _before(config: Config, language: str) -> list[tuple[str, str]]:
    """The rules that channels have of their own, which come before, with their channels."""
    return [
        (name, sentence(language, rule))
        for name in type(config.channels).model_fields
        for rule in config.channels.get(name).scope.rules
    ]
