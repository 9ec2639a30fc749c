"""structlog, loaded without what it would show errors in colour with.

Where rich is installed structlog takes it along, and pygments with it: 4 MB that stay, and a tenth
of the start, for traces that are never shown like that. Commands that print tables load rich
themselves.
"""

from __future__ import annotations

import importlib
import sys

_COLOURS = "rich"


def load() -> None:
    """Load structlog as where rich is not installed; before anything else does."""
    if "structlog" in sys.modules or _COLOURS in sys.modules:
        return
    sys.modules[_COLOURS] = None  # pyright: ignore[reportArgumentType] - Python's "is not there"
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules[_COLOURS]
