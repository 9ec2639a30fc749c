"""The few pages the server itself has: login, and short answers for what went wrong."""

from __future__ import annotations

from html import escape
from importlib import resources
from string import Template

from aiohttp import web

from bot.i18n import language_of

STYLE_PATH = "/login.css"

# These pages speak before anyone is known, so they carry their few words with them.
WORDS: dict[str, dict[str, str]] = {
    "en": {
        "title": "Confidant",
        "heading": "This is a private place",
        "lead": "Enter the access token to open the chat.",
        "token": "Access token",
        "open": "Open",
        "hint": "It is the CONFIDANT_DASHBOARD__TOKEN of whoever runs this bot.",
        "back": "Back to the chat",
        "token_needed": "This needs the access token.",
        "token_wrong": "That is not the access token.",
        "too_many": "Too many wrong tokens. Wait a minute, then try again.",
        "host": "This address only answers to 127.0.0.1, localhost or [::1]. To open it by "
        "another name, set CONFIDANT_DASHBOARD__TOKEN.",
        "proxy": "This request came through a proxy. To use one, set CONFIDANT_DASHBOARD__TOKEN.",
        "origin": "This request did not come from our own page. If a reverse proxy serves it, add "
        "its address to [dashboard] allowed_origins.",
        "not_found": "There is no such page.",
        "failed": "Something went wrong here. The log has the reason.",
        "bad_request": "The server could not make sense of this request.",
        "stopping": "The bot is starting or stopping. Try again in a moment.",
    },
    "zh": {
        "title": "Confidant",
        "heading": "这里是私密空间",
        "lead": "请输入访问令牌以打开聊天。",
        "token": "访问令牌",
        "open": "打开",
        "hint": "令牌即运行者设置的 CONFIDANT_DASHBOARD__TOKEN。",
        "back": "返回聊天",
        "token_needed": "需要访问令牌。",
        "token_wrong": "访问令牌不正确。",
        "too_many": "错误次数过多，请一分钟后再试。",
        "host": "此地址只接受 127.0.0.1、localhost 或 [::1]。要用其他名称访问，请设置 "
        "CONFIDANT_DASHBOARD__TOKEN。",
        "proxy": "此请求经过了代理。要使用代理，请设置 CONFIDANT_DASHBOARD__TOKEN。",
        "origin": "此请求不是来自本站页面。若使用反向代理，请把它的地址加入 "
        "[dashboard] allowed_origins。",
        "not_found": "没有这个页面。",
        "failed": "这里出了点问题，原因已写入日志。",
        "bad_request": "服务器无法理解此请求。",
        "stopping": "机器人正在启动或停止，请稍后再试。",
    },
}

_BY_STATUS = {404: "not_found", 500: "failed", 503: "stopping"}

_PAGE = Template("""<!doctype html>
<html lang="$lang">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="stylesheet" href="$style">
<main>$body</main>
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
    words = _words(request)
    told = f'<p class="problem" role="alert">{escape(words[problem])}</p>' if problem else ""
    body = _LOGIN.substitute({k: escape(v) for k, v in words.items()}, problem=told)
    return _html(request, body, status)


def refuse(request: web.Request, status: int, key: str) -> web.Response:
    """A sentence saying why not, as a page for a browser and as JSON for a program."""
    words = _words(request)
    if not wants_html(request):
        return web.json_response(
            {"error": words[key]}, status=status, headers={"Cache-Control": "no-store"}
        )
    body = f'<h1>{status}</h1><p>{escape(words[key])}</p><p><a href="/">{words["back"]}</a></p>'
    return _html(request, body, status)


def refuse_status(request: web.Request, status: int) -> web.Response:
    """The answer for an HTTP status nobody wrote a sentence for."""
    return refuse(request, status, _BY_STATUS.get(status, "bad_request"))


def _html(request: web.Request, body: str, status: int) -> web.Response:
    page = _PAGE.substitute(
        lang=_language(request), title=_words(request)["title"], style=STYLE_PATH, body=body
    )
    return web.Response(
        text=page, status=status, content_type="text/html", headers={"Cache-Control": "no-store"}
    )


def _language(request: web.Request) -> str:
    wanted = request.headers.get("Accept-Language", "")
    return language_of(*(part.split(";")[0].strip() for part in wanted.split(",")))


def _words(request: web.Request) -> dict[str, str]:
    return WORDS[_language(request)]
