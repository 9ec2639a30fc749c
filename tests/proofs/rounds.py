"""How long the proofs run: a short while in `make test`, longer in `make proof`."""

from __future__ import annotations

import os


def rounds(usual: int) -> int:
    """`usual`, or as many times that as PROOF_TIMES says."""
    return usual * int(os.environ.get("PROOF_TIMES", "1"))
