"""What people do while the model is the worst there can be: step by step, and all of it once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.proofs.canaries import (
    BYSTANDERS,
    EVERYONE,
    LINKER,
    MEMBERS,
    QUESTIONS,
    TOPICS,
    Plan,
    Setting,
    Who,
    Wiretap,
    World,
    hostile,
)

KINDS = ("group", "channel", "thread", "dm", "Direct", "supergroup", "", "direct ")


async def tells(world: World, who: Who, topic: int, keep: str) -> None:
    space = world.setting.space(who)
    # A folder that is a link is nobody's: nothing can be kept in it.
    kept = bool(keep) and world.setting.sees_memory(who) and who != LINKER
    token = world.canary(space=space if kept else "", said_by=who)
    path = {} if keep == "note" else {"path": keep}
    write = [("memory_write", {"text": world.sentence(token, topic), **path})] if keep else []
    await world.say(who, f"remember: {world.sentence(token, topic)}", Plan(who, write))


async def asks(world: World, who: Who, topic: int, tool: str) -> None:
    question = QUESTIONS[topic % len(QUESTIONS)]
    tools = [(tool, {"query": question, "limit": 20})] if tool else []
    await world.say(who, question, Plan(who, tools))


async def brings_up(world: World, who: Who) -> None:
    """Talk of something else, then ask this and that; the model looks for nothing itself."""
    for words in ("/new", "good morning", *QUESTIONS):
        await world.say(who, words, Plan(who))
        await world.say(who, "/memory sources")
    await world.say(who, f"/memory wrong {TOPICS[0]}")


async def reads(world: World, who: Who, which: list[int]) -> None:
    names = hostile(world.setting)
    tools: list[tuple[str, dict[str, Any]]] = [
        ("memory_get", {"path": names[number % len(names)]}) for number in which
    ]
    tools[0][1]["from"], tools[1][1]["lines"] = 2, 120
    tools.append(("memory_search", {"query": tools[2][1]["path"], "limit": 20}))
    tools.append(("memory_get", {"path": "MEMORY.md", "space": "main"}))
    tools.append(("transcript_search", {"query": '" OR key:* --', "person": "main"}))
    await world.say(who, "look around", Plan(who, tools))


async def writes(world: World, who: Who, which: int, how: str) -> None:
    """Whatever is taken is the writer's; whatever lands elsewhere shows up there."""
    names = hostile(world.setting)
    space = world.setting.space(who) if world.setting.sees_memory(who) else ""
    token = world.canary(space=space, said_by=who)
    more = {"section": "Plans"} if how == "section" else {}
    more = {"replaces": TOPICS[which % len(TOPICS)]} if how == "replaces" else more
    path = names[which % len(names)]
    write = ("memory_write", {"text": world.sentence(token, which), "path": path, **more})
    await world.say(who, f"write {token} there", Plan(who, [write]))


async def asks_memory(world: World, who: Who, which: int, topic: int, command: str) -> None:
    names = hostile(world.setting)
    question = QUESTIONS[topic % len(QUESTIONS)]
    words = {
        "show": f"/memory show {names[which % len(names)]}",
        "search": f"/memory search {question}",
        "who": f"/whosees {('zq', TOPICS[topic % len(TOPICS)], 'is')[which % 3]}",
    }
    await world.say(who, words[command])


async def forgets(world: World, who: Who, topic: int, *, sure: bool) -> None:
    await world.say(who, f"/memory forget {TOPICS[topic % len(TOPICS)]}")
    if sure:
        await world.say(who, "/memory forget yes")


async def mistypes(world: World, who: Who, where: str) -> None:
    token = world.canary(said_by=who)
    typed = {
        "unknown command": f"/{token} {token}",
        "argument": f"/model {token}",
        "path": f"/memory show memory/{token}.md",
    }
    await world.say(who, typed[where])


async def mutters(world: World, who: Who, topic: int) -> None:
    """Talk in a room; somebody who may not talk to the bot there says something as well."""
    await world.mutter(who, topic)
    if who.room == "cave":
        await world.mutter(BYSTANDERS[topic % len(BYSTANDERS)], topic)


async def joins(world: World, who: Who, first: Who) -> None:
    # Whose folder is a link to somebody else's has no memory to share.
    if LINKER not in (who, first) and who.id != first.id:
        await world.join(who, first)


async def asks_the_page(world: World, topic: int) -> None:
    ada = world.setting.space(Who("memory", "ada"))
    spaces = ("", "main", "shared", "people/ada", ada, f"{ada}#private", "main#private", "rooms")
    others = ("talk:main", "talk:memory:ada", "..", "people/../", "MAIN", "*", "rooms/memory-den")
    agents = ("agents/family", "agents/family#private", "agents/family/people/bob", "agents")
    await world.ask_the_page(topic, (*spaces, *others, *agents))
    world.counts["steps"] += 1


async def loses_the_index(world: World, who: Who, topic: int, *, damage: bool) -> None:
    for path in (world.folder / "index").glob("index.db"):
        if damage:
            path.write_bytes(b"SQLite format 3\x00" + b"\x07" * 5_000)
        else:
            path.unlink()
    await asks(world, who, topic, "memory_search")
    await world.index_catches_up()


