"""When Python looks for garbage: not while the program loads, and later not in what was loaded.

A full look at every module and type takes 0.15 s in which nobody is answered, and under load it
came every 400 turns.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 10_000  # made and not freed since the last look; Python waits for 700


def hold() -> None:
    """Do not look until `settle`: loading makes next to no garbage."""
    gc.disable()


def settle() -> None:
    """Look from now on, and only at what is made from now on."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()
