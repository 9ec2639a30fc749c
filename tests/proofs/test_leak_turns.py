"""What changes between a message and its turn: a turn is shown what may be seen when it begins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.channel import Address, Inbound
from bot.i18n import text
from bot.identity import Books, ConversationResolver, Link, Policy
from bot.identity.view import folder_name
from bot.sessions import pairing
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.support import NOON, beside, make_config, running, until

ADAS, EVES, MAINS, OLD, NEW = (f"zq{word}z" for word in ("ada", "eve", "main", "old", "new"))
KEPT = {
    "MEMORY.md": MAINS,
    f"people/{folder_name('memory:ada')}/MEMORY.md": ADAS,
    f"people/{folder_name('memory:eve')}/MEMORY.md": EVES,
    "people/circle/MEMORY.md": ADAS,
    f"rooms/{folder_name('memory-old')}/ROOM.md": OLD,
    f"rooms/{folder_name('memory-new')}/ROOM.md": NEW,
}
SHOWN = re.compile("zq[a-z]+z")
REFUSED = frozenset({"refused"})
LINK = Link(("memory", "eve"), ("memory", "ada"), Address("memory", "default", "eve"), "en")
PAIRED = ("memory", "default", "eve")
OPEN = {"default": "allow", "rules": ()}
ROOMS = {"group_policy": "open", "require_mention": False}
PAIRING = {"dm_policy": "pairing", "allow_from": ()}


@dataclass(frozen=True)
class Change:
    """What changes while a message waits, and the canaries its turn is shown without and with it.

    `before` and `after` are sections of the configuration; one that stays is left out. `books`
    are what people chose before, `chosen` makes of them what they choose then.
    """

    shown: frozenset[str]
    then: frozenset[str]
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] | None = None
    books: Books = field(default_factory=Books)
    chosen: Callable[[Books], Books] = lambda books: books
    where: Mapping[str, Any] = field(default_factory=dict)


def only(*canaries: str) -> frozenset[str]:
    return frozenset(canaries)


ROOM = {"chat": "new", "chat_type": "group", "mentions_bot": True}
CHANGES: Mapping[str, Change] = {
    "parted": Change(
        only(ADAS), only(EVES), books=Books((LINK,)), chosen=lambda books: replace(books, links=())
    ),
    "joined": Change(only(EVES), only(ADAS), chosen=lambda books: replace(books, links=(LINK,))),
    "revoked": Change(
        *(only(EVES), REFUSED, {"channels": {"memory": PAIRING}}),
        books=Books(paired=frozenset({PAIRED})),
        chosen=lambda books: replace(books, paired=frozenset()),
    ),
    "no owner any more": Change(
        only(MAINS), only(EVES), {"session": {"owner": ("memory:eve",)}}, {}
    ),
    "the owner now": Change(only(EVES), only(MAINS), {}, {"session": {"owner": ("memory:eve",)}}),
    "no name any more": Change(
        *(only(ADAS), only(EVES), {"session": {"identity_links": {"circle": ("memory:eve",)}}}, {}),
    ),
    "memory closed": Change(only(EVES), only(), {}, {"scope": {"rules": ({"action": "deny"},)}}),
    "not let in any more": Change(
        *(only(EVES), REFUSED, {}),
        {"channels": {"memory": {"dm_policy": "allowlist", "allow_from": ()}}},
    ),
    "not answered any more": Change(only(EVES), REFUSED, {}, {"send_policy": {"default": "deny"}}),
    "a room that moved": Change(
        *(only(NEW), only(OLD), {"scope": OPEN, "channels": {"memory": ROOMS}}),
        chosen=lambda books: books.with_moved(("memory", "default", "new"), "old"),
        where=ROOM,
    ),
    "a room that is closed": Change(
        *(only(NEW), REFUSED, {"scope": OPEN, "channels": {"memory": ROOMS}}),
        {"scope": OPEN, "channels": {"memory": {"group_policy": "disabled"}}},
        where=ROOM,
    ),
}


async def approve(folder: Path, *who: str) -> None:
    """Let somebody in, as the command line does before the program is started."""
    async with beside(folder) as database:
        inbound = Inbound(*who[:2], who[2], "direct", who[2], "m", "hi", NOON)
        await database.write(lambda tx: pairing.ask(tx, inbound, "ABCDEFGH", NOON))
        assert await database.write(lambda tx: pairing.approve(tx, who[0], "ABCDEFGH", NOON))


async def turn_after(folder: Path, change: Change, *, changes: bool) -> frozenset[str]:
    """The canaries that a turn is shown whose message waited while something changed."""
    for name, canary in KEPT.items():
        path = folder / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"- a plan is {canary}\n", "utf-8")
    for channel, account, sender in change.books.paired:
        await approve(folder, channel, account, sender)
    model = ScriptedModel(gate=asyncio.Event())
    async with running(folder, model=model, **change.before) as engine:
        resolver = engine.app.core.resolver
        resolver.read(change.books)
        await engine.say("hold", sender="eve", **change.where)
        await model.started.wait()
        await engine.say("and now?", sender="eve", **change.where)
        if changes:
            if change.after is not None:
                config, _ = make_config(folder, **change.after)
                resolver.adopt(Policy.of(config, resolver.policy.zone))
            resolver.read(change.chosen(resolver.now.books))
        model.gate.set()
        waiting = "SELECT 1 FROM inbox WHERE state = 'waiting'"
        await until(lambda: len(model.requests) == 2 or not query(folder, waiting))
        if len(model.requests) < 2:
            return REFUSED
        return frozenset(SHOWN.findall(model.requests[1].system))


@pytest.mark.parametrize("name", CHANGES)
async def test_a_turn_is_shown_what_may_be_seen_when_it_begins(tmp_path: Path, name: str):
    change = CHANGES[name]
    assert await turn_after(tmp_path / "as it was", change, changes=False) == change.shown
    assert await turn_after(tmp_path / "changed", change, changes=True) == change.then


async def test_a_turn_speaks_the_language_and_lives_by_the_clock_of_when_it_begins(
    tmp_path: Path,
):
    model = ScriptedModel(script=lambda _request: "", gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        resolver = engine.app.core.resolver
        await engine.say("hold")
        await until(lambda: len(model.requests) == 1)
        await engine.say("and now?")
        config, _ = make_config(tmp_path, agent={"language": "zh"})
        resolver.adopt(Policy.of(config, ZoneInfo("Asia/Shanghai")))
        model.gate.set()
        await engine.channel.wait_sent(2)
        last = "".join(block.text for block in model.requests[1].messages[-1].blocks)
        assert "12:00" in "".join(b.text for b in model.requests[0].messages[-1].blocks)
        assert "20:00" in last
        assert engine.sent_to("ada")[1] == text("zh", "turn.empty")


# Whoever is not served any more is also kept out when the change itself is heard.
STILL_SERVED = [name for name, change in CHANGES.items() if change.then != REFUSED]


@pytest.mark.parametrize("name", STILL_SERVED)
async def test_a_conversation_that_is_not_resolved_again_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(ConversationResolver, "renewed", lambda _self, conversation: conversation)
    change = CHANGES[name]
    assert await turn_after(tmp_path, change, changes=True) == change.shown != change.then
