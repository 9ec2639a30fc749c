"""Whatever stands in the file or the environment: a configuration, or a ConfigError."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from bot import settings
from bot.config import Config
from bot.errors import ConfigError
from bot.settings import config_model, show
from bot.settings.fields import env_name, tables
from bot.settings.show import toml_value
from scripts.docs import reference_toml
from tests.fakes.config_channels import CHANNELS

OPTIONS = [option.key for _, _, options in tables(config_model(CHANNELS)) for option in options]
NAMES = st.sampled_from([part for key in OPTIONS for part in key] + ["x", "", "Ä", "a.b", "0"])
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "*", "open", "file:/dev/null", "telegram:42", "~x", "0.0.0.0", "idle"]),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=10,
)


def attempt(raw: bytes, environ: Mapping[str, str], dotenv: bytes = b"") -> None:
    """Load, and use the result in every way; nothing but ConfigError may come out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "confidant.toml").write_bytes(raw)
        (folder / ".env").write_bytes(dotenv)
        try:
            loaded = settings.load(None, environ, folder, CHANNELS)
        except ConfigError as error:
            lines = str(error).split("\n")
            assert all(line and line.isprintable() for line in lines)
            return
        assert isinstance(loaded.config, Config)
        assert loaded.config.workspace
        assert show(loaded)


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {as_toml(each)}" for name, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return toml_value(value)


@given(st.sampled_from(OPTIONS), VALUES)
@example(("dashboard", "port"), 2**64)
@example(("channels", "pigeon", "accounts"), {"a": {"dm_policy": "open"}})
def test_any_value_in_any_place_of_the_file(key, value):
    attempt(f"{'.'.join(key)} = {as_toml(value)}".encode("utf-8", "surrogatepass"), {})


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_tree(tree):
    lines = [f"{json.dumps(name)} = {as_toml(value)}" for name, value in tree.items()]
    attempt("\n".join(lines).encode("utf-8", "surrogatepass"), {})


@given(st.sampled_from(OPTIONS), st.one_of(st.text(max_size=20), VALUES.map(json.dumps)))
@example(("storage", "dir"), "a" * 300)
def test_any_value_in_any_variable(key, value):
    attempt(b"", {env_name(key): value})


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_variable(name, value):
    attempt(b"", {f"CONFIDANT_{name}": value})


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes(raw, dotenv):
    attempt(raw, {}, dotenv)


REFERENCE = reference_toml(config_model(CHANNELS)).replace("\n#", "\n").encode()


@given(st.integers(0, len(REFERENCE)), st.binary(max_size=4), st.integers(0, 6))
def test_the_reference_file_with_a_few_bytes_changed(at, new, removed):
    attempt(REFERENCE[:at] + new + REFERENCE[at + removed :], {})
