"""Sixty days of one person: what is in the notes at the end, and whether the right thing is found.

Every day they chat, ask about what they told, and say some of it again; a task reports each
afternoon; an export of another program is brought in; every other fact changes. The model repeats
its persona and what was recalled in its replies, and tries to write all of that down.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.agent.models import Request
from bot.importing.storing import Owner, bring
from bot.importing.values import Said, Talk
from bot.memory import claims, guard, markdown
from bot.memory.claims import Claim
from bot.messages import Quoted, Text
from tests.fakes.brain import Brain, numbered, settled
from tests.integration.test_memory_engine import shown
from tests.integration.test_recall import recalled
from tests.integration.test_tasks import ran
from tests.support import NOON, Engine, FakeClock, beside, running, until, write_file

DAYS = 60
PERSONA = "Speaks in short sentences and never makes a joke about trains."
REPORT = "The harbour has 12 ships today and the wind comes from the north."
IMPORTED = "My dentist is Dr. Fernweh in Ulm"


@dataclass(frozen=True)
class Fact:
    """Something they tell, in their words; `later` is what they say once it has changed."""

    said: str
    question: str
    later: str = ""

    @property
    def now(self) -> str:
        return self.later or self.said


FACTS = (
    Fact("My dentist is Dr. Brandauer", "Who is my dentist?", "My dentist is Dr. Keller"),
    Fact("Mia is allergic to peanuts", "What is Mia allergic to?"),
    Fact("The choir meets on Tuesdays", "When does the choir meet?", "The choir meets on Fridays"),
    Fact("My boat is called Orinoco", "What is my boat called?"),
    Fact("The rent is 900 euros", "How much is the rent?", "The rent is 950 euros"),
    Fact("Bram studies law in Ghent", "What does Bram study?"),
    Fact(
        "My bike lock opens with 4711", "What opens my bike lock?", "My bike lock opens with 2288"
    ),
    Fact("I take my coffee without sugar", "How do I take my coffee?"),
    Fact("我的猫叫小黑", "我的猫叫什么?"),
    Fact("奶奶住在苏州", "奶奶住在哪里?", "奶奶住在杭州"),
)
SMALL_TALK = ("It rained all night.", "The train was late again.", "What a long day that was.")


# --- the model ------------------------------------------------------------------------------------


def chat(request: Request) -> str:
    """What it was shown of memory, as news; and who it is."""
    notes = [b.value for b in request.messages[-1].blocks if isinstance(b, Text)]
    quotes = [q.text for note in notes if isinstance(note, Quoted) for q in note.quotes]
    if request.messages[-1].text.startswith("report"):
        return REPORT
    told = " ".join(" ".join(quotes).split()).replace("- ", "")
    return f"You told me: {told} {PERSONA}" if told else PERSONA


def flush(request: Request, *, is_good: bool) -> str:
    """Every statement of the person's, and every echo there is, citing whatever line it can."""
    own, others = numbered(request), numbered(request, "assistant")
    known = {text: number for number, text in numbered(request, "memory").items()}
    olds = {fact.later: fact.said for fact in FACTS if fact.later}
    made: list[str] = []
    for number, line in own.items():
        text = line.rstrip(".")
        if line.endswith("?"):
            continue
        entry = known.get(olds.get(text, ""))
        made.append(
            f"~ [{entry}] {text} [{number}]" if entry and is_good else f"+ [{number}] {text}"
        )
    for echo, number in itertools.product((*others.values(), PERSONA, REPORT), (*own, *others)):
        made.append(f"+ [{number}] {' '.join(echo.split())}")
    return "\n".join(made) or guard.NO_DECISION


# --- the days -------------------------------------------------------------------------------------


