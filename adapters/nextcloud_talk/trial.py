"""Trying a bot's secret, or its account's password, on the server that it is for.

Talk cannot be asked whose a secret is. It says whether it takes bots; a call signed with the secret
is taken only in a conversation in which the bot is switched on. That is tried where some are known,
and changes nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import aiohttp

from adapters.nextcloud_talk import NextcloudTalkConfig, Seat
from adapters.nextcloud_talk.api import Answer, TalkApi, TooSlow, Unreachable, new_session
from adapters.nextcloud_talk.doctor import ASKABLE, MOST_ROOMS, NEEDED, SECRET_LENGTHS, TIMEOUT
from bot.channel import DEFAULT_ACCOUNT, Trial, reveal
from bot.channel.kit.client import TooLarge
from bot.channel.kit.json_access import child, label, mapping, text

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
        except Unreachable:
            return Trial("unreachable")
        except TooLarge:
            return Trial("strange")


async def _tried(seat: Seat, option: str, session: aiohttp.ClientSession) -> Trial:
    api, where = TalkApi(seat, session), label(seat.base_url)
    answer = await api.call("GET", "/ocs/v2.php/cloud/capabilities", patience=TIMEOUT)
    if (wrong := _wrong(answer)) is not None:
        return wrong
    talk = child(child(mapping(answer.data), "capabilities"), "spreed")
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
    if answer.status != 200 or answer.data is None or (not empty and not mapping(answer.data)):
        return Trial("strange")
    return None


def _tokens(listed: Answer | None) -> list[str]:
    """The conversations an account is in, as far as it was let in."""
    found = listed.data if listed is not None and listed.status == 200 else None
    if not isinstance(found, list):
        return []
    each = cast("list[object]", found)
    return [token for one in each if (token := text(mapping(one), "token"))]
