"""The models: does every configured service work, how well, and is it known what they cost?"""

from __future__ import annotations

from collections.abc import Sequence

from bot.agent.models import Checked, Model, Window, trial
from bot.channel import Finding
from bot.config import OFFLINE, OPENAI, Config
from bot.context.budget import TOO_SMALL, resolve
from bot.doctor.setup import Setup
from bot.errors import ModelError, ModelNotFound
from bot.money.prices import Prices
from bot.settings import key_name


async def check(setup: Setup) -> Sequence[Finding]:
    """Which model answers, whether every configured service works, and what is not priced."""
    config = setup.config
    models, agent = config.models, config.agent
    chosen, (owner, _) = agent.model, models.locate(agent.model)
    named = {models.locate(each) for each in (chosen, *agent.fallback, agent.chores) if each}
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
                found += await _examine(config, service, name)
    return [*found, *_prices(config, [f"{service}/{name}" for service, name in sorted(named)])]


def _prices(config: Config, named: Sequence[str]) -> Sequence[Finding]:
    """The models that are asked, and whose price nobody has told."""
    prices = Prices.of_config(config)
    return [
        Finding.of("warning", "model.no_price", model=each)
        for each in named
        if config.models.is_set_up(each.partition("/")[0]) and not prices.is_known(each)
    ]


async def _examine(config: Config, service: str, name: str) -> Sequence[Finding]:
    """Whether a service takes the key and knows a model; with no name, whether it answers."""
    section = config.models.services[service]
    full = f"{service}/{name}" if name else service
    try:
        async with trial.opened(config.models, service) as model:
            return await _asked(config, full, name, model)
    except ModelNotFound as error:
        is_sure = name and not section.base_url
        level = "error" if is_sure else "warning"
        return [Finding.of(level, "model.unknown", model=full, why=str(error))]
    except ModelError as error:
        level, key = "error" if name else "warning", key_name(service)
        said = {"model": full, "why": str(error), "key": key, "service": service}
        return [Finding(level, id="model.unreachable", values=said)]


async def _asked(config: Config, full: str, name: str, model: Model) -> Sequence[Finding]:
    if not isinstance(model, Checked):
        return [Finding.of("ok", "model.nothing", model=full)]
    has_key = config.models.services[full.partition("/")[0]].api_key is not None
    how = "key" if has_key else "no_key_needed"
    if not name:
        count = len(await model.fetch_names())
        return [Finding.of("ok", f"model.lists_{how}", model=full, count=count)]
    window = await model.check(name)
    return [Finding.of("ok", f"model.answers_{how}", model=full), _window(config, full, window)]


def _window(config: Config, full: str, told: Window) -> Finding:
    """How large a model's window is, who says so, and whether that is enough."""
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
