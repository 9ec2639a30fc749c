"""Slack's Web API through its SDK: calls that never wait inside, and what their errors mean."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Final

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.channel import Health
from bot.channel.kit.client import failure, why
from bot.channel.kit.json_access import Json, label, mapping, text
from bot.channel.kit.supervisor import Supervisor
from bot.errors import ChannelError, SendRefused, SendTransient, SendUnreachable

APPS: Final = "https://api.slack.com/apps"
PATIENCE, QUICK = 30.0, 3.0  # seconds for an answer; for what a message can do without
SOCKET: Final = "apps_connections_open"  # the one call that takes the app-level token
# Slack's words for what only a person can change, for nobody being there, and for "later".
_NO_TOKEN = re.compile(
    "invalid_auth|not_authed|account_inactive|token_.*|not_allowed_token_type|user_removed_from_team"
)
_AWAY = re.compile(
    "(channel|user)_not_found|(user_)?not_in_channel|is_archived|restricted_action.*|user_disabled|"
    "cannot_dm_bot|no_permission|access_denied|messages_tab_disabled"
)
_BUSY = re.compile("|(internal|fatal)_error|service_unavailable|request_timeout")

logging.getLogger("slack_sdk").setLevel(logging.INFO)  # below, it logs whole messages
_log = structlog.get_logger()


class TokenRefused(SendTransient):
    """Slack does not accept a token: somebody has to set another one."""


class Lacking(SendUnreachable):
    """The app lacks a scope: somebody has to grant it."""


class Api:
    """Calls of one app, by the names of the SDK; its health is told to a supervisor, if given.

    Every call raises:
        TokenRefused, Lacking: somebody has to change the app; the words say how.
        SendLater, SendTransient: it may work later.
        SendUnreachable, SendRefused: Slack does not do this; the words have its code.
    """

    def __init__(
        self, token: str, root: str, session: aiohttp.ClientSession, told: Supervisor | None = None
    ) -> None:
        self._web: Any = AsyncWebClient(token, root, session=session, retry_handlers=[])
        self._web.proxy = None  # the session knows the way
        self._told = told

    async def __call__(self, method: str, /, *, patience: float = PATIENCE, **values: Any) -> Json:
        """The answer of Slack."""
        try:
            async with asyncio.timeout(patience):
                found = mapping((await getattr(self._web, method)(**values)).data)
        except SlackApiError as error:
            meant = _meant(error.response, method)
            self.tell(meant)
            raise meant from None
        except TimeoutError:
            raise SendTransient("Slack does not answer in time") from None
        except (SlackClientError, aiohttp.ClientError, OSError) as error:
            raise SendTransient(f"Slack cannot be reached: {why(error)}") from None
        if self._told is not None:
            self._told.well("sending")
        return found

    def tell(self, error: ChannelError) -> None:
        """Say in the channel's health what somebody has to change."""
        if self._told is not None and isinstance(error, TokenRefused):
            self._told.trouble("sending", Health.DOWN, str(error))
        elif self._told is not None and isinstance(error, Lacking):
            self._told.trouble("rights", Health.DEGRADED, str(error))

    async def quick(self, method: str, /, **values: Any) -> Json:
        """The answer of Slack, or nothing, where it can be done without."""
        try:
            return await self(method, patience=QUICK, **values)
        except ChannelError as error:
            _log.info("slack.call.failed", method=method, error=str(error))
            return {}


def lacks(scope: str) -> Lacking:
    """The error of an app without a scope."""
    return Lacking(f"The app lacks the scope {scope}: add it at {APPS}, and install it again.")


def _meant(response: Any, method: str) -> ChannelError:
    """The error of the contract that an answer other than a good one stands for."""
    said = mapping(getattr(response, "data", None))
    status = getattr(response, "status_code", 0) or getattr(response, "status", 0)
    code = label(text(said, "error"), 64)
    if status == 429 or code == "ratelimited":
        wait = str(response.headers.get("Retry-After", ""))
        return failure("Slack", 429, float(wait) if wait.isdecimal() else 0.0)
    if _BUSY.fullmatch(code) or status >= 500:
        return SendTransient(f"Slack failed (HTTP {status} {code})")
    if _NO_TOKEN.fullmatch(code):
        token = "app-level token (xapp-…)" if method == SOCKET else "bot token (xoxb-…)"
        words = f"Slack does not accept the {token}: {code}. Copy it again from {APPS}."
        return TokenRefused(words)
    if code == "missing_scope":
        return lacks(label(text(said, "needed")))
    return (SendUnreachable if _AWAY.fullmatch(code) else SendRefused)(
        f"Slack refuses this ({code})"
    )
