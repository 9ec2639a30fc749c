"""Requests and pages: whose a request is, which handler answers it, and drawing a template.

A template is a file of `templates/` that extends "page.html" (with the menu) or "card.html" (for
whoever is not logged in). Whatever it shows is escaped. It has `t(key, **values)` for sentences,
and `visit`, the request, where somebody is logged in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from aiohttp import web

from bot.channel import DEFAULT_ACCOUNT, Inbound
from bot.channel.http import VISITOR, SharedRoute, Visitor, shared, visitor_of
from bot.clock import Clock, moment, to_the_minute
from bot.config import Settings
from bot.context.budget import grouped
from bot.i18n import DEFAULT_LANGUAGE, LANGUAGES, catalog, language_of, place_of, text
from bot.identity import Conversation, ConversationResolver
from bot.identity.routing import MessageOrigin
from bot.identity.view import MemoryView
from bot.sessions import entries
from bot.sessions.due_time import shown

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = "/assets"
MEMORY = "/memory"
STYLES = (f"{ASSETS}/base.css", f"{ASSETS}/page.css")
Class = TypeVar("Class", bound=type)
NO_STORE: Final = {"Cache-Control": "no-store"}
# The bot's language, or "auto".
LANGUAGE: Final[web.AppKey[Callable[[], str]]] = web.AppKey("language")
RESOLVER: Final = web.AppKey("resolver", ConversationResolver)
CLOCK: Final[web.AppKey[Clock]] = web.AppKey("clock")
LOOKS: Final = {"theme": ("light", "dark"), "language": LANGUAGES}  # what the menu sets
# What an address of another server would begin with, after characters that a browser leaves out.
BEGINNING: Final = "/\\" + "".join(map(chr, range(33)))
LOOK_SECONDS: Final = 365 * 24 * 3600

# In an owner's request: how many wait on a page, by its path.
WAITING: Final = web.RequestKey("waiting", dict[str, int])
_BY_STATUS = {404: "not_found", 500: "failed", 503: "stopping"}


@dataclass(frozen=True, slots=True)
class Way:
    """A page that every other one leads to; `key` names its label, `nav.<key>`."""

    path: str
    is_owners: bool = False

    @property
    def key(self) -> str:
        """Its path without the slash; the first page is the chat."""
        return self.path[1:] or "chat"

    def mark(self, path: str) -> str:
        """The `aria-current` on the page of a path: "page", "true" (a page below it) or ""."""
        if path == self.path:
            return "page"
        return "true" if self.path != "/" and path.startswith(f"{self.path}/") else ""


_WAYS = [Way("/")]


def in_menu(path: str, *, is_owners: bool = False) -> Callable[[Class], Class]:
    """Add the page of the class below to every menu; if it `is_owners`, behind the owner's gear."""
    _WAYS.append(Way(path, is_owners))
    return lambda pages: pages


def menu() -> list[Way]:
    """Every page of the menu, in the order of their labels in the catalog, the owner's last."""
    return sorted(_WAYS, key=lambda way: (way.is_owners, place_of(f"nav.{way.key}")))


class WayPages:
    """`/api/ways`: where the chat page leads to, and whose it is; `/look`: the menu's switches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return shared([web.get("/api/ways", self._ways), web.post("/look", self._look)])

    async def _ways(self, request: web.Request) -> web.Response:
        visitor, config = visitor_of(request), self._settings.now
        body = {
            "bot": config.agent.name,
            "visitor": visitor.name,
            "is_owner": visitor.is_owner,
            "called": config.session.owner_name if visitor.is_owner else "",
            "language": config.agent.language,
            "hears": config.speech.kind != "none",
            "ways": ways(visitor, language(request), waiting=request.get(WAITING)),
        }
        return web.json_response(body, headers=NO_STORE)

    async def _look(self, request: web.Request) -> web.Response:
        """Keep a theme or language in the browser, and go back; a script reads them as well."""
        form = await sent(request)
        response = see(f"/{form.get('back', '').lstrip(BEGINNING)}")
        for what in form.keys() & LOOKS.keys():
            if form[what] in LOOKS[what]:
                response.set_cookie(
                    f"confidant_{what}", form[what], max_age=LOOK_SECONDS, samesite="Lax"
                )
            else:
                response.del_cookie(f"confidant_{what}")
        return response


def ways(
    visitor: Visitor, spoken: str, path: str = "", waiting: Mapping[str, int] | None = None
) -> list[dict[str, str]]:
    """The menu of a visitor: path, label, the group it is in, and its mark.

    `badge` is how many wait there, as `waiting` has it by path, and empty for none.
    """
    return [
        {
            "path": way.path,
            "label": text(spoken, f"nav.{way.key}"),
            "behind": text(spoken, "nav.administration") if way.is_owners else "",
            "current": way.mark(path),
            "badge": str((waiting or {}).get(way.path) or ""),
        }
        for way in menu()
        if visitor.is_owner or not way.is_owners
    ]


def wants_html(request: web.Request) -> bool:
    """True if a person's browser is asking, rather than a program."""
    return "text/html" in request.headers.get("Accept", "")


