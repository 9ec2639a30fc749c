"""A channel with every kind of option, and a way to load a configuration written in a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from bot import settings
from bot.channel import Channel, ChannelConfig, ChannelPlugin, ChannelScope
from bot.errors import ConfigError


class PigeonAccount(BaseModel):
    """One more pigeon."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    token: SecretStr | None = Field(default=None, description="Its ring.")
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: tuple[str, ...] = ()
    scope: ChannelScope = ChannelScope()


class PigeonConfig(ChannelConfig):
    """`[channels.pigeon]`: messages by air."""

    token: SecretStr | None = Field(default=None, description="The ring.")
    speed: float = Field(default=20.0, gt=0, le=40, description="Metres a second.")
    mode: Literal["direct", "loft"] = Field(default="direct", description="How it flies.")
    accounts: dict[Annotated[str, StringConstraints(pattern="^[a-z]+$")], PigeonAccount] = Field(
        default_factory=dict[str, PigeonAccount], description="More pigeons."
    )


class OwlConfig(ChannelConfig):
    """`[channels.owl]`: messages by night."""


def _create(_config: Any) -> Channel:
    raise AssertionError("nothing here creates a channel")


CHANNELS = {
    "pigeon": ChannelPlugin("pigeon", PigeonConfig, _create, env={"PIGEON_TOKEN": ("token",)}),
    "owl": ChannelPlugin("owl", OwlConfig, _create),
}


def load(
    folder: Path, toml: str | bytes = "", environ: Mapping[str, str] | None = None, dotenv: str = ""
) -> settings.Loaded:
    """Load `toml` as confidant.toml in `folder`, with a `.env` beside it if there is one."""
    if toml:
        raw = toml if isinstance(toml, bytes) else toml.encode()
        path = folder / "confidant.toml"
        path.write_bytes(raw)
        path.chmod(0o600)
    if dotenv:
        (folder / ".env").write_text(dotenv, "utf-8")
    return settings.load(None, environ or {}, folder, CHANNELS)


def problems(
    folder: Path, toml: str | bytes = "", environ: Mapping[str, str] | None = None, dotenv: str = ""
) -> list[str]:
    """The lines of the error that loading this raises."""
    with pytest.raises(ConfigError) as caught:
        load(folder, toml, environ, dotenv)
    return str(caught.value).split("\n")
