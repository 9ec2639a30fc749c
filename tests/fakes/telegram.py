"""A Bot API server in a few hundred lines, for tests, benchmarks and crash proofs.

It speaks real HTTP on 127.0.0.1 and is as strict as the real one where a bot can go wrong: tokens,
offsets and redelivery, two pollers, webhooks, limits, entities, blocked users, flood control.

In a test: `async with FakeTelegram() as telegram: ...`. As a process of its own:
`python -m tests.fakes.telegram --port 8099`, with

    POST /control/push   [{"user_id": 7, "text": "hello"}, {"update": {...}}, ...]
    GET  /control/sent   ?since=N   what bots sent: [{"chat_id", "text", "at", ...}]
    GET  /control/state             {"sent": n, "pending": n, "pushed": n, "calls": {method: n}}
    GET  /control/wait   ?sent=N&timeout=S   returns the state once N messages were sent
    POST /control/fail   {"method": "sendMessage", "status": 429, "retry_after": 1, "times": 1}
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.fakes.mocks import run_fake
from tests.fakes.sites import Changed
from tests.fakes.telegram_parts import (
    ApiError,
    BotState,
    Call,
    Fault,
    Json,
    Sent,
    answer,
    bot_user,
    failure,
    keep_allowed,
    parameters_of,
)
from tests.fakes.telegram_rooms import Rooms

TOKEN = "123456789:AAFakeTokenForTestsOnly_0123456789abc"
MAX_UPLOAD = 51 << 20  # bytes of one request
HIDDEN_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})


class FakeTelegram(Rooms):
    """The server; start it with `async with`."""

    def __init__(
        self,
        *tokens: str,
        webhook_retry: float = 0.02,
        record_calls: bool = True,
    ) -> None:
        super().__init__()
        self.bots = {
            token: BotState(token, int(token.split(":")[0]), f"confidant{index or ''}_bot")
            for index, token in enumerate(tokens or (TOKEN,))
        }
        self.token = next(iter(self.bots))
        self.webhook_retry = webhook_retry
        self.record_calls = record_calls
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.deliveries: list[int] = []  # status codes of webhook calls
        self.url = ""
        self._pushed = 0
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._changed = Changed()
        self._http: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._methods: dict[str, Callable[[BotState, Json], Any]] = {
            "getupdates": self._get_updates,
            "setwebhook": self._set_webhook,
            "deletewebhook": self._delete_webhook,
            "getwebhookinfo": self._get_webhook_info,
        } | self.methods()

    # --- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; `url` says where."""
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, request_factory=_request),
            handle_signals=False,
            shutdown_timeout=0.2,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024)
        await site.start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"

    async def stop(self) -> None:
        """Stop listening; polls that wait end in a conflict."""
        for bot in self.bots.values():
            bot.poller += 1
            bot.changed.set()
            await self._stop_delivery(bot)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    # --- what tests say and ask --------------------------------------------------------------

    def push(self, update: Json, token: str = "") -> int:
        """Queue an update for a bot and return its number; without one it gets the next."""
        bot = self.bots[token or self.token]
        number = update.get("update_id")
        if not isinstance(number, int):
            number = bot.next_update
            update = {"update_id": number, **update}
        bot.next_update = max(bot.next_update, number) + 1
        kind = next((key for key in update if key != "update_id"), "")
        allowed = bot.allowed
        wanted = kind in allowed if allowed else kind not in HIDDEN_BY_DEFAULT
        if wanted or not kind:
            bot.updates.append(update)
            self._pushed += 1
            bot.changed.set()
        return number

    def message(self, user_id: int, text: str | None = None, **extra: Any) -> Json:
        """A private message as Telegram describes it; `extra` replaces or adds fields."""
        self.chats.add(user_id)
        number: int = extra.pop("message_id", 0) or self._new_message_id(user_id)
        self._messages[user_id][number] = text or ""
        who: Json = {"id": user_id, "is_bot": False, "first_name": f"User{user_id}"}
        who["language_code"] = "en"
        who.update(extra.pop("from_user", {}))
        chat = {"id": user_id, "type": "private", "first_name": who["first_name"]}
        base: Json = {"message_id": number, "from": who, "chat": chat, "date": int(time.time())}
        if text is not None:
            base["text"] = text
        thread = extra.get("message_thread_id")
        if isinstance(thread, int):
            self.topics[user_id].add(thread)
        return base | extra

    def push_text(self, user_id: int, text: str | None, token: str = "", **extra: Any) -> int:
        """A person writes to a bot; returns the message id."""
        message = self.message(user_id, text, **extra)
        self.push({"message": message}, token)
        number: int = message["message_id"]
        return number

    def press(
        self,
        user_id: int,
        message_id: int,
        data: str = "",
        /,
        *,
        token: str = "",
        room: int = 0,
        **extra: Any,
    ) -> str:
        """A person presses a button below a message; the id of the press.

        Without `data` it is the first button that still stands there. `extra` replaces or adds
        fields of the callback query.
        """
        chat = room or user_id
        rows = self.keyboards.get((chat, message_id))
        data = data or (rows[0][0]["callback_data"] if rows else "")
        query = str(4_000_000_000_000_000_000 + len(self.queries))
        self.queries[query] = False
        person: Json = {"id": user_id, "first_name": f"User{user_id}"}
        update: Json = {
            "id": query,
            "from": person | {"is_bot": False, "language_code": "en"},
            "chat_instance": "1",
            "data": data,
            "message": {
                "message_id": message_id,
                "from": bot_user(self.bots[token or self.token]),
                "chat": self.rooms[room] if room else person | {"type": "private"},
                "date": int(time.time()),
                "text": self._messages[chat].get(message_id, ""),
            },
        }
        self.push({"callback_query": update | extra}, token)
        return query

    def fail_next(self, method: str, fault: Fault, times: int = 1) -> None:
        """Make the next calls of a method fail."""
        self._faults[method.lower()].extend([fault] * times)

    def recover(self, method: str) -> None:
        """Nothing goes wrong with a method any more."""
        self._faults.pop(method.lower(), None)

    def flood(
        self, retry_after: int, method: str = "sendMessage", times: int = 1, match: str = ""
    ) -> None:
        """Answer 429 to the next calls."""
        text = f"Too Many Requests: retry after {retry_after}"
        fault = Fault(429, text, {"retry_after": retry_after}, match=match)
        self.fail_next(method, fault, times)

    def drop_next(self, method: str, times: int = 1, *, after: bool = False) -> None:
        """Cut the connection of the next calls, before or after doing what they ask."""
        self.fail_next(method, Fault(drop=True, after=after), times)

    def texts(self, chat_id: int) -> list[str]:
        """What a person saw, in order."""
        return [sent.text for sent in self.sent_to(chat_id)]

    def sent_to(self, chat_id: int) -> list[Sent]:
        """What was sent to a chat, in order."""
        return [sent for sent in self.sent if sent.chat_id == chat_id]

    def called(self, method: str) -> list[Call]:
        """The recorded calls of a method, in order."""
        return [call for call in self.calls if call.method.lower() == method.lower()]

    def pending(self, token: str = "") -> int:
        """How many updates a bot has not acknowledged."""
        return len(self.bots[token or self.token].updates)

    async def wait_for(self, ready: Callable[[], bool], within: float = 60.0) -> None:
        """Return once `ready` is true; it is asked again after every call."""
        await self._changed.wait_for(ready, within)

    async def wait_sent(self, count: int, within: float = 60.0) -> list[Sent]:
        """Return what was sent once it is `count` messages."""
        await self.wait_for(lambda: len(self.sent) >= count, within)
        return self.sent

    async def wait_called(self, method: str, count: int = 1, within: float = 60.0) -> None:
        """Return once a method was called so often."""
        await self.wait_for(lambda: self.counts[method.lower()] >= count, within)

    async def wait_acknowledged(self, token: str = "", within: float = 60.0) -> None:
        """Return once a bot has acknowledged everything."""
        await self.wait_for(lambda: not self.pending(token), within)

    # --- HTTP --------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path.startswith("/control/"):
            return await self._control(request, path.removeprefix("/control/"))
        file = re.fullmatch(r"/file/bot([^/]+)/(.+)", path)
        if file is not None and file[1] in self.bots:
            return self.download(file[2])
        found = re.fullmatch(r"/bot([^/]+)/([A-Za-z]+)", path)
        if found is None:
            return failure(ApiError(404, "Not Found"))
        bot = self.bots.get(found[1])
        if bot is None:
            return failure(ApiError(401, "Unauthorized"))
        method = found[2]
        try:
            params = await parameters_of(request)
        except ValueError:
            return failure(ApiError(400, "Bad Request: can't parse the request"))
        if self.record_calls:
            self.calls.append(Call(time.monotonic(), bot.token, method, params))
        self.counts[method.lower()] += 1
        try:
            return await self._answer(request, bot, method.lower(), params)
        finally:
            self._changed.notify()

    async def _answer(
        self, request: web.BaseRequest, bot: BotState, method: str, params: Json
    ) -> web.StreamResponse:
        fault = self._fault(method, params)
        if fault is not None:
            await asyncio.sleep(fault.delay)
            if fault.after:
                await self._perform(bot, method, params)
            if fault.drop:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            if fault.body is not None:
                return web.Response(status=fault.status, body=fault.body)
            return failure(ApiError(fault.status, fault.description, **fault.parameters))
        try:
            result = await self._perform(bot, method, params)
        except ApiError as error:
            return failure(error)
        return answer({"ok": True, "result": result})

    async def _perform(self, bot: BotState, method: str, params: Json) -> Any:
        perform = self._methods.get(method)
        if perform is None:
            raise ApiError(404, "Not Found")
        result = perform(bot, params)
        return await result if asyncio.iscoroutine(result) else result

    def _fault(self, method: str, params: Json) -> Fault | None:
        faults = self._faults.get(method)
        if not faults:
            return None
        chat, match = faults[0].chat, faults[0].match
        if chat is not None and str(chat) != str(params.get("chat_id")):
            return None
        if match and match not in str(params.get("text") or params.get("caption")):
            return None
        return faults.popleft()

    # --- updates -----------------------------------------------------------------------------

    async def _get_updates(self, bot: BotState, params: Json) -> list[Json]:
        if bot.webhook is not None:
            raise ApiError(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        bot.poller += 1
        mine = bot.poller
        bot.changed.set()  # an older poll is answered with a conflict
        keep_allowed(bot, params)
        offset = int(params.get("offset") or 0)
        if offset < 0:
            while len(bot.updates) > -offset:
                bot.updates.popleft()
        else:
            while bot.updates and bot.updates[0]["update_id"] < offset:
                bot.updates.popleft()
        self._changed.notify()
        limit = min(max(int(params.get("limit") or 100), 1), 100)
        deadline = time.monotonic() + min(float(params.get("timeout") or 0), 50)
        while not bot.updates and deadline > time.monotonic():
            bot.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bot.changed.wait(), deadline - time.monotonic())
            if bot.poller != mine:
                raise ApiError(
                    409,
                    "Conflict: terminated by other getUpdates request; "
                    "make sure that only one bot instance is running",
                )
        return [update for _, update in zip(range(limit), bot.updates, strict=False)]

    def _set_webhook(self, bot: BotState, params: Json) -> Any:
        url = str(params.get("url") or "")
        if not url:
            return self._delete_webhook(bot, params)
        if not url.startswith(("https://", "http://127.0.0.1")):
            raise ApiError(400, "Bad Request: bad webhook: An HTTPS URL must be provided")
        secret = str(params.get("secret_token") or "")
        if secret and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
            raise ApiError(400, "Bad Request: secret token contains unallowed characters")
        keep_allowed(bot, params)
        bot.webhook = {"url": url, "secret": secret}
        bot.poller += 1  # a poll that waits is answered with a conflict
        if bot.delivery is None:
            bot.delivery = asyncio.get_running_loop().create_task(self._deliver(bot))
        bot.changed.set()
        return True

    async def _delete_webhook(self, bot: BotState, params: Json) -> bool:
        bot.webhook = None
        await self._stop_delivery(bot)
        if params.get("drop_pending_updates"):
            bot.updates.clear()
        return True

    def _get_webhook_info(self, bot: BotState, _params: Json) -> Json:
        url = bot.webhook["url"] if bot.webhook else ""
        return {
            "url": url,
            "has_custom_certificate": False,
            "pending_update_count": len(bot.updates),
        }

    async def _stop_delivery(self, bot: BotState) -> None:
        task, bot.delivery = bot.delivery, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _deliver(self, bot: BotState) -> None:
        """Bring updates to the webhook in order, each again until it is accepted."""
        if self._http is None:
            self._http = aiohttp.ClientSession()
        while True:
            while not bot.updates:
                bot.changed.clear()
                await bot.changed.wait()
            hook, update = bot.webhook or {}, bot.updates[0]
            headers = {"X-Telegram-Bot-Api-Secret-Token": hook["secret"]} if hook["secret"] else {}
            status = 0
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with self._http.post(hook["url"], json=update, headers=headers) as response:
                    status = response.status
                    await response.read()
            self.deliveries.append(status)
            if 200 <= status < 300:
                bot.updates.remove(update)
            else:
                await asyncio.sleep(self.webhook_retry)
            self._changed.notify()

    # --- control over HTTP -------------------------------------------------------------------

    def state(self) -> Json:
        """Counts of everything, for a driver in another process."""
        return {
            "sent": len(self.sent),
            "pushed": self._pushed,
            "pending": sum(len(bot.updates) for bot in self.bots.values()),
            "calls": dict(self.counts),
            "commands": {token: bot.commands for token, bot in self.bots.items()},
        }

    async def _control(self, request: web.BaseRequest, action: str) -> web.Response:
        query = request.query
        if action == "push":
            items: list[Json] = json.loads(await request.read())
            return answer({"pushed": [self._push_item(dict(item)) for item in items]})
        if action == "sent":
            since = int(query.get("since", 0))
            return answer([asdict(sent) for sent in self.sent[since:]])
        if action == "wait":
            count, within = int(query.get("sent", 0)), float(query.get("timeout", 10))
            with contextlib.suppress(TimeoutError):
                await self.wait_sent(count, within)
            return answer(self.state())
        if action == "fail":
            body: Json = json.loads(await request.read())
            method, times = str(body.pop("method")), int(body.pop("times", 1))
            if "retry_after" in body:
                body["parameters"] = {"retry_after": body.pop("retry_after")}
            self.fail_next(method, Fault(**body), times)
            return answer({})
        return answer(self.state()) if action == "state" else failure(ApiError(404, "Not Found"))

    def _push_item(self, item: Json) -> int:
        """One entry of /control/push: a raw update, or a text of a person; returns its number."""
        token = str(item.pop("token", ""))
        if "update" in item:
            return self.push(item["update"], token)
        return self.push_text(int(item.pop("user_id")), str(item.pop("text")), token, **item)


def _request(*parts: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(*parts, loop, client_max_size=MAX_UPLOAD)


def main() -> None:
    """Run the server until it is told to end."""
    parser = argparse.ArgumentParser(description="A Bot API server for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", action="append", default=[], help="a bot's token; repeatable")
    options = parser.parse_args()
    run_fake(lambda: FakeTelegram(*options.token, record_calls=False), options.port)


if __name__ == "__main__":
    main()
