"""`/channels` and `/channels/scope`, for the owner: state of channels, use of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import orjson
import structlog
from aiohttp import web
from pydantic import ValidationError

from bot.channel import (
    DEFAULT_ACCOUNT,
    Channel,
    ChannelConfig,
    ChannelPlugin,
    Finding,
    GroupConfig,
    Health,
    ScopeRule,
)
from bot.config import Config
from bot.core import Core
from bot.dashboard.pages import (
    NO_STORE,
    Pages,
    Visit,
    address,
    in_menu,
    matching,
    part_of,
    route,
    see,
    whole,
)
from bot.dashboard.settings import pages
from bot.delivery import outbox
from bot.delivery.outbox import Backlog
from bot.errors import ConfigError
from bot.i18n import text
from bot.identity import AccessDecision, Activation
from bot.identity.access import is_always
from bot.identity.routing import room_of
from bot.sessions import inbox, rooms
from bot.sessions.rooms import Room
from bot.settings.changes import Overruled, ServedSettings
from bot.settings.checks import Mistakes
from bot.settings.fields import Key
from bot.settings.loader import toml_value
from bot.settings.sources import LONGEST_VALUE
from bot.storage import Database, Transaction
from bot.views.outcomes import told
from bot.views.people import place_of, shortened

PATH: Final = "/channels"
MAX_ROOMS: Final = 2_000  # the latest; older ones are listed again once somebody talks there
MOST_COUNTED: Final = 100  # declined rooms that are looked through for the menu
AGAIN_MS: Final = 5_000  # before which nothing is looked at twice
WISHES: Final[Mapping[str, Activation]] = {"": "", "mention": "mention", "always": "always"}
SHOWN: Final = ("dm_policy", "allow_from", "group_policy", "group_allow_from", "require_mention")
SHOWN_OF_ROOM: Final = ("allow_from", "mention_patterns", "notices", "language", "streaming")

Connection = tuple[str, str, Health, str]
"""Channel, account, health and detail."""

Examine = Callable[[Channel], Awaitable[Sequence[Finding]]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of a channel about its set-up, and when they were made (ms)."""

    at: int
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Account:
    """One account of a channel: its health, when it was last heard from, what is unsent.

    `invitation` is the link that leads to the bot, where its platform has some.
    """

    name: str
    state: str
    detail: str
    heard: int
    backlog: Backlog
    invitation: str = ""


@dataclass(frozen=True, slots=True)
class ChannelCard:
    """One channel; `off` says why it does not run, `needs` what to set then."""

    name: str
    accounts: Sequence[Account]
    settings: Sequence[tuple[str, str]]
    off: str = ""
    needs: str = ""
    checked: Checked | None = None


@dataclass(frozen=True, slots=True)
class RoomCard:
    """One room in which the bot was spoken to, and what is in effect there.

    A room where it may not talk asks for it, until the owner lets it (`is_let_in`).
    """

    room: Room
    answers: str = ""
    chosen: Activation = ""
    settings: Sequence[tuple[str, str]] = ()
    is_let_in: bool = False

    @property
    def place(self) -> str:
        """Its channel, with the account."""
        return place_of(self.room.origin.channel, self.room.origin.account)

    @property
    def chat(self) -> str:
        """Its id, with that of the thread."""
        ids = (self.room.origin.chat, self.room.origin.thread)
        return "/".join(shortened(each) for each in ids if each)


@dataclass(frozen=True, slots=True)
class GroupCard:
    """A room that the configuration lists: what it says of it, and where that stands."""

    place: str
    chat: str
    settings: Sequence[tuple[str, str]]
    where: str


