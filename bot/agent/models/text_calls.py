"""Calls of tools that a model wrote as text, in whatever form. Pure."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from bot.agent.models.wire import Json, TextCall, arguments_in, load

Tools = Mapping[str, Mapping[str, Any]]

_LONGEST_CODE = 10_000  # characters of a call in Python that are read
_MARK = r"<[|｜][^<>|｜]{1,40}[|｜]?>|<[^<>|｜]{1,40}[|｜]>"  # of a template
_BETWEEN: Final = re.compile(
    rf"(?:\s|{_MARK}|\[/?TOOL_CALLS\]|\[ARGS\]|\[CALL_ID\]\w*|\[(?:END_)?TOOL_REQUEST\]"
    r"|```(?:json)?|[;,]|</?(?:\w+:)?(?:longcat_)?(?:tool_calls?|function_calls?|tool_sep)>)*",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?:function<[|｜]tool[▁_]sep[|｜]>|call\s*:\s*)?(?:functions?\.)?([\w.-]+)(?::\d+)?"
)
_DSML = r"(?:[|｜]+DSML[|｜]+\s*)?"
_TAGGED: Final = re.compile(
    rf"<{_DSML}(?:function|invoke)(?:=|\s+name=)[\"']?([\w.-]+)[\"']?\s*>"
    rf"(.*?)(?:</{_DSML}(?:function|invoke)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_PARAMETER: Final = re.compile(
    rf"<{_DSML}param(?:eter)?(?:=|\s+name=)[\"']?([\w.-]+)[\"']?[^<>]*>"
    rf"(.*?)(?:</{_DSML}param(?:eter)?>|(?=<{_DSML}param)|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_PAIR: Final = re.compile(
    r"<(?:longcat_)?arg_key>([^<]*)</(?:longcat_)?arg_key>\s*"
    r"<(?:longcat_)?arg_value>(.*?)(?:</(?:longcat_)?arg_value>|\Z)",
    re.DOTALL,
)
_QUOTED_NAME = re.compile(r"[\"'](?:name|function|tool|tool_name)[\"']\s*:\s*[\"']([\w.-]+)[\"']")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "params")
_NAMES = ("name", "tool", "tool_name", "function", "function_name")
_DECODER = json.JSONDecoder(strict=False)


def name_in(text: str, tools: Tools) -> str:
    """The offered tool that some JSON, perhaps cut off or broken, names; empty for none."""
    names = (own_name(found[1], tools) for found in _QUOTED_NAME.finditer(text))
    return next((name for name in names if name in tools), "")


def own_name(name: str, tools: Tools) -> str:
    """The name of an offered tool as its list has it: gpt-oss puts more around it."""
    bare = name.partition("<")[0].strip().removeprefix("functions.")
    return bare if bare in tools else name


def is_whole_call(text: str, tools: Tools) -> bool:
    """True when a reply that is JSON can be nothing but calls: with a name and arguments.

    The description of a tool is none, nor is a thing that happens to be called like one.
    """
    found = calls_in(text, tools)
    has_arguments = any(f'"{each}"' in text for each in _ARGUMENTS)
    return bool(found) and has_arguments and '"description"' not in text


def calls_in(text: str, tools: Tools) -> list[TextCall]:
    """The calls that some text between markers holds; none unless all of it are such calls."""
    tagged = list(_TAGGED.finditer(text))
    calls = (
        [_tagged(found[1], found[2], tools) for found in tagged]
        if tagged
        else _scanned(text, tools)
    )
    return calls if all(call.name in tools for call in calls) else []


def _tagged(name: str, inner: str, tools: Tools) -> TextCall:
    """`<function=name>`, `<invoke name="…">`: with a tag for each argument, or JSON."""
    pairs, name = _PARAMETER.findall(inner), own_name(name, tools)
    if not pairs and inner.strip():
        return _called(name, inner)
    return TextCall(name, _typed(pairs, tools.get(name, {})))


def _typed(pairs: Sequence[tuple[str, str]], schema: Mapping[str, Any]) -> Json:
    """Arguments that came as words, as what the tool's schema says they are."""
    kinds: Mapping[str, Json] = schema.get("properties") or {}
    typed: Json = {}
    for key, value in pairs:
        words = value.removeprefix("\n").removesuffix("\n")
        typed[key.strip()] = words
        if (kinds.get(key.strip()) or {}).get("type") != "string":
            with suppress(ValueError):
                typed[key.strip()] = load(words)
    return typed


