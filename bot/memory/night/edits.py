"""Changes of single entries that can be taken back, and cannot lose one. Pure.

An entry is told by a digest of its lines as they stand, so a change touches what it was made for or
nothing at all; done twice it is done once. What is struck out stays where it is, with a comment
that says since when and why: `- ~~Lives in Bonn~~ <!-- owner 2026-01-05, until 2026-07-01, ended by
MEMORY.md -->`. No change holds any words, so it may be kept where notes are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

from bot.memory import markdown

# "kept" changes the comment of an entry that stays; all others strike it out, "dropped" when asked.
Kind = Literal["same", "ended", "moved", "dropped", "kept"]

MOST_LINES: Final = 12  # of an entry that is touched at all
MOST_CHARACTERS: Final = 2_000
MOST_OF_NOTE: Final = 200_000  # characters of one that something is moved to

_FIRST: Final = re.compile(
    r"^(?P<lead>[ ]{0,3}[-*+][ \t]+(?:\d{1,2}:\d{2}[ \t]+)?)(?P<words>\S.*?)"
    r"(?:(?P<comment> <!-- (?P<says>[^<>\r\n]*) -->)|(?<![ \t]))(?P<end>[ \t]*\r?)$"
)
_NEXT: Final = re.compile(r"^(?P<lead>[ \t]*(?:[-*+][ \t]+)?)(?P<words>\S.*?)(?<!\s)(?P<end>\s*)$")
_STRUCK: Final = re.compile(r"^~~(?P<words>.+)~~$")
_UNTOUCHED: Final = re.compile(r"~~|<!--|-->|```|^\[[ xX]\]")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a note: its lines from `start` up to, not including, `end`, counted from 0."""

    path: str
    start: int
    end: int
    raw: str

    @property
    def digest(self) -> str:
        """Another one for other lines."""
        return digest(self.raw)

    @property
    def comment(self) -> str:
        """The text of its comment, without the frame; empty when it has none."""
        found = _FIRST.match(self.raw.split("\n", 1)[0])
        return (found["says"] or "") if found is not None else ""


