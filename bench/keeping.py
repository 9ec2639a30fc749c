"""What is kept of conversations, and whether it is worth keeping: `python -m bench keeping`.

The ends of 447 conversations, half of them Chinese, go through the real saving: once with a careful
model that writes what is worth keeping and nothing else, to see how much of it the guard lets
through, and once with one that writes whatever it can get hold of. Right is what says something
that should be kept, once, and nothing that must not be; all else that lands is wrong. The guard's
numbers were chosen by every other conversation of `keeping.txt` and by `keeping-more.txt`; the
others are told apart. Nothing was chosen by `keeping-unseen.txt`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from bench import quiet
from bench.table import table
from bot.agent.models import Reply, Request, TextDelta, Window
from bot.agent.tools import ToolContext
from bot.context import sentences, wishes
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory import markdown
from bot.memory.note_store import FolderNotes
from bot.memory.notes import Notes, SpaceFiles
from bot.messages import Message, Text, ToolResult, ToolUse, Whose
from bot.upkeep.flush import Flusher, FlushRequest
from tests.fakes.brain import added

DATA = Path(__file__).parent / "data" / "keeping.txt"
MORE = DATA.with_name("keeping-more.txt")  # chosen by
UNSEEN = DATA.with_name("keeping-unseen.txt")  # never chosen by
NOW = datetime(2026, 11, 24, 10, 0, tzinfo=ZoneInfo("Europe/Berlin"))
NOTE = "memory/2026-11-24.md"
VIEW = MemoryView(MAIN_SPACE, ("agent:main",), private=True)
GOAL = 0.95  # of what lands of a careful model
RECALL = 0.9  # of what it should keep of unseen talk
WRITERS = ("careful", "rubbish")
WORDY = 3  # times as long as it had to be: a whole message, not a statement
AT_A_TIME = 16  # conversations

_LINE = re.compile(r"(?P<mark>[PBFMCT+!-]) (?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something worth keeping: the pieces that must be there, and how a model would write it."""

    pieces: tuple[tuple[str, ...], ...]
    wording: str

    def is_in(self, text: str) -> bool:
        """True when a text says it."""
        folded = _folded(text)
        return all(any(piece in folded for piece in either) for either in self.pieces)


Part = Literal["chosen by", "apart", "unseen"]
"""Whether rules were chosen by a conversation, told apart from these, or never looked at."""


@dataclass(frozen=True, slots=True)
class Talk:
    """The end of a conversation, what stood in files before it, and what should become of it."""

    language: str
    kind: str
    part: Part
    said: tuple[tuple[str, str], ...]
    files: dict[str, str]
    wanted: tuple[Wanted, ...]
    rubbish: tuple[str, ...]
    never: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """What landed of one conversation, and how much of it was right."""

    talk: Talk
    landed: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    missed: list[Wanted] = field(default_factory=list[Wanted])

    @property
    def secrets(self) -> list[str]:
        """What landed and is a secret that nobody asked to keep."""
        if any(mark == "P" and wishes.asks_to_keep(text) for mark, text in self.talk.said):
            return []
        never = self.talk.never if self.talk.kind == "secret" else ()
        return [
            text
            for text in self.landed
            if sentences.holds_secret(text) or any(piece in _folded(text) for piece in never)
        ]


# --- the conversations ---------------------------------------------------------------------------


def talks(file: Path = DATA) -> list[Talk]:
    """All of a file, in their order."""
    whole = file.read_text("utf-8").split("== ")[1:]
    return [_talk(number, part, _part(file, number)) for number, part in enumerate(whole)]


def _part(file: Path, number: int) -> Part:
    if file.name == UNSEEN.name:
        return "unseen"
    return "apart" if file.name == DATA.name and number % 2 else "chosen by"


def _talk(number: int, part: str, which: Part) -> Talk:
    head, *lines = part.rstrip("\n").split("\n")
    language, kind = head.split()
    marked: list[tuple[str, str]] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"conversation {number}: {line}")
        marked.append((found["mark"], found["text"].replace("\\n", "\n")))
    files: dict[str, str] = {}
    for mark, text in marked:
        if mark == "M":
            files["MEMORY.md"] = f"{files.get('MEMORY.md', '')}{text} <!-- owner 2026-10-01 -->\n"
        elif mark == "C":
            name, _, content = text.partition(" ")
            files[name] = f"{content}\n"
    return Talk(
        language,
        kind,
        which,
        tuple((mark, text) for mark, text in marked if mark in "PBFT"),
        files,
        tuple(_wanted(text) for mark, text in marked if mark == "+"),
        tuple(text for mark, text in marked if mark == "!"),
        tuple(_folded(text) for mark, text in marked if mark == "-"),
    )


