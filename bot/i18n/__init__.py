"""The bot's own sentences, in the person's language: one TOML catalog per language.

Keys are dotted words (`command.new.description`), the same in every catalog; values are
`str.format` templates. `{confidant}` is what commands begin with where the program was started; a
text for strangers, who type nothing there, names them plainly.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, cast

from bot.invocation import confidant

LANGUAGES = ("en", "zh")
DEFAULT_LANGUAGE = "en"
FINDINGS = "findings"  # what the doctor says: read when it is asked


def language_of(*preferences: str) -> str:
    """The first preference we speak, as a catalog name: "zh-Hans-CN" is "zh"; else English."""
    for preference in preferences:
        base = preference.lower().replace("_", "-").split("-")[0]
        if base in LANGUAGES:
            return base
    return DEFAULT_LANGUAGE


def text(language: str, key: str, /, **values: object) -> str:
    """The sentence for a key, with its values filled in.

    Raises:
        KeyError: no such key: a mistake in the program, found by its tests.
    """
    return _filled(catalog(language_of(language))[key], values)


def finding(language: str, key: str, /, **values: object) -> str:
    """The doctor's sentence for a key, with its values filled in; empty if there is none."""
    return _filled(catalog(language_of(language), FINDINGS).get(key, ""), values)


def _filled(template: str, values: Mapping[str, object]) -> str:
    return template.format(
        confidant=confidant(),
        **{name: _Number(value) if type(value) is int else value for name, value in values.items()},
    )


class _Number(int):
    """A number that knows words for one and for many: `{count} {count:entry|entries}`."""

    def __format__(self, spec: str) -> str:
        one, bar, many = spec.partition("|")
        if bar:
            return one if self == 1 else many
        return super().__format__(spec)


@cache
def catalog(language: str, part: str = "") -> dict[str, str]:
    """All templates of a language, by dotted key; `part` names those only some commands need."""
    name = f"{part}.{language}.toml" if part else f"{language}.toml"
    raw = resources.files("bot.i18n").joinpath(name).read_text("utf-8")
    return dict(_flatten(tomllib.loads(raw)))


@cache
def _places() -> Mapping[str, int]:
    return {key: place for place, key in enumerate(catalog(DEFAULT_LANGUAGE))}


def place_of(key: str) -> int:
    """The position of a key in the catalog, which is the order of menus.

    Raises:
        KeyError: no such key: a mistake in the program, found by its tests.
    """
    return _places()[key]


def _flatten(table: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            flat.extend(_flatten(cast("dict[str, Any]", value), f"{prefix}{name}."))
        else:
            flat.append((f"{prefix}{name}", str(value)))
    return flat
