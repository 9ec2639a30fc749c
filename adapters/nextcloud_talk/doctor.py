"""Checking the set-up of every bot, from both ends, without saying anything in a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

import aiohttp

from adapters.nextcloud_talk import NextcloudTalkConfig, Seat
from adapters.nextcloud_talk.api import TalkApi, data_of, new_random, new_session, sign
from adapters.nextcloud_talk.webhook import BACKEND_HEADER, RANDOM_HEADER, SIGNATURE_HEADER
from bot.channel import DEFAULT_ACCOUNT, Finding, Level, Trial, reveal
from bot.channel.kit.client import Answer, TooLong, TooSlow, Unreachable
from bot.channel.kit.json_access import child, label, mapping, number, text

SECRET_LENGTHS = range(40, 129)  # characters, a rule of Talk's
MOST_ROOMS = 3  # to try the bot in: Talk slows down whoever is refused often
TIMEOUT = 10.0  # seconds for one answer
NEEDED = "bots-v1"  # the capability; Talk 17.1
ASKABLE = "bot-features-api"  # the capability to ask for features; Talk 25

FEATURES = "--feature webhook --feature response"
SWITCH_ON = f"occ talk:bot:list shows the bot's number; then occ talk:bot:state {FEATURES} NUMBER 1"
_FEATURES = {"webhook": 1, "response": 2}
_TOLD = frozenset({400, 401, 404, 405})  # what an answer of our own address means, told apart
_PROBE = b'{"type":"Check"}'  # a call that means nothing


async def examine(config: NextcloudTalkConfig) -> Sequence[Finding]:
    """Check every account."""
    seats = config.seats()
    found = [
        Finding.of("error", "nextcloud_talk.missing", name)
        for name in config.accounts
        if name not in seats
    ]
    async with new_session(reveal(config.proxy)) as session:
        for seat in seats.values():
            found += [finding async for finding in _seat(seat, session)]
    return found


async def _seat(seat: Seat, session: aiohttp.ClientSession) -> AsyncIterator[Finding]:
    visit = _Visit(seat, session)
    yield visit.secret()
    reached, abilities = await visit.abilities()
    yield reached
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

    def secret(self) -> Finding:
        length = len(reveal(self._seat.secret).encode())
        is_good = length in SECRET_LENGTHS
        level, name = ("ok", "secret") if is_good else ("error", "bad_secret")
        return self._say(level, name, length=length)

    async def abilities(self) -> tuple[Finding, Sequence[object] | None]:
        """The server's answer, and the abilities of its Talk; None when it does not tell."""
        base = self._seat.base_url
        try:
            answer = await self._api.call("GET", "/ocs/v2.php/cloud/capabilities", patience=TIMEOUT)
        except Unreachable as error:
            return self._say("error", "unreachable", url=base, why=error.reason), None
        if answer.status == 503:
            return self._say("error", "closed", url=base), None
        data = mapping(data_of(answer))
        if answer.status != 200 or not data:
            return self._say("error", "strange", url=base, status=answer.status), None
        features: object = child(child(data, "capabilities"), "spreed").get("features")
        found = cast("list[object]", features) if isinstance(features, list) else ()
        return self._say("ok", "answers", url=base), found

    def capable(self, abilities: Sequence[object]) -> Finding:
        if NEEDED in abilities:
            return self._say("ok", "takes_bots")
        return self._say("error", "too_old" if abilities else "no_talk")

    async def api_user(self, rooms: list[str]) -> AsyncIterator[Finding]:
        """Check whether the API user may log in; the rooms it is in are added to `rooms`."""
        user = self._seat.api_user
        if not user:
            yield self._say("warning", "no_user")
            return
        try:
            answer = await self._api.rooms()
        except Unreachable as error:
            yield self._say("warning", "no_list", why=error.reason)
            return
        if answer.status != 200:
            yield self._say("error", "user_refused", user=user, status=answer.status)
            return
        listed = cast("list[object]", data_of(answer)) if isinstance(data_of(answer), list) else []
        seen = _tokens(answer)
        rooms += seen
        yield self._say("ok", "user", user=user, count=len(listed))
        missing = ", ".join(room for room in self._seat.rooms if room not in seen)
        if missing:
            yield self._say("warning", "user_not_in", user=user, rooms=missing)

    async def features(self, rooms: Sequence[str], *, askable: bool) -> AsyncIterator[Finding]:
        """Check whether the bot may answer, tried in the first rooms that are known."""
        known = [room for room in dict.fromkeys(rooms) if room.isascii() and room.isalnum()]
        if not known:
            yield self._say("warning", "no_room", switch_on=SWITCH_ON)
            return
        for room in known[:MOST_ROOMS]:
            flags = await self._flags(room, askable=askable)
            if flags is None:
                continue
            missing = [name for name, flag in _FEATURES.items() if not flags & flag]
            if not missing:
                yield self._say("ok", "features")
                return
            for name in missing:
                yield self._say("error", f"lacks_{name}", switch_on=SWITCH_ON)
            return
        tried = ", ".join(known[:MOST_ROOMS])
        yield self._say("error", "may_not_answer", rooms=tried, switch_on=SWITCH_ON)

    async def _flags(self, room: str, *, askable: bool) -> int | None:
        """The bot's features, or None when it may not answer in this room."""
        try:
            if askable:
                answer = await self._api.features(room)
                return (
                    number(mapping(data_of(answer)), "features") if answer.status == 200 else None
                )
            answer = await self._api.touch(room)
        except Unreachable:
            return None
        return sum(_FEATURES.values()) if answer.status in {200, 404} else None

    async def webhook(self) -> AsyncIterator[Finding]:
        """Check whether Talk's calls arrive here, as far as that can be seen from this machine."""
        url = self._seat.webhook_url
        if not url:
            yield self._say("warning", "no_address")
            return
        status = await self._call_ourselves(url)
        if status == 200:
            yield self._say("ok", "webhook", url=url)
        elif status is None:
            yield self._say("error", "webhook_unreachable", url=url)
        else:
            name = f"webhook_{status}" if status in _TOLD else "webhook_other"
            yield self._say("error", name, url=url, status=status)

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

    def _say(self, level: Level, name: str, **values: str | int) -> Finding:
        """A finding about this account; the catalogues have its words."""
        named = f"nextcloud_talk.{name}"
        return Finding(level, account=self._seat.account, id=named, values=values)


