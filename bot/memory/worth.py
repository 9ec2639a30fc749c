"""Whether something that is about to be kept is worth keeping, by what was said. Pure.

It looks at words, numbers and names, and at who said them how: so it finds what nobody said, what
was only asked, supposed, quoted or taken back, what is said in files already, secrets, and what is
over in a moment. It cannot tell whether a sentence that is made of the person's own words is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bot.context import extract, facts, secrets, statements, wording
from bot.memory import agreement
from bot.memory.evidence import ISO_DAY, REASON_OF, Evidence, Line, Reason, tokens_of
from bot.storage import fulltext

TOLD: Final[Mapping[Reason, str]] = {
    "secret": "this holds a password, a key, a code or a number that gives access to something. "
    "Such things are not kept. Leave it out",
    "empty": "this says nothing that will matter later. Leave it out",
    "mood": "this is how somebody feels at the moment. Leave it out",
    "wordy": "this is more than one statement. Write each fact as one short sentence of its own",
    "leaning": "this cannot be understood by itself. Say who or what it is about",
    "rules": "this stands in the bot's own files, which are in sight anyway. Leave it out",
    "known": "memory says this already. Leave it out",
    "repeated": "this was written a moment ago, in other words. Leave it out",
    "unsaid": "nobody said this. Write only what the person said, in their own words and language, "
    "with their names and numbers, or leave it out",
    "foreign": "this was said by somebody else or stands in what a tool answered, and the person "
    "did not take it up. Leave it out",
    "bot": "only you said this, and the person did not take it up. Leave it out",
    "supposed": "the person only asked or supposed this, or was joking. Leave it out",
    "unwanted": "the person does not want this to be written down. Leave it out",
    "corrected": "the person took this back. Write what they said after that",
    "passing": "this looks as if it were over in a moment. If it will matter in a month, write it "
    "again in the same words, else leave it out",
    "many": "this is more than is worth keeping of one conversation. Stop here",
}

SAID_BEFORE: Final[frozenset[Reason]] = frozenset({"known", "repeated"})
UNSAID: Final[Reason] = "unsaid"
MANY: Final[Reason] = "many"
# What somebody writes who writes down whatever there is.
CARELESS: Final[frozenset[Reason]] = frozenset(
    {"secret", "empty", "mood", "rules", "unsaid", "foreign", "bot", "supposed", "unwanted"}
)
CAREFUL = 2  # of these at most from somebody whose judgement counts
LONGEST = 300  # characters of one statement
MOST_SENTENCES = 2
SUPPORTED = 0.65  # of its words must have been said; of few words all but one, of fewer all
SUPPORTED_ZH = 0.75  # of its characters
FEW_WORDS, MORE_WORDS = 3, 4
OVERHEARD = 0.5  # of its words that one line of another kind says
RETOLD = 0.6  # of the shorter entry's words in the other, both made of one sentence
RAW = 0.9  # of a sentence's words: that sentence itself
FEWEST, FEWEST_ZH = 3, 6  # words, characters of an entry that may be told again in others
LAST_MONTH, LAST_DAY = 12, 31
MOSTLY = 0.6  # of the words that the best line has in common, in one that is worth keeping
MAINLY = 0.6  # of its words in one line; the rest may stand beside it
MENDED_WITHIN = 4  # lines after what was taken back
NAMED_ELSEWHERE = 0.75  # of its words the person's own: then names may come from elsewhere

_PREFIX = re.compile(
    r"^(?:(?:note|fact|memory|remember|(?:the )?(?:user|person) (?:said|says|mentioned"
    r"|told (?:me|us))(?: that)?)"
    r"|备注|记住|用户(?:说|提到|表示))\s*[:：,，]?\s+|^(?:用户(?:说|提到|表示))[:：，]?",
    re.IGNORECASE,
)
_ASKING: Final = frozenset(map(wording.stem, ("save", "saved", "note", "remember", "keep", "kept")))
_HAS_DIGIT = re.compile(r"\d")


def judge(text: str, evidence: Evidence, written: Sequence[str] = ()) -> Reason | None:
    """Why a text should not be kept; None when it may. `written` was kept a moment ago."""
    text = statements.untagged(_PREFIX.sub("", text.strip()))
    tokens = evidence.adapted(tokens_of(text))
    is_wished = _is_wished(text, tokens, evidence)
    reason = (
        _by_itself(text, tokens, is_wished=is_wished)
        or _said_already(text, tokens, evidence, written)
        or (MANY if len(written) >= evidence.most else None)
        or (None if is_wished else _unsupported(text, tokens, evidence))
    )
    is_mended = reason == "corrected" and _is_mended(text, tokens, evidence.lines)
    return None if is_mended else reason


def judge_secret(text: str, own: Iterable[str]) -> Reason | None:
    """Why a text should not be kept if it is a secret that none of somebody's messages asks for."""
    is_secret = secrets.holds_secret(text) and not any(map(statements.asks_to_keep, own))
    return "secret" if is_secret else None


