"""Checks of models, tools, the web, speech, tokens, channels, the page's address, and the clock."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import aiohttp
import tzlocal
from yarl import URL

from bot import housekeeping, i18n
from bot.agent.models import Model, Window, trial
from bot.agent.tools.mcp.servers import MAX_TOOLS, Listing, listing_of
from bot.agent.tools.toolbox import installed
from bot.channel import Channel, ChannelPlugin, Finding, Level
from bot.clock import ahead_of_others
from bot.cluster import census
from bot.commands.commander import menus
from bot.config import (
    OFFLINE,
    OPENAI,
    Config,
    DashboardConfig,
    McpConfig,
    SpeechConfig,
    is_loopback,
)
from bot.context import tokens
from bot.context.budget import TOO_SMALL, resolve
from bot.delivery.delivery import Unspoken
from bot.doctor import Setup
from bot.errors import ConfidantError, ModelError, ModelNotFound, StorageError
from bot.files.sandbox import Unreadable
from bot.identity.conversation import local_zone
from bot.money import Prices
from bot.settings import key_name
from bot.settings.checks import nearest
from bot.speech.api import Audio, SpeechApi, local_missing
from bot.storage import files
from bot.storage.records import BROKEN, MetaStore

if TYPE_CHECKING:
    from bot.agent.tools.web.search import SearchService


async def check_models(setup: Setup) -> Sequence[Finding]:
    """Check which model answers, that each service works, and that prices are known."""
    config = setup.config
    models, agent = config.models, config.agent
    chosen, (owner, _) = agent.model, models.locate(agent.model)
    agents = [agent, *(config.of_agent(name).agent for name in config.agents.named)]
    every = chain.from_iterable((each.model, *each.fallback, each.chores) for each in agents)
    named = {models.locate(each) for each in every if each}
    found: list[Finding] = []
    if chosen == OFFLINE:
        found.append(Finding.of("ok", "model.offline"))
    elif not models.is_set_up(owner):
        key = key_name(owner)
        found.append(Finding.of("warning", "model.no_key", model=chosen, key=key, service=owner))
    for service in models.services:
        if models.is_set_up(service):
            names = sorted(name for owner, name in named if owner == service)
            for name in names or [""]:
                found += await _examine_model(setup, service, name)
    return [*found, *_prices(config, [f"{service}/{name}" for service, name in sorted(named)])]


def _prices(config: Config, named: Sequence[str]) -> Sequence[Finding]:
    """Report models that are used and whose price is unknown."""
    prices = Prices.of_config(config)
    return [
        Finding.of("warning", "model.no_price", model=each)
        for each in named
        if config.models.is_set_up(each.partition("/")[0]) and not prices.is_known(each)
    ]


async def _examine_model(setup: Setup, service: str, name: str) -> Sequence[Finding]:
    """Check that a service accepts the key and has a model; without a name, that it answers."""
    config, section = setup.config, setup.config.models.services[service]
    full = f"{service}/{name}" if name else service
    try:
        async with trial.opened(config.models, service) as model:
            found = await _asked(config, full, name, model)
        if not name or not setup.tries_models:
            return found
        return [*found, *await _tried(setup, service, name)]
    except ModelNotFound as error:
        is_sure = name and not section.base_url
        level = "error" if is_sure else "warning"
        return [Finding.of(level, "model.unknown", model=full, why=error.reason)]
    except ModelError as error:
        level, key = "error" if name else "warning", key_name(service)
        said = {"model": full, "why": error.reason, "key": key, "service": service}
        return [Finding(level, id="model.unreachable", values=said)]


async def _tried(setup: Setup, service: str, name: str) -> Sequence[Finding]:
    """Test a model, and keep what it can do for the program."""
    models = setup.config.models
    if not setup.has_database:
        return await trial.what_it_can(models, service, name)
    async with setup.opened() as database:
        store = MetaStore(database, setup.clock)
        return await trial.what_it_can(models, service, name, store)


async def _asked(config: Config, full: str, name: str, model: Model) -> Sequence[Finding]:
    has_key = config.models.services[full.partition("/")[0]].api_key is not None
    how = "key" if has_key else "no_key_needed"
    window = await model.check(name) if name else None
    names = None if name else await model.fetch_names()
    if names is not None:
        return [Finding.of("ok", f"model.lists_{how}", model=full, count=len(names))]
    if window is None:
        return [Finding.of("ok", "model.nothing", model=full)]
    return [Finding.of("ok", f"model.answers_{how}", model=full), _window(config, full, window)]


def _window(config: Config, full: str, told: Window) -> Finding:
    """Check the size and the source of a model's window."""
    service = full.partition("/")[0]
    known = resolve(
        told.max_input_tokens,
        config.context,
        full,
        configured=config.models.services[service].window,
        assumed=told.assumed,
    )
    if not known.is_too_small:
        return Finding.of("ok", f"model.window_{known.source}", tokens=known.reported)
    is_cut = config.models.kind_of(service) == OPENAI
    name = f"model.small_window{'_cut' if is_cut else ''}"
    tokens, needed = known.reported, TOO_SMALL
    return Finding.of("error", name, tokens=tokens, needed=needed, service=service)