# Trying a bot's secret, or its account's password, on the server that it is for.
#
# Talk cannot be asked whose a secret is. It says whether it takes bots; a call signed with the
# secret is taken only in a conversation in which the bot is switched on. That is tried where some
# are known, and changes nothing there.

_REFUSED = frozenset({401, 403})


async def tried(config: NextcloudTalkConfig, option: str) -> Trial:
    """Try a secret of the section's own account, in ways that nobody sees."""
    seat = config.seats().get(DEFAULT_ACCOUNT)
    if seat is None or option not in {"bot_secret", "api_password"}:
        return Trial("untried")
    if option == "bot_secret" and len(reveal(seat.secret).encode()) not in SECRET_LENGTHS:
        return Trial("malformed")
    async with new_session(reveal(config.proxy)) as session:
        try:
            return await _tried(seat, option, session)
        except TooSlow:
            return Trial("slow")
        except TooLong:
            return Trial("strange")
        except Unreachable:
            return Trial("unreachable")


async def _tried(seat: Seat, option: str, session: aiohttp.ClientSession) -> Trial:
    api, where = TalkApi(seat, session), label(seat.base_url)
    answer = await api.call("GET", "/ocs/v2.php/cloud/capabilities", patience=TIMEOUT)
    if (wrong := _wrong(answer)) is not None:
        return wrong
    talk = child(child(mapping(data_of(answer)), "capabilities"), "spreed")
    abilities = talk.get("features")
    if not isinstance(abilities, list) or NEEDED not in abilities:
        return Trial("lacking", where)
    if option == "api_password" and not seat.api_user:
        return Trial("untried")
    listed = await api.rooms() if seat.api_user else None
    if option == "api_password" and listed is not None:
        if listed.status in _REFUSED:
            return Trial("refused")
        return _wrong(listed, empty=True) or Trial("known", label(seat.api_user))
    rooms = list(dict.fromkeys((*seat.rooms, *_tokens(listed))))
    return await _signed(api, rooms, where, askable=ASKABLE in abilities)


async def _signed(api: TalkApi, rooms: Sequence[str], where: str, *, askable: bool) -> Trial:
    known = [room for room in rooms if room.isascii() and room.isalnum()][:MOST_ROOMS]
    for room in known:
        answer = await (api.features(room) if askable else api.touch(room))
        # Without that ability, what is taken away is not there: 404 is to a bot that may answer.
        if answer.status == 200 or (answer.status == 404 and not askable):
            return Trial("signed", where)
    return Trial("unsigned" if known else "server", where)


def _wrong(answer: Answer, *, empty: bool = False) -> Trial | None:
    """Why an answer does not tell what was asked, if it does not; `empty` ones may be good."""
    if 300 <= answer.status < 400:
        return Trial("moved")
    if answer.status == 429:
        return Trial("busy")
    if answer.status == 503:
        return Trial("closed")
    if (
        answer.status != 200
        or data_of(answer) is None
        or (not empty and not mapping(data_of(answer)))
    ):
        return Trial("strange")
    return None


def _tokens(listed: Answer | None) -> list[str]:
    """The conversations an account is in, as far as it was let in."""
    found = data_of(listed) if listed is not None and listed.status == 200 else None
    if not isinstance(found, list):
        return []
    return [token for one in cast("list[object]", found) if (token := text(mapping(one), "token"))]
