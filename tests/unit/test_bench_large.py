"""The store that the benchmark of large ones writes is one the program might have left."""

from __future__ import annotations

from bench.large import Costs, report
from bench.large_store import FIRST_CHAT, build
from bot.clock import DAY_MS
from bot.identity.routing import OWNER
from bot.recovery import TRANSCRIPTS, open_database
from bot.sessions import browsing, store
from bot.sessions.mirror import Mirror
from bot.sessions.transcript_files import path_of

NOW = 1_790_000_000_000


async def test_a_written_store_is_whole_and_listed_and_found(tmp_path):
    built = await build(tmp_path, 40, 403, NOW)
    database = await open_database(tmp_path, lambda: NOW)
    try:
        sessions = await database.read(store.all_sessions)
        assert sum(each.entry_count for each in sessions) == 403
        assert len(sessions) == len({each.id for each in sessions}) == 40
        mirror = Mirror(database, tmp_path / TRANSCRIPTS)
        assert await mirror.repair() == 0
        kept = {
            each.id: path_of(tmp_path / TRANSCRIPTS, each.id).read_text("utf-8")
            for each in sessions
        }
        for each in sessions:
            lines = await database.read(lambda tx, id_=each.id: store.lines(tx, id_))
            assert kept[each.id] == "".join(f"{line}\n" for line in lines)
        assert built.transcripts == sum(map(len, kept.values()))
        for person in (OWNER, f"telegram:{FIRST_CHAT}"):
            found = await database.read(lambda tx, who=person: browsing.listed(tx, [who], 20))
            assert len(found) == 4
            assert all(each.opening for each in found)
        current = await database.read(store.pointers)
        assert [each.ended_by for each in sessions].count("") == len(current)
        words = found[0].opening.split()[0]
        hits = await database.read(lambda tx: tx.search_text(words, 5, (), [person]))
        assert hits
        assert max(each.last_user_at for each in sessions) < NOW - 30 * DAY_MS
    finally:
        await database.close()


def test_each_cost_is_told_beside_that_of_the_empty_store():
    empty, large = Costs(*[1.0] * 9), Costs(*[2.5] * 9)
    said = report(empty, large, "many")
    assert said.count("| 2.50 |") == 9
    assert "| resident | 1 MB | 2 MB | 2.50 |" in said
