"""Changes of single entries that can be taken back, and cannot lose one. Pure.

An entry is told by a digest of its lines as they stand, so a change touches what it was made for or
nothing at all; done twice it is done once. What is struck out stays where it is, with a comment
that says since when and why: `- ~~Lives in Bonn~~ <!-- owner 2026-01-05, until 2026-07-01, ended by
MEMORY.md -->`. No change holds any words, so it may be kept where notes are not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Literal

from bot.memory import markdown

# "kept" changes the comment of an entry that stays; all others strike it out, "dropped" when asked.
Kind = Literal["same", "ended", "moved", "dropped", "kept"]

MOST_LINES: Final = 12  # of an entry that is touched at all
MOST_CHARACTERS: Final = 2_000
MOST_OF_NOTE: Final = 200_000  # characters of one that something is moved to

_FIRST: Final = re.compile(
    r"^(?P<lead>[ ]{0,3}[-*+][ \t]+(?:\d{1,2}:\d{2}[ \t]+)?)(?P<words>\S.*?)"
    r"(?P<comment> <!-- (?P<says>[^<>\r\n]*) -->)?(?P<end>[ \t]*\r?)$"
)
_NEXT: Final = re.compile(r"^(?P<lead>[ \t]*(?:[-*+][ \t]+)?)(?P<words>\S.*?)(?P<end>\s*)$")
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
        """What its comment says, without its frame; empty when it has none."""
        found = _FIRST.match(self.raw.split("\n", 1)[0])
        return (found["says"] or "") if found is not None else ""


@dataclass(frozen=True, slots=True)
class Need:
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
    """What tells some lines from others and cannot be read back."""
    return blake2b(raw.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def name_of(kind: Kind, digests: Iterable[str]) -> str:
    """What tells a change of entries from others."""
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
        held = {path: _digests(found.get(path, "")) for path in _paths(edit)}
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
                found[edit.to] = _appended(there, copy, edit.to)
        found[edit.path] = _put(found[edit.path], entry, _made(entry.raw, edit))
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
            found[edit.path] = _put(found[edit.path], entry, _unmade(entry.raw, edit))
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
            needs = (_standing(need, standing) for need in edit.needs)
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
    """What an entry says, struck out or not, on one line."""
    first, *rest = entry.raw.split("\n")
    found = _FIRST.match(first)
    said = (found["words"] if found is not None else first, *map(str.strip, rest))
    return " ".join(_STRUCK.sub(r"\g<words>", each) for each in said if each)


def _digests(text: str) -> dict[str, Entry]:
    """The entries by digest; of those that are the same the last."""
    return {entry.digest: entry for entry in entries("", text)}


def _standing(need: Need, standing: Collection[str]) -> Need:
    return need if any(each in standing for each in need.digests) else replace(need, digests=())


def _paths(edit: Edit) -> set[str]:
    return {edit.path, *(need.path for need in edit.needs), *((edit.to,) if edit.to else ())}


def _made(raw: str, edit: Edit) -> str:
    return _commented(raw, edit.now) if edit.kind == "kept" else _struck(raw, edit.now)


def _unmade(raw: str, edit: Edit) -> str:
    return _commented(raw, edit.was) if edit.kind == "kept" else _restored(raw, edit.was)


def _put(text: str, entry: Entry, raw: str) -> str:
    lines = text.split("\n")
    lines[entry.start : entry.end] = raw.split("\n")
    return "\n".join(lines)


def _without(text: str, entry: Entry, path: str) -> str:
    lines = text.split("\n")
    del lines[entry.start : entry.end]
    left = "\n".join(lines)
    return "" if left == _heading(path) else left


def _appended(text: str, raw: str, path: str) -> str:
    lead = _heading(path) if not text else "" if text.endswith("\n") else "\n"
    return f"{text}{lead}{raw}\n"


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
    first, *rest = _commented(raw, comment).split("\n")
    lines = [_FIRST.sub(_wrapped, first), *(_NEXT.sub(_wrapped, line) for line in rest)]
    return "\n".join(lines)


def _restored(raw: str, comment: str) -> str:
    first, *rest = _commented(raw, comment).split("\n")
    lines = [_FIRST.sub(_bare, first), *(_NEXT.sub(_bare, line) for line in rest)]
    return "\n".join(lines)


def _wrapped(found: re.Match[str]) -> str:
    return _around(found, f"~~{found['words']}~~")


def _bare(found: re.Match[str]) -> str:
    return _around(found, _STRUCK.sub(r"\g<words>", found["words"]))


def _around(found: re.Match[str], words: str) -> str:
    comment = found["comment"] or "" if "comment" in found.re.groupindex else ""
    return f"{found['lead']}{words}{comment}{found['end']}"
