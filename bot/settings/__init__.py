"""Reading the configuration: defaults < TOML file < `.env` files < environment, checked as a whole.

Every value keeps where it came from, so a mistake is reported with its file and line.
"""

from bot.settings.checks import key_name
from bot.settings.fields import config_model, installed_channels, model_kinds, plain_names
from bot.settings.loader import Loaded, Sources, json_schema, load, show

__all__ = [
    "Loaded",
    "Sources",
    "config_model",
    "installed_channels",
    "json_schema",
    "key_name",
    "load",
    "model_kinds",
    "plain_names",
    "show",
]
