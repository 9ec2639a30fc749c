"""What the night does with somebody's notes shows to nobody else: told, asked, listed or proposed.

Everybody's notes hold canaries for each thing it does; so do rooms and `shared/`, where it does
nothing. Who may see which canary is decided by `tests/proofs/canaries.py`, from the documentation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.memory.memory import OWNER_VIEW, Memory
from bot.memory.night.keeper import Keeper
from bot.upkeep import nights
from bot.upkeep.active_session import ActiveSessions
from tests.proofs import night_tour
from tests.proofs.canaries import AGENTS, EVERYONE, PEOPLE, Leak, Rules, Setting, Who, World
from tests.proofs.rounds import rounds, sample

FIRST = (*(Who("memory", name) for name in ("ada", "boss")), Who("other", "eve"))
# Who looks around, before everybody is told, after it and another day.
SOME = tuple(dict.fromkeys((*FIRST, *EVERYONE)))[: rounds(len(EVERYONE), few=len(FIRST))]
SEEN = 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what the model of chores is shown, as that of the person it is shown for."""
    start, ask = World.start, ActiveSessions.ask_chores
    worlds: list[World] = []

    async def started(world: World) -> None:
        worlds.append(world)
        await start(world)

    async def shown(sessions: ActiveSessions, *asked: Any) -> str:
        _session, conversation, purpose, _system, words = asked
        if purpose == "night":
            worlds[-1].is_shown("what the night's model is shown", words, conversation.address)
            worlds[-1].counts["proposals"] += 1
        return await ask(sessions, *asked)

    monkeypatch.setattr(World, "start", started)
    monkeypatch.setattr(ActiveSessions, "ask_chores", shown)


@pytest.mark.proof
@pytest.mark.parametrize("night", ["rules", "model"])
async def test_nobody_is_shown_what_the_night_did_to_anothers_notes(tmp_path: Path, night: str):
    setting = Setting(owner=("memory:boss",), night=night)
    world = await night_tour.take_the_tour(tmp_path, setting, SOME)
    people = len({setting.person(who) for who in PEOPLE})
    assert world.counts["nights"] == people
    assert world.counts["told"] == 2 * people
    assert world.counts["answers of nights"] > people
    assert world.counts["proposals"] >= (people if night == "model" else 0)
    assert world.counts["rightly seen"] > SEEN


@pytest.mark.proof
async def test_nor_in_rooms_that_have_a_memory_and_with_accounts_that_are_one_person(
    tmp_path: Path,
):
    links = (("ada", ("memory:ada", "nct:bob")), ("main", ("memory:bob", "other:eve")))
    setting = Setting(
        owner=("memory:boss",),
        links=links,
        scope=Rules("allow", ()),
        embedder="hash",
        night="model",
    )
    world = await night_tour.take_the_tour(tmp_path, setting, SOME)
    assert world.counts["nights"] == len({setting.person(who) for who in PEOPLE})
    assert world.counts["rightly seen"] > SEEN


@pytest.mark.proof
async def test_nor_between_agents_with_and_without_memory_of_their_own(tmp_path: Path):
    links = (("boss", ("memory:boss", "nct:chief")),)
    setting = Setting(owner=("memory:boss",), links=links, night="model", agents=AGENTS)
    world = await night_tour.take_the_tour(tmp_path, setting, SOME)
    spaces = {setting.space(who) for who in PEOPLE}
    assert world.counts["nights"] == len(spaces) > len({setting.person(who) for who in PEOPLE})
    assert world.counts["rightly seen"] > SEEN


@pytest.mark.proof
async def test_where_all_share_one_conversation_or_see_no_memory_nothing_is_done(tmp_path: Path):
    for number, setting in enumerate((Setting("main"), Setting(scope=Rules("deny", ())))):
        world = await night_tour.take_the_tour(
            tmp_path / str(number), setting, SOME[:1], briefly=True
        )
        assert world.counts["nights"] == world.counts["told"] == 0


# --- the scanner can fail -------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def it_is_told_to_somebody_else(patch: pytest.MonkeyPatch) -> None:
    find, chats = nights.chat_of, list[Any]()

    def leaky(tx: Any, resolver: Any, person: str, *space: str) -> Any:
        chat = find(tx, resolver, person, *space)
        if chat is None:
            return None
        chats.append(chat.conversation.address)
        return replace(chat, conversation=replace(chat.conversation, address=chats[0]))

    patch.setattr(nights, "chat_of", leaky)


def what_was_done_to_the_owners_is_told(patch: pytest.MonkeyPatch) -> None:
    spots = Keeper.spots

    async def leaky(self: Keeper, view: Any, made: Any, **how: Any) -> Any:
        night = (await self.of("main")).night
        return await spots(self, OWNER_VIEW, night.edits if night is not None else made, **how)

    patch.setattr(Keeper, "spots", leaky)


def a_model_is_shown_the_owners(patch: pytest.MonkeyPatch) -> None:
    read = Keeper._read

    async def leaky(self: Keeper, _view: Any, paths: Sequence[str]) -> dict[str, str]:
        return await read(self, OWNER_VIEW, paths)

    patch.setattr(Keeper, "_read", leaky)


def what_has_faded_is_the_owners(patch: pytest.MonkeyPatch) -> None:
    faded = Memory.faded
    patch.setattr(Memory, "faded", lambda self, _view, today: faded(self, OWNER_VIEW, today))


def a_log_says_what_was_done(patch: pytest.MonkeyPatch) -> None:
    receipt = nights.receipt

    def leaky(*given: Any) -> str:
        logging.getLogger("aiohttp.client").debug("told %s", receipt(*given))
        return receipt(*given)

    patch.setattr(nights, "receipt", leaky)


def it_is_taken_back_for_the_owner(patch: pytest.MonkeyPatch) -> None:
    take_back = Keeper.take_back
    patch.setattr(Keeper, "take_back", lambda self, _view: take_back(self, OWNER_VIEW))


SEEN_LATER: tuple[Break, ...] = (
    it_is_told_to_somebody_else,
    what_was_done_to_the_owners_is_told,
    what_has_faded_is_the_owners,
    a_log_says_what_was_done,
    it_is_taken_back_for_the_owner,
)


@pytest.mark.parametrize(
    "leaky", sample([a_model_is_shown_the_owners], SEEN_LATER), ids=lambda leaky: leaky.__name__
)
async def test_a_leak_of_the_night_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaky: Break
):
    leaky(monkeypatch)
    with pytest.raises(Leak):
        await night_tour.take_the_tour(
            tmp_path, Setting(owner=("memory:boss",), night="model"), SOME[:1]
        )
