"""What the pages for engineers say of the tree is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"`((?:bot|adapters|docs)/[\w./-]*\.(?:py|md|toml))`")
MODULE = re.compile(r"`(bot(?:\.[a-z_]+)+)`")
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)")
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


NAMING = ["architecture.md", "proofs.md", "writing-a-channel.md", "writing-a-model.md"]


@pytest.mark.parametrize("name", NAMING)
def test_every_file_that_is_named_exists(name):
    page = (ROOT / "docs" / name).read_text("utf-8")
    modules = (name.replace(".", "/") for name in MODULE.findall(page))
    named = {*FILE.findall(page), *(m if (ROOT / m).is_dir() else f"{m}.py" for m in modules)}
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_map_names_what_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tree = page.split("```")[1]
    engine = tree.split("bot/\n")[1].split("\ntests/")[0]
    named = set(re.findall(r"^  ([\w.]+?)/? ", engine, re.MULTILINE))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / "bot" / name).exists()] == []
    folders = {path.name for path in (ROOT / "bot").iterdir() if (path / "__init__.py").exists()}
    assert folders - named == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for link, anchor in LINK.findall(page.read_text("utf-8")):
        other = page.parent / link
        assert other.exists()
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
