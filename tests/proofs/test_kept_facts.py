"""What is still known when a long conversation has become notes and a summary.

A fixed conversation of 300 messages with 40 facts in it, in English and Chinese, said by the
person, agreed on with the assistant or answered by tools, goes through flushes by a model that
saves what the person states, and compactions, once with no model at all. Then 40 questions in other
words are asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.offline import OfflineModel, chore
from bot.agent.tools import ToolContext
from bot.config import MemoryConfig
from bot.context import tokens
from bot.identity.view import MAIN_SPACE, TALK, MemoryView
from bot.memory.embed.multilingual import MultilingualEmbedder
from bot.memory.index import Document, MemoryIndex
from bot.memory.note_store import FolderNotes
from bot.memory.notes import Notes, SpaceFiles
from bot.memory.transcripts import TranscriptFeed
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.testing import ScriptedModel
from bot.upkeep.compaction import where_to_cut
from bot.upkeep.flush import Flusher, FlushRequest
from bot.upkeep.summary import Summariser, SummaryRequest
from tests.fakes.brain import added, current, numbered, query, settled
from tests.support import NOON, PATIENCE, FakeClock, rendered, running, settings_of, until

MESSAGES = 300
WANTED = 38  # of 40
WINDOW = 16_000
FLUSH_AT, COMPACT_AT = 5_000, 6_000  # tokens of messages
KEEP_RECENT, KEEP_TURNS = 1_000, 3

VIEW = MemoryView(MAIN_SPACE, ("agent:main:memory:dm:ada",), private=True, people=("memory:ada",))
NOW = datetime.fromtimestamp(NOON / 1000, UTC)


@dataclass(frozen=True)
class Fact:
    """What is said, a question about it, and what an answer to that must contain."""

    said: str
    asked: str
    answer: str
    by: str = "person"


FACTS = [
    Fact("My daughter Mia is allergic to peanuts, so we keep them out of the house.",
         "which food must my child not eat", "peanuts"),
    Fact("By the way, I grew up in Tampere before we all went south.",
         "where did I spend my childhood", "Tampere"),
    Fact("Nora's birthday is on 3 June, I always forget it.",
         "when does Nora get a present", "3 June"),
    Fact("Our landlord is called Henrik Vass and he never answers the phone.",
         "who do we rent from", "Vass"),
    Fact("I can't stand coriander, it tastes like soap to me.",
         "which herb do I dislike", "coriander"),
    Fact("Dr. Okafor moved my appointment to 14 May at 9:30.",
         "when do I see the doctor", "14 May at 9:30"),
    Fact("The spare key is under the blue flower pot behind the shed.",
         "where is the second key", "blue flower pot"),
    Fact("We decided to sell the boat this autumn and not to repair it again.",
         "what happens with the boat", "sell the boat"),
    Fact("I work as a piano tuner, mostly for schools.",
         "what is my job", "piano tuner"),
    Fact("My sister Ines lives in Valparaíso with her two boys.",
         "in which city is my sister", "Valparaíso"),
    Fact("For the trip in July we booked the hotel Alpenrose in Mürren.",
         "where do we sleep on our journey", "Alpenrose"),
    Fact("Our budget for the new kitchen is €18,400 and not a cent more.",
         "how much may the kitchen cost", "18,400"),
    Fact("I'm on 50 mg of sertraline every morning.",
         "which medicine do I take", "sertraline"),
    Fact("The car insurance runs out on 30 September, and the number is KV-88213.",
         "what is the number of the car insurance", "KV-88213"),
    Fact("Please remember that I prefer window seats on the left side.",
         "where do I like to sit on a plane", "window seats"),
    Fact("Our dog Biscuit had surgery on his left knee last winter.",
         "what operation did the dog have", "left knee"),
    Fact("My favourite author is Tove Jansson, I own everything she wrote.",
         "whose books do I love", "Jansson"),
    Fact("I quit smoking on 2 February 2019 and I am still proud of it.",
         "since when do I not smoke any more", "2 February 2019"),
    Fact("The wifi in the cabin is called ElkRidge-5G.",
         "what is the name of the network in the cabin", "ElkRidge-5G"),
    Fact("Mum and dad celebrate forty years of marriage on 21 August in the Seehof.",
         "where is my parents' anniversary", "Seehof"),
    Fact("Jonas plays the bassoon in the youth orchestra on Wednesdays.",
         "which instrument does Jonas play", "bassoon"),
    Fact("I learn Basque with a woman called Amaia every Tuesday evening.",
         "which language am I studying", "Basque"),
    Fact("My blood type is AB negative, in case it ever matters.",
         "what is my blood group", "AB negative"),
    Fact("We never fly with Aerobus again after what they did to the luggage.",
         "which airline do we avoid", "Aerobus"),
    Fact("Thanks! Also, my shoe size is 43 in case you look for boots.",
         "what size are my feet", "43"),
    Fact("The plumber, Mr. Castellanos, comes next Thursday between 8 and 10.",
         "who repairs the pipes", "Castellanos"),
    Fact("我女儿小雨在苏州实验小学读三年级。", "小雨在哪里上学", "苏州实验小学"),
    Fact("我对海鲜过敏，尤其是虾。", "我不能吃什么", "海鲜"),
    Fact("爸爸的手术定在11月28日，在协和医院。", "父亲什么时候动手术", "11月28日"),
    Fact("我们打算明年春天搬到成都。", "我们要搬去哪个城市", "成都"),
    Fact("我最喜欢的茶是正山小种。", "我爱喝什么茶", "正山小种"),
    Fact("房东王先生的电话是13905127788。", "房东的号码是多少", "13905127788"),
    Fact("Agreed: we take the night train to Ljubljana and not the plane.",
         "how do we get to Slovenia", "Ljubljana", "assistant"),
    Fact("So the decision is to paint the hall in sage green.",
         "which colour does the hall get", "sage green", "assistant"),
    Fact("Then the next step is yours: send the tax form ST-14 by 31 March.",
         "which form must I hand in", "ST-14", "assistant"),
    Fact("Booking confirmed. Reference QX7-331, two adults, cabin 12.",
         "what is our booking reference", "QX7-331", "tool"),
    Fact("Delivery of the sofa is planned for 19 December between 13:00 and 15:00.",
         "when is the sofa brought", "19 December", "tool"),
    Fact("The clinic Sonnenhof has a free place with Dr. Brandauer.",
         "which doctor at the clinic has time", "Brandauer", "tool"),
    Fact("Ferry to Hrísey leaves at 7:20 from pier B4.",
         "where does the ferry go from", "B4", "tool"),
    Fact("列车G7012次，10:42从苏州站出发。", "火车几点出发", "10:42", "tool"),
]  # fmt: skip

_TOPICS = (
    "the garden", "that old novel", "sourdough", "chess openings", "the neighbours' fence",
    "a walk by the river", "spreadsheets", "the choir", "bicycle chains", "black holes",
    "how clouds form", "woodworking", "crosswords", "jazz", "the museum", "a slow cooker",
)  # fmt: skip
_SMALL = (
    "Hm, tell me more about {0}?",
    "What would you say about {0} and {1}?",
    "ok thanks, that helps a little with {0}",
    "Could you explain {0} as if I were ten years old?",
    "I was just thinking about {0} the whole day, it is funny how that goes.",
    "haha, {0} again",
    "How does {0} compare with {1}, roughly?",
    "有意思，那{0}呢？",
    "你能再讲讲{0}吗？",
)
_ANSWERS = """\
There is a lot to say about {0}. Most people begin with the simple things, look at how they hang \
together, and only then go on to {1}. It takes about {2} minutes a day and some patience; after \
{3} weeks it feels natural.
Good question! {0} and {1} have more in common than one would think. In Chapter {2} of his book \
Harold Finch counts {3} ways in which they meet, from the very plain to the absurd.
In short: {0} first, {1} later. A friend of mine, so to say, would put it in {2} steps, and the \
town of Lower Marl even made a festival of it in 19{3}.
可以这么说：{0}比{1}简单一些。一般需要{2}分钟，做{3}次就熟了。""".splitlines()


def person(text: str) -> Message:
    return Message("user", (Text(f"[{NOW:%a %Y-%m-%d %H:%M}]\n", note=True), Text(text)))


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),))


def conversation() -> list[Message]:
    """300 messages: the same ones every time, the facts spread over all but the last of them."""
    dice = random.Random(4)  # noqa: S311 - the same dice every time is what is wanted
    facts = dice.sample(FACTS, len(FACTS))
    messages: list[Message] = []
    while len(messages) < MESSAGES:
        due = len(FACTS) - len(facts) <= len(messages) * len(FACTS) / (MESSAGES - 14)
        fact = facts.pop(0) if facts and due else None
        messages += _exchange(dice, fact, len(messages))
    assert not facts
    return messages[:MESSAGES]


def _exchange(dice: random.Random, fact: Fact | None, number: int) -> Iterator[Message]:
    one, other = dice.sample(_TOPICS, 2)
    small = dice.choice(_SMALL).format(one, other)
    answer = dice.choice(_ANSWERS).format(one, other, dice.randint(3, 60), dice.randint(10, 99))
    by = fact.by if fact else ""
    said = fact.said if fact else ""
    if by == "tool":
        use = ToolUse(f"t{number}", "look_up", {"what": one})
        yield person(small)
        yield Message("assistant", (use,))
        yield Message("user", (ToolResult(use.id, f"{answer}\n{said}\n{answer}"),))
        yield assistant(f"I found something about {one}. {answer}")
    elif by == "assistant":
        yield person(small)
        yield assistant(f"{answer} {said}")
    elif fact and dice.random() < 0.5:
        yield person(f"{said} {small}")
        yield assistant(answer)
    else:
        yield person(said or small)
        yield assistant(answer)


def saving(request: Request) -> str:
    """What a model saves: the facts that the person stated, in one go."""
    words = "\n".join(numbered(request).values())
    return added(request, *sorted((f.said for f in FACTS if f.said in words), key=words.index))


def summary(request: Request) -> Message:
    """What a model sums up: the facts that anybody stated."""
    words = "\n".join(each.text for each in request.said)
    facts = sorted((f.said for f in FACTS if f.said in words), key=words.index)
    return assistant("\n".join(f"- {each}" for each in facts)) if facts else chore(request)


@dataclass
class Life:
    """A conversation on its way, saved and compacted as an engine does it."""

    notes: Notes
    files: SpaceFiles
    messages: list[Message] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    summary: str = ""
    unsaved: list[Message] = field(default_factory=list)
    saved: int = 0
    compactions: int = 0
    flushed: bool = False

    async def add(self, message: Message) -> None:
        self.messages.append(message)
        self.sizes.append(tokens.estimate(rendered([message])))
        self.unsaved.append(message)
        if message.role == "user" or any(isinstance(b, ToolUse) for b in message.blocks):
            return  # in the middle of a turn
        used = sum(self.sizes) + tokens.estimate(self.summary)
        if used > FLUSH_AT and not self.flushed:
            await self.flush()
        if used > COMPACT_AT:
            await self.compact()

    async def flush(self) -> None:
        context = ToolContext(VIEW, "s1", NOW, window=WINDOW)
        model = ScriptedModel(saving)
        request = FlushRequest(model, "m", tuple(self.unsaved), context, "en")
        done = await Flusher(self.notes, self.files).flush(request)
        assert done.error is None
        self.unsaved.clear()
        self.saved += len(done.saved)
        self.flushed = True

    async def compact(self) -> None:
        cut = where_to_cut(
            self.messages,
            self.sizes,
            window=WINDOW,
            keep_recent=KEEP_RECENT,
            keep_turns=KEEP_TURNS,
        )
        assert cut is not None
        request = SummaryRequest(
            model=OfflineModel(),
            model_name="offline",
            language="en",
            messages=tuple(self.messages[:cut]),
            sizes=tuple(self.sizes[:cut]),
            window=WINDOW,
            previous=self.summary,
        )
        self.summary = (await Summariser().summarise(request)).summary
        del self.messages[:cut], self.sizes[:cut]
        self.compactions += 1
        self.flushed = False


def transcript(messages: Sequence[Message]) -> list[Document]:
    """What was said, as the index gets it from the transcripts."""
    where = f"{TALK}memory:ada"
    said = [(str(number), message.text) for number, message in enumerate(messages) if message.text]
    return [Document(where, number, text, NOON) for number, text in said]


def known_in(text: str) -> set[str]:
    return {fact.answer for fact in FACTS if fact.answer in text}


async def found_in(index: MemoryIndex, partitions: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for fact in FACTS:
        answer = await index.search(fact.asked, partitions, 6)
        if any(fact.answer in hit.snippet for hit in answer.hits):
            found.add(fact.answer)
    return found


@pytest.mark.proof
async def test_at_least_38_of_40_facts_outlive_flush_and_compaction(
    tmp_path: Path, embedder_cache: Path
):
    assert len(FACTS) == len({fact.answer for fact in FACTS}) == 40
    messages = conversation()
    assert len(messages) == MESSAGES
    workspace = tmp_path / "workspace"
    life = Life(Notes(FolderNotes(workspace)), SpaceFiles(FolderNotes(workspace)))
    for message in messages:
        await life.add(message)
    await life.flush()
    await life.compact()
    config = MemoryConfig(watch=False)
    embedder = MultilingualEmbedder(embedder_cache)
    index = MemoryIndex.in_folder(
        settings_of(memory=config),
        FolderNotes(workspace),
        tmp_path / "index",
        embedder,
        FakeClock(),
    )
    await index.start()
    await index.sync("test")
    try:
        searched = await found_in(index, VIEW.partitions)
        await index.add_documents(transcript(messages))
        searched_all = await found_in(index, VIEW.partitions)
    finally:
        await index.close()
    notes = "\n".join(file.read_text() for file in sorted(workspace.rglob("*.md")))
    kept = rendered(life.messages)
    sources = {
        "summary": known_in(life.summary),
        "kept tail": known_in(kept),
        "notes": known_in(notes),
        "memory_search": searched,
    }
    known = set[str]().union(*sources.values())
    without_notes = sources["summary"] | sources["kept tail"] | searched
    after_new = sources["notes"] | searched_all
    counts = ", ".join(f"{name} {len(found)}" for name, found in sources.items())
    print(
        f"\n{len(known)} of 40 facts are known after {life.compactions} compactions and "
        f"{life.saved} saved entries ({counts}; without reading notes {len(without_notes)}); after "
        f"/new, from notes and a search of notes and transcripts, {len(after_new)}. The summary "
        f"has {tokens.estimate(life.summary)} tokens. "
        f"Not known: {sorted({fact.answer for fact in FACTS} - known)}"
    )
    assert life.compactions >= 3
    assert len(known) >= WANTED
    assert len(without_notes) >= WANTED


# --- through the whole engine --------------------------------------------------------------------


class LookUp:
    """The tool that the conversation's look-ups ask; it answers what was planned."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("look_up", "Look something up.", {"type": "object"})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return self.answers[str(arguments["number"])]