@in_menu("/channels", is_owners=True)
class ChannelPages(Pages):
    """Health, ids and settings; never a word of what was said."""

    def __init__(
        self,
        core: Core,
        *,
        connections: Callable[[], Sequence[Connection]],
        plugins: Mapping[str, ChannelPlugin],
        examine: Examine,
        origins: Callable[[], Mapping[Key, str]],
        read_books: Callable[[], Awaitable[None]],
    ) -> None:
        """Take what the page shows and does.

        `examine` has a channel look at itself; `origins` says where the configuration stands;
        `read_books` lets what was changed count at once.
        """
        self._core = core
        self._connections = connections
        self._plugins = plugins
        self._examine = examine
        self._origins = origins
        self._read_books = read_books
        self._checked: dict[str, Checked] = {}
        self._checking = asyncio.Lock()

    async def waiting(self) -> int:
        """The number of declined rooms that the owner could let in."""
        declined = await self._core.database.read(lambda tx: rooms.declined(tx, MOST_COUNTED))
        cards = filter(None, map(self._asking, declined))
        return sum(not each.is_let_in for each in cards)

    @route("GET", PATH)
    async def _page(self, visit: Visit) -> web.Response:
        heard, backlogs, latest, declined = await self._core.database.read(
            lambda tx: (
                *(inbox.last_received(tx), outbox.backlogs(tx)),
                *(rooms.latest(tx, MAX_ROOMS), rooms.declined(tx, MAX_ROOMS)),
            )
        )
        wanted = visit.query("q").strip()
        origins = self._origins()
        # A room that was another agent's before has a conversation of that one's too.
        once = {room_of(each.key): each for each in reversed(latest)}
        found = [self._room(each) for each in reversed(once.values())]
        groups = [
            card for name in self._plugins for card in _groups(name, self._section(name), origins)
        ]
        asking = [card for room in declined if (card := self._asking(room)) is not None]
        waiting = [each for each in asking if not each.is_let_in]
        let_in = [each for each in asking if each.is_let_in]
        in_rooms = part_of(matching(found, wanted, "place", "chat"), visit.query("rooms"))
        listed = part_of(matching(groups, wanted, "place", "chat"), visit.query("groups"))
        return visit.page(
            "channels.html",
            wanted=wanted,
            is_long=bool(wanted) or in_rooms.parts > 1 or listed.parts > 1,
            channels=self._cards(heard, backlogs),
            said=partial(told, language=visit.language),
            rooms=in_rooms,
            asking=part_of(waiting, visit.query("asking")),
            let_in=part_of(let_in, visit.query("let_in")),
            groups=listed,
            wishes=tuple(WISHES),
            at=partial(address, PATH, wanted),
        )

    # --- what is done -----------------------------------------------------------------------------

    @route("POST", f"{PATH}/check")
    async def _check(self, visit: Visit) -> web.Response:
        """Have a channel check its own set-up, as `confidant doctor` does."""
        name = (await visit.form()).get("channel", "")
        plugin = self._plugins.get(name)
        if plugin is None or plugin.off(self._section(name)):
            return _back("gone")
        async with self._checking:
            before = self._checked.get(name)
            if before is None or abs(visit.now - before.at) >= AGAIN_MS:
                findings = await self._examine(plugin.create(self._section(name)))
                self._checked[name] = Checked(visit.now, findings)
                log.info("channel.checked", channel=name, findings=len(findings))
        return _back("checked", f"channel-{name}")

    @route("POST", f"{PATH}/activation")
    async def _activate(self, visit: Visit) -> web.Response:
        form, now = await visit.form(), visit.now
        key, wish = form.get("key", ""), WISHES.get(form.get("activation", "?"))
        if wish is None:
            return _back("gone")

        def work(tx: Transaction) -> bool:
            if not rooms.is_known(tx, key):
                return False
            rooms.activate(tx, room_of(key), wish, now)
            return True

        if not await self._core.database.write(work):
            return _back("gone")
        await self._read_books()
        log.info("room.activated", activation=wish or "as configured")
        return _back("room", "rooms")

    @route("POST", f"{PATH}/admit", f"{PATH}/dismiss")
    async def _admit(self, visit: Visit) -> web.Response:
        """Let the bot answer in a room that was declined, or no longer."""
        key, now = (await visit.form()).get("key", ""), visit.now
        is_admitted = visit.request.path.endswith("/admit")
        work = partial(rooms.admit, key=key, now=now, is_admitted=is_admitted)
        if not await self._core.database.write(work):
            return _back("gone")
        await self._read_books()
        log.info("room.admitted" if is_admitted else "room.dismissed")
        return _back("let_in" if is_admitted else "sent_out", "asking")

    # --- as it is shown ---------------------------------------------------------------------------

    def _section(self, name: str) -> ChannelConfig:
        return self._core.resolver.policy.config.channels.get(name)

    def _cards(
        self, heard: Mapping[tuple[str, str], int], backlogs: Mapping[tuple[str, str], Backlog]
    ) -> Sequence[ChannelCard]:
        """Those that run, then those that do not."""
        running: dict[str, list[Account]] = {}
        for channel, account, health, detail in self._connections():
            place = (channel, account)
            backlog = backlogs.get(place, Backlog())
            served = self._core.channels.get(channel)
            link = served.invitation(account) if served is not None else ""
            found = Account(account, health.value, detail, heard.get(place, 0), backlog, link)
            running.setdefault(channel, []).append(found)
        off = {name: each.off(self._section(name)) for name, each in self._plugins.items()}
        on = [name for name in running if not off.get(name)]  # one may be switched off meanwhile
        return [
            ChannelCard(
                name,
                running.get(name, ()),
                _options(self._section(name), SHOWN),
                off.get(name, ""),
                self._plugins[name].needs if off.get(name) else "",
                self._checked.get(name),
            )
            for name in (*on, *(name for name, why in off.items() if why))
        ]

    def _asking(self, room: Room) -> RoomCard | None:
        """A room that was declined; None where the configuration decides, whatever is done here."""
        section = self._core.resolver.policy.section(room.origin).config
        if section.listed(room.origin) is not None or section.group_policy != "allowlist":
            return None
        is_let_in = room.origin.chat_ref in self._core.resolver.now.books.admitted
        return RoomCard(room, is_let_in=is_let_in)

    def _room(self, room: Room) -> RoomCard:
        here = self._core.resolver.of(replace(room.origin, sender=""))
        is_heard = here.verdict in {AccessDecision.ALLOW, AccessDecision.LISTEN}
        always = is_always(here.settings, here.activation)
        own = here.settings.listed(room.origin)
        said = own.model_fields_set if own is not None else frozenset[str]()
        return RoomCard(
            room,
            ("always" if always else "mention") if is_heard and here.is_answered else "never",
            self._core.resolver.now.books.chosen.get(room_of(room.key), ""),
            _options(own, [each for each in SHOWN_OF_ROOM if each in said]),
        )