def _scanned(text: str, tools: Tools) -> list[TextCall]:
    """Calls as JSON, as a name with JSON or pairs behind it, or as Python; else none."""
    text = text.replace('<|"|>', '"')  # Gemma's quotes
    calls: list[TextCall] = []
    at = _after(text, 0)
    while at < len(text):
        found, end = _value(text, at, tools) if text[at] in "{[" else _named(text, at, tools)
        if not found:
            return []
        calls += found
        at = _after(text, end)
    return calls


def _value(text: str, at: int, tools: Tools) -> tuple[list[TextCall], int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return _from_python(text[at:]) or _broken(text[at:], tools), len(text)
    return _from_json(value, tools), end


def _named(text: str, at: int, tools: Tools) -> tuple[list[TextCall], int]:
    found = _NAME.match(text, at)
    if found is None:
        return [], at
    name, at = own_name(found[1], tools), _after(text, found.end())
    following = text[at : at + 1]
    if following == "(":
        return _from_python(text[found.start(1) :]), len(text)
    if following == "<" and (pairs := _PAIR.findall(text[at:])):  # GLM: one call a block
        return [TextCall(name, _typed(pairs, tools.get(name, {})))], len(text)
    if following != "{":
        return [TextCall(name, {})] if not following else [], at
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return [_called(name, text[at:])], len(text)
    return [TextCall(name, value)], end


def _after(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _called(name: str, raw: str) -> TextCall:
    """A call whose arguments are JSON, perhaps with something behind it."""
    arguments = arguments_in(raw)
    return TextCall(name, {}, garbled=raw) if arguments is None else TextCall(name, arguments)


def _broken(raw: str, tools: Tools) -> list[TextCall]:
    """A call in JSON that cannot be read, if it names an offered tool."""
    if (value := arguments_in(raw)) and (calls := _from_json(value, tools)):
        return calls
    name = name_in(raw, tools)
    return [TextCall(name, {}, garbled=raw)] if name else []


def _from_json(value: object, tools: Tools) -> list[TextCall]:
    """The calls of a JSON value: one, several, or wrapped as chat completions have them."""
    if isinstance(value, list):
        found = [_from_json(each, tools) for each in cast("list[object]", value)]
        return [call for calls in found for call in calls] if all(found) else []
    fields: Json = cast("Json", value) if isinstance(value, dict) else {}
    for wrapped in ("function", "tool_calls", "function_call"):
        if isinstance(fields.get(wrapped), dict | list):
            return _from_json(fields[wrapped], tools)
    name = next((fields[key] for key in _NAMES if isinstance(fields.get(key), str)), "")
    name = own_name(name, tools)
    arguments: object = next((fields[key] for key in _ARGUMENTS if key in fields), None)
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return [_called(name, raw)] if name in tools else []


def _from_python(text: str) -> list[TextCall]:
    """Calls in Python: `[look(what="x")]`, or `look.call(what="x")`; their values are literals."""
    code = re.sub(_MARK, "", text[:_LONGEST_CODE]).strip()
    if not code or len(text) > _LONGEST_CODE:
        return []
    try:
        tree = ast.parse(code, mode="eval").body
        listed = tree.elts if isinstance(tree, ast.List) else [tree]
        return [_python_call(each) for each in listed]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []


def _python_call(node: ast.expr) -> TextCall:
    if not isinstance(node, ast.Call) or node.args:
        raise TypeError(type(node).__name__)
    name = ast.unparse(node.func).removesuffix(".call")
    return TextCall(name, {k.arg or "": ast.literal_eval(k.value) for k in node.keywords})
