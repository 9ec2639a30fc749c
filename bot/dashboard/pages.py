"""The few pages the server itself has: login, and short answers for what went wrong."""

from __future__ import annotations

from html import escape
from importlib import resources
from string import Template

from aiohttp import web

from bot.i18n import language_of, text

STYLE_PATH = "/login.css"

_BY_STATUS = {404: "not_found", 500: "failed", 503: "stopping"}

_PAGE = Template("""<!doctype html>
<html lang="$lang">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Confidant</title>
<link rel="stylesheet" href="$style">
<main$layout>$body</main>
</html>
""")

_LOGIN = Template("""
<h1>$heading</h1>
<p>$lead</p>
$problem
<form method="post" action="/login">
<label for="token">$token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>$open</button>
</form>
<p class="hint">$hint</p>
""")


def wants_html(request: web.Request) -> bool:
    """Whether a person's browser is asking, rather than a program."""
    return "text/html" in request.headers.get("Accept", "")


def style() -> str:
    """The style sheet of these pages."""
    return resources.files("bot.dashboard").joinpath("login.css").read_text("utf-8")


def login(request: web.Request, *, status: int = 200, problem: str = "") -> web.Response:
    """The login page; `problem` is a key of what went wrong with the last try."""
    names = [name for name in _LOGIN.get_identifiers() if name != "problem"]
    words = {name: escape(_word(request, name)) for name in names}
    told = _word(request, problem) if problem else ""
    told = told and f'<p class="problem" role="alert">{escape(told)}</p>'
    return html(request, _LOGIN.substitute(words, problem=told), status)


def refuse(request: web.Request, status: int, key: str) -> web.Response:
    """A sentence saying why not, as a page for a browser and as JSON for a program."""
    why, back = _word(request, key), _word(request, "back")
    if not wants_html(request):
        headers = {"Cache-Control": "no-store"}
        return web.json_response({"error": why}, status=status, headers=headers)
    body = f'<h1>{status}</h1><p>{escape(why)}</p><p><a href="/">{escape(back)}</a></p>'
    return html(request, body, status)


def refuse_status(request: web.Request, status: int) -> web.Response:
    """The answer for an HTTP status nobody wrote a sentence for."""
    return refuse(request, status, _BY_STATUS.get(status, "bad_request"))


def html(request: web.Request, body: str, status: int = 200, *, wide: bool = False) -> web.Response:
    """A page with this in its middle; `wide` ones have room for tables."""
    layout = ' class="wide"' if wide else ""
    page = _PAGE.substitute(lang=language(request), style=STYLE_PATH, body=body, layout=layout)
    return web.Response(
        text=page, status=status, content_type="text/html", headers={"Cache-Control": "no-store"}
    )


def language(request: web.Request) -> str:
    """The browser's: these pages speak before anyone is known."""
    wanted = request.headers.get("Accept-Language", "")
    return language_of(*(part.split(";")[0].strip() for part in wanted.split(",")))


def _word(request: web.Request, key: str) -> str:
    return text(language(request), f"page.{key}")
