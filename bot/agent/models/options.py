"""What the configuration adds to the body of a request, and what of it a service refuses. Pure.

How a model is told to think more, less or not at all differs by vendor; the tables here are theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from yarl import URL

from bot.config import ANTHROPIC, ServiceConfig, Thinking

Json = dict[str, Any]
Way = Literal["effort", "type", "type and effort", "enable", "template", "reasoning"]

# How chat completions are told, by what an address or a model's name contains; the first match
# wins. Sources: the vendors' references, and the servers' (vLLM "Reasoning outputs", llama.cpp
# tools/server/README.md, Ollama docs/openai.md), read in 2026-11.
_WAYS: Final[tuple[tuple[str, str, Way], ...]] = (
    (r"openrouter\.ai", "", "reasoning"),
    (r"deepseek\.com|volces\.com|bytepluses\.com", "", "type and effort"),
    (r"moonshot\.(ai|cn)|kimi\.com|bigmodel\.cn|\bz\.ai", "", "type"),
    (r"dashscope|maas\.aliyuncs\.com|siliconflow\.|modelscope\.cn", "", "enable"),
    # These say effort, whatever the model.
    (r"openai\.com|googleapis\.com|\bx\.ai|groq\.com|mistral\.ai|ollama|:11434", "", "effort"),
    # Servers of one's own hand it to the model's template.
    ("", r"qwen|glm|deepseek|kimi|granite|hunyuan|nemotron|gemma|smollm", "template"),
    ("", "", "effort"),
)
# Claude models before adaptive thinking, which take a number of tokens.
_BY_BUDGET: Final = re.compile(
    r"claude-(?:[23]|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-20\d{6}|-latest|$))"
)
_SHARES: Final[Mapping[Thinking, float]] = {"low": 0.25, "medium": 0.5, "high": 0.75}  # of a reply
_LEAST_BUDGET: Final = 1024  # tokens; the API takes no less
# What a refusal says of earlier messages and not of a field.
_OF_HISTORY: Final = re.compile(r"messages[.\[]|thinking['\"`]? blocks?|signature", re.IGNORECASE)
_OPTIONS: Final = {"temperature", "top_p", "thinking", "extra_body", "per_model"}
_COMMON: Final = frozenset({"type", "enabled", "display"})  # keys that name no field by themselves


def fields(
    kind: str, url: str, model: str, config: ServiceConfig, *, thinking: Thinking, longest: int
) -> Json:
    """The fields that options add to the body of a request to a model.

    Args:
        kind: what the service speaks.
        url: where it is.
        model: its name there.
        config: the service's options, with those of the model.
        thinking: what was chosen for the conversation; empty asks the options.
        longest: the longest reply that is asked for, in tokens.
    """
    found: Json = {
        name: value
        for name in ("temperature", "top_p")
        if (value := getattr(config, name)) is not None
    }
    if level := thinking or config.thinking:
        write = _to_claude if kind == ANTHROPIC else _to_completions
        found |= write(level, url, model, longest)
    return found | dict(config.extra_body)


def written(config: ServiceConfig) -> str:
    """These options of a service and of its models as text; empty without any."""
    said = config.model_dump_json(include=_OPTIONS, exclude_defaults=True)
    return "" if said == "{}" else said


def refused(extra: Mapping[str, Any], words: str) -> frozenset[str]:
    """Those of the fields that a refusal in these words names."""
    if _OF_HISTORY.search(words):
        return frozenset()
    return frozenset(name for name, value in extra.items() if _is_named(name, value, words))


def _is_named(name: str, value: object, words: str) -> bool:
    inner = cast("Mapping[str, Any]", value).keys() - _COMMON if isinstance(value, Mapping) else ()
    names = "|".join(map(re.escape, (name, *inner)))
    return re.search(rf"(?<!\w)(?:{names})(?!\w)", words, re.IGNORECASE) is not None


def _to_claude(level: Thinking, url: str, model: str, longest: int) -> Json:
    if level == "off":
        return {"thinking": {"type": "disabled"}}
    is_claude = (URL(url).host or "").endswith("anthropic.com")
    if is_claude and not _BY_BUDGET.search(model):
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": level},
        }
    budget = max(_LEAST_BUDGET, round(longest * _SHARES[level]))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _to_completions(level: Thinking, url: str, model: str, longest: int) -> Json:
    where, name = f"{URL(url).host}:{URL(url).port}".lower(), model.lower()
    way = next(way for at, of, way in _WAYS if re.search(at, where) and re.search(of, name))
    thinks, effort = level != "off", {"reasoning_effort": "none" if level == "off" else level}
    match way:
        case "effort":
            return effort
        case "type" | "type and effort":
            kind = {"thinking": {"type": "enabled" if thinks else "disabled"}}
            return {**kind, **effort} if thinks and way != "type" else kind
        case "enable":
            return {"enable_thinking": thinks}
        case "template":  # templates know one of the two names, and pass over the other
            return {"chat_template_kwargs": {"enable_thinking": thinks, "thinking": thinks}}
        case _:  # "reasoning"
            return {"reasoning": {"effort": level} if thinks else {"enabled": False}}
