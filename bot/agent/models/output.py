"""Splits a model's output into the reply, its thoughts, and calls written as text. Pure.

`markers.toml` lists what stands around each. A reply that speaks of such a marker, in code or in a
sentence, is left as it is.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal, cast

from bot.agent.models.wire import Json, arguments_in, call_of, load
from bot.channel.kit.json_access import mapping
from bot.messages import ToolUse

# Calls of tools that a model wrote as text, in whatever form. Pure.

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
    rf"<{_DSML}param(?:eter)?(?:=|\s+name=)[\"']?([\w.-]++)[\"']?[^<>]*+>"
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


def calls_in(text: str, tools: Tools) -> list[ToolUse]:
    """The calls that some text between markers holds; none unless all of it are such calls."""
    tagged = list(_TAGGED.finditer(text))
    calls = (
        [_tagged(found[1], found[2], tools) for found in tagged]
        if tagged
        else _scanned(text, tools)
    )
    return calls if all(call.name in tools for call in calls) else []


def _tagged(name: str, inner: str, tools: Tools) -> ToolUse:
    """`<function=name>`, `<invoke name="…">`: with a tag for each argument, or JSON."""
    pairs, name = _PARAMETER.findall(inner), own_name(name, tools)
    if not pairs and inner.strip():
        return _called(name, inner)
    return call_of(name, _typed(pairs, tools.get(name, {})))


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


def _scanned(text: str, tools: Tools) -> list[ToolUse]:
    """Calls as JSON, as a name with JSON or pairs behind it, or as Python; else none."""
    text = text.replace('<|"|>', '"')  # Gemma's quotes
    calls: list[ToolUse] = []
    at = _after(text, 0)
    while at < len(text):
        found, end = _value(text, at, tools) if text[at] in "{[" else _named(text, at, tools)
        if not found:
            return []
        calls += found
        at = _after(text, end)
    return calls


def _value(text: str, at: int, tools: Tools) -> tuple[list[ToolUse], int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return _from_python(text[at:]) or _broken(text[at:], tools), len(text)
    return _from_json(value, tools), end


def _named(text: str, at: int, tools: Tools) -> tuple[list[ToolUse], int]:
    found = _NAME.match(text, at)
    if found is None:
        return [], at
    name, at = own_name(found[1], tools), _after(text, found.end())
    following = text[at : at + 1]
    if following == "(":
        return _from_python(text[found.start(1) :]), len(text)
    if following == "<" and (pairs := _PAIR.findall(text[at:])):  # GLM: one call a block
        return [call_of(name, _typed(pairs, tools.get(name, {})))], len(text)
    if following != "{":
        return [call_of(name, {})] if not following else [], at
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return [_called(name, text[at:])], len(text)
    return [call_of(name, value)], end


def _after(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _called(name: str, raw: str) -> ToolUse:
    """A call whose arguments are JSON, perhaps with something behind it."""
    arguments = arguments_in(raw)
    return call_of(name, {}, garbled=raw) if arguments is None else call_of(name, arguments)


def _broken(raw: str, tools: Tools) -> list[ToolUse]:
    """A call in JSON that cannot be read, if it names an offered tool."""
    if (value := arguments_in(raw)) and (calls := _from_json(value, tools)):
        return calls
    name = name_in(raw, tools)
    return [call_of(name, {}, garbled=raw)] if name else []


def _from_json(value: object, tools: Tools) -> list[ToolUse]:
    """The calls of a JSON value: one, several, or wrapped as chat completions have them."""
    if isinstance(value, list):
        found = [_from_json(each, tools) for each in cast("list[object]", value)]
        return [call for calls in found for call in calls] if all(found) else []
    fields = mapping(value)
    for wrapped in ("function", "tool_calls", "function_call"):
        if isinstance(fields.get(wrapped), dict | list):
            return _from_json(fields[wrapped], tools)
    name = next((fields[key] for key in _NAMES if isinstance(fields.get(key), str)), "")
    name = own_name(name, tools)
    arguments: object = next((fields[key] for key in _ARGUMENTS if key in fields), None)
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return [_called(name, raw)] if name in tools else []


def _from_python(text: str) -> list[ToolUse]:
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


def _python_call(node: ast.expr) -> ToolUse:
    if not isinstance(node, ast.Call) or node.args:
        raise TypeError(type(node).__name__)
    name = ast.unparse(node.func).removesuffix(".call")
    return call_of(name, {k.arg or "": ast.literal_eval(k.value) for k in node.keywords})


_TABLE = tomllib.loads(
    resources.files("bot.agent.models").joinpath("markers.toml").read_text("utf-8")
)
_LONGEST_HEADER = 200  # characters; gpt-oss names a channel, a tool and a format in it
_BARE: Final = "{"  # the key of a call that is the whole reply
_BARE_BEGIN = re.compile(
    r"[\[\s]*\{\s*[\"'](?:(?:tool_|function_)?name|tool|function|type|id|arg|param|input|tool_call)"
)
_TELLS = (40, 200)  # characters of a reply that tell whether it may be a bare call, and of which
_QUOTES = frozenset("`'\"“‘「『«(*|/")  # a marker right after one of these is spoken of
_ENDS = frozenset(".!?…。！？:：;>\n") | {
    ""
}  # after these, or on a new line, a marker begins something
_OWN = frozenset({"", "assistant", "model", "final", "commentary"})  # what is written to the person
_OTHERS = frozenset(
    {"user", "system", "developer", "tool", "ipython", "environment", "observation"}
)
_TO = re.compile(r"to=(?:functions\.)?([\w.-]+)")


@dataclass(frozen=True, slots=True)
class _Marker:
    kind: Literal["thought", "call", "header", "rest"]
    end: re.Pattern[str]
    longest: int = 1  # characters of the longest end


def _marker(kind: Literal["thought", "call", "header"], ends: Sequence[str]) -> _Marker:
    # One in code is spoken of, so it ends nothing.
    raw = "|".join(f"(?<!`){re.escape(end)}" for end in ends) or "(?!)"
    return _Marker(kind, re.compile(raw, re.IGNORECASE), max((1, *map(len, ends))))


_MARKERS: Final[Mapping[str, _Marker]] = {
    **{begin: _marker("thought", ends) for begin, *ends in _TABLE["thoughts"]},
    **{begin: _marker("call", ends) for begin, *ends in _TABLE["calls"]},
    **{begin: _marker("header", ends) for begin, *ends in _TABLE["headers"]},
    _BARE: _marker("call", ()),
}
_CONSUMED, _NEXT = _TABLE["parts"][:3], _TABLE["parts"][3:]
_PART_END = re.compile(
    "|".join([*map(re.escape, _CONSUMED), *(f"(?={re.escape(each)})" for each in _NEXT)])
)
_PART = _Marker("thought", _PART_END, max(map(len, _TABLE["parts"])))
_PART_CALL = _Marker("call", _PART_END, _PART.longest)
_REST = _Marker("rest", re.compile("(?!)"))
_ENDINGS: Final[Mapping[str, str]] = dict(_TABLE["thoughts"])
_ORPHANS = frozenset(_ENDINGS.values())
_SPECIALS = frozenset(_TABLE["specials"])
_EVERY = sorted({*_MARKERS, *_ORPHANS, *_SPECIALS} - {_BARE}, key=len, reverse=True)
_FIND = re.compile("`+|" + "|".join(map(re.escape, _EVERY)), re.IGNORECASE)
_BEGINNINGS = frozenset(each[:n] for each in _EVERY for n in range(1, len(each)))
_LONGEST = max(map(len, _EVERY))
_MAYBE = re.compile("[<\\[◁`]")


class OutputFilter:
    """Takes a reply in pieces and gives what can be shown of it.

    Its time is linear in what comes, however that is cut.

    Attributes:
        calls: the calls of offered tools that were written as text.
        replaced: true when what was shown before the last words turned out to be a thought: the
            reply begins with these.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Any]],
        thoughts: list[str],
        *,
        waits: bool = False,
    ) -> None:
        """`tools` are the schemas of the tools that are offered, by name.

        Pieces of thoughts are added to `thoughts`. With `waits` nothing is shown before a thought
        has ended or the whole reply is there: for a model whose template begins the thought, so
        that only its end is written.
        """
        self._tools = tools
        self.calls: list[ToolUse] = []
        self.replaced = False
        self._said: list[str] = []
        self._out: list[str] = []  # of `_said`, what was not shown yet
        self._thoughts = thoughts
        self._held = ""  # it may be the beginning of a marker
        self._pending: list[str] = []  # blanks and special tokens, until it is clear what follows
        self._begun = False  # words of the reply have come
        self._removed = False  # something was taken away in front of them
        self._before = ""  # the end of what was said last
        self._fence = 0  # backticks that began a block of code
        self._inline = 0  # … or code within a line
        self._key, self._marker = "", None if not waits else _MARKERS["<think>"]
        self._block: list[str] = []
        self._length = 0  # of the block
        self._looked = 0  # characters of what is held in which its end does not begin
        self._streams = False  # the block is a thought for certain
        self._has_thought = False
        self._unclosed: set[str] = set()  # markers that turned out to be none, as nothing ends them
        self._spoken_of: set[str] = set()  # ends of thoughts whose beginnings were words

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._said)

    def feed(self, piece: str) -> str:
        """Take a piece; returns what of it can be shown now."""
        self.replaced = False
        is_plain = self._begun and not (self._marker or self._held or self._pending)
        if is_plain and not _MAYBE.search(piece):
            self._emit(piece)
        else:
            self._read(piece)
        return self._shown()

    def end(self) -> str:
        """The end of the reply that was held back until now."""
        self.replaced = False
        while self._marker is not None:
            self._give_up(is_end=True)
        held, self._held = self._held, ""
        self._emit(held)
        if not self._begun and not self._removed:
            self._said += self._pending
            self._out += self._pending
        self._pending.clear()
        return self._shown()

    def _shown(self) -> str:
        shown, self._out = "".join(self._out), []
        return shown

    def _read(self, piece: str) -> None:
        data, self._held, at = self._held + piece, "", 0
        while at < len(data):
            at = self._plain(data, at) if self._marker is None else self._inside(data, at)

    # --- outside of markers ---------------------------------------------------------------------

    def _plain(self, data: str, at: int) -> int:
        if not self._begun and self._tools and _BARE not in self._unclosed:
            words = data[at : at + _LONGEST].lstrip()
            if words == "[":
                self._held = data[at:]
                return len(data)
            if words[:1] == "{" or words[:2] in {"[{", "[\n"}:
                self._begin(_BARE, _MARKERS[_BARE])
                return at
        found = _FIND.search(data, at)
        is_open = found is not None and found[0][0] == "`" and found.end() == len(data)
        if found is None or (is_open and len(found[0]) < _LONGEST):
            until = found.start() if found else _open_end(data, at)
            self._emit(data[at:until])
            self._held = data[until:]
            return len(data)
        self._emit(data[at : found.start()])
        self._take(found[0])
        return found.end()

    def _take(self, raw: str) -> None:
        """One marker, or the backticks of code."""
        key = raw.lower()
        if raw[0] == "`":
            self._code(raw)
        elif self._fence or self._inline:
            self._emit(raw)
        elif key in _ORPHANS and self._ends_thought(key):
            self.replaced = self.replaced or bool(self._said)
            self._thoughts.append(self.text)
            self._said, self._out, self._pending, self._before = [], [], [], ""
            self._begun, self._removed = False, True
        elif key in _SPECIALS:
            self._pending.append(raw)
            self._removed = self._removed or not self._begun
        elif key in _MARKERS and self._begins(key):
            self._begin(raw, _MARKERS[key])
        else:
            self._spoken_of.add(_ENDINGS.get(key, ""))
            self._spoken_of.discard(key)
            self._emit(raw)

    def _begins(self, key: str) -> bool:
        """False for a marker that is only spoken of."""
        kind = _MARKERS[key].kind
        if key in self._unclosed or (kind == "call" and not self._tools):
            return False
        if not self._begun:
            return True
        if self._before[-1:] in _QUOTES:
            return False
        last = self._before.rstrip(" \t")[-1:]
        return kind != "thought" or self._has_thought or last in _ENDS

    def _ends_thought(self, key: str) -> bool:
        """True for an end without a beginning: all that was said before it was a thought."""
        last = self._before[-1:]
        is_word = last in _QUOTES or last in {" ", "\t"} or key in self._spoken_of
        return not self._begun or not is_word

    def _code(self, ticks: str) -> None:
        """Backticks begin or end code."""
        begins_line = self._before.rpartition("\n")[2].strip(" \t>") == ""
        if self._fence:
            self._fence = 0 if begins_line and len(ticks) >= self._fence else self._fence
        elif self._inline:
            self._inline = 0 if len(ticks) == self._inline else self._inline
        elif len(ticks) > 2 and begins_line:
            self._fence = len(ticks)
        else:
            self._inline = len(ticks)
        self._emit(ticks)

    def _emit(self, words: str) -> None:
        """More of the reply, or of what may be in front of it and behind it."""
        if not words:
            return
        if not self._begun or self._pending:
            if words.isspace():
                self._pending.append(words)
                return
            if self._begun or not self._removed:
                words = "".join(self._pending) + words
            else:
                words = words.lstrip()
            self._pending.clear()
            self._begun = True
        self._said.append(words)
        self._out.append(words)
        self._before = (self._before + words)[-_LONGEST:]
        if self._inline and "\n" in words:
            self._inline = 0

    # --- within markers -------------------------------------------------------------------------

    def _begin(self, raw: str, marker: _Marker) -> None:
        self._key, self._marker = raw, marker
        self._block, self._length, self._looked = [], 0, 0
        self._streams = marker.kind == "thought" and not self._begun

    def _inside(self, data: str, at: int) -> int:
        marker = self._marker
        assert marker is not None  # noqa: S101 - for the type checker
        found = marker.end.search(data, at + self._looked)
        until = found.start() if found else max(at, len(data) - marker.longest)
        self._looked = int(len(data) - until == marker.longest)  # kept for what stands before it
        before = self._length
        self._collect(data[at:until])
        is_long = marker.kind == "header" and self._length > _LONGEST_HEADER
        if found is not None and not is_long:
            self._close(found[0])
            return found.end()
        self._held = data[until:]
        if is_long or (self._key == _BARE and self._is_no_call(before)):
            self._give_up()
        return len(data)

    def _collect(self, words: str) -> None:
        if self._streams:
            self._thoughts.append(words)
        elif words:
            self._block.append(words)
            self._length += len(words)

    def _is_no_call(self, before: int) -> bool:
        """True when a reply that may be a bare call has just shown that it is none."""
        first, last = _TELLS
        if before < first <= self._length and not _BARE_BEGIN.match("".join(self._block)[:first]):
            return True
        is_clear = before < last <= self._length
        return is_clear and not name_in("".join(self._block)[:last], self._tools)

    def _close(self, end: str) -> None:
        """Ends what a marker began."""
        marker, inner = self._marker, "".join(self._block)
        assert marker is not None  # noqa: S101 - for the type checker
        self._marker, self._block = None, []
        match marker.kind:
            case "header" if self._header(inner):
                pass
            case "thought" if self._streams or not _is_spoken_of(inner):
                self._thoughts.append(inner)
                self._has_thought = True
            case "call" if calls := calls_in(self._key + inner + end, self._tools):
                self.calls += calls
            case _:
                self._emit(self._key + inner + end)
                return
        self._removed = self._removed or not self._begun

    def _header(self, inner: str) -> bool:
        """The speaker of the next words: reply, thought, call, others. False if it is no header."""
        role, _, channel = inner.lower().partition("<|channel|>")
        first, to = (*(channel or role).split(), "")[0], _TO.search(inner)
        if to is not None:
            is_offered = to[1] in self._tools
            self._begin(f"{to[1]} " if is_offered else "", _PART_CALL if is_offered else _PART)
        elif first.startswith("analysis"):
            self._begin("", _PART)
        elif first in _OTHERS or first.startswith("functions."):
            self._begin("", _REST)  # the model goes on with what others might say
        elif first not in _OWN or inner[:1] == " ":
            return False
        self._streams = self._marker is not None and self._marker.kind != "call"
        self._pending = ["\n\n"] if self._begun else []
        return True

    def _give_up(self, *, is_end: bool = False) -> None:
        """Nothing ends what a marker began: it was none, unless it holds a call or is a thought."""
        marker, raw = self._marker, "".join(self._block) + self._held
        assert marker is not None  # noqa: S101 - for the type checker
        self._marker, self._held, self._block = None, "", []
        key = "" if self._key == _BARE else self._key
        if self._streams:
            self._thoughts.append(raw)
            self._removed = self._removed or not self._begun
            return
        if marker.kind == "call" and is_end:
            is_bare = bool(_BARE_BEGIN.match(raw)) and is_whole_call(raw, self._tools)
            is_call = self._key != _BARE or is_bare
            if is_call and (calls := calls_in(key + raw, self._tools)):
                self.calls += calls
                self._removed = True
                return
        if marker.kind == "header" and raw.strip() in _OWN:
            return
        self._unclosed.add(self._key.lower())
        self._emit(key)
        self._read(raw)


def _open_end(data: str, at: int) -> int:
    """The position of an unfinished marker at the end of a text, or the end."""
    for place in range(max(at, len(data) - _LONGEST + 1), len(data)):
        if data[place] in "<[◁`" and data[place:].lower() in _BEGINNINGS:
            return place
    return len(data)


def _is_spoken_of(inner: str) -> bool:
    """True when what stands between two markers reads as a sentence about them."""
    is_spaced = inner[:1] == " " == inner[-1:] and "\n" not in inner
    return is_spaced or not any(letter.isalnum() for letter in inner)
