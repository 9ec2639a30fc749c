"""numpy, loaded with the first thing that is computed: it takes 13 MB and a tenth of a second.

A bot that searches by words alone and has found nothing yet does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
else:

    class _Numpy:
        """Stands for the module; Python's own lock sees to it that it is loaded once."""

        def __getattr__(self, name: str) -> object:
            import numpy  # noqa: ICN001, PLC0415

            return getattr(numpy, name)

    np = _Numpy()
    NDArray = Array = object  # names in annotations, which nobody looks at while it runs

__all__ = ["Array", "NDArray", "np"]