MOST_NAMED: Final = 5  # of a list of names


async def check_tools(setup: Setup) -> Sequence[Finding]:
    """Connect to each server and list its tools; report packages that cannot be loaded.

    Names are assigned in the program's order: its own, packages, servers.
    """
    config = setup.config
    brought, problems = installed()
    found = [
        Finding.of("error", "tools.broken", package=package, why=problem)
        for package, problem in problems
    ]
    taken = _own_names(config)
    found += _left_out("packages", [tool.spec.name for tool in brought], taken)
    for name, server in sorted(config.tools.mcp.items()):
        listing = await _connect(name, server)
        if isinstance(listing, Finding):
            found.append(listing)
            continue
        found += _told(name, listing)
        names = [spec.name for _, spec in listing.tools]
        found += _left_out(name, names, taken)
        found += _unknown(config, f"{name}_", names)
    return found


def _unknown(config: Config, begin: str, names: Sequence[str]) -> Sequence[Finding]:
    """Report tools that rules name and the server does not have."""
    named = {each for rule in config.tools.rules for each in rule.tools}
    named |= {each for agent in config.agents.named.values() for each in agent.tools}
    return [
        Finding.of("warning", "tools.unknown", tool=each, meant=nearest(each, names) or "–")
        for each in sorted(named)
        if each.lower().startswith(begin)
        and not any(fnmatchcase(name.lower(), each.lower()) for name in names)
    ]


def _own_names(config: Config) -> set[str]:
    """The names of the built-in tools, including those of the web that are on."""
    own = {key.removeprefix("tool.") for key in i18n.catalog("en") if key.startswith("tool.")}
    web = {"web_fetch": config.tools.web.fetch, "web_search": config.tools.web.search != "off"}
    return {name for name in own if web.get(name, True)}


def _left_out(whose: str, names: Sequence[str], taken: set[str]) -> Sequence[Finding]:
    """Report tools whose names are taken, and add the others' names to `taken`."""
    lost = [name for name in names if name in taken]
    taken |= set(names)
    if not lost:
        return ()
    return (Finding.of("warning", "tools.same_names", whose=whose, names=_first(lost)),)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


async def _connect(name: str, server: McpConfig) -> Listing | Finding:
    from bot.agent.tools.mcp import connection  # noqa: PLC0415 - it imports the SDK

    try:
        async with connection.McpConnection(name, server) as opened:
            offers = await opened.offers()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return Finding.of("error", "tools.server", name=name, why=connection.why(error, server))
    return listing_of(name, server.tools, offers)


