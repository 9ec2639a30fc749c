"""Talk's HTTP interface: what a bot may call with its signature, and an account with a password."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from adapters.nextcloud_talk import Seat
from bot.channel import reveal
from bot.channel.kit.client import Answer, exchange
from bot.channel.kit.client import session as client_session
from bot.channel.kit.json_access import Json, child

# Talk's signatures: HMAC-SHA256 of a random value and a text, in hexadecimal. Pure.
#
# Talk signs the raw body of what it brings; a bot signs the words it says, not the JSON around
# them.

RANDOM_BYTES = 32  # of ours: 64 characters, as many as Talk's own
_RANDOM = re.compile(r"[\x21-\x7e]{32,256}")  # Talk refuses fewer than 32 itself
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{64}")


def new_random() -> str:
    """A random value for one request of ours."""
    return secrets.token_hex(RANDOM_BYTES)


def sign(secret: str, random: str, text: str | bytes) -> str:
    """The signature of a text."""
    data = text if isinstance(text, bytes) else text.encode()
    return hmac.new(secret.encode(), random.encode() + data, hashlib.sha256).hexdigest()


def well_formed(random: str, signature: str) -> bool:
    """True if these can be a random value and a signature at all."""
    return bool(_RANDOM.fullmatch(random)) and bool(_SIGNATURE.fullmatch(signature))


def verify(secret: str, random: str, body: bytes, signature: str) -> bool:
    """True if a well-formed signature is the body's; takes the same time either way."""
    return hmac.compare_digest(sign(secret, random, body), signature.lower())


SEND_TIMEOUT = 20.0  # seconds until a server answers
CONNECT_TIMEOUT = 10.0  # seconds
CONNECTIONS = 128  # at once, for all accounts together
MAX_ANSWER = 4 << 20  # bytes of an answer that are read
PAGE = 100  # messages of one answer; Talk gives 200 at most
_TALK = "/ocs/v2.php/apps/spreed/api"
_UNNOTICED = "setReadMarker=0&noStatusUpdate=1&markNotificationsAsRead=0"
_LONGEST_NUMBER = 20  # digits


def data_of(answer: Answer) -> object:
    """The data of an OCS answer, or None."""
    return child(answer.json, "ocs").get("data")


def retry_after(answer: Answer) -> float:
    """Seconds that the server asks to wait, 0 when it does not say."""
    return float(_number(answer.headers.get("Retry-After", ""), 5))


def last_given(answer: Answer) -> int:
    """The message up to which a page of a room's record goes, 0 when not told."""
    return _number(answer.headers.get("X-Chat-Last-Given", ""), _LONGEST_NUMBER)


def new_session(proxy: str = "") -> aiohttp.ClientSession:
    """The one client session of the channel; close it when the channel stops."""
    return client_session(proxy, limit=CONNECTIONS, keepalive=30)


class TalkApi:
    """One bot's calls to its server. No call follows a redirect: it would take secrets along."""

    def __init__(self, seat: Seat, session: aiohttp.ClientSession) -> None:
        self._seat = seat
        self._session = session
        self._login = (
            aiohttp.encode_basic_auth(seat.api_user, reveal(seat.api_password), encoding="utf-8")
            if seat.api_user
            else ""
        )

    @property
    def has_login(self) -> bool:
        """True if there is an account to ask with."""
        return bool(self._login)

    # --- as the bot ------------------------------------------------------------------------------

    async def send(self, room: str, message: Json) -> Answer:
        """Say something; `message` is the body, and its "message" is what gets signed."""
        return await self._as_bot("POST", f"{room}/message", message["message"], message)

    async def react(self, room: str, message_id: str, emoji: str, *, add: bool) -> Answer:
        """Put a reaction below a message, or take it away."""
        path = f"{room}/reaction/{message_id}"
        return await self._as_bot("POST" if add else "DELETE", path, emoji, {"reaction": emoji})

    async def features(self, room: str) -> Answer:
        """The features that an admin gave this bot; Talk 25 and newer know."""
        return await self._as_bot("POST", "ask-features", room, {"token": room})

    async def touch(self, room: str) -> Answer:
        """Take away a reaction that is not there: 404 to a bot that may answer, 401 to others."""
        return await self.react(room, "0", "👍", add=False)

    async def _as_bot(self, method: str, path: str, signed: str, body: Json) -> Answer:
        random = new_random()
        headers = {
            "X-Nextcloud-Talk-Bot-Random": random,
            "X-Nextcloud-Talk-Bot-Signature": sign(reveal(self._seat.secret), random, signed),
        }
        return await self.call(method, f"{_TALK}/v1/bot/{path}", headers=headers, json=body)

    # --- as the API user -------------------------------------------------------------------------

    async def room(self, token: str, patience: float) -> Answer:
        """A room, if the API user is in it."""
        return await self.call("GET", f"{_TALK}/v4/room/{token}", as_user=True, patience=patience)

    async def rooms(self) -> Answer:
        """Every room the API user is in."""
        return await self.call("GET", f"{_TALK}/v4/room", as_user=True)

    async def chat(
        self, token: str, limit: int, after: int | None, patience: float = SEND_TIMEOUT
    ) -> Answer:
        """Messages of a room, the oldest first after one, or the newest; nobody sees us read.

        Status 304 is that there are none.
        """
        since = "0" if after is None else f"1&timeout=0&lastKnownMessageId={after}"
        query = f"lookIntoFuture={since}&limit={limit}&includeLastKnown=0&{_UNNOTICED}"
        return await self.call(
            "GET", f"{_TALK}/v1/chat/{token}?{query}", as_user=True, patience=patience
        )

    # --- both ------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        as_user: bool = False,
        headers: dict[str, str] | None = None,
        json: Json | None = None,
        data: bytes | None = None,
        patience: float = SEND_TIMEOUT,
        most: int = MAX_ANSWER,
    ) -> Answer:
        """One HTTP exchange with the server, with the API user's password or without.

        Raises:
            Unreachable: there was no answer.
            TooLong: the answer is longer than `most`.
        """
        said = {"OCS-APIRequest": "true", "Accept": "application/json", **(headers or {})}
        if as_user:
            said["Authorization"] = self._login
        if json is not None:
            data = orjson.dumps(json)
            said["Content-Type"] = "application/json"
        limits = aiohttp.ClientTimeout(total=patience, sock_connect=CONNECT_TIMEOUT)
        return await exchange(
            self._session,
            method,
            URL(self._seat.base_url + path, encoded=True),
            platform="Nextcloud",
            most=most,
            headers=said,
            data=data,
            timeout=limits,
        )


def _number(value: str, digits: int) -> int:
    is_one = value.isascii() and value.isdecimal() and len(value) <= digits
    return int(value) if is_one else 0


def escaped(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")