async def day(engine: Engine, number: int) -> None:
    """One day: something told, for the first time or again, something asked, and the evening."""
    fact = FACTS[number % len(FACTS)]
    said = fact.now if number >= DAYS // 2 else fact.said
    await engine.ask_each(SMALL_TALK[number % len(SMALL_TALK)], f"{said}.")
    await engine.ask(FACTS[(number * 3 + 1) % len(FACTS)].question)
    engine.clock.advance(hours=4)
    await engine.app.engine.tasks.begin()
    await ran(engine)
    if number == 10:
        talk = Talk("chatgpt", "c1", "Teeth", (Said("m1", "user", IMPORTED, NOON - 9_000_000_000),))
        async with beside(engine.folder) as database:
            await bring(database, [talk], lambda _: Owner("memory:ada"), engine.clock())
    engine.clock.advance(hours=6)
    await engine.ask("/new")
    await settled()
    engine.clock.advance(hours=5)  # ten past three
    await engine.app.agent.memory.index.sync("test")
    await engine.app.maintenance.nights.look()
    engine.clock.advance(hours=9)
    await engine.app.maintenance.nights.look()


def entries(folder: Path) -> Sequence[Claim]:
    """All that stands in the person's own notes."""
    return [
        claim
        for path in sorted((folder / "workspace").rglob("*.md"))
        if path.name != "SOUL.md"
        for claim in claims.of_note(path.name, path.read_text())
    ]


@pytest.mark.proof
@pytest.mark.parametrize("saving", ["good", "weak"])
async def test_after_sixty_days_the_notes_hold_each_fact_once_and_the_right_one_is_found(
    tmp_path: Path, saving: str
):
    is_good = saving == "good"  # a weak model never says that an entry has changed
    write_file(tmp_path / "workspace" / "SOUL.md", f"# Soul\n\n{PERSONA}\n")
    model = Brain(chat=chat, flush=lambda request: flush(request, is_good=is_good))
    async with running(
        tmp_path,
        model=model,
        clock=FakeClock(NOON + 600_000),
        session={"owner": ("memory:ada",), "reset": {"mode": "none"}},
        context={"enable_memory_flush": True, "notices": "off"},
        memory={"night": {"mode": "rules"}, "recall_timeout": 60, "search_timeout": 60},
    ) as engine:
        await engine.ask("/task every day at 15:00 report on the harbour")
        for number in range(DAYS):
            await day(engine, number)
        found: list[tuple[Fact, str, str]] = []
        for fact in FACTS:
            await engine.ask("Good morning.")
            await settled()
            before = len(model.asked("chat"))
            await engine.say(fact.question)  # a receipt of the night may come first
            await until(lambda count=before: len(model.asked("chat")) > count)
            last = model.asked("chat")[-1]
            found.append((fact, shown(last), recalled(last)))
            await engine.ask("/new")
            await settled()
    every = entries(tmp_path)
    standing = Counter(markdown.untimed(each.text) for each in every if not each.is_over)
    # Nothing but what they told is there, in no other words, and each of it once.
    told = {text for fact in FACTS for text in (fact.said, fact.later) if text}
    small = {text.rstrip(".") for text in (*SMALL_TALK, "Good morning")}
    assert set(standing) <= told | small
    assert {text: standing[text] for fact in FACTS for text in (fact.now,)} == {
        fact.now: 1 for fact in FACTS
    }
    left = {fact.said for fact in FACTS if fact.later and standing[fact.said]}
    # Where somebody lives is a fact that the night knows there is one of.
    olds = {fact.said for fact in FACTS if fact.later} - {"奶奶住在苏州"}
    assert left == (set() if is_good else olds)
    assert all(each.whose == "owner" for each in every)
    # What counts now is in sight, and no entry that it replaced stands above it.
    for fact, prompt, lately in found:
        assert fact.now in prompt, fact
        # What anybody said before is told as that: it may repeat what was so then.
        quotes = lately.split("\n\n[")
        notes = [line for q in quotes if q.startswith("memory/") for line in q.split("\n")]
        at = next((n for n, line in enumerate(notes) if fact.now in line), 0)  # else it was shown
        assert not any(fact.said in line for line in notes[:at] if fact.later), (fact, notes)
    # What was brought from elsewhere is told as such wherever it is shown.
    seen = [b for r in model.requests for m in r.messages for b in m.blocks if isinstance(b, Text)]
    assert all(b.origin != "memory" for b in seen if "Fernweh" in b.text and b.note)
