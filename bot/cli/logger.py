"""structlog, loaded without what it would show errors in colour with.

Where rich is installed structlog takes it along, and pygments with it: 4 MB that stay, and a tenth
of the start, for traces that are never shown like that. Commands that print tables load rich
themselves.
"""

from __future__ import annotations

import importlib

from bot.imports import without


def load() -> None:
    """Load structlog as where rich is not installed; before anything else does."""
    with without("rich"):
        importlib.import_module("structlog")
