"""`/people` and `/logins`, for the owner: who may talk in chats, and who is let in to the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from bot.channel import PAGE_OWNER
from bot.channel.http import VISITOR, network_of
from bot.config import Settings
from bot.core import Core
from bot.dashboard import pages
from bot.dashboard.browsers import Browsers
from bot.dashboard.guard import COOKIE, COOKIE_SECONDS, Guard
from bot.dashboard.pages import (
    Pages,
    Visit,
    address,
    in_menu,
    matching,
    part_of,
    route,
    see,
    sent,
)
from bot.delivery.outbox import Letter
from bot.identity import MessageOrigin, Seat, routing
from bot.sessions import page_logins, pairing
from bot.sessions.page_logins import MAX_KEY_NAME
from bot.settings.fields import Key
from bot.shares import PASSWORDS, Pool
from bot.storage import Transaction
from bot.views import people as views
from bot.views.people import LetIn, people

if TYPE_CHECKING:
    from argon2 import PasswordHasher

HERE = "/logins"


@in_menu("/logins", is_owners=True)
class LoginPages(Pages):
    """The owner's: names and times, never a word of what somebody said."""

    def __init__(self, browsers: Browsers, settings: Settings) -> None:
        self._browsers = browsers
        self._settings = settings

    @route("GET", HERE)
    async def _page(
        self, visit: Visit, status: int = 200, problem: str = "", invited: str = "", link: str = ""
    ) -> web.Response:
        return visit.page(
            "logins.html",
            status,
            people=await self._browsers.people(),
            problem=problem,
            invited=invited,
            link=link,
            has_token=self._settings.now.dashboard.has_token,
            is_public=bool(self._settings.now.dashboard.public_url),
        )

    @route("POST", HERE)
    async def _invite(self, visit: Visit) -> web.Response:
        name = (await visit.form()).get("name", "").strip().lower()
        if not self._settings.now.dashboard.has_token:
            return await self._page(visit, 409, "no_token")
        if not page_logins.is_name(name):
            return await self._page(visit, 400, "bad_name")
        key = page_logins.new_key()
        made = await self._browsers.invite(name, key, visit.language)
        if made != "made":
            return await self._page(visit, 409, made)
        # The link is kept nowhere, so this answer is the one that shows it: sent again, the form
        # makes another.
        here = self._settings.now.dashboard.public_url or pages.opened_at(visit.request)
        return await self._page(visit, invited=name, link=f"{here}/enter?key={key}")

    @route("POST", f"{HERE}/out")
    async def _take_out(self, visit: Visit) -> web.Response:
        name = (await visit.form()).get("name", "")
        if not page_logins.is_name(name):
            raise web.HTTPBadRequest
        await self._browsers.take_out(name)
        return see(HERE)


