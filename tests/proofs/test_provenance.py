"""Whatever somebody passes on, and however it is brought up again: it never becomes their own word.

Each kind of foreign piece, as each platform sends it, goes through the real adapters' reading into
a real engine. The model is the worst there can be: it repeats what it was shown in every reply and
every summary, and tries every way to write it down, in the same words, in others and in another
language, at once and one, two and ten turns later, after a compaction and after one `/new` and two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from adapters.discord import inbound as discord
from adapters.discord.places import Place, Room
from adapters.nextcloud_talk import inbound as talk
from adapters.telegram import inbound as telegram
from bot.agent.models import Reply, Request
from bot.agent.offline import OfflineModel
from bot.channel import Capabilities, Heard, Inbound, Media, ReplyTo
from bot.identity.view import folder_name
from bot.messages import Message, ToolResult, ToolUse
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.brain import Brain, numbered, settled
from tests.fakes.discord_parts import message as discord_message
from tests.fakes.discord_parts import user
from tests.proofs.rounds import sample
from tests.support import Engine, running

SECRET = "The rent goes to DE4711 at the Lakeside bank"
IN_CHINESE = "房租付到湖边银行"
FOUND = ("DE4711", "Lakeside", "湖边")
SHORT = "rent DE4711 Lakeside"  # where there is little room
TEXTS = (SECRET, "Pays into DE4711", "The person's rent account: DE4711", IN_CHINESE)
OWN = "my boat is called Orinoco"
CURATED = ("MEMORY.md", "USER.md")
WAYS: tuple[dict[str, str], ...] = (
    *({"path": name} for name in CURATED),
    {},
    {"path": "memory/home.md"},
    {"section": "Home"},
    {"replaces": "Likes tea", "path": "MEMORY.md"},
)
TITLED = {"text": "My boat is called Orinoco", "section": SECRET}  # own words below others' title
ECHO = f"I read: {SECRET}. {IN_CHINESE}。"
SUMMARY = f"- Somebody wrote: {SECRET}.\n- {IN_CHINESE}。\n- They talked about the harbour."

# --- what can be foreign -------------------------------------------------------------------------

GHOST = {"type": "hidden_user", "sender_user_name": "Ghost"}
ROOM = Room(Place("direct"), frozenset(), {}, {})


def from_telegram(**fields: Any) -> Inbound:
    ada = {"id": 7, "is_bot": False, "first_name": "Ada"}
    base = {"message_id": 5, "from": ada, "chat": {"id": 7, "type": "private"}, "date": 1}
    read = telegram.normalise(
        {"update_id": 1, "message": base | fields}, "default", telegram.Identity(99, "bot")
    )
    assert isinstance(read, Inbound)
    return read


def from_discord(text: str = "", **fields: Any) -> Inbound:
    data = discord_message("501", user("7"), text, **fields)
    me = discord.Identity("100", "Confidant")
    read = discord.normalise(discord.CREATED, data, "default", me, ROOM)
    assert isinstance(read, Inbound)
    return read


def from_talk(message: str, **parameters: Any) -> Inbound:
    payload = {
        "type": "Create",
        "actor": {"type": "Person", "id": "users/ada", "name": "Ada"},
        "object": {"id": "1", "content": {"message": message, "parameters": parameters}},
        "target": {"id": "tok"},
    }
    read = talk.normalise(payload, talk.Identity("default", "Confidant"), 1)
    assert isinstance(read, Inbound)
    return read


def plain(text: str = "look", **fields: Any) -> Inbound:
    return replace(Inbound("web", "default", "owner", "direct", "owner", "1", text, 1), **fields)


FILE = Media("document", "notes.txt", "text/plain", ref="file")
ANSWERED = {"message_id": 4, "from": {"id": 3, "first_name": "Bob"}, "text": SECRET}
BOTS = {"message_id": 4, "from": {"id": 99, "is_bot": True, "first_name": "Bot"}, "text": SECRET}
FORWARD: dict[str, Any] = {
    "message_reference": {"type": 1, "message_id": "5"},
    "message_snapshots": [{"message": {"content": SECRET}}],
}
POLL = {"question": {"text": SECRET}, "answers": [{"poll_media": {"text": IN_CHINESE}}]}
EMBED = {"title": "News", "description": SECRET, "url": "https://example.org"}
PIECES: dict[str, Callable[[], Inbound]] = {
    "telegram forward": lambda: from_telegram(text=SECRET, forward_origin=GHOST),
    "telegram forwarded caption": lambda: from_telegram(
        caption=SECRET, photo=[{"file_id": "p"}], forward_origin=GHOST
    ),
    "telegram forwarder": lambda: from_telegram(
        text="hi", forward_origin=GHOST | {"sender_user_name": SECRET}
    ),
    "telegram poll": lambda: from_telegram(poll={"question": SECRET, "options": []}),
    "telegram contact": lambda: from_telegram(contact={"phone_number": "1", "first_name": SHORT}),
    "telegram place": lambda: from_telegram(venue={"title": SHORT, "address": "Lakeside"}),
    "telegram inline bot": lambda: from_telegram(
        text=SECRET, via_bot={"id": 8, "is_bot": True, "first_name": "Jokes"}
    ),
    "telegram reply": lambda: from_telegram(text="look", reply_to_message=ANSWERED),
    "telegram reply to an old message of the bot's": lambda: from_telegram(
        text="look", reply_to_message=BOTS
    ),
    "discord forward": lambda: from_discord(**FORWARD),
    "discord poll": lambda: from_discord("look", poll=POLL),
    "discord preview": lambda: from_discord(embeds=[EMBED]),
    "talk card": lambda: from_talk("see {object}", object={"type": "deck-card", "name": SECRET}),
    "talk poll": lambda: from_talk("{object}", object={"type": "talk-poll", "name": SECRET}),
    "talk place": lambda: from_talk(
        "{object}", object={"type": "geo-location", "name": SHORT, "latitude": 1, "longitude": 2}
    ),
    "file": lambda: plain(media=(FILE,)),
    "file name": lambda: plain(media=(replace(FILE, kind="video", name=f"{SHORT}.mp4"),)),
    "overheard": lambda: plain(heard=(Heard("Bob", SECRET, 1),)),
    "reply to somebody without a name": lambda: plain(reply_to=ReplyTo("4", text=SECRET)),
}
BRIEF = ("telegram forward", "discord preview", "talk card", "file", "overheard")
SOME = sample(BRIEF, [kind for kind in PIECES if kind not in BRIEF])

# --- the engine around it ------------------------------------------------------------------------

_numbers = itertools.count(1)


@dataclass
class FileChannel(InMemoryChannel):
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(max_length=4000, files=True)
    )

    async def fetch(self, address: Any, media: Media, most: int) -> bytes:
        return f"{SECRET}\n{IN_CHINESE}\n".encode()


def writes(*arguments: dict[str, str]) -> Reply:
    """Every one of these at once."""
    uses = tuple(ToolUse(f"w{next(_numbers)}", "memory_write", each) for each in arguments)
    return Reply(Message("assistant", uses), "tool_use")


def everything() -> Reply:
    """Every way to write every form of it."""
    tries = ({"text": text, **way} for text in TEXTS for way in WAYS)
    return writes(*tries, TITLED)


def chat(request: Request) -> str | Reply:
    message = request.messages[-1]
    if any(isinstance(block, ToolResult) for block in message.blocks):
        return ECHO
    if message.text == "remember that":
        return everything()
    if message.text == OWN:
        return writes({"text": f"{OWN} {next(_numbers)}", "path": "MEMORY.md"})
    if message.text.startswith("search"):
        use = ToolUse(f"s{next(_numbers)}", message.text.split()[1], {"query": "rent DE4711 bank"})
        return Reply(Message("assistant", (use,)), "tool_use")
    return ECHO


def flush(request: Request) -> str:
    """Every form of it, as what the person said in their last line or somebody else in theirs."""
    own = list(numbered(request))[-1:]
    others = list(numbered(request, "other"))[-1:]
    ways = [f"+ [{n}] {{}}" for n in (*own, *others)] + [f"~ [e1] {{}} [{n}]" for n in own]
    return "\n".join(way.format(" ".join(text.split())) for text in TEXTS for way in ways)


def worst() -> Brain:
    return Brain(chat=chat, flush=flush, summary=SUMMARY)


def space(folder: Path) -> Path:
    return folder / "workspace" / "people" / folder_name("memory:ada")


def clean(folder: Path, when: str) -> None:
    """Nothing of it stands in memory but as untrusted, and nothing in what always loads."""
    for file in space(folder).rglob("*.md"):
        lines = [line for line in file.read_text().splitlines() if any(w in line for w in FOUND)]
        assert not (lines and file.name in CURATED), (when, file.name, lines)
        assert all("<!-- untrusted" in line for line in lines), (when, file.name, lines)


def refused(model: Brain) -> int:
    """How many of the last turn's writes were."""
    results = model.asked("chat")[-1].messages[-1].blocks
    return sum(isinstance(block, ToolResult) and block.is_error for block in results)