class Need(NamedTuple):
    """Another entry that has to be there for a change to be made, in one of some states."""

    path: str
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one entry of a note: its digests `before` and `after`, its comment then and now.

    One that is moved has a copy in `to`, of the digest `copy`, with the comment `label`.
    """

    path: str
    kind: Kind
    before: str
    after: str
    was: str
    now: str
    needs: tuple[Need, ...] = ()
    to: str = ""
    copy: str = ""
    label: str = ""


def digest(raw: str) -> str:
    """A digest of some lines, from which they cannot be recovered."""
    return blake2b(raw.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def name_of(kind: Kind, digests: Iterable[str]) -> str:
    """A name that identifies a change of entries."""
    return f"{kind}:{','.join(sorted(digests))}"


def named_in(name: str) -> list[str]:
    """The digests of the entries a change rests on, by its name."""
    return name.partition(":")[2].split(",")


def entries(path: str, text: str) -> Iterator[Entry]:
    """The entries of a note, in order."""
    lines = text.split("\n")
    for item in markdown.items(text):
        yield Entry(path, item.start, item.end, "\n".join(lines[item.start : item.end]))


def is_plain(entry: Entry) -> bool:
    """True for an entry that can be changed and be had back to the last byte."""
    if len(entry.raw) > MOST_CHARACTERS or entry.end - entry.start > MOST_LINES:
        return False
    first, *rest = entry.raw.split("\n")
    found = _FIRST.match(first)
    if found is None or any(map(_UNTOUCHED.search, (found["words"], *rest))):
        return False
    struck = _struck(entry.raw, "x")
    return _restored(struck, entry.comment) == entry.raw


def striking(entry: Entry, kind: Kind, now: str, needs: Sequence[Need] = ()) -> Edit:
    """The change that strikes an entry out, with the comment `now`."""
    after = digest(_struck(entry.raw, now))
    return Edit(entry.path, kind, entry.digest, after, entry.comment, now, tuple(needs))


def moving(entry: Entry, now: str, to: str, label: str) -> Edit:
    """The change that strikes an entry out, once it stands in the note `to` as well."""
    copy = digest(copied(entry, label))
    return replace(striking(entry, "moved", now), to=to, copy=copy, label=label)


def keeping(entry: Entry, now: str, needs: Sequence[Need] = ()) -> Edit:
    """The change that gives an entry, which stays, another comment."""
    after = digest(_commented(entry.raw, now))
    return Edit(entry.path, "kept", entry.digest, after, entry.comment, now, tuple(needs))


def copied(entry: Entry, comment: str) -> str:
    """An entry as it stands in the note it is moved to, without the time of day."""
    first, *rest = entry.raw.replace("\r", "").split("\n")
    found = _FIRST.match(first)
    words = found["words"] if found is not None else first
    return "\n".join([f"- {words} <!-- {comment} -->" if comment else f"- {words}", *rest])


def apply(texts: Mapping[str, str], edits: Iterable[Edit]) -> dict[str, str]:
    """The notes that change, by path, as they are after the changes that can still be made.

    What was made already is not made again; what is not there any more, or whose other entry is
    not, is left.
    """
    found = dict(texts)
    for edit in edits:
        held = {path: _digests(found.get(path, "")) for path in paths_of([edit])}
        entry = held[edit.path].get(edit.before)
        if entry is None or edit.after in held[edit.path]:
            continue
        if not all(any(d in held[need.path] for d in need.digests) for need in edit.needs):
            continue
        if edit.kind == "moved":
            copy, there = copied(entry, edit.label), found.get(edit.to, "")
            if edit.copy not in held[edit.to]:
                if len(there) > MOST_OF_NOTE:
                    continue
                lead = _heading(edit.to) if not there else "" if there.endswith("\n") else "\n"
                found[edit.to] = f"{there}{lead}{copy}\n"
        make = _commented if edit.kind == "kept" else _struck
        found[edit.path] = _put(found[edit.path], entry, make(entry.raw, edit.now))
    return {path: text for path, text in found.items() if text != texts.get(path, "")}


def take_back(texts: Mapping[str, str], edits: Sequence[Edit]) -> tuple[dict[str, str], int]:
    """The notes that change when changes are taken back, by path, and how many cannot be.

    Those are entries that were changed or removed since. A copy goes once its entry stands where
    it stood.
    """
    found, left = dict(texts), 0
    for edit in reversed(edits):
        held = _digests(found.get(edit.path, ""))
        entry = held.get(edit.after)
        if entry is not None:
            undo = _commented if edit.kind == "kept" else _restored
            found[edit.path] = _put(found[edit.path], entry, undo(entry.raw, edit.was))
        elif edit.before not in held:
            left += 1
            continue
        if edit.kind == "moved":
            copy = _digests(found.get(edit.to, "")).get(edit.copy)
            if copy is not None:
                found[edit.to] = _without(found[edit.to], copy, edit.to)
    return {path: text for path, text in found.items() if text != texts.get(path, "")}, left


def without(edits: Iterable[Edit], standing: Collection[str]) -> Iterator[Edit]:
    """Changes without any trace of entries that stand in no note any more, by their digests.

    What needs such an entry cannot be made any more, and can be taken back.
    """
    for edit in edits:
        if edit.before in standing or edit.after in standing:
            needs = (
                need
                if any(each in standing for each in need.digests)
                else need._replace(digests=())
                for need in edit.needs
            )
            yield replace(edit, needs=tuple(needs))


def is_made(text: str, edit: Edit) -> bool:
    """True when a change stands in its note."""
    return edit.after in _digests(text)


def find(text: str, wanted: str) -> Entry | None:
    """The entry of a digest as it stands in a note; None when it is not there."""
    return _digests(text).get(wanted)


def digests_of(text: str) -> frozenset[str]:
    """The digests of the entries in a note."""
    return frozenset(_digests(text))


def words(entry: Entry) -> str:
    """The words of an entry, struck out or not, on one line."""
    first, *rest = entry.raw.split("\n")
    found = _FIRST.match(first)
    said = (found["words"] if found is not None else first, *map(str.strip, rest))
    return " ".join(_STRUCK.sub(r"\g<words>", each) for each in said if each)


def _digests(text: str) -> dict[str, Entry]:
    """The entries by digest; of those that are the same the last."""
    return {entry.digest: entry for entry in entries("", text)}


def paths_of(made: Iterable[Edit]) -> list[str]:
    """The notes that changes concern, each once."""
    named = (
        path
        for edit in made
        for path in (edit.path, edit.to, *(need.path for need in edit.needs))
        if path
    )
    return list(dict.fromkeys(named))


def _put(text: str, entry: Entry, raw: str) -> str:
    lines = text.split("\n")
    lines[entry.start : entry.end] = raw.split("\n")
    return "\n".join(lines)


def _without(text: str, entry: Entry, path: str) -> str:
    lines = text.split("\n")
    del lines[entry.start : entry.end]
    left = "\n".join(lines)
    return "" if left == _heading(path) else left


def _heading(path: str) -> str:
    return f"# {path.rsplit('/', 1)[-1].removesuffix('.md')}\n\n"


def _commented(raw: str, comment: str) -> str:
    first, *rest = raw.split("\n")
    found = _FIRST.match(first)
    if found is None:
        return raw
    said = f" <!-- {comment} -->" if comment else ""
    return "\n".join([f"{found['lead']}{found['words']}{said}{found['end']}", *rest])


def _struck(raw: str, comment: str) -> str:
    return _changed(raw, comment, lambda words: f"~~{words}~~")


def _restored(raw: str, comment: str) -> str:
    return _changed(raw, comment, lambda words: _STRUCK.sub(r"\g<words>", words))


def _changed(raw: str, comment: str, change: Callable[[str], str]) -> str:
    """An entry with another comment and the words of each line changed."""

    def put(found: re.Match[str]) -> str:
        kept = found.groupdict().get("comment") or ""
        return f"{found['lead']}{change(found['words'])}{kept}{found['end']}"

    first, *rest = _commented(raw, comment).split("\n")
    return "\n".join([_FIRST.sub(put, first), *(_NEXT.sub(put, line) for line in rest)])