@dataclass
class Replaying(ScriptedModel):
    """Says what the conversation has it say, saves and sums up its facts, then searches memory."""

    planned: list[Message] = field(default_factory=list)
    found: str = ""

    def __post_init__(self) -> None:
        self.script = self._answer

    def _answer(self, request: Request) -> Reply:
        if request.purpose == "flush":
            message = assistant(saving(request))
        elif request.purpose != "chat":
            message = summary(request)
        elif self.planned:
            message = self.planned.pop(0)
        else:
            message = self._searched(request)
        uses = any(isinstance(block, ToolUse) for block in message.blocks)
        return Reply(message, "tool_use" if uses else "end")

    def _searched(self, request: Request) -> Message:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            self.found = last.text
            return assistant("Let me think.")
        if not last.text.endswith("?"):  # pyright: ignore[reportAttributeAccessIssue]
            return assistant("Hello!")
        asked = {"query": request.messages[-1].text.rstrip("?"), "limit": 6}
        return Message("assistant", (ToolUse(f"s{len(self.requests)}", "memory_search", asked),))


def plan(look_up: LookUp) -> tuple[list[str], list[Message]]:
    """What the person says, and what the model says to it, in order."""
    said: list[str] = []
    replies: list[Message] = []
    for message in conversation():
        match message.blocks:
            case (ToolResult(id_, text),):
                look_up.answers[id_] = text
            case (ToolUse(id_, name, _),):
                replies.append(Message("assistant", (ToolUse(id_, name, {"number": id_}),)))
            case _ if message.role == "user":
                said.append(message.text)
            case _:
                replies.append(message)
    return said, replies


