"""What `confidant doctor` says of models: does every configured service work, and how well?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.agent.models import Checked, Model, Window, trial
from bot.channel import Finding
from bot.config import OFFLINE, OPENAI, Config
from bot.context.budget import TOO_SMALL, resolve
from bot.errors import ModelError, ModelNotFound
from bot.settings import key_name

_SOURCES = {
    "config": "the configuration says",
    "service": "its service says",
    "default": "is a guess, because its service says nothing; [context.windows] can",
}


def model_findings(config: Config) -> Sequence[Finding]:
    """Which model answers, and whether every configured service works."""
    models, agent = config.models, config.agent
    chosen, (owner, _) = agent.model, models.locate(agent.model)
    named = {models.locate(each) for each in (chosen, *agent.fallback, agent.chores) if each}
    found: list[Finding] = []
    if chosen == OFFLINE:
        found.append(Finding("ok", "the offline model answers, as [agent] model says"))
    elif not models.is_set_up(owner):
        said = f"no key is set, so the offline model answers instead of {chosen}"
        fix = f"Put {key_name(owner)}=… into .env, or set [models.{owner}] base_url."
        found.append(Finding("warning", said, fix))
    for service in models.services:
        if models.is_set_up(service):
            names = sorted(name for owner, name in named if owner == service)
            for name in names or [""]:
                found += asyncio.run(_examine(config, service, name))
    return found


async def _examine(config: Config, service: str, name: str) -> Sequence[Finding]:
    """Whether a service takes the key and knows a model; with no name, whether it answers."""
    section = config.models.services[service]
    full = f"{service}/{name}" if name else service
    try:
        async with trial.opened(config.models, service) as model:
            return await _asked(config, full, name, model)
    except ModelNotFound as error:
        fix = "Name one in [agent] that it has. Some servers do not tell which they have."
        is_sure = name and not section.base_url
        return [Finding("error" if is_sure else "warning", f"{full}: {error}", fix)]
    except ModelError as error:
        fix = f"Check {key_name(service)} and [models.{service}], and the connection."
        return [Finding("error" if name else "warning", f"{full}: {error}", fix)]


async def _asked(config: Config, full: str, name: str, model: Model) -> Sequence[Finding]:
    if not isinstance(model, Checked):
        return [Finding("ok", f"{full}: there is nothing to check")]
    has_key = config.models.services[full.partition("/")[0]].api_key is not None
    answers = f"{full} answers, " + ("the key is taken" if has_key else "without a key")
    if not name:
        count = len(await model.fetch_names())
        return [Finding("ok", f"{answers}, and it lists {count} models")]
    window = await model.check(name)
    return [Finding("ok", answers), _window(config, full, window)]


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
    said = f"its window: {known.reported} tokens, {_SOURCES[known.source]}"
    if not known.is_too_small:
        return Finding("ok", said)
    fix = f"Set [models.{service}] window, if it can be larger."
    if config.models.kind_of(service) == OPENAI:
        fix += " Ollama cuts what exceeds it without a word, and is told of that window then."
    return Finding("error", f"{said}; conversations need {TOO_SMALL}", fix)