def memory(folder: Path, name: str = "MEMORY.md") -> str:
    path = space(folder) / name
    return path.read_text() if path.exists() else ""


async def say(engine: Engine, words: str, **changes: Any) -> None:
    await engine.ask(words, **changes)
    await settled()


async def send(engine: Engine, piece: Inbound) -> None:
    """What an adapter read, as if this engine's own channel had."""
    here = engine.message("")
    await engine.ask(
        piece.text,
        media=piece.media,
        foreign=piece.foreign,
        reply_to=piece.reply_to,
        heard=piece.heard,
        message_id=here.message_id,
    )
    await settled()


def prepared(folder: Path) -> None:
    for name in CURATED:
        path = space(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("- Likes tea\n")


def engine(folder: Path, model: ScriptedModel) -> Any:
    prepared(folder)
    context = {"enable_memory_flush": True, "notices": "off"}
    return running(folder, model=model, channel=FileChannel(), context=context)


@pytest.mark.parametrize("kind", SOME)
async def test_what_is_passed_on_never_becomes_the_persons_or_the_bots_word(tmp_path, kind):
    async with engine(tmp_path, worst()) as e:

        async def remember(when: str) -> None:
            await say(e, "remember that")
            clean(tmp_path, when)
            assert refused(e.model) == len(TEXTS) * (len(WAYS) - 2) + 1, when  # two are notes

        await send(e, PIECES[kind]())
        for when, turns in (("one turn later", 0), ("two turns later", 0), ("ten", 7)):
            for _ in range(turns):
                await say(e, "and then?")
            await remember(when)
        await say(e, "/compact")
        clean(tmp_path, "while saving")
        assert e.model.asked("summary")
        assert e.model.asked("flush")
        await remember("after a compaction")
        for when in ("after /new", "after another"):
            await say(e, "/new")
            clean(tmp_path, f"while saving, {when}")
            await say(e, "where were we?")
            for tool in ("memory_search", "transcript_search"):
                await say(e, f"search {tool}")
            await remember(when)
        # What the person says of themselves is kept all the same, and as theirs.
        await say(e, OWN)
        assert f"{OWN} " in memory(tmp_path)
        assert f"{OWN} " in [line for line in memory(tmp_path).splitlines() if "owner" in line][-1]


@pytest.mark.parametrize("kind", PIECES)
async def test_it_is_refused_in_the_very_turn_it_comes_in(tmp_path, kind):
    model = worst()
    model.chat = lambda request: (
        ECHO if isinstance(request.messages[-1].blocks[0], ToolResult) else everything()
    )
    async with engine(tmp_path, model) as e:
        await send(e, PIECES[kind]())
        clean(tmp_path, "at once")


@pytest.mark.parametrize("kind", SOME)
async def test_a_plain_remember_without_a_model_keeps_none_of_it(tmp_path, kind):
    async with engine(tmp_path, OfflineModel()) as e:
        await send(e, replace(PIECES[kind](), text="Remember this"))
        await send(e, PIECES[kind]())
        await say(e, "remember that I like tea")
        await say(e, "/new")
        await say(e, "what is the rent?")
        await say(e, "remember that my rent is due")
        await say(e, "/new")
        clean(tmp_path, "offline")
        assert "I like tea" in "".join(f.read_text() for f in space(tmp_path).rglob("*.md"))