def page(request: web.Request, template: str, /, status: int = 200, **values: Any) -> web.Response:
    """A page of a template, with these values in it."""
    spoken = language(request)
    visitor = request.get(VISITOR)
    drawn = _templates().get_template(template)
    listed = list[dict[str, str]]()
    if visitor is not None:
        listed = ways(visitor, spoken, request.path, request.get(WAITING))
    body = drawn.render(
        values,
        t=partial(text, spoken),
        language="zh-CN" if spoken == "zh" else spoken,
        path=request.path,
        here=request.path_qs[1:],  # without the slash: where a proxy adds a path, it is not doubled
        visitor=visitor,
        theme=chosen(request, "theme"),
        ways=[(behind, [*found]) for behind, found in groupby(listed, key=itemgetter("behind"))],
    )
    return web.Response(text=body, status=status, content_type="text/html", headers=NO_STORE)


def see(path: str) -> web.Response:
    """The answer to a form: it is shown there what came of it; loading that repeats nothing."""
    return web.Response(status=303, headers={"Location": path})


def login(request: web.Request, *, status: int = 200, problem: str = "") -> web.Response:
    """The login page; `problem` is a key of what went wrong with the last try."""
    return page(request, "login.html", status, problem=problem)


def opened_at(request: web.Request) -> str:
    """The address that the page is open at, as links for others begin."""
    return request.headers.get("Origin") or f"http://{request.headers.get('Host', '')}"


def refuse(request: web.Request, status: int, key: str) -> web.Response:
    """A sentence saying why not, as a page for a browser and as JSON for a program."""
    why = text(language(request), f"page.{key}")
    if request.path.startswith("/v1/"):  # as OpenAI's clients read it
        said = {"message": why, "type": "invalid_request_error", "param": None, "code": key}
        return web.json_response({"error": said}, status=status, headers=NO_STORE)
    if not wants_html(request):
        return web.json_response({"error": why}, status=status, headers=NO_STORE)
    return page(request, "refusal.html", status, why=why, number=status)


def refuse_status(request: web.Request, status: int) -> web.Response:
    """The answer for an HTTP status nobody wrote a sentence for."""
    return refuse(request, status, _BY_STATUS.get(status, "bad_request"))


def language(request: web.Request) -> str:
    """The one chosen in the menu, else the bot's if it has one, else the browser's."""
    bots = request.app[LANGUAGE]() if LANGUAGE in request.app else "auto"
    wanted = request.headers.get("Accept-Language", "")
    asked = (part.split(";")[0].strip() for part in wanted.split(","))
    return language_of(chosen(request, "language"), bots, *asked)


