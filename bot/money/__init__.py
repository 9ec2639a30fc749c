"""Counts, prices, shows and limits what models use."""

from typing import Final, Literal

KEPT_DAYS: Final = 400

Heading = Literal["person", "model", "day", "purpose"]
"""The keys by which usage is summed up."""
