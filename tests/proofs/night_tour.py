"""What the night does with everybody's notes, and what shows it: step by step, with canaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote as escaped

from bot.memory.night.record import Record
from tests.proofs.canaries import (
    CHANNELS,
    EVERYONE,
    LINKER,
    MEMBERS,
    PEOPLE,
    Leak,
    Plan,
    Setting,
    Who,
    Wiretap,
    World,
    folder_of,
)
from tests.proofs.rounds import rounds
from tests.support import NOON, until

NIGHT = NOON + 15 * 3_600_000 + 600_000  # ten past three, on 2026-11-22
DAY = "2026-11-22"
# A note, and an entry with canaries for `{0}` and `{1}`: two by two they say the same, or not.
ENTRIES = (
    ("MEMORY.md", "My phone number is {0} <!-- owner 2026-01-05 -->"),
    ("memory/2026-11-01.md", "08:00 My phone number is {1} <!-- owner -->"),
    ("memory/2026-10-01.md", "14:03 I like {0} tea <!-- owner -->"),
    ("memory/2026-10-09.md", "14:03 I like {0} tea! <!-- owner -->"),
    ("MEMORY.md", "Prefers {0} trains <!-- agent 2026-08-01 -->"),
    ("memory/2026-11-02.md", "11:00 Prefers {0} trains <!-- owner -->"),
    ("memory/2026-01-09.md", "I like {0} songs <!-- owner 2026-01-02 confirmed 2026-06-01 -->"),
    ("MEMORY.md", "Collects {0} stamps <!-- agent 2019-01-05 -->"),
    ("MEMORY.md", "My email is {0}@example.org"),
    ("memory/2026-11-03.md", "12:00 My email is {1}@example.org <!-- owner -->"),
    ("memory/2026-09-01.md", "Our cottage {0} has 3 rooms"),
    ("memory/2026-09-02.md", "3 rooms has our cottage {0}"),
    ("MEMORY.md", "Prefers {0} seats <!-- agent 2024-01-01 -->"),
    ("memory/2026-09-03.md", "The parrot sang about {0} <!-- untrusted -->"),
)
ABOUT = ("phone", "tea", "trains", "songs", "stamps", "email", "cottage", "seats", "parrot")
KINDS = {"same", "ended", "moved", "dropped", "kept"}
LASTING = "memory/lasting.md"


def plant(world: World, space: str) -> None:
    """Have a space hold something for each thing that the night does."""
    ours = {about: [world.canary(space=space) for _ in range(2)] for about in ABOUT}
    for name, words in ENTRIES:
        about = next(each for each in ABOUT if each in words)
        # Rooms have no MEMORY.md, and shared/ no day that anybody's conversation begins with.
        path = "memory/facts.md" if "/" not in name and not is_persons(space) else name
        world.write(space, path, f"- {words.format(*ours[about])}\n")


def is_persons(space: str) -> bool:
    return re.fullmatch(r"main|agents/[^/]+|(?:agents/[^/]+/)?people/.*", space) is not None


def proposes(listed: str) -> str:
    """What a model says that wants everything, and repeats what it was shown."""
    numbered = dict(re.findall(r"(?m)^(\d+)\. .*?: (.*)$", listed))
    cottage, *more = [number for number, words in numbered.items() if "cottage" in words]
    songs = next((number for number, words in numbered.items() if "songs" in words), "1")
    stamps = next((number for number, words in numbered.items() if "stamps" in words), "1")
    lines = [f'{{"same": [{cottage}, {number}]}}' for number in more]
    lines += [f'{{"move": {songs}, "to": "music"}}', f'{{"drop": {stamps}}}', listed]
    return "\n".join(lines)


def notes_of(world: World) -> dict[str, str]:
    """Every note there is, by its name below the workspace."""
    root = world.workspace
    paths = (path for path in root.rglob("*.md") if LINKER.sender not in str(path))
    return {str(path.relative_to(root)): path.read_text() for path in paths}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """The spaces in which notes are others than before."""
    names = {name for name in (*before, *after) if before.get(name) != after.get(name)}
    spaces = re.compile(r"(?:agents/[^/]+/)?(?:people|rooms)/[^/]+|agents/[^/]+|shared")
    found = map(spaces.match, names)
    return {match[0] if match is not None else "main" for match in found}


class Nights:
    """A night, and the morning after it, for everybody in a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        setting = world.setting
        rooms = {setting.space(who) for who in MEMBERS}
        everybody = {setting.space(who) for who in PEOPLE}
        # In one conversation for all nobody can be told of what is theirs alone.
        told = [who for who in PEOPLE if setting.dm_scope != "main" and setting.sees_memory(who)]
        self.told = {setting.space(who): setting.person(who) for who in told}
        for space in sorted({"main", "shared", *rooms, *everybody}):
            plant(world, space)

    async def meet(self) -> None:
        """Have everybody say something, in rooms as well."""
        for who in (*EVERYONE, *MEMBERS):
            await self.world.say(who, "hello")
        await self.world.index_catches_up()

    async def night(self) -> None:
        """Let it be night: the notes of those who can be told are kept in order, and no others."""
        world = self.world
        before = notes_of(world)
        world.clock.now = max(world.clock.now, NIGHT)
        await world.app.maintenance.nights.look()
        if (were := changed(before, notes_of(world))) != self.told.keys():
            raise Leak(f"the notes of {sorted(were ^ self.told.keys())} were changed, or were not")
        for space in self.told:
            night = (await self.record(space)).night
            assert night is not None
            assert {edit.kind for edit in (*night.edits, *night.questions)} == KINDS
        world.counts["nights"] += len(self.told)
        world.scan()

    async def record(self, space: str) -> Record:
        return await self.world.app.maintenance.nights.keeper.of(space)

    async def morning(self) -> None:
        """Tell everybody, and wait until all are told: what was done, and what is asked."""
        self.world.clock.advance(hours=6)
        await self.world.app.maintenance.nights.look()
        await until(lambda: self._told() >= 2 * len(self.told))
        assert self._told() == 2 * len(self.told)
        self.world.counts["told"] += self._told()
        self.world.scan()

    def _told(self) -> int:
        sent = [out for name in CHANNELS for out in self.world.channels[name].sent]
        return sum(out.text.startswith(("I tidied", "Shall I strike")) for out in sent)

    async def look_around(self, whos: Iterable[Who]) -> None:
        """Have each ask for all that shows what the night did, and for what it did to others."""
        world = self.world
        spaces = [world.setting.space(who) for who in PEOPLE[:5]]
        for who in whos:
            commands = ("night", "faded", "confirm seats", "search cottage tea", f"show {LASTING}")
            for command in (*commands, *(f"show {space}/{LASTING}" for space in spaces[:2])):
                await world.say(who, f"/memory {command}")
            await world.say(who, "/whosees songs")
            names = [LASTING, f"../{LASTING}", "memory/music.md", "MEMORY.md"]
            names += [f"{space}/{LASTING}" for space in (*spaces, f"people/{folder_of(who.id)}")]
            tools = [("memory_get", {"path": name}) for name in names]
            found = ("memory_search", {"query": "phone songs stamps email cottage", "limit": 20})
            await world.say(who, "what do I like?", Plan(who, [*tools, found]))
        await self.look_at_pages(spaces)

    async def look_at_pages(self, spaces: Iterable[str]) -> None:
        own = ("MEMORY.md", ENTRIES[1][0], ENTRIES[2][0], LASTING, "memory/music.md")
        others = [f"{space}/{name}" for space in spaces for name in ("MEMORY.md", LASTING)]
        asked = [("file", name) for name in others]
        asked += [(page, name) for name in own for page in ("file", "history", "edit")]
        await self.world.look_at(
            "memory/night",
            "memory",
            *(f"memory/{page}?path={escaped(name)}" for page, name in asked),
        )

    async def answer(self, who: Who, said: str) -> None:
        """Answer what was asked, or take the night back: nobody else's notes are touched."""
        before = notes_of(self.world)
        await self.world.say(who, said)
        spaces = changed(before, notes_of(self.world))
        if not spaces <= {self.world.setting.space(who)}:
            raise Leak(f"{said} of {who} changed notes of {sorted(spaces)}")
        self.world.counts["answers of nights"] += len(spaces)


