"""What the proofs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proofs.dying import Dying


@pytest.fixture(scope="module")
def dying(request: pytest.FixtureRequest) -> Iterator[Dying]:
    """A process that does the module's `WORK`, and dies on the way."""
    process = Dying(request.module.WORK)
    yield process
    process.close()
