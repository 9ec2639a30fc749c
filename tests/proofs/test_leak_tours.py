"""Whatever people do, done once in each setting; and of leaks made on purpose, each is seen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.identity import ConversationResolver, access
from bot.identity.view import MAIN_SPACE, MemoryView
from tests.proofs.canaries import AGENTS, Leak, Rules, Setting
from tests.proofs.rounds import sample
from tests.proofs.tour import take_the_tour

# The owner has an account with each of two agents, and so has Ada.
SEVERAL = Setting(
    owner=("memory:boss",),
    links=(("boss", ("memory:boss", "nct:chief")),),
    scope=Rules("allow", ()),
    embedder="hash",
    agents=AGENTS,
)
DM_SCOPES = ("main", "per-peer", "per-channel-peer", "per-account-channel-peer")


@pytest.mark.proof
@pytest.mark.parametrize("dm_scope", DM_SCOPES)
async def test_every_scope_of_direct_chats_takes_the_tour(tmp_path: Path, dm_scope: str):
    counts = await take_the_tour(
        tmp_path, Setting(dm_scope, owner=("memory:boss",), embedder="hash")
    )
    assert counts["rightly seen"] > 500
    assert counts["recalled later"] > 5


@pytest.mark.proof
async def test_rooms_that_have_a_memory_take_the_tour(tmp_path: Path):
    setting = Setting(owner=("memory:boss",), scope=Rules("allow", ()), embedder="hash")
    counts = await take_the_tour(tmp_path, setting)
    assert counts["rightly seen"] > 500
    assert counts["recalled later"] > 5
    assert counts["links"] >= 2
    assert counts["codes void"] == 2


@pytest.mark.proof
@pytest.mark.usefixtures("built_in_embedder")
async def test_with_the_built_in_embedder_and_everybody_linked_somehow(tmp_path: Path):
    links = (("ada", ("memory:ada", "nct:bob")), ("main", ("memory:bob", "other:eve")))
    setting = Setting(owner=("memory:boss",), links=links, embedder="multilingual")
    counts = await take_the_tour(tmp_path, setting)
    assert counts["rightly seen"] > 500
    assert counts["recalled later"] > 5


@pytest.mark.proof
async def test_a_memory_of_rows_takes_the_tour(tmp_path: Path, postgres_url: str):
    setting = Setting(owner=("memory:boss",), scope=Rules("allow", ()), embedder="hash")
    counts = await take_the_tour(tmp_path, setting, postgres_url)
    assert counts["rightly seen"] > 500
    assert counts["recalled later"] > 5
    assert not list(tmp_path.rglob("*.md"))


@pytest.mark.proof
@pytest.mark.parametrize("dm_scope", ["main", "per-channel-peer"])
async def test_agents_with_and_without_memory_of_their_own_take_the_tour(
    tmp_path: Path, dm_scope: str
):
    counts = await take_the_tour(tmp_path, replace(SEVERAL, dm_scope=dm_scope))
    assert counts["pages of family"] > 3
    assert counts["rightly seen"] > 500
    assert counts["recalled later"] > 5


@pytest.mark.proof
async def test_agents_whose_memories_are_rows_take_the_tour(tmp_path: Path, postgres_url: str):
    counts = await take_the_tour(tmp_path, SEVERAL, postgres_url)
    assert counts["rightly seen"] > 500
    assert counts["recalled later"] > 5
    assert not list(tmp_path.rglob("*.md"))


# --- the scanner can fail -------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def everybody_is_ada(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    view_for = conversation.view_for

    def leaky(config: Any, subject: Any, **known: Any) -> MemoryView:
        known["people"] = ("memory:ada",)
        return view_for(config, subject, **known)

    patch.setattr(conversation, "view_for", leaky)


def folders_are_for_everybody(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    view_for = conversation.view_for

    def leaky(config: Any, subject: Any, **known: Any) -> MemoryView:
        found = view_for(config, subject, **known)
        return replace(found, folders=tuple(known["folders"]) if found.space else ())

    patch.setattr(conversation, "view_for", leaky)


def groups_count_as_direct(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(access, "decide", lambda *_args, **_kwargs: access.AccessDecision.ALLOW)


def private_files_come_without_a_view(patch: pytest.MonkeyPatch) -> None:
    from bot.memory import notes

    whole = notes.SpaceFiles._whole
    patch.setattr(notes.SpaceFiles, "_whole", lambda self, _target: whole(self, "MEMORY.md"))


def searches_look_everywhere(patch: pytest.MonkeyPatch) -> None:
    from bot.agent import recall
    from bot.agent.tools import search
    from bot.memory.index.queries import FileReader

    def everything(self: FileReader, _partitions: Any) -> Any:
        names = [str(row[0]) for row in self._run("SELECT name FROM memory_partitions")]
        return scope(self, names)

    scope = FileReader.scope
    patch.setattr(FileReader, "scope", everything)
    for module in (recall, search):
        patch.setattr(module, "may_see", lambda _view, _hit: True)


def later_messages_recall_what_is_the_owners(patch: pytest.MonkeyPatch) -> None:
    from bot.agent.recall import Recaller

    def leaky(self: Recaller, view: MemoryView, session: Any, words: str, *more: Any) -> Any:
        owners = replace(view, space=MAIN_SPACE) if more[-1].texts and view.private else view
        return whole(self, owners, session, words, *more)

    whole = Recaller.recall
    patch.setattr(Recaller, "recall", leaky)


def rows_are_searched_everywhere(patch: pytest.MonkeyPatch) -> None:
    from bot.agent import recall
    from bot.agent.tools import search
    from bot.memory.index.shared_rows import RowReader

    def everything(self: RowReader, tx: Any, _partitions: Any) -> Any:
        names = [str(row[0]) for row in tx.execute("SELECT name FROM memory_partitions")]
        return scope(self, tx, names)

    scope = RowReader._scope
    patch.setattr(RowReader, "_scope", everything)
    for module in (recall, search):
        patch.setattr(module, "may_see", lambda _view, _hit: True)


def names_lead_anywhere(patch: pytest.MonkeyPatch) -> None:
    from bot.memory import layout

    def leaky(_view: MemoryView, path: str, **_known: object) -> str:
        return "/".join(part for part in path.split("/") if part not in {"", ".", ".."})

    patch.setattr(layout, "resolve", leaky)


def links_are_followed(patch: pytest.MonkeyPatch) -> None:
    import os

    from bot.memory import note_store

    for name in ("_FOLDER_FLAGS", "_READ_FLAGS"):
        patch.setattr(note_store, name, getattr(note_store, name) & ~os.O_NOFOLLOW)


def transcripts_are_searched_as_a_whole(patch: pytest.MonkeyPatch) -> None:
    from bot.storage.sqlite_sql import SqliteTransaction

    search = SqliteTransaction.search_text

    def leaky(self: SqliteTransaction, query: str, limit: int, *_: object) -> Any:
        keys = [str(row[0]) for row in self.execute("SELECT DISTINCT key FROM sessions")]
        return search(self, query, limit, keys)

    patch.setattr(SqliteTransaction, "search_text", leaky)


def everybody_shares_one_conversation(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import routing

    patch.setattr(routing, "session_key", lambda *_args: "agent:main:main")


def one_prefix_for_all_views(patch: pytest.MonkeyPatch) -> None:
    from bot.agent import session_cache

    patch.setattr(session_cache, "name_of", lambda _view: "")


def histories_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    from bot.gateway import gateway
    from bot.sessions import store

    history_of = gateway.history_of

    def leaky(tx: Any, key: str, address: Any, limit: int, before: str = "") -> Any:
        newest = store.SESSIONS.first(tx, "turns > 0", order="last_user_at DESC, id DESC")
        if newest is not None:
            key, address = newest.key, newest.address
        return history_of(tx, key, address, limit, before)

    patch.setattr(gateway, "history_of", leaky)


def a_log_quotes(patch: pytest.MonkeyPatch) -> None:
    from bot.agent.tools.toolbox import Toolbox

    run = Toolbox.run

    async def leaky(self: Toolbox, use: Any, context: Any, **more: Any) -> Any:
        logging.getLogger("aiohttp.client").debug("asked %s with %s", use.name, use.input)
        return await run(self, use, context, **more)

    patch.setattr(Toolbox, "run", leaky)


def a_page_tells_more(patch: pytest.MonkeyPatch) -> None:
    from bot.dashboard.server import MemoryPages

    async def leaky(self: MemoryPages, request: web.Request) -> web.Response:
        found = await self._memory.index.search(
            request.query["q"], ("people/ada", *_people(self)), 50
        )
        return web.json_response([hit.snippet for hit in found.hits])

    def _people(self: MemoryPages) -> Iterator[str]:
        workspace = self._memory.store.root  # type: ignore[attr-defined]
        return (f"people/{path.name}" for path in (workspace / "people").iterdir())

    patch.setattr(MemoryPages, "_search", leaky)


def rooms_overhear_each_other(patch: pytest.MonkeyPatch) -> None:
    from bot.gateway.admission import Overheard

    hear, take = Overheard.hear, Overheard.take
    patch.setattr(Overheard, "hear", lambda self, _key, inbound: hear(self, "", inbound))
    patch.setattr(Overheard, "take", lambda self, _key: take(self, ""))


def topics_are_one_conversation(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import routing

    key = routing.session_key
    patch.setattr(
        routing,
        "session_key",
        lambda config, inbound, *seat: key(config, replace(inbound, thread=""), *seat),
    )


def servers_share_their_rooms(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import view

    patch.setattr(view, "room_name", lambda channel, _account, chat: f"{channel}-{chat}")


def people_bring_their_memory_into_rooms(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    view_for = conversation.view_for

    def leaky(config: Any, subject: Any, **known: Any) -> MemoryView:
        return view_for(config, replace(subject, chat_type="direct"), **known)

    patch.setattr(conversation, "view_for", leaky)


def bystanders_are_answered(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    patch.setattr(conversation, "addressed", lambda *_args, **_kwargs: True)


def links_join_everybody(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import conversation

    def leaky(policy: Any, books: Any, version: int = 1) -> conversation.PolicySnapshot:
        return replace(of(policy, books, version), joined=Everybodys(books.links))

    class Everybodys(dict[str, Any]):
        def __init__(self, links: Any) -> None:
            self.links = links

        def get(self, *_: Any) -> Any:
            return self.links

    of = conversation.PolicySnapshot.of
    patch.setattr(conversation.PolicySnapshot, "of", leaky)


def codes_stay_good_in_rooms(patch: pytest.MonkeyPatch) -> None:
    from bot.sessions import pairing

    patch.setattr(pairing, "typed_code", lambda _text: frozenset())


def what_was_joined_stays_joined(patch: pytest.MonkeyPatch) -> None:

    linked = ConversationResolver.linked
    patch.setattr(
        ConversationResolver,
        "linked",
        lambda self, found: linked(self, (*self.now.books.links, *found)),
    )


def own_memories_are_the_main_one(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import view

    patch.setattr(view, "agents_space", lambda _agent, space: space)


def keys_of_all_agents_are_searched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryView, "begins", ("agent:",))


def talk_of_all_agents_is_searched(patch: pytest.MonkeyPatch) -> None:
    from bot.identity import view

    partitions, agents = view.MemoryView.partitions, ("main", *(each.name for each in AGENTS))

    def leaky(self: MemoryView) -> tuple[str, ...]:
        return partitions.fget(replace(self, agents=agents))

    patch.setattr(MemoryView, "partitions", property(leaky))


SEEN_AT_ONCE: tuple[Break, ...] = (
    everybody_is_ada,
    folders_are_for_everybody,
    private_files_come_without_a_view,
    searches_look_everywhere,
    later_messages_recall_what_is_the_owners,
    names_lead_anywhere,
    links_are_followed,
    transcripts_are_searched_as_a_whole,
    everybody_shares_one_conversation,
    one_prefix_for_all_views,
    a_log_quotes,
)
SEEN_LATER: tuple[Break, ...] = (
    groups_count_as_direct,
    histories_are_not_told_apart,
    a_page_tells_more,
    rooms_overhear_each_other,
    topics_are_one_conversation,
    servers_share_their_rooms,
    people_bring_their_memory_into_rooms,
    bystanders_are_answered,
    links_join_everybody,
    codes_stay_good_in_rooms,
    what_was_joined_stays_joined,
)
# Rooms see nothing by default: for these there must be something to see.
OPEN_ROOMS = frozenset({servers_share_their_rooms, people_bring_their_memory_into_rooms})


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaky", sample(SEEN_AT_ONCE, SEEN_LATER), ids=lambda leaky: leaky.__name__
)
async def test_a_leak_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaky: Break):
    setting = Setting(owner=("memory:boss",), embedder="hash")
    if leaky is one_prefix_for_all_views:  # conversations several people share
        setting = replace(setting, dm_scope="main")
    if leaky in OPEN_ROOMS:
        setting = replace(setting, scope=Rules("allow", ()))
    leaky(monkeypatch)
    with pytest.raises(Leak):
        await take_the_tour(tmp_path, setting)


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaky", [rows_are_searched_everywhere, names_lead_anywhere], ids=lambda leaky: leaky.__name__
)
async def test_a_leak_of_rows_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, leaky: Break
):
    leaky(monkeypatch)
    with pytest.raises(Leak):
        await take_the_tour(
            tmp_path, Setting(owner=("memory:boss",), embedder="hash"), postgres_url
        )


@pytest.mark.proof
@pytest.mark.parametrize("notes", ["files", "rows"])
@pytest.mark.parametrize(
    "leaky",
    [
        own_memories_are_the_main_one,
        keys_of_all_agents_are_searched,
        talk_of_all_agents_is_searched,
    ],
    ids=lambda leaky: leaky.__name__,
)
async def test_a_leak_between_agents_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, leaky: Break, notes: str
):
    leaky(monkeypatch)
    with pytest.raises(Leak):
        await take_the_tour(tmp_path, SEVERAL, postgres_url if notes == "rows" else "")
