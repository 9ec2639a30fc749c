"""`/settings`: every option as it counts, those that may be changed, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from bot.channel import Trial
from bot.clock import to_the_minute
from bot.dashboard import pages
from bot.dashboard.settings import options
from bot.dashboard.settings.options import Group
from bot.dashboard.settings.served import ServedSettings
from bot.errors import ConfigError
from bot.i18n import text
from bot.identity.policy import local_zone
from bot.settings.fields import Key
from bot.settings.shared import Change, Step

PATH: Final = "/settings"
PAGE_TOKEN: Final = ("dashboard", "token")


class SettingsPages:
    """What counts, and forms that change it."""

    def __init__(self, settings: ServedSettings) -> None:
        self._settings = settings
        self._tried: tuple[Key, Trial] | None = None  # the secret that was replaced last

    @property
    def _groups(self) -> tuple[Group, ...]:
        return options.groups(self._settings.config)

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.get(PATH, self._show),
            web.post(f"{PATH}/change", self._change),
            web.post(f"{PATH}/unset", self._unset),
            web.post(f"{PATH}/secret", self._secret),
            web.post(f"{PATH}/take-back", self._take_back),
        ]

    async def _show(self, request: web.Request) -> web.Response:
        return await self._page(request)

    async def _change(self, request: web.Request) -> web.Response:
        form = await options.fields(request)
        group = next((each for each in self._groups if each.name == form.get("group")), None)
        if group is None:
            raise web.HTTPBadRequest
        standing = [options.offered(self._settings.config, {}, key) for key in group.keys]
        wanted: dict[Key, str | None] = {
            each.key: form[each.name] or None
            for each in standing
            if each.name in form and form[each.name] != each.value
        }
        return await self._changed(request, group.name, wanted, form)

    async def _unset(self, request: web.Request) -> web.Response:
        form = await options.fields(request)
        key = tuple(form.get("option", "").split("."))
        known = {each.key for each in options.secrets(self._settings.config, {})}
        if key not in known and not options.is_offered(self._settings.config, key):
            raise web.HTTPBadRequest
        self._tried = None
        group = next((each.name for each in self._groups if key in each.keys), "secrets")
        return await self._changed(request, group, {key: None}, {})

    async def _secret(self, request: web.Request) -> web.Response:
        form = await options.fields(request)
        name, value = form.get("option", ""), form.get("value", "")
        known = {each.name: each.key for each in options.secrets(self._settings.config, {})}
        if name not in known:
            raise web.HTTPBadRequest
        if not value:
            said = [text(pages.language(request), "settings.nothing_entered")]
            return await self._page(request, {"secrets": said})
        key = known[name]
        try:
            trial = await self._settings.try_secret(key, value)
        except ConfigError as error:
            return await self._page(request, {"secrets": options.sentences(request, error)})
        if not trial.may_be_kept:
            unchanged = text(pages.language(request), "settings.secrets.unchanged")
            said = [options.told(request, key, trial), unchanged]
            return await self._page(request, {"secrets": said})
        self._tried = (key, trial) if key[0] == "channels" else None
        return await self._changed(request, "secrets", {key: value}, {})

    async def _take_back(self, request: web.Request) -> web.Response:
        form = await options.fields(request)
        try:
            await self._settings.take_back(form.get("change", ""))
        except ConfigError as error:
            return await self._page(request, {"changes": options.sentences(request, error)})
        return _back("changes")

    async def _changed(
        self,
        request: web.Request,
        group: str,
        wanted: Mapping[Key, str | None],
        typed: Mapping[str, str],
    ) -> web.Response:
        try:
            if wanted:
                await self._settings.change(wanted)
        except ConfigError as error:
            return await self._page(request, {group: options.sentences(request, error)}, typed)
        return _back(group)

    # ----------------------------------------------------------------------------------------------

    async def _page(
        self,
        request: web.Request,
        problems: Mapping[str, list[str]] | None = None,
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        settings, language = self._settings, pages.language(request)
        config, kept = settings.config, settings.kept
        done = request.query.get("done", "")
        places = {*(each.name for each in self._groups), "secrets", "changes"}
        tried = self._tried if done == "secrets" and not problems else None
        return pages.page(
            request,
            "settings.html",
            422 if problems else 200,
            is_connected=config.models.is_set_up(config.models.locate(config.agent.model)[0]),
            groups=[
                (each.name, [options.offered(config, kept.origins, key) for key in each.keys])
                for each in self._groups
            ],
            secrets=options.secrets(config, kept.origins),
            page_token=".".join(PAGE_TOKEN),
            ours=await settings.ours(),
            tables=options.tables(config, kept.found, kept.origins),
            changes=[self._told(language, change, may) for change, may in await settings.changes()],
            problems=problems or {},
            typed=typed or {},
            done=done if done in places else "",
            file=kept.shown_path(),
            tried=options.told(request, *tried) if tried is not None else "",
            is_shared=settings.is_shared,
            refused=sorted(".".join(map(str, key)) for key in kept.refused),
        )

    def _told(self, language: str, change: Change, may: bool) -> Mapping[str, Any]:  # noqa: FBT001
        zone = local_zone(self._settings.config)
        return {
            "id": change.id,
            "at": to_the_minute(change.at, zone),
            "steps": [_in_words(language, step) for step in change.steps],
            "is_way_back": bool(change.takes_back),
            "may": may,
        }


def _in_words(language: str, step: Step) -> str:
    """What was changed, and of a secret no more than that."""
    name = ".".join(step.key)
    if step.is_secret:
        return text(language, "settings.step.secret", option=name)
    before, after = (
        text(language, "settings.step.unset") if value is None else f"“{value}”"
        for value in (step.before, step.after)
    )
    return text(language, "settings.step.value", option=name, before=before, after=after)


def _back(group: str) -> web.Response:
    return pages.see(f"{PATH}?done={group}#{group}")
