"""How long the proofs run: a short while in `make test`, longer in `make proof`."""

from __future__ import annotations

import os


def rounds(usual: int, few: int | None = None) -> int:
    """As many times `usual` as PROOF_TIMES says; where it says nothing, `few`, or `usual`."""
    times = os.environ.get("PROOF_TIMES")
    if times is None:
        return usual if few is None else few
    return usual * int(times)