def _is_wished(text: str, tokens: frozenset[str], evidence: Evidence) -> bool:
    """Whether the person asked to keep this; then it may be a secret, or of no weight."""
    exact = {token for token in tokens if _HAS_DIGIT.search(token)}
    wished = max((len(tokens & wish) for wish in evidence.wishes if exact <= wish), default=0)
    return 0 < wished >= _enough(tokens, text) and wished > evidence.overheard(tokens)


def _by_itself(text: str, tokens: frozenset[str], *, is_wished: bool) -> Reason | None:
    """Why a text is nothing to keep, whatever was said; what was wished for may be a secret."""
    if secrets.holds_secret(text) and not is_wished:
        return "secret"
    sentences = statements.sentences(text)
    if len(text) > LONGEST or len(sentences) > MOST_SENTENCES:
        return "wordy"
    if len(sentences) > 1 and any(statements.kind_of(each) != "said" for each in sentences):
        return "wordy"
    if facts.leans(statements.bare(text)):
        return "leaning"
    if all(token.isdecimal() or token in _ASKING for token in tokens):
        return "empty"
    kind = statements.kind_of(text)
    return None if is_wished and kind != "wished" else REASON_OF.get(kind)


def _said_already(
    text: str, tokens: frozenset[str], evidence: Evidence, written: Sequence[str]
) -> Reason | None:
    """Where else a text stands: in the bot's own files, in memory, among what was just written."""
    if evidence.echoes(tokens):
        return "rules"
    if any(wording.says(line, text) for line in evidence.known_lines):
        return "known"
    parts = {text: tokens} | {each: tokens_of(each) for each in statements.sentences(text)}
    if any(_is_same(parts[part], part, other, evidence) for part in parts for other in written):
        return "repeated"
    return None


def _is_same(tokens: frozenset[str], text: str, other: str, evidence: Evidence) -> bool:
    """Whether two entries say the same, or one says it with a few words more."""
    others = tokens_of(other)
    source = evidence.source(tokens)
    if source is not None and source == evidence.source(others):
        said = evidence.lines[source].tokens
        is_raw = len(said & tokens) >= len(said) * RAW
        if is_raw and len(tokens & others) >= len(others) * RETOLD:
            return True
    if not agreement.kin(text) or agreement.kin(text) <= agreement.kin(other):
        few, many = sorted((tokens, others), key=len)
        common = len(few & many)
        is_short = len(few) < (FEWEST_ZH if _is_chinese(text) else FEWEST)
        # One sentence of the person's, told twice.
        is_one = source is not None and source == evidence.source(others)
        if not is_short and common >= len(few) * RETOLD and is_one:
            return True
        if few <= many and len(many) <= len(few) + 1 + (not is_short):
            return not _figures(text) - _figures(other)
    days, other_days = extract.dates(text).keys(), extract.dates(other).keys()
    if (days and other_days and days != other_days) or _figures(text) - _figures(other):
        return False
    return tokens <= others


def _figures(text: str) -> frozenset[int]:
    """The numbers of a text that are no dates and no years."""
    rest = ISO_DAY.sub(" ", extract.without_dates(text))
    return frozenset(number for number in wording.numbers(rest) if number not in agreement.YEARS)


def _is_chinese(text: str) -> bool:
    return sum(map(fulltext.is_cjk, text)) * 2 > len(text)


def _enough(tokens: frozenset[str], text: str) -> float:
    """How many of some words the person must have said for the text to be what they said."""
    if _is_chinese(text):
        return len(tokens) * SUPPORTED_ZH
    if len(tokens) <= MORE_WORDS:
        return min(len(tokens), FEW_WORDS)
    return len(tokens) * SUPPORTED


