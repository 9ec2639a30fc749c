"""Stored vectors: a byte a dimension to compare well, a bit a dimension to find fast. Pure.

Cosine ignores length, so each vector is scaled to use its whole byte: no dimension is off by more
than half of a 127th of the largest. Signs alone are 32 times smaller than floats, and a scan over
100 000 of them takes milliseconds; what it finds is compared again by the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
else:

    class _Numpy:
        """numpy, loaded with the first thing that is computed: 13 MB and a tenth of a second.

        A bot that searches by words alone and has found nothing yet does without it.
        """

        def __getattr__(self, name: str) -> object:
            import numpy  # noqa: ICN001, PLC0415

            found = self.__dict__[name] = getattr(numpy, name)
            return found

    np = _Numpy()
    NDArray = Array = object  # names in annotations, which nobody looks at while it runs

Vectors = Array
"""One vector a row, each of length one."""

BLOCK = 16_384  # of those that are compared at once
_LIMIT = 127


def normalised(values: NDArray[Any]) -> Vectors:
    """Rows scaled to length one; a row of zeros, or with something that is no number, is zeros."""
    rows = np.asarray(values, dtype=np.float32)
    if not np.isfinite(rows).all():
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, np.float32(0))
    return _scaled(rows)


def pack(rows: Vectors) -> list[bytes]:
    """Each row as one byte a dimension."""
    highest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    highest[highest == 0] = 1.0
    return [row.tobytes() for row in np.rint(rows / highest * _LIMIT).astype(np.int8)]


def unpack(packed: bytes, dims: int) -> Vectors:
    """The rows that were packed, of length one again."""
    return _scaled(np.frombuffer(packed, dtype=np.int8).reshape(-1, dims).astype(np.float32))


def mean_signs(rows: Vectors) -> bytes:
    """The signs of the rows' mean."""
    return np.packbits(rows.mean(axis=0) > 0).tobytes()


def signs(rows: Vectors) -> bytes:
    """The signs of each row, one row after another."""
    return np.packbits(rows > 0, axis=1).tobytes()


def columns(joined: bytes, dims: int) -> NDArray[np.uint64]:
    """The signs of rows, as `signs` has them, 64 of each row in a column of its own.

    A scan along such columns is several times as fast as along rows.
    """
    rows = np.frombuffer(joined, np.uint8).reshape(-1, -(-dims // 8))
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))
    return np.ascontiguousarray(padded.view(np.uint64).T)


def nearest(known: NDArray[np.uint64], wanted: Vectors, limit: int) -> NDArray[np.intp]:
    """At most `limit` rows of `columns` that are likest to one wanted row, the likest first.

    The signs of both are compared first; then what the wanted row has where a sign stands.
    """
    dims = wanted.shape[1]
    different, seen = _different(known, columns(signs(wanted), dims)[:, 0])
    rows = np.arange(len(different))
    if len(rows) > limit:  # by their number alone, as to sort the rows with it takes far longer
        most = np.searchsorted(np.cumsum(seen), limit, side="right")
        nearer = np.flatnonzero(different < most)
        rows = np.append(nearer, np.flatnonzero(different == most)[: limit - len(nearer)])
    near = np.ascontiguousarray(known[:, rows].T).view(np.uint8)
    there = np.unpackbits(near, axis=1)[:, :dims].astype(np.float32)
    return rows[np.argsort(-products(there, wanted)[:, 0], kind="stable")]


def _different(
    known: NDArray[np.uint64], asked: NDArray[np.uint64]
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """In how many signs each row differs from one, and how many rows differ in 0, 1, 2 … of them.

    A block of rows after another, so that what is worked out stays in the processor's cache.
    """
    different = np.zeros(known.shape[1], np.uint16)
    seen = np.zeros(64 * len(known) + 1, np.int64)
    for start in range(0, len(different), BLOCK):
        block = different[start : start + BLOCK]
        for column, each in zip(known[:, start : start + BLOCK], asked, strict=True):
            block += np.bitwise_count(column ^ each)
        seen += np.bincount(block, minlength=len(seen))
    return different, seen


def cosines(packed: bytes, wanted: Vectors) -> Vectors:
    """The cosine of each packed row with one wanted row."""
    rows = np.frombuffer(packed, dtype=np.int8).reshape(-1, wanted.shape[1]).astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1.0
    return products(rows, wanted)[:, 0] / lengths


def products(rows: Vectors, others: Vectors) -> Vectors:
    """Each row with each of the others: their cosines.

    Not by BLAS: for products this small its threads cost more than they bring, the more so on a
    machine that has other things to do.
    """
    return np.einsum("id,jd->ij", rows, others)


def _scaled(rows: Vectors) -> Vectors:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    lengths[lengths == 0] = 1.0
    return rows / lengths
