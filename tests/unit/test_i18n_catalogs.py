import ast
import inspect
import string
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import adapters
import bot
from bot import commands
from bot.commands.base import COMMANDS
from bot.commands.commander import MODULES, handlers, menu
from bot.commands.memory import NightCommands
from bot.i18n import FINDINGS, LANGUAGES, catalog, language_of, text
from bot.identity import Parsed
from bot.identity.access import parse

SOURCES = sorted(Path(bot.__file__).parent.rglob("*.py"))


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """What stands in a file: calls and assignments; nothing in one without any of these words."""
    source = path.read_text("utf-8")
    if not any(word in source for word in ("text(", "key = ", "Finding", "_say(")):
        return ()
    every = ast.walk(ast.parse(source))
    return tuple(node for node in every if isinstance(node, (ast.Call, ast.Assign)))


def keys_in_use() -> Iterator[tuple[str, str]]:
    """Every key given to `text(…)` or named as an error's `key`; "*" stands for what varies."""
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "text":
                found = node.args[1:2]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "call.text":
                found = node.args[:1]
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


def test_each_method_that_answers_a_command_declares_it():
    found = {
        function
        for module in map(
            import_module, (each.name for each in walk_packages(commands.__path__, "bot.commands."))
        )
        for owner in vars(module).values()
        if isinstance(owner, type) and owner.__module__ == module.__name__
        for name, function in vars(owner).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(function)
        if [*inspect.signature(function).parameters] == ["self", "call"]
        if function.__annotations__["return"] == "Apply"
    }
    assert {each.method for each in COMMANDS.values()} == found - {NightCommands.undo}
    assert {each.method.__module__ for each in COMMANDS.values()} == {m.__name__ for m in MODULES}


def sentences(language: str) -> dict[str, str]:
    """A language's words, but for its own names of commands: it needs none."""
    return {key: words for key, words in catalog(language).items() if not is_alias(key)}


def is_alias(key: str) -> bool:
    return fnmatch(key, "command.*.alias")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_keys(language):
    assert set(sentences(language)) ^ set(sentences("en")) == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_languages_own_name_of_a_command_is_that_command(language):
    for key in filter(is_alias, catalog(language)):
        name = key.split(".")[1]
        assert name in COMMANDS
        assert parse(f"/{catalog(language)[key]} tea") == Parsed(name, "tea")


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
    return any(fnmatch(each, key) for each in catalog("en"))


@pytest.mark.parametrize("name", [name for name, each in COMMANDS.items() if each.is_listed])
def test_every_command_in_a_menu_has_its_words(name):
    wanted = {f"command.{name}.description", f"command.{name}.usage"}
    assert wanted - set(catalog("en")) == set()


def test_no_description_of_a_command_is_left_without_it():
    described = {
        key.split(".")[1] for key in catalog("en") if fnmatch(key, "command.*.description")
    }
    assert described == {each.name for each in menu("en")}


def test_a_command_whose_class_is_not_built_stops_the_start():
    with pytest.raises(KeyError, match=r"\w+\.\w+"):
        handlers(())


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
