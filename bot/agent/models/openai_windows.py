"""How large the windows of models are, as the servers that speak chat completions tell it.

The API itself does not say. Some servers say it in their list of models, others in an API of their
own below the same address, which is asked only where the list says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from bot.agent.models import Window
from bot.agent.models.wire import Json
from bot.errors import ModelBadReply, ModelError, ModelNotFound, ModelRejected

GUESS = 32_000  # tokens, where nobody says it
OLLAMA_DEFAULT = 4_096  # tokens that it gives a model for which nothing else is set

# What OpenAI lists beside the models that converse.
OTHER_MODELS: Final = re.compile(
    "audio|babbage|dall-e|davinci|embed|image|moderation|realtime|rerank|sora|transcribe|tts|whisper"
)

# What servers call it in their lists: vLLM, OpenRouter, Groq, Mistral, others.
_INPUT: Final = ("max_model_len", "context_length", "context_window", "max_context_length")
_OUTPUT: Final = ("max_completion_tokens", "max_output_tokens")
_LOADED: Final = ("context_length",)  # … and Ollama, of a model that runs
_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_WIDENED: Final = re.compile(r"-ctx\d+$")
# What a server answers that has no list of its models.
_UNKNOWN: Final = (ModelNotFound, ModelRejected, ModelBadReply)


# Asks a server by a path of its API, or a whole address; what is beside that is posted. Answers
# that are no JSON object are empty.
Asks = Callable[[str, Json | None], Awaitable[Json]]


async def sizes(ask: Asks, root: str, model: str) -> Window:
    """The sizes of a model, 0 being one that the server does not tell.

    `root` is the address above the API, where servers have others; empty when there is none.

    Raises:
        ModelError: the server does not take the key, does not know the model, or is not there.
    """
    listed = await _listed(ask)
    entry = next((each for each in listed if _is_named(each, model)), None)
    if listed and entry is None:
        raise ModelNotFound(f"it is not among the {len(listed)} models there")
    told = told_by(entry or {})
    if told.max_input_tokens or not root:
        return told
    for tokens in (_ollama, _llama_cpp, _lm_studio):
        if found := await tokens(ask, root, model):
            return Window(found, told.max_output_tokens)
    return told


def told_by(entry: Mapping[str, Any]) -> Window:
    """What an entry of the list of models says."""
    provider = entry.get("top_provider")
    places = [entry, cast("Json", provider) if isinstance(provider, dict) else {}]
    first = next((n for each in places for n in _counts(each, _INPUT)), 0)
    return Window(first, next((n for each in places for n in _counts(each, _OUTPUT)), 0))


def conversing(listed: Sequence[Json]) -> list[str]:
    """The names in a list of models, without those that do not converse or were made here."""
    names = [str(each.get("id") or "") for each in listed]
    return [n for n in names if n and not (_WIDENED.search(n) or OTHER_MODELS.search(n))]


async def widened(ask: Asks, root: str, model: str, window: int) -> str:
    """The name under which Ollama runs a model with so large a window, made there if need be.

    Its chat completions take no window with a request, so a model is derived that has it: the
    weights are shared, and nothing is downloaded. On any other server the name stays.

    Raises:
        ModelError: it could not be made.
    """
    shown = await _answer(ask, f"{root}/api/show", {"model": model})
    if not _is_ollamas(shown) or _set_window(shown) == window:
        return model
    tagged = model if ":" in model.rpartition("/")[2] else f"{model}:latest"
    name = f"{tagged}-ctx{window}"
    if not _is_ollamas(await _answer(ask, f"{root}/api/show", {"model": name})):
        wanted: Json = {"from": model, "parameters": {"num_ctx": window}, "stream": False}
        await ask(f"{root}/api/create", {"model": name, **wanted})
    return name


# --- servers with an API of their own -------------------------------------------------------------


async def _ollama(ask: Asks, root: str, model: str) -> int:
    """What Ollama gives a model, not what it could take: the rest is cut without a word."""
    shown = await _answer(ask, f"{root}/api/show", {"model": model})
    if not _is_ollamas(shown):
        return 0
    if found := _set_window(shown) or await _running(ask, root, model):
        return found
    await _answer(ask, f"{root}/api/generate", {"model": model, "stream": False})  # loads it
    return await _running(ask, root, model) or OLLAMA_DEFAULT


async def _running(ask: Asks, root: str, model: str) -> int:
    loaded = entries(await _answer(ask, f"{root}/api/ps"), "models")
    found = (n for each in loaded if _is_named(each, model) for n in _counts(each, _LOADED))
    return next(found, 0)


def _is_ollamas(shown: Mapping[str, Any]) -> bool:
    return isinstance(shown.get("model_info") or shown.get("details"), dict)


def _set_window(shown: Mapping[str, Any]) -> int:
    """The window that was set for a model itself; 0 when none was."""
    found = _NUM_CTX.search(str(shown.get("parameters") or ""))
    return int(found[1]) if found else 0


async def _llama_cpp(ask: Asks, root: str, model: str) -> int:
    told = (await _answer(ask, f"{root}/props")).get("default_generation_settings")
    return next(_counts(cast("Json", told) if isinstance(told, dict) else {}, ("n_ctx",)), 0)


async def _lm_studio(ask: Asks, root: str, model: str) -> int:
    told = await _answer(ask, f"{root}/api/v0/models/{model}")
    return next(_counts(told, ("loaded_context_length",)), 0)


# --- reading answers ------------------------------------------------------------------------------


async def _listed(ask: Asks) -> list[Json]:
    try:
        return entries(await ask("/models", None))
    except _UNKNOWN:
        return []


async def _answer(ask: Asks, where: str, body: Json | None = None) -> Json:
    """What a server answers beside its API; others than the one that is meant say anything."""
    try:
        return await ask(where, body)
    except ModelError:
        return {}


def entries(answer: Mapping[str, Any], name: str = "data") -> list[Json]:
    """The tables of a list in an answer."""
    listed: object = answer.get(name)
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    return [cast("Json", each) for each in entries if isinstance(each, dict)]


def _is_named(entry: Mapping[str, Any], model: str) -> bool:
    """True for a model's entry; Ollama adds a tag, Gemini a folder."""
    names = {entry.get(name) for name in ("id", "model", "name")}
    return not names.isdisjoint({model, f"{model}:latest", f"models/{model}"})


def _counts(told: Mapping[str, Any], names: Sequence[str]) -> Iterator[int]:
    values = (told.get(name) for name in names)
    return (value for value in values if type(value) is int and value > 0)