def chosen(request: web.Request, what: str) -> str:
    """The theme or language chosen in this browser's menu; empty if none."""
    name = request.cookies.get(f"confidant_{what}", "")
    return name if name in LOOKS[what] else ""


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - when needed

    environment = Environment(
        loader=PackageLoader("bot.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["grouped"] = grouped
    return environment


BESIDE: Final = 64 * 1024  # bytes of a form beside a text that it may hold


async def sent(request: web.Request, most: int = 0) -> Mapping[str, str]:
    """The fields of a form as texts; files are left out.

    `most` are the bytes of a text in it, such as a whole note.

    Raises:
        HTTPRequestEntityTooLarge: it is larger than that and a little.
        HTTPBadRequest: it is no form that can be read.
    """
    if most:
        length = request.content_length
        if length is None or length > most + BESIDE:
            raise web.HTTPRequestEntityTooLarge(most + BESIDE, length or 0)
        request = request.clone(client_max_size=most + BESIDE)
    try:
        form = await request.post()
    # Bytes that are no text, an unknown charset, or parts without a boundary between them.
    except (ValueError, LookupError, AssertionError) as error:
        raise web.HTTPBadRequest from error
    return {name: value for name, value in form.items() if isinstance(value, str)}


def whole(words: str, otherwise: int, digits: int = 8) -> int:
    """The whole number that a field or a query holds; `otherwise` for anything else."""
    is_one = words.isascii() and words.isdigit() and len(words) <= digits
    return int(words) if is_one else otherwise


# --- a request of somebody who is logged in -------------------------------------------------------

CHANNEL = "web"
Receive = Callable[[Inbound], Awaitable[None]]
ONCE: Final = re.compile(r"[0-9a-f]{32}")  # a form sent twice is one message


class Visit:
    """A request of somebody who is logged in: who they are, and how they are answered."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.visitor = visitor_of(request)
        self.language = language(request)

    @cached_property
    def conversation(self) -> Conversation:
        """Their chat in the page, as the chat has it: person, view, rights, time zone.

        Where an `agent` is chosen it is the chat that they would have with that one.
        """
        return self._chat_with(self.agent)

    def _chat_with(self, agent: str) -> Conversation:
        locale = self.request.headers.get("Accept-Language", "").partition(",")[0]
        return self.request.app[RESOLVER].of(origin_of(self.visitor.name, locale), agent)

    @cached_property
    def agent(self) -> str:
        """The agent chosen by `?agent=`, on pages of memory; empty for whoever answers in the page.

        Raises:
            HTTPNotFound: there is none of this name that has its own memory of them.
        """
        path = self.request.path
        wanted = self.query("agent") if f"{path}/".startswith(f"{MEMORY}/") else ""
        if wanted and wanted not in self.memories:
            raise web.HTTPNotFound
        return wanted

    @cached_property
    def memories(self) -> Mapping[str, str]:
        """The agents whose memories they may look at, by name; the page's own first."""
        found = self._chat_with("").memories
        policy = self.request.app[RESOLVER].policy
        called = {each: policy.of_agent(each).agent.name for each in found}
        often = Counter(called.values())
        return {
            each: name if often[name] == 1 else f"{name} ({each})" for each, name in called.items()
        }

    def own(self, address: str) -> str:
        """An address of a page of memory, for the agent that is chosen."""
        if not self.agent:
            return address
        path, mark, line = address.partition("#")
        query = urlencode({"agent": self.agent})
        return f"{path}{'&' if '?' in path else '?'}{query}{mark}{line}"

    @property
    def view(self) -> MemoryView:
        """The memory they may see."""
        return self.conversation.view

    @property
    def zone(self) -> ZoneInfo:
        """Their time zone."""
        return self.conversation.zone

    @property
    def bot_zone(self) -> ZoneInfo:
        """The time zone of what is everybody's."""
        return self.request.app[RESOLVER].policy.zone

    @property
    def is_owner(self) -> bool:
        """True for the owner."""
        return self.visitor.is_owner

    @property
    def now(self) -> int:
        """The time, in ms since the epoch."""
        return self.request.app[CLOCK]()

    @property
    def today(self) -> date:
        """The day in their time zone."""
        return self.at(self.now).date()

    # --- what they sent ---------------------------------------------------------------------------

    def query(self, name: str) -> str:
        """A field of the query; empty if it is not there."""
        return self.request.query.get(name, "")

    def number(self, name: str, otherwise: int = 0) -> int:
        """A whole number of the query; `otherwise` for anything else."""
        return whole(self.query(name), otherwise)

    async def form(self, most: int = 0) -> Mapping[str, str]:
        """The fields of a form; see `sent`."""
        return await sent(self.request, most)

    def says(self, words: str, once: str) -> Inbound:
        """The message that a button sends for them; the same `once` is the same message."""
        origin = self.conversation.origin
        return Inbound(
            channel=origin.channel,
            account=origin.account,
            chat=origin.chat,
            chat_type="direct",
            sender=origin.sender,
            message_id=f"page-{once}",
            text=words,
            sent_at=self.now,
            locale=origin.locale,
        )

    # --- what they are shown ----------------------------------------------------------------------

    def page(self, template: str, /, status: int = 200, **values: Any) -> web.Response:
        """A page of a template, with these values and the visit in it."""
        return page(self.request, template, status, visit=self, **values)

    def say(self, key: str, /, **values: object) -> str:
        """A sentence in their language."""
        return text(self.language, key, **values)

    def told(self, section: str) -> str:
        """The key below `<section>.told` in the query; empty if there is no such text."""
        told = self.query("told")
        return told if f"{section}.told.{told}" in catalog(DEFAULT_LANGUAGE) else ""

    def at(self, ms: int) -> datetime:
        """A time in their time zone."""
        return moment(ms, self.zone)

    def minute(self, ms: int) -> str:
        """A time as "2026-11-23 08:05"."""
        return to_the_minute(ms, self.zone)

    def when(self, ms: int) -> str:
        """A time as "today at 14:49"; "undated" for 0."""
        if not ms:
            return self.say("conversations.undated")
        return shown(self.language, self.at(ms), self.at(self.now))

    def day(self, ms: int) -> str:
        """The day of a time, in words; "undated" for 0."""
        if not ms:
            return self.say("conversations.undated")
        day = self.at(ms)
        if day.date() == self.today:
            return self.say("conversations.today")
        if day.date() == self.today - timedelta(days=1):
            return self.say("conversations.yesterday")
        weekday = self.say("conversations.weekdays").split()[day.weekday()]
        return self.say("conversations.day", weekday=weekday, date=f"{day:%Y-%m-%d}")

    def clock(self, ms: int) -> str:
        """The time of day of a time; empty for 0."""
        return f"{self.at(ms):%H:%M}" if ms else ""

    def place(self, channel: str) -> str:
        """The place of a conversation, in words."""
        if name := entries.imported_name(channel):
            return self.say("conversations.imported", name=name)
        is_page = channel == CHANNEL
        return self.say("conversations.page") if is_page else channel.replace("_", " ").capitalize()


def origin_of(name: str, locale: str = "") -> MessageOrigin:
    """The origin of a visitor's messages: their chat on the page."""
    return MessageOrigin(CHANNEL, DEFAULT_ACCOUNT, name, "direct", name, locale=locale)


# --- handlers -------------------------------------------------------------------------------------

Handler = TypeVar("Handler", bound=Callable[[Any, Visit], Awaitable[web.StreamResponse]])


def route(method: str, *paths: str, shared: bool = False) -> Callable[[Handler], Handler]:
    """Let the method below answer some paths, for the owner alone unless they are `shared`.

    A shared one shows each visitor nothing but their own.
    """

    def declare(handler: Handler) -> Handler:
        kind = SharedRoute if shared else web.RouteDef
        vars(handler).setdefault("routes", []).extend((kind, method, path) for path in paths)
        return handler

    return declare


class Pages:
    """Pages of one subject; `route` declares their handlers."""

    def routes(self) -> list[web.RouteDef]:
        """The routes, in the order in which they are declared."""
        return [
            kind(method, path, partial(_answer, partial(handler, self)), {})
            for handler in vars(type(self)).values()
            for kind, method, path in getattr(handler, "routes", ())
        ]


async def _answer(
    handler: Callable[[Visit], Awaitable[web.StreamResponse]], request: web.Request
) -> web.StreamResponse:
    return await handler(Visit(request))


# --- lists, a part at a time ----------------------------------------------------------------------

SHOWN = 50  # of a list at once

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of a list: its rows, which part it is of how many, and how long the list is."""

    rows: Sequence[T]
    number: int
    parts: int
    total: int


def part_of(rows: Sequence[T], wanted: str) -> Part[T]:
    """The part of a list that a query asks for by its number from 1; the nearest there is."""
    parts = max(1, -(-len(rows) // SHOWN))
    number = min(max(whole(wanted, 1), 1), parts)
    return Part(rows[(number - 1) * SHOWN : number * SHOWN], number, parts, len(rows))


def matching(rows: Sequence[T], wanted: str, *names: str) -> Sequence[T]:
    """The rows that have what is looked for in one of these attributes; case does not count."""
    part = wanted.casefold()
    return [row for row in rows if any(part in getattr(row, name).casefold() for name in names)]


def address(path: str, wanted: str, name: str, number: int) -> str:
    """The address of part `number` of the list `name` on a page, within a search."""
    query = {"q": wanted} if wanted else {}
    return f"{path}?{urlencode({**query, name: number})}#{name}"
