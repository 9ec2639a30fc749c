"""`/settings`: every option as it counts, those that may be changed, and the way back."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

from aiohttp import web

from bot.channel import Trial
from bot.clock import to_the_minute
from bot.dashboard import pages
from bot.dashboard.pages import in_menu
from bot.dashboard.settings import options
from bot.dashboard.settings.options import Group
from bot.dashboard.settings.served import ServedSettings
from bot.errors import ConfigError
from bot.i18n import text
from bot.identity.policy import local_zone
from bot.settings.fields import Key

PATH: Final = "/settings"
PAGE_TOKEN: Final = ("dashboard", "token")


@in_menu("/settings", is_owners=True)
class SettingsPages:
    """What counts, and forms that change it."""

    def __init__(self, settings: ServedSettings) -> None:
        self._settings = settings
        self._tried: tuple[Key, Trial] | None = None  # the secret that was replaced last

    @property
    def _groups(self) -> tuple[Group, ...]:
        return options.groups(self._settings.config)

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [
            web.get(PATH, self._page),
            web.post(f"{PATH}/change", self._change),
            web.post(f"{PATH}/unset", self._unset),
            web.post(f"{PATH}/secret", self._secret),
            web.post(f"{PATH}/take-back", self._take_back),
        ]

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
        return await self._changed(request, group.name, self._settings.change(wanted), form)

    async def _unset(self, request: web.Request) -> web.Response:
        form = await options.fields(request)
        key = tuple(form.get("option", "").split("."))
        known = {each.key for each in options.secrets(self._settings.config, {})}
        if key not in known and not options.is_offered(self._settings.config, key):
            raise web.HTTPBadRequest
        self._tried = None
        group = next((each.name for each in self._groups if key in each.keys), "secrets")
        return await self._changed(request, group, self._settings.change({key: None}))

    async def _secret(self, request: web.Request) -> web.Response:
        form = await options.fields(request)
        name, value = form.get("option", ""), form.get("value", "")
        known = {each.name: each.key for each in options.secrets(self._settings.config, {})}
        if name not in known:
            raise web.HTTPBadRequest
        say, key = partial(text, pages.language(request)), known[name]

        async def replace() -> None:
            if not value:
                raise ConfigError(say("settings.nothing_entered"))
            trial = await self._settings.try_secret(key, value)
            if not trial.may_be_kept:
                unchanged = say("settings.secrets.unchanged")
                raise ConfigError(f"{options.told(request, key, trial)}\n{unchanged}")
            self._tried = (key, trial) if key[0] == "channels" else None
            await self._settings.change({key: value})

        return await self._changed(request, "secrets", replace())

    async def _take_back(self, request: web.Request) -> web.Response:
        id_ = (await options.fields(request)).get("change", "")
        return await self._changed(request, "changes", self._settings.take_back(id_))

    async def _changed(
        self,
        request: web.Request,
        group: str,
        work: Awaitable[None],
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        try:
            await work
        except ConfigError as error:
            return await self._page(request, {group: options.sentences(request, error)}, typed)
        return pages.see(f"{PATH}?done={group}#{group}")

    # ----------------------------------------------------------------------------------------------

    async def _page(
        self,
        request: web.Request,
        problems: Mapping[str, list[str]] | None = None,
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        settings = self._settings
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
            changes=await settings.changes(),
            when=partial(to_the_minute, zone=local_zone(config)),
            problems=problems or {},
            typed=typed or {},
            done=done if done in places else "",
            file=kept.shown_path(),
            tried=options.told(request, *tried) if tried is not None else "",
            is_shared=settings.is_shared,
            refused=sorted(".".join(map(str, key)) for key in kept.refused),
        )