def _told(name: str, listing: Listing) -> Sequence[Finding]:
    asking = sum(spec.changes for _, spec in listing.tools)
    count = len(listing.tools)
    found = [Finding.of("ok", "tools.offered", name=name, count=count, asking=asking)]
    if listing.unusable:
        names = _first(listing.unusable)
        found.append(Finding.of("warning", "tools.unusable", name=name, names=names))
    if listing.left:
        left, most = listing.left, MAX_TOOLS
        found.append(Finding.of("warning", "tools.too_many", name=name, count=left, most=most))
    return found


PROBE = "weather"  # what every search service finds something for


async def check_web(setup: Setup) -> Sequence[Finding]:
    """Check the web tools, if they are on."""
    web = setup.config.tools.web
    if web.search == "off" and not web.fetch:
        return []
    from bot.agent.tools.web import search as tools  # noqa: PLC0415 - only where it is configured

    found: list[Finding] = []
    if web.fetch:
        hosts = sorted({host for host, _ in tools.guard_of(web).internal})
        name = "web.fetches_own" if hosts else "web.fetches"
        found.append(Finding.of("ok", name, hosts=", ".join(hosts)))
    service = tools.service_of(web)
    return [*found, await _searching(service)] if service is not None else found


async def _searching(service: SearchService) -> Finding:
    """Check whether a search service answers."""
    from bot.agent.tools.web import search  # noqa: PLC0415 - only where it is configured

    if isinstance(service, search.Ddgs) and not search.ddgs_is_installed():
        return Finding.of("error", "web.no_ddgs", command=search.DDGS_INSTALL)
    try:
        hits = await service.search(PROBE, 1)
    except search.SearchFailed as error:
        return Finding.of("error", "web.search_failed", why=str(error))
    if not hits:
        return Finding.of("warning", "web.finds_nothing", name=service.name, words=PROBE)
    return Finding.of("ok", "web.searches", name=service.name)


async def check_speech(setup: Setup) -> Sequence[Finding]:
    """Check speech to text and text to speech, if they are configured."""
    speech = setup.config.speech
    if speech.kind == "none":
        return []
    found = [await _listening(speech)]
    return [*found, await _speaking(speech)] if speech.reply == "voice" else found


async def _speaking(speech: SpeechConfig) -> Finding:
    try:
        await SpeechApi(speech).say("Hello.")
    except Unspoken as error:
        known = {"speaking": "does_not_speak", "format": "no_opus"}
        name = known.get(error.reason, "refuses_to_speak")
        return Finding.of("error", f"speech.{name}", url=speech.base_url)
    return Finding.of("ok", "speech.speaks", url=speech.base_url)


async def _listening(speech: SpeechConfig) -> Finding:
    if speech.kind == "local":
        if problem := local_missing(speech):
            return Finding.of("error", "speech.missing", why=problem)
        return Finding.of("ok", "speech.local")
    try:
        await SpeechApi(speech).transcribe("", Audio(_silence(), "silence.wav"))
    except Unreadable as error:
        if error.reason == "listening":
            return Finding.of("error", "speech.does_not_listen", url=speech.base_url)
        if error.reason != "silence":
            return Finding.of("error", "speech.refuses_to_listen", url=speech.base_url)
    return Finding.of("ok", "speech.listens", url=speech.base_url)


