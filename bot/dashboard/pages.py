"""Pages as the server draws them: a template, in the visitor's language, with a way to the others.

A template is a file of `templates/` that extends "page.html" (with the ways) or "card.html" (for
whoever has none yet). Whatever it shows is escaped. It has `t(key, **values)` for sentences.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from aiohttp import web

from bot.channel import DEFAULT_ACCOUNT, Inbound
from bot.channel.http import VISITOR, Visitor, shared, visitor_of
from bot.clock import moment
from bot.config import Settings
from bot.context.budget import grouped
from bot.i18n import LANGUAGES, language_of, place_of, text
from bot.identity import Conversation, ConversationResolver
from bot.identity.routing import MessageOrigin
from bot.sessions.due_time import shown

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = "/assets"
STYLES = (f"{ASSETS}/base.css", f"{ASSETS}/page.css")
Pages = TypeVar("Pages", bound=type)
NO_STORE: Final = {"Cache-Control": "no-store"}
# The bot's language, or "auto".
LANGUAGE: Final[web.AppKey[Callable[[], str]]] = web.AppKey("language")
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
        """What `aria-current` says of it on the page of a path: it, one below it, or neither."""
        if path == self.path:
            return "page"
        return "true" if self.path != "/" and path.startswith(f"{self.path}/") else ""


_WAYS = [Way("/")]


def in_menu(path: str, *, is_owners: bool = False) -> Callable[[Pages], Pages]:
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
    """Where a visitor may go: path, label, what it stands behind, and the mark it has.

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
    """What this browser's menu was set to: its theme or language; empty for none."""
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


SHOWN = 50  # of a list at once

T = TypeVar("T")


async def sent(request: web.Request) -> Mapping[str, str]:
    """The fields of a form as texts; files are left out.

    Raises:
        HTTPBadRequest: it is no form that can be read.
    """
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
    """Where part `number` of the list `name` of a page is, among what is looked for there."""
    query = {"q": wanted} if wanted else {}
    return f"{path}?{urlencode({**query, name: number})}#{name}"


CHANNEL = "web"


class Visits:
    """Resolves a request to the conversation that its visitor has in the page.

    So every page takes person, view, rights, language and zone from where the chat takes them.
    """

    def __init__(self, resolver: ConversationResolver) -> None:
        self._resolver = resolver

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of what is everybody's."""
        return self._resolver.policy.zone

    def of(self, request: web.Request) -> Conversation:
        """The conversation of whoever asks."""
        locale = request.headers.get("Accept-Language", "").partition(",")[0]
        return self._resolver.of(origin_of(visitor_of(request).name, locale))

    def when(self, request: web.Request, now: int) -> Callable[[int], str]:
        """How times in ms are written for whoever asks: "today at 14:49"."""
        spoken, zone = language(request), self.of(request).zone

        def when(at: int) -> str:
            undated = text(spoken, "conversations.undated")
            return shown(spoken, moment(at, zone), moment(now, zone)) if at else undated

        return when


def origin_of(name: str, locale: str = "") -> MessageOrigin:
    """Where a visitor of this name writes from: their chat in the page."""
    return MessageOrigin(CHANNEL, DEFAULT_ACCOUNT, name, "direct", name, locale=locale)


# A button says what could be typed; the same form sent twice is one message.

Receive = Callable[[Inbound], Awaitable[None]]
ONCE: Final = re.compile(r"[0-9a-f]{32}")


def said(origin: MessageOrigin, words: str, once: str, now: int) -> Inbound:
    """What a visitor says by a form; `now` is in ms since the epoch."""
    return Inbound(
        channel=origin.channel,
        account=origin.account,
        chat=origin.chat,
        chat_type="direct",
        sender=origin.sender,
        message_id=f"page-{once}",
        text=words,
        sent_at=now,
        locale=origin.locale,
    )


# Forms that may hold a whole note: read with a bound on their size, before anything is read.

BESIDE = 64 * 1024  # bytes of a form beside its text


async def form_of(request: web.Request, most: int) -> Mapping[str, str]:
    """The fields of a form that are text.

    Raises:
        HTTPRequestEntityTooLarge: it is larger than `most` bytes and a little.
        HTTPBadRequest: it is no form.
    """
    length = request.content_length
    if length is None or length > most + BESIDE:
        raise web.HTTPRequestEntityTooLarge(most + BESIDE, length or 0)
    return await sent(request.clone(client_max_size=most + BESIDE))
