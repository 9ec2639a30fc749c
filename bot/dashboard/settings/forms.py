"""What was typed into a form of ours, and the sentence for what is wrong with it."""

from __future__ import annotations

from aiohttp import web

from bot.channel import Trial
from bot.dashboard import pages
from bot.dashboard.forms import sent
from bot.errors import ConfigError
from bot.i18n import text
from bot.settings.changes import Overruled
from bot.settings.fields import Key


async def fields(request: web.Request) -> dict[str, str]:
    """The text fields of a form, without spaces around them.

    Raises:
        HTTPBadRequest: it is no form.
    """
    return {name: value.strip() for name, value in (await sent(request)).items()}


def sentences(request: web.Request, error: ConfigError) -> list[str]:
    """What is wrong, a line each."""
    if isinstance(error, Overruled):
        return [text(pages.language(request), "settings.overruled", origin=error.origin)]
    return str(error).splitlines()


def told(request: web.Request, key: Key, trial: Trial) -> str:
    """What came of trying a channel's secret: what was checked, and what was not."""
    channel = str(key[1]).replace("_", " ").title()
    return text(
        pages.language(request),
        f"settings.trial.{trial.outcome}",
        channel=channel,
        name=trial.name,
        option=str(key[-1]),
    )