async def everybody_is_asked_once_more(world: World) -> None:
    await world.index_catches_up()
    for topic, who in enumerate((*EVERYONE, *MEMBERS)):
        await asks(world, who, topic, "memory_search")
        await world.redraw(who)
    await asks_the_page(world, 0)


async def tour(world: World) -> None:
    """Everything that people do, once, in an order in which each finds something."""
    ada, bob, eve, boss = (
        Who(channel, sender)
        for channel, sender in (
            *(("memory", "ada"), ("memory", "bob")),
            *(("other", "eve"), ("memory", "boss")),
        )
    )
    for number, who in enumerate((ada, boss, bob, eve)):
        await tells(world, who, number, ("note", "MEMORY.md", "", "USER.md")[number])
    await world.index_catches_up()
    for number, who in enumerate((bob, eve, ada, LINKER)):
        await asks(world, who, number, "memory_search")
        await asks(world, who, number, "transcript_search")
        await brings_up(world, who)
        await world.say(who, f"/new {QUESTIONS[number]}", Plan(who))
        for first in range(0, len(hostile(world.setting)), 12):
            await reads(world, who, list(range(first, first + 12)))
        for number_of in range(0, 60, 7):
            await asks_memory(world, who, number_of, number, "show")
        await writes(world, who, number * 3, "add")
        await asks_memory(world, who, number, number, "search")
        await asks_memory(world, who, number, number, "who")
        await mistypes(world, who, "unknown command")
        await forgets(world, who, number, sure=number == 1)
    for kind in KINDS:
        await world.elsewhere(eve, kind, QUESTIONS[0])
    await tour_of_rooms(world)
    await tour_of_links(world)
    for who in EVERYONE:
        await world.redraw(who)
    await world.probe()
    await asks_the_page(world, 1)
    world.clock.advance(days=1)
    world.scan()
    await world.restart()
    await loses_the_index(world, eve, 2, damage=True)
    await world.together([(who, QUESTIONS[3], Plan(who)) for who in (ada, bob, eve, boss)])
    await world.together([(who, QUESTIONS[4], Plan(who)) for who in MEMBERS])
    await everybody_is_asked_once_more(world)


async def tour_of_rooms(world: World) -> None:
    """Talk to others and to the bot, in each room, by everybody who is there."""
    for number, who in enumerate(MEMBERS):
        await tells(world, who, number, ("note", "ROOM.md", "")[number % 3])
        await mutters(world, who, number)
    await world.index_catches_up()
    for number, who in enumerate(MEMBERS):
        await mutters(world, who, number)
        await asks(world, who, number, ("memory_search", "transcript_search")[number % 2])
        await brings_up(world, who)
        await reads(world, who, list(range(number * 5, number * 5 + 8)))
        await asks_memory(world, who, number, number, "search")
        await asks_memory(world, who, number, number, "who")
        await asks_memory(world, who, number * 5, number, "show")
        await mistypes(world, who, "unknown command")
        for command in ("/whoami", "/status", "/context detail", "/memory", "/link", "/unlink"):
            await world.say(who, command)
        await world.activate(who, "always")
        await mutters(world, who, number)
        await world.activate(who, "mention")
        await world.say(who, f"/new {QUESTIONS[number % len(QUESTIONS)]}", Plan(who, keeps=True))
        await world.redraw(who)
    await forgets(world, MEMBERS[1], 1, sure=True)
    world.scan()


async def tour_of_links(world: World) -> None:
    """Join accounts, talk with each, part them, and talk again."""
    bob, eve, other_ada = Who("memory", "bob"), Who("other", "eve"), Who("other", "ada")
    for member, first, thief in ((MEMBERS[0], bob, eve), (MEMBERS[1], eve, other_ada)):
        await world.expose(first, member, thief)
        await asks(world, thief, 1, "transcript_search")
    world.scan()
    for who, first in ((other_ada, bob), (eve, Who("memory", "boss")), (bob, other_ada)):
        await joins(world, who, first)
        for number, each in enumerate((who, first)):
            await tells(world, each, number, "MEMORY.md")
            await asks(world, each, number, "transcript_search")
        await world.index_catches_up()
        for number, each in enumerate((first, who)):
            await asks(world, each, number, "memory_search")
            await world.say(each, f"/new {QUESTIONS[number]}", Plan(each))
    world.scan()
    for who in (other_ada, eve):
        await world.part(who)
        await tells(world, who, 2, "MEMORY.md")
    await world.index_catches_up()
    for who in (other_ada, bob, eve, Who("memory", "boss")):
        await asks(world, who, 2, "memory_search")
        await asks(world, who, 3, "transcript_search")
        await world.say(who, f"/new {QUESTIONS[2]}", Plan(who))
        await world.redraw(who)
    world.scan()


async def take_the_tour(folder: Path, setting: Setting, url: str = "") -> Counter[str]:
    with Wiretap().listening() as tap:
        world = World(folder, setting, tap, url)
        world.plant_everywhere()
        await world.start()
        try:
            await tour(world)
            world.scan()
        finally:
            await world.stop()
    return world.counts
