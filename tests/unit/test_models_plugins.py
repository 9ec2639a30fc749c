"""Models that other packages bring, and packages that are broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import settings
from bot.agent.models.registry import Models, configured
from bot.errors import ConfigError
from tests.fakes import written_model
from tests.fakes.config_channels import CHANNELS
from tests.fakes.text_store import TextStoreInMemory

HEAD = "from bot.agent.models.plugins import ModelPlugin\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("confidant_echo", None)


def load(folder: Path, text: str) -> settings.Loaded:
    (folder / "confidant.toml").write_text(text)
    return settings.load(None, {}, folder, CHANNELS)


async def test_the_model_of_the_document_is_a_service_like_ours(packages: Path):
    written_model.install(packages)
    loaded = load(packages, '[agent]\nmodel = "echo/loud"\n[models.echo]\n')
    assert loaded.warnings == ()
    found = Models(
        loaded.config.models, configured(loaded.config.models, TextStoreInMemory()), "echo/loud"
    )
    assert await found.names() == ("echo/loud", "offline")
    assert (await found.window("echo/loud")).max_input_tokens == 100_000
    await found.close()


def test_a_kind_that_nobody_brings_is_told(packages: Path):
    with pytest.raises(ConfigError, match=r'"eko" is no kind of service; there is "anthropic"'):
        load(packages, '[models.x]\nkind = "eko"\n')
    written_model.install(packages)
    with pytest.raises(ConfigError, match=r'"ehco" is no kind of service; did you mean "echo"\?'):
        load(packages, '[models.x]\nkind = "ehco"\n')


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("plugin = 3", "is no plug-in: it names a int"),
        (f"{HEAD}plugin = ModelPlugin('other', None)", 'calls itself "other"'),
    ],
)
def test_a_package_that_cannot_be_used_is_named(packages: Path, code: str, reason: str):
    written_model.install(packages, code)
    models = load(packages, "[models.echo]\n").config.models
    with pytest.raises(ConfigError) as caught:
        configured(models, TextStoreInMemory())
    assert reason in str(caught.value)
    assert "confidant-echo" in str(caught.value)
