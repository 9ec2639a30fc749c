"""That each option of many nodes changes what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from bot.backend import Backend, open_backend
from bot.clock import system_clock
from bot.cluster.node import Node
from bot.cluster.retention import Retention
from bot.errors import StorageError
from tests.fakes.postgres import a_database
from tests.fakes.tcp_proxy import TcpProxy
from tests.support import make_config, until

Open = Callable[..., AbstractAsyncContextManager[Backend]]


@pytest.fixture
def backend(tmp_path: Path, postgres_url: str) -> Open:
    @asynccontextmanager
    async def opened(**storage: object) -> AsyncIterator[Backend]:
        config, _ = make_config(tmp_path / "folder", storage={"url": postgres_url, **storage})
        async with AsyncExitStack() as stack:
            yield await open_backend(config, system_clock, stack)

    return opened


def look(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)  # pyright: ignore[reportArgumentType]
        return cursor.fetchall() if cursor.description else []


async def test_with_a_url_everything_is_kept_there_and_nothing_in_the_folder(
    backend, tmp_path, postgres_url
):
    async with backend() as found:
        assert found.coordination.is_shared
        await found.database.write(
            lambda tx: tx.execute("INSERT INTO meta(key, value, updated_at) VALUES ('a', 'b', 1)")
        )
        assert look(postgres_url, "SELECT value FROM meta WHERE key = 'a'") == [("b",)]
    assert not (tmp_path / "folder").exists()


async def test_a_node_is_given_up_after_the_configured_time_and_not_before(backend, postgres_url):
    async with backend():
        pass  # the tables are there now
    for name, seconds in (("short", 20), ("long", 100)):
        look(
            postgres_url,
            "INSERT INTO nodes(name, beat_at, started_at, version) "
            f"VALUES ('{name}', now() - interval '{seconds} seconds', now(), '')",
        )
    silent = "SELECT name FROM nodes WHERE version = ''"
    async with backend(node_timeout=60):
        await until(lambda: ("long",) not in look(postgres_url, silent))
        assert look(postgres_url, silent) == [("short",)]
    async with backend(node_timeout=10):
        await until(lambda: not look(postgres_url, silent))


async def test_older_months_than_are_kept_are_dropped(backend, postgres_url):
    async with backend():
        pass  # the tables are there now
    this = "to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')"
    look(postgres_url, f"SELECT entries_lay_out(ARRAY['2001-01', {this}], '{{0, 10}}', 20)")
    for kept, gone in ((0, []), (12, [("2001-01",)])):
        async with backend(keep_months=kept) as found:
            owners = (getattr(work, "__self__", None) for work in found.housework)
            (retention,) = (each for each in owners if isinstance(each, Retention))
            for _ in ("told", "dropped"):
                await retention.look()
            dropped = "SELECT month FROM entry_months WHERE dropped_at IS NOT NULL"
            assert look(postgres_url, dropped) == gone


async def test_the_one_connection_that_cannot_be_pooled_goes_to_the_direct_url(
    backend, postgres_url
):
    with TcpProxy.before(postgres_url) as proxy:
        async with (
            backend(direct_url=proxy.url(postgres_url)) as found,
            found.coordination.owning("anything"),
        ):
            assert proxy.open  # more than one while that of the check at the start is being closed
            assert found.coordination.owns("anything")


async def test_a_direct_url_of_another_database_is_refused(postgres_admin_url, postgres_url):
    with (
        a_database(postgres_admin_url) as other,
        pytest.raises(StorageError, match="leads to another database than url"),
    ):
        await Node.open(postgres_url, system_clock, 2.0, direct=other)


async def test_a_direct_url_that_is_none_is_refused_without_its_password(postgres_url):
    with pytest.raises(StorageError, match="direct_url is not the URL of a PostgreSQL") as refused:
        await Node.open(postgres_url, system_clock, 2.0, direct="host=db password=very-secret x")
    assert "very-secret" not in str(refused.value)


async def test_a_direct_way_that_is_not_there_yet_is_waited_for(postgres_url):
    with TcpProxy.before(postgres_url) as proxy:
        proxy.cut()
        opening = asyncio.create_task(
            Node.open(postgres_url, system_clock, 2.0, direct=proxy.url(postgres_url))
        )
        await asyncio.to_thread(proxy.refused, 1)
        assert not opening.done()
        proxy.mend()
        await (await asyncio.wait_for(opening, 60)).close()
