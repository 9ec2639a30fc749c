"""Checking the set-up of every bot, from both ends, without saying anything in a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, cast

import aiohttp

from adapters.nextcloud_talk import NextcloudTalkConfig, Seat
from adapters.nextcloud_talk.api import TalkApi, Unreachable, new_session
from adapters.nextcloud_talk.signing import new_random, sign
from adapters.nextcloud_talk.webhook import BACKEND_HEADER, RANDOM_HEADER, SIGNATURE_HEADER
from bot.channel import Finding, confidant, reveal
from bot.channel.kit.client import TooLarge
from bot.channel.kit.json_access import child, mapping, number, text

SECRET_LENGTHS = range(40, 129)  # characters, a rule of Talk's
MOST_ROOMS = 3  # to try the bot in: Talk slows down whoever is refused often
TIMEOUT = 10.0  # seconds for one answer
NEEDED = "bots-v1"  # the capability; Talk 17.1
ASKABLE = "bot-features-api"  # the capability to ask for features; Talk 25

FEATURES = "--feature webhook --feature response"
SWITCH_ON = f"occ talk:bot:list shows the bot's number; then occ talk:bot:state {FEATURES} NUMBER 1"
Level = Literal["ok", "warning", "error"]
_FEATURES = {"webhook": 1, "response": 2}
_WITHOUT = {"webhook": "Talk tells it nothing", "response": "Talk refuses every reply (401)"}
_PROBE = b'{"type":"Check"}'  # a call that means nothing


async def examine(config: NextcloudTalkConfig) -> Sequence[Finding]:
    """What is right and wrong with every account."""
    seats = config.seats()
    found = [
        Finding(
            "error",
            "base_url or a bot_secret of its own is missing",
            "Set both; without them this account stays off.",
            name,
        )
        for name in config.accounts
        if name not in seats
    ]
    async with new_session() as session:
        for seat in seats.values():
            found += [finding async for finding in _seat(seat, session)]
    return found


async def _seat(seat: Seat, session: aiohttp.ClientSession) -> AsyncIterator[Finding]:
    visit = _Visit(seat, session)
    yield visit.secret()
    abilities = await visit.abilities()
    yield visit.reached
    if abilities is not None:
        yield visit.capable(abilities)
        rooms = list(seat.rooms)
        async for finding in visit.api_user(rooms):
            yield finding
        async for finding in visit.features(rooms, askable=ASKABLE in abilities):
            yield finding
    async for finding in visit.webhook():
        yield finding


class _Visit:
    """One look at one account."""

    def __init__(self, seat: Seat, session: aiohttp.ClientSession) -> None:
        self._seat = seat
        self._session = session
        self._api = TalkApi(seat, session)
        self.reached = self._say("ok", "")

    def secret(self) -> Finding:
        length = len(reveal(self._seat.secret).encode())
        if length in SECRET_LENGTHS:
            return self._say("ok", f"the secret has {length} characters")
        return self._say(
            "error",
            f"the secret has {length} characters; Talk takes 40 to 128",
            "Make one with: openssl rand -hex 32. Then install the bot again with it.",
        )

    async def abilities(self) -> Sequence[object] | None:
        """What this server's Talk can do, or None when that cannot be found out."""
        base, fix = self._seat.base_url, "Check base_url, and that this machine reaches it."
        try:
            answer = await self._api.call("GET", "/ocs/v2.php/cloud/capabilities", patience=TIMEOUT)
        except (Unreachable, TooLarge) as error:
            reason = str(error) or "too long an answer"
            self.reached = self._say("error", f"{base} cannot be reached: {reason}", fix)
            return None
        if answer.status == 503:
            self.reached = self._say("error", f"{base} is in maintenance mode", "Try again later.")
            return None
        data = mapping(answer.data)
        if answer.status != 200 or not data:
            problem = f"{base} does not answer like a Nextcloud (HTTP {answer.status})"
            self.reached = self._say("error", problem, fix)
            return None
        self.reached = self._say("ok", f"{base} answers")
        features: object = child(child(data, "capabilities"), "spreed").get("features")
        return cast("list[object]", features) if isinstance(features, list) else ()

    def capable(self, abilities: Sequence[object]) -> Finding:
        if NEEDED in abilities:
            return self._say("ok", "Talk there takes bots")
        return self._say(
            "error",
            "Talk is not there, or too old for bots" if abilities else "Talk is not there",
            "Install or update Talk: bots need 17.1 or newer (Nextcloud 27.1).",
        )

    async def api_user(self, rooms: list[str]) -> AsyncIterator[Finding]:
        """Whether the API user may log in; the rooms it is in are added to `rooms`."""
        user = self._seat.api_user
        if not user:
            yield self._say(
                "warning",
                "without api_user every chat counts as a room, also direct ones, and what is said "
                "while Confidant is down is lost",
                "Make an account for the bot, set api_user and an app password of it.",
            )
            return
        try:
            answer = await self._api.rooms()
        except (Unreachable, TooLarge) as error:
            yield self._say("warning", f"its rooms cannot be listed: {error}")
            return
        if answer.status != 200:
            yield self._say(
                "error",
                f"api_user {user} is not let in (HTTP {answer.status})",
                "Make an app password in that account's security settings and set "
                "NEXTCLOUD_TALK_API_PASSWORD.",
            )
            return
        listed = cast("list[object]", answer.data) if isinstance(answer.data, list) else []
        seen = [token for each in listed if (token := text(mapping(each), "token"))]
        rooms += seen
        yield self._say("ok", f"api_user {user} is let in and sees {len(listed)} conversations")
        missing = ", ".join(room for room in self._seat.rooms if room not in seen)
        if missing:
            yield self._say(
                "warning",
                f"api_user {user} is not in {missing}: what is said there while Confidant is down "
                "is lost, and files cannot be fetched",
                "Add that account to the conversation as a participant.",
            )

    async def features(self, rooms: Sequence[str], *, askable: bool) -> AsyncIterator[Finding]:
        """Whether the bot may answer, tried in the first rooms that are known."""
        known = [room for room in dict.fromkeys(rooms) if room.isascii() and room.isalnum()]
        if not known:
            yield self._say(
                "warning",
                "no conversation is known to check the bot's features in",
                f"List one in groups, or set api_user. Or look yourself: {SWITCH_ON}",
            )
            return
        for room in known[:MOST_ROOMS]:
            flags = await self._flags(room, askable=askable)
            if flags is None:
                continue
            missing = [name for name, flag in _FEATURES.items() if not flags & flag]
            if not missing:
                yield self._say("ok", "the bot has the features it needs")
                return
            for name in missing:
                words = f"the bot lacks the feature {name}: without it {_WITHOUT[name]}"
                yield self._say("error", words, SWITCH_ON)
            return
        yield self._say(
            "error",
            f"Talk does not let the bot answer (401), tried in {', '.join(known[:MOST_ROOMS])}",
            f"Most often the feature response is missing: {SWITCH_ON}. Otherwise bot_secret is "
            "another one than at talk:bot:install, or the bot is not switched on there.",
        )

    async def _flags(self, room: str, *, askable: bool) -> int | None:
        """The bot's features, or None when it may not answer in this room."""
        try:
            if askable:
                answer = await self._api.features(room)
                return number(mapping(answer.data), "features") if answer.status == 200 else None
            answer = await self._api.touch(room)
        except (Unreachable, TooLarge):
            return None
        return sum(_FEATURES.values()) if answer.status in {200, 404} else None

    async def webhook(self) -> AsyncIterator[Finding]:
        """Whether Talk's calls arrive here, as far as that can be seen from this machine."""
        url = self._seat.webhook_url
        if not url:
            yield self._say(
                "warning",
                "public_url is not set, so nothing can be said about the webhook's address",
                "Set public_url to the address Nextcloud reaches this machine at.",
            )
            return
        status = await self._call_ourselves(url)
        if status == 200:
            yield self._say("ok", f"a signed call to {url} arrives")
        elif status is None:
            yield self._say(
                "error",
                f"{url} cannot be reached from here",
                f"Start {confidant('run')}; then check the proxy before it, public_url and "
                "webhook_port.",
            )
        else:
            reasons = {
                401: "another secret or base_url is in force there",
                400: "a proxy takes the X-Nextcloud-Talk headers away",
                404: "another program answers, or webhook_path differs",
                405: "another program answers, or a proxy forwards to another address",
            }
            reason = reasons.get(status, "the bot may not be running behind the proxy")
            yield self._say(
                "error",
                f"{url} answers HTTP {status}: {reason}",
                f"Start {confidant('run')} with this configuration, and forward the whole path to "
                "webhook_host:webhook_port.",
            )

    async def _call_ourselves(self, url: str) -> int | None:
        random = new_random()
        headers = {
            RANDOM_HEADER: random,
            SIGNATURE_HEADER: sign(reveal(self._seat.secret), random, _PROBE),
            BACKEND_HEADER: self._seat.base_url,
            "Content-Type": "application/json",
        }
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with self._session.post(
                url, data=_PROBE, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    def _say(self, level: Level, words: str, fix: str = "") -> Finding:
        return Finding(level, words, fix, self._seat.account)