def _silence() -> bytes:
    """A second of silence as a WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(32_000))
    return out.getvalue()


async def check_tokens(setup: Setup) -> Sequence[Finding]:
    """Check whether tokens are counted or estimated."""
    choice = setup.config.context.tokenizer
    counter = await asyncio.to_thread(tokens.counter, choice)
    if counter.name != tokens.ESTIMATE:
        return [Finding.of("ok", "tokens.counted", name=counter.name)]
    if choice != "tiktoken":
        return [Finding.of("ok", "tokens.estimated")]
    return [Finding.of("error", "tokens.no_ranks")]


SECONDS: Final = 30.0  # that a channel may take
NOTHING: Final = (Finding.of("ok", "channel.nothing"),)


def named(wanted: str, plugins: Mapping[str, ChannelPlugin]) -> str:
    """The channel that is meant.

    Raises:
        ConfidantError: none or several could be.
    """
    name = wanted.lower().replace("-", "_")
    found = [name] if name in plugins else [each for each in plugins if each.startswith(name)]
    if len(found) != 1:
        raise ConfidantError(f'There is no channel "{wanted}": there are {", ".join(plugins)}.')
    return found[0]


async def examine_channel(setup: Setup, name: str) -> Sequence[Finding]:
    """A channel's findings about itself, or why it is off."""
    if off := setup.plugins[name].off(setup.config.channels.get(name)):
        return [Finding.of("error", f"channel.{off}", name=name)]
    return await examined(made(setup, name))


async def examined(channel: Channel) -> Sequence[Finding]:
    """The findings of a channel that is not started."""
    await channel.publish_commands(menus())  # the platform's menu is compared with it
    try:
        async with asyncio.timeout(SECONDS):
            return await channel.examine() or NOTHING
    except TimeoutError:
        return [Finding.of("error", "channel.slow", seconds=int(SECONDS))]


def made(setup: Setup, name: str) -> Channel:
    """A channel as it is configured, not started."""
    return setup.plugins[name].create(setup.config.channels.get(name))


# --- the network and the clock --------------------------------------------------------------------


TIMEOUT: Final = 5.0  # seconds for one answer

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to ask what listens there

PageAnswer = Literal["alive", "other", "silent", "none"]
"""What answers at an address: the page, something else, nothing in time, or nothing."""


async def check_page(setup: Setup) -> Sequence[Finding]:
    """Check whether the page can be opened, by whom, and through what."""
    page = setup.config.dashboard
    found = [*_token(page), *_origins(page), *await _nodes(setup)]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
        is_alive = False
        if page.port:
            answer = await _asked_page(session, _own(page))
            is_alive = answer == "alive"
            is_running = await asyncio.to_thread(_is_running, setup)
            found.append(_address(page, answer, is_running=is_running))
        if is_alive:
            found += [each async for each in _proxies(session, page)]
    return found


def _token(page: DashboardConfig) -> Iterator[Finding]:
    if page.has_token:
        yield Finding.of("ok", "page.token")
    elif is_loopback(page.host):
        yield Finding.of("ok", "page.no_token_needed")
    else:
        yield Finding.of("error", "page.no_token", host=page.host)


async def _nodes(setup: Setup) -> Sequence[Finding]:
    """Check whether all nodes have the same token."""
    if not setup.is_shared:
        return ()
    try:
        found = await setup.read(census.take)
    except StorageError:  # a finding of the storage
        return ()
    differ = census.differing(found, setup.config.storage.node_timeout) if found else ()
    return [Finding.of("warning", "page.tokens_differ", nodes=", ".join(differ))] if differ else ()


def _origins(page: DashboardConfig) -> Iterator[Finding]:
    for each in page.allowed_origins:
        url = URL(each)
        if url.scheme != "https" and not is_loopback(url.host or ""):
            yield Finding.of("warning", "page.plain_origin", origin=each)


def _address(page: DashboardConfig, answer: PageAnswer, *, is_running: bool | None) -> Finding:
    """Judge what its address answers; `is_running` is None if that is not known here."""
    level, name = "ok", "free"
    if answer == "alive" and is_running is not False:
        name = "answers"
    elif is_running and answer in {"silent", "none"}:
        level, name = "error", "silent"
    elif answer != "none":
        level, name = "error", "taken"
    return Finding.of(level, f"page.{name}", host=page.host, port=page.port)


async def _proxies(session: aiohttp.ClientSession, page: DashboardConfig) -> AsyncIterator[Finding]:
    """Check whether the page answers at each address of a proxy."""
    for each in page.allowed_origins:
        names: dict[PageAnswer, str] = {"alive": "proxy", "other": "proxy_other"}
        name = names.get(await _asked_page(session, URL(each)), "proxy_none")
        yield Finding.of("ok" if name == "proxy" else "warning", f"page.{name}", origin=each)