@pytest.mark.proof
@pytest.mark.usefixtures("built_in_embedder")
@pytest.mark.parametrize("window", [16_000, 120_000])
async def test_at_least_38_of_40_facts_are_known_in_a_new_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
):
    look_up, feeds = LookUp(), list[TranscriptFeed]()

    def feed(*given: Any) -> TranscriptFeed:
        feeds.append(TranscriptFeed(*given))
        return feeds[0]

    monkeypatch.setattr("bot.app.TranscriptFeed", feed)
    # Else it is chance which questions are found beside what they ask for.
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", PATIENCE)
    said, replies = plan(look_up)
    model = Replaying(planned=replies, input_window=window)
    async with running(
        tmp_path,
        model=model,
        tools=(look_up,),
        context={"enable_memory_flush": True},
        # What is found is judged here, not how soon: in time a search does without what it means.
        memory={
            "embedder": {"provider": "multilingual"},
            "search_timeout": PATIENCE,
            "recall_timeout": PATIENCE,
        },
        session={"owner": ("memory:ada",)},
    ) as engine:
        for number, words in enumerate(said):
            engine.clock.advance(seconds=20)
            await engine.say(words)
            await until(lambda number=number: turns(tmp_path) == number + 1)
            await settled()
        await engine.ask("/compact")
        await settled()
        compactions = current(tmp_path)["compaction_count"]
        await engine.ask("/new")
        await settled()
        await feeds[0].look()
        await engine.ask("Good morning.")
        first = model.requests[-1]
        begun = known_in(first.system + "".join(map(words_of, first.messages)))
        searched: set[str] = set()
        for fact in FACTS:
            engine.clock.advance(minutes=1)
            model.found = ""
            await engine.say(f"{fact.asked}?")
            await until(lambda: bool(model.found))
            searched |= {fact.answer} & known_in(model.found)
            await feeds[0].look()
            await settled()
    known = begun | searched
    print(
        f"\nWith a window of {window}: {len(known)} of 40 facts are known in the new conversation "
        f"after {compactions} compactions (its beginning {len(begun)}, memory_search "
        f"{len(searched)}). Not known: {sorted({fact.answer for fact in FACTS} - known)}"
    )
    assert compactions >= 1
    assert len(known) >= WANTED


def turns(folder: Path) -> int:
    return sum(row[0] for row in query(folder, "SELECT turns FROM sessions"))


def words_of(message: Message) -> str:
    return "".join(block.text for block in message.blocks if isinstance(block, (Text, ToolResult)))