SHORTEST, LONGEST = 12, 256  # characters
MEMORY = 19_456  # KiB; with TIMES the least that OWASP's cheat sheet of passwords recommends
TIMES: Final = 2
# Of no password at all: what is typed for a name that has none takes the same time.
NOBODYS = (
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA"
    "$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


class Passwords:
    """Hashes and compares, in threads; `whose` is a person, or the network of who may be one."""

    def __init__(self) -> None:
        self._pool = Pool(PASSWORDS)

    async def hash(self, whose: str, password: str) -> str:
        """A hash to keep, with a salt and its parameters in it."""
        async with self._pool.place(whose):
            return await asyncio.to_thread(lambda: _hasher().hash(password))

    async def matches(self, whose: str, hashed: str, typed: str) -> bool:
        """True if this is the password; an empty hash is nobody's, and takes as long."""
        if len(typed) > LONGEST:
            typed = ""
        async with self._pool.place(whose):
            return await asyncio.to_thread(_matches, hashed or NOBODYS, typed) and bool(hashed)


def _matches(hashed: str, typed: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - see below

    try:
        return _hasher().verify(hashed, typed)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # noqa: PLC0415 - only where somebody has a password

    return PasswordHasher(time_cost=TIMES, memory_cost=MEMORY, parallelism=1)


log = structlog.get_logger(__name__)


class Entrance:
    """`/login`, and `/enter` for links.

    A link that is only looked at, as chat programs do for a preview, is not used up: that takes a
    press on the button of its page.
    """

    def __init__(self, guard: Guard, browsers: Browsers, passwords: Passwords) -> None:
        self._guard = guard
        self._browsers = browsers
        self._passwords = passwords

    def routes(self) -> list[web.RouteDef]:
        """The route."""
        return [
            web.get("/login", self._login_page),
            web.post("/login", self._login),
            web.get("/enter", self._link_page),
            web.post("/enter", self._enter),
        ]

    # --- the token, or a name and a password ------------------------------------------------------

    async def _login_page(self, request: web.Request) -> web.Response:
        if self._guard.tokens is None or VISITOR in request:
            return pages.see("/")
        return pages.login(request)

    async def _login(self, request: web.Request) -> web.Response:
        tokens = self._guard.tokens
        if tokens is None:
            return pages.see("/")
        form = await sent(request)
        name = form.get("name", "").strip().lower()
        if name:
            return await self._by_password(request, name, form.get("password", ""))
        verdict = await self._guard.prove(request, form.get("token", ""))
        if verdict == "too_many":
            return pages.refuse(request, 429, "too_many")
        if verdict == "wrong":
            return pages.login(request, status=401, problem="token_wrong")
        return await self._let_in(request, PAGE_OWNER, tokens.issue())

    async def _by_password(self, request: web.Request, name: str, typed: str) -> web.Response:
        known = await self._browsers.person(name) if page_logins.is_name(name) else None
        hashed = known.password if known is not None else ""
        is_right = await self._passwords.matches(network_of(request.remote or ""), hashed, typed)
        match await self._guard.answer(request, is_right=is_right, name=name):
            case "too_many":
                return pages.refuse(request, 429, "too_many_passwords")
            case "wrong":
                return pages.login(request, status=401, problem="password_wrong")
            case "right":
                origin = known.origin if known is not None else None
                return await self._let_in(request, name, page_logins.new_key(), origin)

    # --- by a link --------------------------------------------------------------------------------

    async def _link_page(self, request: web.Request) -> web.Response:
        key = request.query.get("key", "")
        if await self._browsers.offered(key) is None:
            return pages.refuse(request, 410, "link_gone")
        return pages.page(request, "enter.html", key=key)

    async def _enter(self, request: web.Request) -> web.Response:
        entered = await self._browsers.enter((await sent(request)).get("key", ""))
        # Nobody finds 256 bits; but whoever tries is as slow as with the token.
        verdict = await self._guard.answer(request, is_right=entered is not None)
        if entered is None:
            number, why = (429, "too_many") if verdict == "too_many" else (410, "link_gone")
            return pages.refuse(request, number, why)
        tokens = self._guard.tokens
        cookie = page_logins.new_key()
        if entered.person == PAGE_OWNER and tokens is not None:
            cookie = tokens.issue()
        return await self._let_in(request, entered.person, cookie, entered.origin)

    async def _let_in(
        self, request: web.Request, person: str, cookie: str, origin: MessageOrigin | None = None
    ) -> web.Response:
        agent = request.headers.get("User-Agent", "")
        await self._browsers.begin(person, cookie, agent, origin)
        response = pages.see("/")
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="Strict",
            # Behind a TLS proxy the page's own origin tells that the browser speaks https.
            secure=request.secure or request.headers.get("Origin", "").startswith("https://"),
        )
        log.info("dashboard.login.ok", is_owner=person == PAGE_OWNER)
        return response


ACCOUNT = "/account"


@in_menu("/account")
class AccountPages(Pages):
    """Each visitor's own; the owner's log in with the token, everybody else may have a password."""

    def __init__(self, browsers: Browsers, passwords: Passwords) -> None:
        self._browsers = browsers
        self._passwords = passwords

    @route("GET", ACCOUNT, shared=True)
    async def _page(self, visit: Visit, status: int = 200, problem: str = "") -> web.Response:
        known = None if visit.is_owner else await self._browsers.person(visit.visitor.name)
        return visit.page(
            "account.html",
            status,
            logins=await self._browsers.of(visit.visitor.name),
            has_password=known is not None and bool(known.password),
            shortest=SHORTEST,
            problem=problem,
            is_done="done" in visit.request.query,
        )

    @route("POST", f"{ACCOUNT}/end", shared=True)
    async def _end(self, visit: Visit) -> web.Response:
        login = (await visit.form()).get("login", "")
        if not login:
            raise web.HTTPBadRequest
        await self._browsers.end(visit.visitor.name, login)
        return see(ACCOUNT)

    @route("POST", f"{ACCOUNT}/end-others", shared=True)
    async def _end_others(self, visit: Visit) -> web.Response:
        await self._browsers.end(visit.visitor.name, besides=visit.visitor.login)
        return see(ACCOUNT)

    @route("POST", f"{ACCOUNT}/logout", shared=True)
    async def _log_out(self, visit: Visit) -> web.Response:
        if visit.visitor.login:
            await self._browsers.end(visit.visitor.name, visit.visitor.login)
        response = see("/login")
        response.del_cookie(COOKIE)
        return response

    @route("POST", f"{ACCOUNT}/password", shared=True)
    async def _set_password(self, visit: Visit) -> web.Response:
        visitor, form = visit.visitor, await visit.form()
        old, new = form.get("old", ""), form.get("new", "")
        known = None if visit.is_owner else await self._browsers.person(visitor.name)
        if known is None:
            raise web.HTTPBadRequest
        if known.password and not await self._passwords.matches(visitor.name, known.password, old):
            return await self._page(visit, 400, "old_wrong")
        if not SHORTEST <= len(new) <= LONGEST:
            return await self._page(visit, 400, "length")
        hashed = await self._passwords.hash(visitor.name, new)
        await self._browsers.set_password(visitor.name, hashed, besides=visitor.login)
        return see(f"{ACCOUNT}?done")


# `/programs`: keys and webhooks, with which programs talk and report to somebody.

PROGRAMS: Final = "/programs"
MOST_TEMPLATE: Final = 2_000  # characters


@in_menu(PROGRAMS)
class ProgramPages(Pages):
    """Each visitor's own. A secret is kept nowhere readable: the answer that makes it shows it."""

    def __init__(self, browsers: Browsers, settings: Settings) -> None:
        self._browsers = browsers
        self._settings = settings

    @route("GET", PROGRAMS, shared=True)
    async def _page(
        self, visit: Visit, status: int = 200, problem: str = "", key: str = "", secret: str = ""
    ) -> web.Response:
        person = visit.visitor.name
        return visit.page(
            "programs.html",
            status,
            keys=await self._browsers.keys(person),
            hooks=await self._browsers.hooks(person),
            base=self._settings.now.dashboard.public_url or pages.opened_at(visit.request),
            problem=problem,
            key=key,
            secret=secret,
        )

    @route("POST", f"{PROGRAMS}/keys", shared=True)
    async def _make_key(self, visit: Visit) -> web.Response:
        form = await visit.form()
        name, is_apart = _name(form.get("name", "")), form.get("talks") == "apart"
        if not name:
            return await self._page(visit, 400, "no_name")
        key = await self._browsers.make_key(visit.visitor.name, name, is_apart=is_apart)
        if not key:
            return await self._page(visit, 409, "too_many")
        return await self._page(visit, key=key)

    @route("POST", f"{PROGRAMS}/keys/revoke", shared=True)
    async def _revoke(self, visit: Visit) -> web.Response:
        await self._browsers.revoke(visit.visitor.name, (await visit.form()).get("key", ""))
        return see(PROGRAMS)

    @route("POST", f"{PROGRAMS}/hooks", shared=True)
    async def _make_hook(self, visit: Visit) -> web.Response:
        form = await visit.form()
        name, template = _name(form.get("name", "")), form.get("template", "").strip()
        if not name:
            return await self._page(visit, 400, "no_name")
        if len(template) > MOST_TEMPLATE:
            return await self._page(visit, 400, "long")
        secret = await self._browsers.add_hook(visit.visitor.name, name, template)
        if not secret:
            return await self._page(visit, 409, "too_many")
        return await self._page(visit, secret=secret)

    @route("POST", f"{PROGRAMS}/hooks/delete", shared=True)
    async def _delete_hook(self, visit: Visit) -> web.Response:
        await self._browsers.delete_hook(visit.visitor.name, (await visit.form()).get("hook", ""))
        return see(PROGRAMS)


def _name(typed: str) -> str:
    """The name of a program, on one line."""
    flat = " ".join(typed.replace("[", "(").replace("]", ")").split())
    return "".join(letter for letter in flat if letter.isprintable())[:MAX_KEY_NAME].strip()


# --- people of chats ------------------------------------------------------------------------------


PATH: Final = "/people"
FOUND_BY: Final = ("label", "id", "place", "code")

Act = Callable[[Transaction, Seat, int], object]
"""Done for an account at a time; gives nothing when there is nothing to do."""

ACTS: Final[Mapping[str, tuple[str, Act]]] = {
    "block": ("blocked", views.block),
    "again": ("again", views.let_in_again),
    "unblock": ("may_ask", lambda tx, seat, _now: views.unblock(tx, seat)),
    "revoke": ("ended", lambda tx, seat, _now: views.revoke(tx, seat)),
    "part": ("parted", views.end_link),
}


@in_menu("/people", is_owners=True)
class PeoplePages(Pages):
    """Names, ids and times of people; never a word of what they said."""

    def __init__(
        self,
        core: Core,
        *,
        origins: Callable[[], Mapping[Key, str]],
        read_books: Callable[[], Awaitable[None]],
        post: Callable[[Iterable[Letter]], None],
    ) -> None:
        """`origins` gives where the configuration's values stand.

        `read_books` lets what was changed count at once, `post` sends what somebody is told.
        """
        self._core = core
        self._origins = origins
        self._read_books = read_books
        self._post = post

    async def waiting(self) -> int:
        """The number of people who ask to be let in."""
        now = self._core.clock()
        return len(await self._core.database.read(lambda tx: pairing.pending(tx, now)))

    @route("GET", PATH)
    async def _page(self, visit: Visit) -> web.Response:
        now, session = visit.now, self._core.resolver.policy.config.session
        everybody = await self._core.database.read(lambda tx: people(tx, session, now))
        wanted = visit.query("q").strip()
        parts = {
            name: part_of(matching(getattr(everybody, name), wanted, *FOUND_BY), visit.query(name))
            for name in ("asking", "admitted", "linked", "blocked")
        }
        return visit.page(
            "people.html",
            wanted=wanted,
            is_long=bool(wanted) or any(part.parts > 1 for part in parts.values()),
            minutes=pairing.VALID_MS // 60_000,
            at=partial(address, PATH, wanted),
            owner_name=session.owner_name,
            owners=[name for name in routing.names_of(session, routing.OWNER) if ":" in name],
            identities=session.identity_links,
            where=self._where,
            parts=parts,
        )

    def _where(self, *names: str) -> str:
        """The source of an option of `[session]`, such as "confidant.toml:7"; empty if unknown."""
        key = ("session", *names)
        places = (source for each, source in self._origins().items() if each[: len(key)] == key)
        return next(places, "")

    # --- what is done -----------------------------------------------------------------------------

    @route("POST", f"{PATH}/approve")
    async def _approve(self, visit: Visit) -> web.Response:
        form, now = await visit.form(), visit.now
        channel, code, me = form.get("channel", ""), form.get("code", ""), "me" in form
        session = self._core.resolver.policy.config.session
        done = await self._core.database.write(
            lambda tx: views.approve(tx, session, channel, code, now, me=me)
        )
        return await self._done(done, "let_in_me" if me else "let_in", channel)

    @route("POST", *(f"{PATH}/{act}" for act in ACTS))
    async def _act(self, visit: Visit) -> web.Response:
        told, act = ACTS[visit.request.path.removeprefix(f"{PATH}/")]
        form, now = await visit.form(), visit.now
        seat = (form.get("channel", ""), form.get("sender", ""))
        if told == "blocked" and self._core.resolver.now.person_of(seat).is_owner:
            return _back("own")
        done = await self._core.database.write(lambda tx: act(tx, seat, now))
        return await self._done(done or "gone", told, seat[0])

    async def _done(self, done: object, told: str, channel: str) -> web.Response:
        """Apply the change on this node; the transaction tells the others."""
        if isinstance(done, str):
            return _back(done)
        letter = done.letter if isinstance(done, LetIn) else done
        if isinstance(letter, Letter):
            self._post([letter])
        await self._read_books()
        log.info("people.changed", done=told, channel=channel)
        return _back(told)


def _back(told: str) -> web.Response:
    return see(f"{PATH}?told={told}")
