"""Kill the night at any moment, and taking it back: no line is lost, and the end is the same."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from tests.proofs.crash import SEED
from tests.proofs.dying import Dying
from tests.proofs.rounds import lengths
from tests.unit.test_night import OVER, SAME

KILLS = 100
FEW = 6

WORK = "night"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def lived(folder: Path) -> Path:
    """A folder with notes of many days, in which much says the same, and much is over."""
    notes = folder / "workspace" / "memory"
    notes.mkdir(parents=True)
    marks = (" <!-- owner -->", " <!-- agent -->", "", " <!-- untrusted -->")
    said = [pair for pairs in (SAME, OVER) for pair in pairs] * 2  # with other marks
    for number, pair in enumerate(said):
        for later, words in enumerate(pair):
            day = notes / f"2026-0{1 + later * 4}-{1 + number % 3:02}.md"
            with day.open("a") as file:
                file.write(f"- 14:03 {words}{marks[number % 4]}\n")
    lasting = "- I like green tea <!-- owner 2026-01-02 confirmed 2026-06-01 -->\n"
    (notes / "2026-01-09.md").write_text(lasting)
    (folder / "workspace" / "MEMORY.md").write_text("- Lives in Bonn <!-- owner 2025-01-05 -->\n")
    return folder


def notes_of(folder: Path) -> dict[str, str]:
    root = folder / "workspace"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.md")}


def lines(notes: dict[str, str]) -> set[str]:
    """What notes say, struck out or not."""
    found = (
        re.sub(r"\s*<!--.*?-->|~~", "", line) for t in notes.values() for line in t.split("\n")
    )
    return {line.removeprefix("- 14:03 ").removeprefix("- ") for line in found if line}


@lengths("kills", 4, KILLS, FEW)
def test_killed_anywhere_no_line_is_lost_and_begun_again_it_ends_the_same(
    dying: Dying, tmp_path: Path, kills: int
) -> None:
    old = lived(tmp_path / "old")
    done = Path(shutil.copytree(old, tmp_path / "done"))
    points = int(dying.run("look", done))
    before, after = notes_of(old), notes_of(done)
    assert sum(text.count("~~") for text in after.values()) > 40
    back = Path(shutil.copytree(done, tmp_path / "back"))
    points_back = int(dying.run("undo", back))
    assert notes_of(back) == before
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    between = 0
    for number in range(kills):
        begins = done if number % 2 else old
        what, most = ("undo", points_back) if number % 2 else ("look", points)
        folder = Path(shutil.copytree(begins, tmp_path / "killed"))
        for _ in range(chance.randint(1, 3)):
            dying.run(what, folder, point=chance.randint(1, most))
            assert lines(before) <= lines(notes_of(folder))
        between += notes_of(folder) not in (before, after)
        dying.run(what, folder)
        assert notes_of(folder) == (before if number % 2 else after)
        shutil.rmtree(folder)
    assert between > 0 or kills == 4
