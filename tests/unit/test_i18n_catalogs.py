import ast
import inspect
import string
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import get_type_hints
from unittest.mock import MagicMock

import pytest

import adapters
import bot
from bot.commands.menu import COMMANDS, KNOWN, Services, handlers
from bot.i18n import FINDINGS, LANGUAGES, catalog, language_of, text

SOURCES = sorted(Path(bot.__file__).parent.rglob("*.py"))


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """What stands in a file: calls and assignments."""
    every = ast.walk(ast.parse(path.read_text("utf-8")))
    return tuple(node for node in every if isinstance(node, (ast.Call, ast.Assign)))


def keys_in_use() -> Iterator[tuple[str, str]]:
    """Every key given to `text(…)` or named as an error's `key`; "*" stands for what varies."""
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "text":
                found = node.args[1:2]
            elif isinstance(node, ast.Assign) and [
                t.id for t in node.targets if isinstance(t, ast.Name)
            ] == ["key"]:
                found = [node.value]
            else:
                continue
            for argument in found:
                for leaf in _leaves(argument):
                    yield leaf, f"{path.name}:{node.lineno}"


def _leaves(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values
        )
    elif isinstance(node, ast.IfExp):
        yield from _leaves(node.body)
        yield from _leaves(node.orelse)


def dotted(key: str) -> bool:
    return "." in key and " " not in key and "/" not in key and ":" not in key


def test_each_handler_there_is_belongs_to_a_command_and_none_is_missing():
    classes: dict[str, type] = get_type_hints(Services)
    services = Services(**{name: MagicMock(spec=each) for name, each in classes.items()})
    used = {id(handler) for handler in handlers(services).values()}
    there = {
        id(getattr(getattr(services, name), method))
        for name, each in classes.items()
        for method, function in inspect.getmembers(each, inspect.iscoroutinefunction)
        if not method.startswith("_") and function.__annotations__["return"] == "Apply"
    }
    assert used == there
    assert set(handlers(services)) == KNOWN


def test_every_language_has_the_same_keys():
    wanted = set(catalog("en"))
    assert {language: set(catalog(language)) ^ wanted for language in LANGUAGES} == {
        language: set() for language in LANGUAGES
    }


def test_a_sentence_takes_the_same_values_in_every_language():
    for language in LANGUAGES:
        found = catalog(language)
        other = [key for key, words in catalog("en").items() if fields(found[key]) != fields(words)]
        assert other == [], language


def findings_in_use() -> Iterator[tuple[str, str]]:
    """Every id of a `Finding`, the adapters' too; "*" stands for what varies."""
    for path in (*SOURCES, *sorted(Path(adapters.__file__).parent.rglob("*.py"))):
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in {"of", "_say"}:
                called = ast.unparse(node.func)
            if called == "Finding.of":
                named = [node.args[1]]
            elif called == "Finding":
                named = [each.value for each in node.keywords if each.arg == "id"]
            elif called == "self._say" and path.name == "doctor.py":
                for leaf in _leaves(node.args[1]):
                    yield f"{path.parent.name}.{leaf}", f"{path.name}:{node.lineno}"
                continue
            else:
                continue
            for leaf in (leaf for each in named for leaf in _leaves(each)):
                yield leaf, f"{path.name}:{node.lineno}"


def test_every_finding_has_its_words_in_every_language():
    wanted = set(catalog("en", FINDINGS))
    for language in LANGUAGES:
        found = catalog(language, FINDINGS)
        assert set(found) == wanted
        assert [
            key for key in wanted if fields(found[key]) != fields(catalog("en", FINDINGS)[key])
        ] == []
        assert [key for key, words in found.items() if not words.strip()] == []
    used = set(findings_in_use())
    assert len(used) > 50
    texts = {key.removesuffix(".text") for key in wanted if key.endswith(".text")}
    missing = [(id_, where) for id_, where in used if not any(fnmatch(each, id_) for each in texts)]
    assert missing == []


def test_every_key_in_the_code_is_in_the_catalogs():
    used = {(key, where) for key, where in keys_in_use() if dotted(key)}
    assert len(used) > 20
    assert sorted((key, where) for key, where in used if not is_known(key)) == []


def is_known(key: str) -> bool:
    before, star, after = key.partition("*")
    if not star:
        return key in catalog("en")
    return any(k.startswith(before) and k.endswith(after) for k in catalog("en"))


def test_every_command_has_its_words():
    for name in (name for name, each in COMMANDS.items() if each.is_listed):
        for part in ("description", "usage"):
            assert f"command.{name}.{part}" in catalog("en")


def test_no_sentence_is_empty_but_usages():
    for language in LANGUAGES:
        empty = [key for key, words in catalog(language).items() if not words.strip()]
        assert all(key.endswith(".usage") for key in empty)


@pytest.mark.parametrize(
    ("preferences", "language"),
    [
        (("zh-Hans-CN",), "zh"),
        (("ZH_tw",), "zh"),
        (("de", "zh"), "zh"),
        (("",), "en"),
        ((), "en"),
        (("zhx",), "en"),
    ],
)
def test_the_first_preference_we_speak_is_spoken(preferences, language):
    assert language_of(*preferences) == language


def test_values_are_put_in_as_they_are():
    assert "{model}" in text("en", "command.model.done", model="{model}")


@pytest.mark.parametrize(("count", "words"), [(0, "entries"), (1, "entry"), (2, "entries")])
def test_one_is_not_many(count, words):
    assert f"({count} {words})" in text("en", "command.undo.done", count=count)
    assert str(count) in text("zh", "command.undo.done", count=count)