def _wanted(text: str) -> Wanted:
    pieces, _, wording = text.partition(" | ")
    each = (piece.split("/") for piece in pieces.split(" & "))
    return Wanted(tuple(tuple(map(_folded, either)) for either in each), wording)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def messages(talk: Talk) -> tuple[Message, ...]:
    """The conversation as the program has it."""
    made: list[Message] = []
    for number, (mark, text) in enumerate(talk.said):
        match mark:
            case "P":
                made.append(
                    Message("user", (Text("[Tue 2026-11-24 09:58]\n", note=True), Text(text)))
                )
            case "B":
                made.append(Message("assistant", (Text(text),)))
            case "F":
                passed: Whose = "forwarded"
                made.append(Message("user", (Text(text, origin=passed),)))
            case _:
                name, _, answer = text.partition(" ")
                use = ToolUse(f"t{number}", name, {})
                made.append(Message("assistant", (use,)))
                made.append(Message("user", (ToolResult(use.id, answer, origin="tool"),)))
    return tuple(made)


# --- a model that writes rubbish -----------------------------------------------------------------

INVENTED = (
    "Plays the cello in a quartet", "Has a brother called Tobias in Oslo", "Is allergic to wasps",
    "Was born on 7 February 1981", "Drives a red Toyota Yaris", "Prefers tea to coffee",
    "Works as an accountant for a shipping company", "Wants to move to Canada next year",
    "The user's favourite food is lasagne",
    "Has a meeting with Mr. Fischer on 30 November at 15:00", "Speaks fluent Portuguese",
    "Is married with three children", "Supports Manchester City", "Is afraid of heights",
    "Has a subscription to the New Yorker", "Lost 12 kg since January", "用户喜欢打羽毛球",
    "用户有个哥哥在广州", "用户对芒果过敏", "用户生日是3月9日", "用户打算买一辆电动车",
    "用户是一名会计", "用户养了两只仓鼠", "用户明年要去新西兰", "用户的女朋友叫佳佳",
    "用户会说法语", "用户12月1日要见张总", "用户最爱吃螺蛳粉", "用户父亲是军人", "用户信佛",
    "用户住在天津", "用户有恐高症",
)  # fmt: skip
HOLLOW = (
    "OK", "ok!", "thanks", "The user said thanks", "Had a nice conversation",
    "User asked a question", "The user and the assistant talked", "Conversation on 2026-11-24",
    "The assistant helped the user", "Nothing else to note", "User is satisfied with the answer",
    "User seems friendly", "The user is tired today", "User feels good right now",
    "User is in a hurry at the moment", "好的", "谢谢", "用户说谢谢", "用户和助手聊了天",
    "用户问了一个问题", "用户很满意", "用户今天心情不错", "用户现在很忙", "助手回答了用户的问题",
    "没有更多内容", "2026-11-24 的对话", "用户有点困",
)  # fmt: skip
BOOT = (
    "Do what is asked, completely, then stop.",
    "Warm and plain. Short by default, thorough when the matter is.",
    "Keep what will matter in a month: people, dates, preferences, decisions and their reasons.",
    "In a room, use only what the room itself has said.",
    "Honest before agreeable: disagree kindly, and say so when you were wrong.",
)
TEMPLATES = Path(__file__).parents[1] / "config" / "workspace"
REPEATS = ("{}", "{}.", "Note: {}", "The user said: {}", "{}!")
_NUMBER = re.compile(r"\d+")


def rubbish(talk: Talk, dice: random.Random) -> list[str]:
    """Whatever a bad model can get hold of, and what should be kept among it, in any order."""
    written = [text if mark != "T" else text.partition(" ")[2] for mark, text in talk.said]
    written += [line for text in written for line in text.split("\n") if line != text]
    written += dice.sample(INVENTED, 3) + dice.sample(HOLLOW, 4) + dice.sample(BOOT, 2)
    written += [line for text in talk.files.values() for line in text.splitlines() if line.strip()]
    written += talk.rubbish
    for wanted in talk.wanted:
        written += [way.format(wanted.wording) for way in REPEATS]
        changed = _NUMBER.sub(lambda found: str(int(found.group()) + 3), wanted.wording)
        written += [changed] if changed != wanted.wording else []
    dice.shuffle(written)
    return written


class Writer:
    """A model that writes these entries, each with the lines of the person that fit it best."""

    def __init__(self, name: str, written: Sequence[str]) -> None:
        self.name = name
        self._written = written

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """All of it at once."""
        yield Reply(Message("assistant", (Text(added(request, *self._written)),)), "end")

    async def window(self, model: str) -> Window:
        """As much as any conversation."""
        return Window(max_input_tokens=1_000_000, max_output_tokens=8_192)

    async def names(self) -> tuple[str, ...]:
        """The one name."""
        return (self.name,)

    async def close(self) -> None:
        """Nothing to release."""


# --- saving, and judging what landed -------------------------------------------------------------


