"""`/settings`: a section at a time, what is found in all of them, and the way back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from bot.channel import Trial
from bot.config import SHORTEST_TOKEN
from bot.dashboard.pages import Pages, Visit, in_menu, route, see
from bot.dashboard.settings import options
from bot.dashboard.settings.options import PAGE_TOKEN, SECTIONS, CurrentOption
from bot.errors import ConfigError
from bot.settings.changes import Overruled, ServedSettings
from bot.settings.checks import Mistakes
from bot.settings.fields import Key

PATH: Final = "/settings"
NEWEST: Final = 10  # changes that are shown at once
MOST_FOUND: Final = 50
MOST_MODELS: Final = 200  # in a list of suggestions
MODEL_SECONDS: Final = 2.0  # to ask services which models they have

Models = Callable[[], Awaitable[Sequence[str]]]


@in_menu("/settings", is_owners=True)
class SettingsPages(Pages):
    """The options in effect, and forms that change them."""

    def __init__(self, settings: ServedSettings, models: Models) -> None:
        """`models` says which models there are to choose from."""
        self._settings = settings
        self._models = models
        self._tried: tuple[Key, Trial] | None = None  # the secret that was replaced last

    @route("GET", PATH)
    async def _show(self, visit: Visit) -> web.Response:
        if wanted := visit.query("q").strip():
            return self._found(visit, wanted)
        return await self._page(visit, visit.query("section"))

    @route("POST", f"{PATH}/change")
    async def _change(self, visit: Visit) -> web.Response:
        form = await options.fields(visit)
        section = form.get("section", "")
        choices = options.offered(self._settings.config, section, {})
        if not choices:
            raise web.HTTPBadRequest
        wanted: dict[Key, str | None] = {
            each.key: each.given(form[each.name])
            for each in choices
            if each.name in form and form[each.name] != each.typed
        }
        return await self._changed(visit, section, self._settings.change(wanted), form)

    @route("POST", f"{PATH}/unset")
    async def _unset(self, visit: Visit) -> web.Response:
        key = tuple((await options.fields(visit)).get("option", "").split("."))
        section = options.section_of(self._settings.config, key)
        if not section:
            raise web.HTTPBadRequest
        self._tried = None
        return await self._changed(visit, section, self._settings.change({key: None}))

    @route("POST", f"{PATH}/secret")
    async def _secret(self, visit: Visit) -> web.Response:
        form = await options.fields(visit)
        name, value = form.get("option", ""), form.get("value", "")
        known = {each.name: each.key for each in options.secrets(self._settings.config, {})}
        if name not in known:
            raise web.HTTPBadRequest
        say, key = visit.say, known[name]

        async def replace() -> None:
            if not value:
                raise ConfigError(say("settings.nothing_entered"))
            if key == PAGE_TOKEN and len(value) < SHORTEST_TOKEN:
                raise ConfigError(say("settings.token.short", least=SHORTEST_TOKEN))
            trial = await self._settings.try_secret(key, value)
            if not trial.may_be_kept:
                unchanged = say("settings.secrets.unchanged")
                raise ConfigError(f"{options.told(visit, key, trial)}\n{unchanged}")
            self._tried = (key, trial) if key[0] == "channels" else None
            await self._settings.change({key: value})

        section = options.section_of(self._settings.config, key)
        return await self._changed(visit, section, replace(), {"secret": name})

    @route("POST", f"{PATH}/take-back")
    async def _take_back(self, visit: Visit) -> web.Response:
        id_ = (await options.fields(visit)).get("change", "")
        return await self._changed(visit, "advanced", self._settings.take_back(id_))

    async def _changed(
        self,
        visit: Visit,
        section: str,
        work: Awaitable[None],
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        try:
            await work
        except ConfigError as error:
            return await self._page(visit, section, error, typed or {})
        return see(f"{PATH}?section={section}&done=1")

    # --- as it is shown ---------------------------------------------------------------------------

    async def _names(self) -> Sequence[str]:
        """The models there are, as far as their services say so soon."""
        try:
            async with asyncio.timeout(MODEL_SECONDS):
                return (await self._models())[:MOST_MODELS]
        except TimeoutError:
            return ()

    def _wrong(
        self,
        visit: Visit,
        error: ConfigError | None,
        rows: Sequence[CurrentOption],
        typed: Mapping[str, str],
    ) -> tuple[dict[str, str], list[str]]:
        """The problems by name of the option, and all others."""
        if error is None:
            return {}, []
        keys = error.keys if isinstance(error, Mistakes) else ()
        found: dict[str, str] = {}
        for row in rows if not isinstance(error, Overruled) else ():
            if any(options.is_at(key, row.key) for key in keys):
                words = typed.get(row.name, row.typed)
                found[row.name] = options.advice(visit, self._settings.config, row.key, words)
        rest = [key for key in keys if not any(options.is_at(key, row.key) for row in rows)]
        is_told = found and not rest
        return found, [] if is_told else options.sentences(visit, error)

    async def _page(
        self,
        visit: Visit,
        section: str,
        error: ConfigError | None = None,
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        settings, section = self._settings, section if section in SECTIONS else next(iter(SECTIONS))
        config, typed = settings.config, typed or {}
        rows = options.offered(config, section, settings.origins)
        await asyncio.to_thread(options.zones)
        wrong, problems = self._wrong(visit, error, rows, typed)
        is_done = bool(visit.query("done")) and error is None
        tried = self._tried if is_done and section == "channels" else None
        changes = await settings.changes() if section == "advanced" else []
        secret = [
            each
            for each in options.secrets(config, settings.origins)
            if options.section_of(config, each.key) == section
        ]
        by_name = {row.key: row for row in rows}
        return self._drawn(
            visit,
            422 if error is not None else 200,
            section=section,
            groups=[
                (group.name, [by_name[key] for key in group.keys])
                for group in options.groups(config, section)
            ],
            models=await self._names() if section == "models" else (),
            zones=options.zones() if section == "general" else (),
            secrets=secret,
            page_token=".".join(PAGE_TOKEN),
            generated=secrets.token_urlsafe(24) if section == "people" else "",
            ours=await settings.ours(),
            tables=(
                options.tables(config, settings.origins, settings.found)
                if section == "advanced"
                else ()
            ),
            changes=[("newest", changes[:NEWEST]), ("earlier", changes[NEWEST:])],
            wrong=wrong,
            problems=problems,
            typed=typed,
            is_done=is_done,
            tried=options.told(visit, *tried) if tried is not None else "",
        )

    def _found(self, visit: Visit, wanted: str) -> web.Response:
        """Every option that has all the words looked for in its label, its help or its name."""
        config, say = self._settings.config, visit.say
        words = wanted.casefold().split()

        def matches(*said: str) -> bool:
            whole = " ".join(said).casefold()
            return all(word in whole for word in words)

        choices = [(name, row) for name in SECTIONS for row in options.offered(config, name, {})]
        known = {row.key for _, row in choices}
        found = [
            (section, row)
            for section, row in choices
            if matches(
                row.name,
                *(say(f"settings.{of}.{'_'.join(row.key)}") for of in ("option", "help")),
                say(f"settings.section.{section}"),
            )
        ]
        settings = self._settings
        others = [
            row
            for _, rows in options.tables(config, settings.origins, settings.found)
            for row in rows
            if row.key not in known and matches(row.name, row.help)
        ]
        return self._drawn(
            visit,
            section="",
            wanted=wanted,
            found=found,
            others=others[:MOST_FOUND],
            more=max(0, len(others) - MOST_FOUND),
            section_of=partial(options.section_of, config),
        )

    def _drawn(self, visit: Visit, status: int = 200, **values: object) -> web.Response:
        settings, config = self._settings, self._settings.config
        return visit.page(
            "settings.html",
            status,
            **{"wanted": "", **values},
            sections=tuple(SECTIONS),
            is_connected=config.models.is_set_up(config.models.locate(config.agent.model)[0]),
            file=settings.shown_path,
            is_shared=settings.is_shared,
            refused=sorted(".".join(map(str, key)) for key in settings.refused),
        )