def _groups(
    channel: str, section: ChannelConfig, origins: Mapping[Key, str]
) -> Sequence[GroupCard]:
    """The rooms that a channel's section lists, and those of its accounts."""
    accounts: Mapping[str, ChannelConfig] = getattr(section, "accounts", {})
    found: list[tuple[str, Key, ChannelConfig]] = [(DEFAULT_ACCOUNT, (), section)]
    found += [
        (name, ("accounts", name), account)
        for name, account in accounts.items()
        if "groups" in account.model_fields_set
    ]
    return [
        _group(place_of(channel, name), chat, group, ("channels", channel, *below), origins)
        for name, below, each in found
        for chat, group in each.groups.items()
    ]


def _group(
    place: str, chat: str, group: GroupConfig, above: Key, origins: Mapping[Key, str]
) -> GroupCard:
    key = (*above, "groups", chat)
    where = (source for each, source in origins.items() if each[: len(key)] == key)
    said = [name for name in type(group).model_fields if name in group.model_fields_set]
    return GroupCard(place, shortened(chat), _options(group, said), next(where, ""))


def _options(section: object, names: Sequence[str]) -> list[tuple[str, str]]:
    """Some options with their values, as the configuration would have them."""
    return [(name, shortened(toml_value(getattr(section, name)))) for name in names]


def _back(told: str, anchor: str = "") -> web.Response:
    return see(f"{PATH}?told={told}" + (f"#{anchor}" if anchor else ""))


# --- where memory may be used, as sentences -------------------------------------------------------


SCOPE_PATH: Final = "/channels/scope"
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

    @route("GET", SCOPE_PATH)
    async def _show(self, visit: Visit) -> web.Response:
        return await self._page(visit)

    @route("POST", f"{SCOPE_PATH}/check")
    async def _check(self, visit: Visit) -> web.Response:
        """The sentence of a rule that is being typed, or what is wrong with it."""
        form = await pages.fields(visit)
        rule, problem = await self._looked(visit, form)
        said = "" if rule is None else sentence(visit.language, rule)
        hint = await self._hint(visit, form) if not problem else ""
        body = {"sentence": said, "problem": problem, "hint": hint}
        return web.json_response(body, headers=NO_STORE)

    @route("POST", f"{SCOPE_PATH}/add")
    async def _add(self, visit: Visit) -> web.Response:
        """Add a rule before the others."""
        form = await pages.fields(visit)
        rule, problem = await self._looked(visit, form)
        if rule is None or problem:
            return await self._page(visit, problem, form)
        return await self._save(visit, [rule, *self._rules], "added")

    @route("POST", f"{SCOPE_PATH}/remove", f"{SCOPE_PATH}/up")
    async def _change(self, visit: Visit) -> web.Response:
        """Remove a rule, or move it before the one above; not one that changed meanwhile."""
        form, rules = await pages.fields(visit), list(self._rules)
        number = whole(form.get("number", ""), len(rules))
        if number >= len(rules) or written([rules[number]]) != form.get("rule"):
            return see(f"{SCOPE_PATH}?told=gone")
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
        return see(f"{SCOPE_PATH}?told={told}")

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
        return " ".join(pages.sentences(visit, error))

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