def _unsupported(text: str, tokens: frozenset[str], evidence: Evidence) -> Reason | None:
    """Why what was said does not say this; None when it does."""
    lines, own, against = evidence.lines, 0.0, dict[Reason, float]()
    saying: list[Line] = []
    for place, count in sorted(evidence.hits(tokens).items()):
        line = lines[place]
        if line.reason is None or line.is_lasting:
            own = max(own, count, len(tokens & _around(place, lines)))
            saying.append(line)
        else:
            against[line.reason] = max(against.get(line.reason, 0.0), count)
    # What speaks against it must say more of it than the person plainly did.
    reason, share = max(against.items(), key=lambda each: each[1], default=(UNSAID, 0.0))
    if own < _enough(tokens, text) or share > own:
        return reason if share >= OVERHEARD * len(tokens) else "unsaid"
    saying.sort(key=lambda line: (-len(line.tokens & tokens), not line.is_lasting))
    best = len(saying[0].tokens & tokens)
    if best < len(tokens) * MAINLY:
        return UNSAID
    if not any(line.is_lasting and len(line.tokens & tokens) >= best * MOSTLY for line in saying):
        return "passing"
    best_said = saying[0].text
    if not _exact(text, evidence, own / len(tokens)) or agreement.turns(text, best_said):
        return UNSAID
    if agreement.mispairs(text, (line.text for line in saying)):
        return UNSAID
    return UNSAID if agreement.is_of_another(text, tokens, best_said) else None


def _is_mended(text: str, tokens: frozenset[str], lines: Sequence[Line]) -> bool:
    """Whether a text says what was taken back as it was mended: all of one and the new detail."""
    for place, old in enumerate(lines):
        if old.reason != "corrected":
            continue
        for new in lines[place + 1 : place + 1 + MENDED_WITHIN]:
            is_own = new.reason in {None, "corrected"} and not new.tokens <= tokens
            is_said = len(tokens & (old.tokens | new.tokens)) >= _enough(tokens, text)
            if is_own and is_said and agreement.is_mended(text, old.text, new.text):
                return True
    return False


def _around(place: int, lines: Sequence[Line]) -> frozenset[str]:
    """The words of a line of the person's and of those beside it that are theirs too."""
    beside = (lines[n] for n in range(max(0, place - 2), min(len(lines), place + 3)))
    theirs = (line.tokens for line in beside if line.reason is None or line.is_lasting)
    return frozenset[str]().union(*theirs)


def _exact(text: str, evidence: Evidence, share: float) -> bool:
    """Whether the person named each number, day and name of a text."""
    days = evidence.days
    named = extract.dates(text)
    if days is not None and not days.issuperset(named):
        return False
    if any(not 1 <= month <= LAST_MONTH or not 1 <= day <= LAST_DAY for month, day in named):
        return False
    rest = ISO_DAY.sub(" ", extract.without_dates(text))
    if not evidence.numbers.issuperset(wording.numbers(rest)):
        return False
    mixed = (t for t in tokens_of(text) if _HAS_DIGIT.search(t) and not t.isdecimal())
    if not evidence.words.issuperset(mixed):
        return False
    there = evidence.words if share >= NAMED_ELSEWHERE else evidence.own_words
    # "Mother" begins an entry, and is nobody's name.
    names = (wording.stems(name) - agreement.kin(name) for name in extract.names(text))
    return all(name <= there for name in names)


@dataclass(slots=True)
class Guard:
    """Judges the entries of one conversation one after another; what may be kept is `written`.

    Whether something will matter in a month cannot be told by its words alone. So whoever writes
    what seems to be over in a moment is asked, and may write it again, as long as all else they
    write is such as the person said.
    """

    evidence: Evidence
    written: list[str] = field(default_factory=list[str])
    _asked: set[str] = field(default_factory=set[str])
    _careless: int = 0

    def judge(self, text: str) -> Reason | None:
        """Why a text should not be kept; None when it may, which then counts as written."""
        reason = judge(text, self.evidence, self.written)
        self._careless += reason in CARELESS
        if reason == "passing":
            is_meant = text in self._asked and self._careless <= CAREFUL
            self._asked.add(text)
            reason = None if is_meant else reason
        if reason is None:
            self.written.append(text)
        return reason