async def kept(talk: Talk, model: Writer, folder: Path) -> list[str]:
    """The entries that the real saving leaves in the day's note."""
    for name in ("AGENTS.md", "SOUL.md"):
        _write(folder / name, (TEMPLATES / name).read_text("utf-8"))
    for name, text in talk.files.items():
        _write(folder / name, text)
    store = FolderNotes(folder)
    flusher = Flusher(Notes(store), SpaceFiles(store))
    context = ToolContext(VIEW, "s1", NOW, window=120_000)
    request = FlushRequest(model, "m", messages(talk), context, talk.language, timeout=60)
    done = await flusher.flush(request)
    if done.error is not None:
        raise done.error
    note = folder / NOTE
    if not note.exists():
        return []
    entries = markdown.items(note.read_text("utf-8"))
    return [markdown.plain(each.text).strip()[len("10:00 ") :] for each in entries]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def judged(talk: Talk, landed: Iterable[str]) -> Outcome:
    """Which of what landed is right, and what of the wanted is missing."""
    outcome = Outcome(talk, missed=list(talk.wanted))
    unwanted = {_folded(text) for text in talk.rubbish}
    for text in landed:
        outcome.landed.append(text)
        says = [wanted for wanted in outcome.missed if wanted.is_in(text)]
        folded = _folded(text)
        room = WORDY * sum(len(wanted.wording) for wanted in talk.wanted if wanted.is_in(text))
        is_bad = folded in unwanted or any(piece in folded for piece in talk.never)
        if not says or is_bad or len(text) > max(room, 80):
            outcome.wrong.append(text)
        else:
            outcome.missed = [wanted for wanted in outcome.missed if wanted not in says]
    return outcome


async def outcomes(known: Sequence[Talk], who: str, folder: Path) -> list[Outcome]:
    """What becomes of each conversation."""
    few = asyncio.Semaphore(AT_A_TIME)

    async def outcome(number: int, talk: Talk) -> Outcome:
        dice = random.Random(f"{talk.kind} {number}")  # noqa: S311 - the same every time
        wanted = [each.wording for each in talk.wanted]
        model = Writer(who, rubbish(talk, dice) if who == "rubbish" else wanted)
        async with few:
            return judged(talk, await kept(talk, model, folder / f"{who}-{number}"))

    return list(await asyncio.gather(*(outcome(*each) for each in enumerate(known))))


@dataclass(frozen=True, slots=True)
class Score:
    """How many of what landed were right, and how many of the wanted are there."""

    landed: int
    right: int
    wanted: int
    there: int

    @classmethod
    def of(cls, found: Iterable[Outcome]) -> Score:
        """Over some conversations."""
        each = list(found)
        landed = sum(len(one.landed) for one in each)
        wanted = sum(len(one.talk.wanted) for one in each)
        missed = sum(len(one.missed) for one in each)
        return cls(landed, landed - sum(len(one.wrong) for one in each), wanted, wanted - missed)

    @property
    def precision(self) -> float:
        """The share of what landed that is right; 1 when nothing did."""
        return self.right / self.landed if self.landed else 1.0

    @property
    def recall(self) -> float:
        """The share of the wanted that is there; 1 when nothing was."""
        return self.there / self.wanted if self.wanted else 1.0


def _rows(found: Sequence[Outcome]) -> Iterator[tuple[str, Score]]:
    for part in ("chosen by", "apart", "unseen"):
        some = [o for o in found if o.talk.part == part]
        for language in ("en", "zh") if some else ():
            yield f"{part}, {language}", Score.of(o for o in some if o.talk.language == language)
        if some:
            yield part, Score.of(some)
    yield "all", Score.of(found)
    for kind, some in groupby(sorted(found, key=lambda o: o.talk.kind), lambda o: o.talk.kind):
        yield f"all, {kind}", Score.of(some)


def main() -> int:
    """Measure and print; 1 when a goal was missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench keeping")
    parser.add_argument("--who", choices=WRITERS, help="only this one")
    parser.add_argument("--show", action="store_true", help="what was wrong of those chosen by")
    parser.add_argument("--file", type=Path, help="only these conversations")
    options = parser.parse_args()
    files = (options.file,) if options.file else (DATA, MORE, UNSEEN)
    sets = [talks(file) for file in files]
    is_missed = False
    for who in (options.who,) if options.who else WRITERS:
        found: list[Outcome] = []
        for known in sets:
            with tempfile.TemporaryDirectory() as folder:
                found += asyncio.run(outcomes(known, who, Path(folder)))
        rows = [
            (what, str(s.landed), f"{s.precision:.3f}", str(s.wanted), f"{s.recall:.3f}")
            for what, s in _rows(found)
        ]
        print(table((who, "landed", "precision", "wanted", "recall"), rows))
        kept_secrets = sum(len(each.secrets) for each in found)
        print(f"secrets kept that were not asked for: {kept_secrets}\n")
        is_missed = is_missed or bool(kept_secrets)
        if who == "careful":
            unseen = Score.of(each for each in found if each.talk.part == "unseen")
            is_missed = is_missed or Score.of(found).precision < GOAL or unseen.recall < RECALL
        if options.show:
            _show(found)
    return int(is_missed)


def _show(found: Iterable[Outcome]) -> None:
    for outcome in found:
        if outcome.talk.part == "chosen by" and (outcome.wrong or outcome.missed):
            print(
                outcome.talk.kind,
                outcome.talk.language,
                [t for m, t in outcome.talk.said if m == "P"],
            )
            for text in outcome.wrong:
                print("   wrong ", text)
            for wanted in outcome.missed:
                print("   missed", wanted.wording)


if __name__ == "__main__":
    sys.exit(main())
