"""For all tests: Hypothesis's profiles, and in CI a skipped test is a failed one."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import settings
from structlog.dev import plain_traceback
from structlog.testing import capture_logs

from bot import plugins
from bot.storage import Database, sqlite
from bot.storage.sqlite import SqliteDatabase
from bot.storage.sqlite_sql import SqliteTransaction
from tests.fakes import empty_database
from tests.proofs.rounds import rounds

if TYPE_CHECKING:
    from bot.memory.embed.multilingual import SentenceEncoder

IN_CI = os.environ.get("CI", "") not in {"", "0", "false"}

EXAMPLES = rounds(100, few=25)
settings.register_profile(
    "ci", derandomize=True, print_blob=True, deadline=None, max_examples=EXAMPLES
)
settings.register_profile("dev", deadline=None, max_examples=EXAMPLES)
settings.load_profile("ci" if IN_CI else "dev")

# Without a configuration a traceback is drawn with all variables, which takes tenths of a second.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain_traceback),
    ]
)

SLOW_SECONDS = 600  # a proof takes a minute here, and may run where it is much slower

Reports = Generator[None, pytest.TestReport, pytest.TestReport]
CollectReports = Generator[None, pytest.CollectReport, pytest.CollectReport]


gc.disable()  # until all tests are collected: what is made until then stays


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(2_000, 20, 50)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if os.environ.get("PROOF_TIMES"):
            item.add_marker(pytest.mark.timeout(0), append=False)
        elif item.get_closest_marker("slow") or item.get_closest_marker("proof"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Reports:
    report = yield
    if IN_CI and (report.skipped or hasattr(report, "wasxfail")):
        report.outcome = "failed"
        report.longrepr = (
            f"skipped or expected to fail, which CI does not accept: {report.longrepr}"
        )
        vars(report).pop("wasxfail", None)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> CollectReports:
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped as a whole, which CI does not accept: {report.longrepr}"
    return report


@cache
def _read_once(_folders: tuple[tuple[str, int], ...], group: str) -> EntryPoints:
    return entry_points(group=group)


def _entry_points(group: str) -> EntryPoints:
    """What packages bring, read again only when one was installed or the path is another."""
    found = ((each, Path(each or ".")) for each in sys.path)
    seen = tuple((each, path.stat().st_mtime_ns) for each, path in found if path.exists())
    return _read_once(seen, group)


@pytest.fixture(scope="session", autouse=True)
def _packages_are_read_once() -> Iterator[None]:
    """To read what hundreds of packages bring takes as long as all else of a start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.plugins.entry_points", _entry_points)
        yield


@pytest.fixture(autouse=True)
def _no_package_has_failed() -> None:
    """What a test's packages did is nothing to the next one."""
    plugins._failing.clear()


@pytest.fixture(scope="session")
def postgres_admin_url() -> Iterator[str]:
    """A PostgreSQL server where databases can be made; it starts with the first test that asks."""
    from tests.fakes import postgres

    with postgres.a_server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_admin_url: str) -> Iterator[str]:
    """The name of a database there with all tables: to copy them is ten times as fast."""
    from tests.fakes import postgres

    with postgres.a_template(postgres_admin_url) as name:
        yield name


@pytest.fixture(scope="session")
def aimock_url() -> Iterator[str]:
    """Where aimock answers, the same one for all tests."""
    from tests.fakes import aimock

    with aimock.running() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_admin_url: str, postgres_template: str) -> Iterator[str]:
    """A PostgreSQL database of the test's own, with all tables and nothing in them."""
    from tests.fakes import postgres

    with postgres.a_database(postgres_admin_url, postgres_template) as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_admin_url: str) -> Iterator[str]:
    """A PostgreSQL database of the test's own in which nothing was made."""
    from tests.fakes import postgres

    with postgres.a_database(postgres_admin_url) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def _new_databases_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with empty_database.copied_from(tmp_path_factory.mktemp("empty") / "confidant.db"):
        yield


@pytest.fixture
def tx(tmp_path: Path) -> Iterator[SqliteTransaction]:
    """A transaction on a new database in a file, for what takes no turn on a writer."""
    connection = sqlite._connect_and_migrate(tmp_path / "confidant.db")
    yield SqliteTransaction(connection)
    connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def each_database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A new database of either engine: what is tested on it holds on both."""
    if request.param == "sqlite":
        database: Database = await SqliteDatabase.open(tmp_path / "confidant.db")
    else:
        from bot.storage.postgres import PostgresDatabase

        database = await PostgresDatabase.open(request.getfixturevalue("postgres_url"))
    yield database
    await database.close()


@pytest.fixture
async def closing() -> AsyncIterator[Callable[[Any], Any]]:
    """Has what it is given closed at the end of the test, and gives it back."""
    async with AsyncExitStack() as stack:

        def close(thing: Any) -> Any:
            stack.push_async_callback(thing.close)
            return thing

        yield close


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What is logged from the beginning of the test."""
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def logs_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests that run a command in this process: it sets up no logging, which would last.

    Nothing is printed meanwhile either: a command's output is its own.
    """
    monkeypatch.setattr("bot.logs.configure", lambda _config: None)
    with capture_logs():
        yield


@pytest.fixture(autouse=True)
def _logging_is_nobodys() -> Iterator[None]:
    """A test that sets up logging for good takes the logs from all that come after it: it fails."""
    yield
    assert not structlog.get_config()["cache_logger_on_first_use"], "logging was set up: logs_stay"


@pytest.fixture(scope="session")
def embedder_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the built-in embedder keeps its table, which takes a second to make."""
    return tmp_path_factory.mktemp("embedder")


@pytest.fixture(scope="session")
def sentence_encoder(embedder_cache: Path) -> SentenceEncoder:
    """The built-in model, which takes half a second to load."""
    from bot.memory.embed import multilingual

    return multilingual.load(embedder_cache)


@pytest.fixture
def built_in_embedder(sentence_encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in this process have the built-in embedder, which is loaded already."""
    loaded = lambda *_given: sentence_encoder  # noqa: E731
    monkeypatch.setattr("bot.memory.embed.multilingual.load", loaded)