async def take_the_tour(
    folder: Path, setting: Setting, only: Sequence[Who] = EVERYONE, *, briefly: bool = False
) -> World:
    """All of it, once; `only` some look around where all of them would take long.

    It ends `briefly` after the first morning.
    """
    with Wiretap().listening() as tap:
        world = World(folder, setting, tap)
        world.proposes = proposes
        nights = Nights(world)
        await world.start()
        try:
            await nights.meet()
            await nights.night()
            await nights.look_around((*only, *MEMBERS[:3]))  # before they are told
            await nights.morning()
            await nights.look_around((*only, *MEMBERS[:3]))
            if briefly:
                return world
            some = (*EVERYONE, *MEMBERS[:3])
            for number, who in enumerate(some):
                await nights.answer(who, f"/memory night {('yes', 'no')[number % 2]} {DAY}")
            for who in some[::2]:
                await nights.answer(who, "/undo night")
            await world.restart()
            await nights.look_around(only[: rounds(len(only), few=1)])
            world.clock.advance(hours=19)
            await world.app.maintenance.nights.look()
            world.clock.advance(hours=6)
            await world.app.maintenance.nights.look()
            for who in some:
                await world.say(who, "/new what do I like?", Plan(who))
                await world.redraw(who)
            world.scan()
        finally:
            await world.stop()
    return world