def _own(page: DashboardConfig) -> URL:
    host = _EVERYWHERE.get(page.host, page.host.strip("[]"))
    return URL.build(scheme="http", host=host, port=page.port)


async def _asked_page(session: aiohttp.ClientSession, address: URL) -> PageAnswer:
    try:
        async with session.get(address / "healthz", allow_redirects=False) as response:
            said = await response.content.read(200)
    except aiohttp.ClientConnectorError:
        return "none"
    except TimeoutError:
        return "silent"
    except (aiohttp.ClientError, OSError):
        return "other"
    return "alive" if response.status == 200 and b'"alive"' in said else "other"


async def reported(setup: Setup) -> Sequence[Finding]:
    """Findings that a running bot reports about itself; none if it does not answer."""
    served = await asyncio.to_thread(files.served, setup.config.storage.folder)
    address = _own(setup.config.dashboard) if setup.is_shared else URL(served.url if served else "")
    if not address.port:
        return ()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session,
            session.get(address.origin() / "readyz") as response,
        ):
            checks: dict[str, dict[str, Any]] = (await response.json())["checks"]
        wrong: list[Finding] = []
        for name, each in checks.items():
            level: Level = "error" if each["state"] == "down" else "warning"
            detail = "" if each["id"] else each["detail"]
            if each["state"] != "ok":
                wrong.append(Finding(level, detail, each["fix"], name, each["id"], each["values"]))
    except (aiohttp.ClientError, OSError, *BROKEN):  # said of the page
        return ()
    return [Finding.of("ok", "health.reported", count=len(checks) - len(wrong)), *wrong]


def _is_running(setup: Setup) -> bool | None:
    if setup.is_shared:
        return None
    try:
        return files.holder(setup.config.storage.folder).is_running
    except OSError:  # said of the storage
        return None


A_LITTLE: Final = 60  # seconds a clock may be wrong
MUCH: Final = 300  # what platforms and logins do not take any more

_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"  # the nodes' clock
_LATEST = "SELECT coalesce(max(received_at), 0) FROM inbox"  # when something was last stored


async def check_clock(setup: Setup) -> Sequence[Finding]:
    """Check the clock and the time zone."""
    found = [*_zone(setup.config), *_by_servers()]
    sql = _NOW if setup.is_shared else _LATEST
    times = await setup.read(lambda tx: (setup.clock(), int(tx.execute(sql)[0][0])))
    return found if times is None else [*found, *_against_store(*times, is_shared=setup.is_shared)]


def _zone(config: Config) -> Iterator[Finding]:
    zone = local_zone(config).key
    if config.agent.timezone:
        yield Finding.of("ok", "clock.zone_set", zone=zone)
    elif tzlocal.get_localzone_name() in {None, "local"}:
        yield Finding.of("warning", "clock.no_zone", zone=zone)
    else:
        yield Finding.of("ok", "clock.zone", zone=zone)


def _by_servers() -> Iterator[Finding]:
    """Compare the clock with those of the models' servers, which were just asked."""
    ahead, count = ahead_of_others()
    found = housekeeping.right_time(None).finding
    if found.level != "ok":
        yield replace(found, level="error" if abs(ahead) >= MUCH else "warning")
    elif count:
        yield Finding.of("ok", "clock.right", count=count)


def _against_store(now: int, latest: int, *, is_shared: bool) -> Iterator[Finding]:
    """Compare the clock with the database server's, or with the newest stored message."""
    seconds = round((latest - now) / 1000)
    if is_shared and abs(seconds) >= A_LITTLE:
        yield Finding.of("warning", "clock.unlike_server", seconds=abs(seconds))
    elif not is_shared and seconds >= A_LITTLE:
        yield Finding.of("error", "clock.behind_store", seconds=seconds)
