"""What models cost: what they used is counted, and priced, shown and limited here."""

from typing import Final, Literal

KEPT_DAYS: Final = 400

Heading = Literal["person", "model", "day", "purpose"]
"""What lines of usage are summed up by."""
