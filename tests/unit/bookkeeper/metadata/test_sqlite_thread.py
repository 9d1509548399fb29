"""One thread for all clients of a file: what they share, and what waits for a lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from support.forking import in_child
from support.sqlite_faults import fail_once
from support.sqlite_stores import at, has, store_of
from support.waiting import until
from tallystick.bookkeeper.metadata import sqlite_thread
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_leases import boot_now
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import (
    LedgerExists,
    MetadataConflict,
    MetadataError,
    MetadataUnavailable,
    MetadataUncertain,
    NoSuchLedger,
    UsageError,
)

INFO = BookieInfo.at("127.0.0.1", 3181)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))
STOPPED_IN_TRANSACTION = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def stopped_writer(path: str) -> Iterator[int]:
    """A process that is stopped inside a write transaction."""
    with subprocess.Popen([sys.executable, "-c", STOPPED_IN_TRANSACTION, path]) as process:
        try:
            assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
            yield process.pid
        finally:
            process.kill()


# -- locks ------------------------------------------------------------------------------------------------------------


async def test_a_stopped_writer_costs_no_bookie_its_registration(driver: ClusterMetadata, path: str) -> None:
    bookie = ClusterMetadata(SqliteStore(path, session_timeout_s=0.2))
    registration = await bookie.register("bookie-1", INFO)
    with stopped_writer(path):
        expired = boot_now() + 3 * 0.2
        await until(lambda: boot_now() > expired)
        assert (await driver.bookies()).find("bookie-1") == INFO
        assert not registration.loss.is_set()
    await bookie.close()
    assert not (await driver.bookies()).find("bookie-1")


async def test_reads_go_on_while_changes_wait_for_a_stopped_writer(driver: ClusterMetadata, path: str) -> None:
    first = (await driver.create_ledger(METADATA)).value
    with stopped_writer(path):
        change = asyncio.ensure_future(driver.create_ledger(METADATA))
        for _ in range(3):
            await driver.read_ledger(first)
            await driver.bookies()
        assert not change.done()
    assert (await change).value == first + 1


async def test_a_change_that_waited_too_long_names_the_stopped_writer(
    driver: ClusterMetadata, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_thread, "BUSY_TIMEOUT_S", 0.1)
    with stopped_writer(path) as pid:
        outcomes = await asyncio.gather(*(driver.create_ledger(METADATA) for _ in range(3)), return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, MetadataUnavailable) and outcome.retriable and not outcome.ambiguous
        assert "locked" in str(outcome) and outcome.fields["pid"] == pid and "stopped" in outcome.fields["state"]
    assert (await driver.create_ledger(METADATA)).value == 0


async def test_a_caller_that_gave_up_keeps_no_answer_from_the_others(driver: ClusterMetadata, path: str) -> None:
    with stopped_writer(path):
        changes = [asyncio.ensure_future(driver.create_ledger(METADATA)) for _ in range(3)]
        await driver.bookies()
        changes[0].cancel()
    assert [(await change).value for change in changes[1:]] == [1, 2]


async def test_closing_waits_for_changes_that_wait(driver: ClusterMetadata, path: str) -> None:
    other = ClusterMetadata(SqliteStore(path))
    with stopped_writer(path):
        change = asyncio.ensure_future(other.create_ledger(METADATA))
        await other.bookies()
        closing = asyncio.ensure_future(other.close())
        await driver.bookies()
    await closing
    assert await driver.read_ledger((await change).value)


def test_a_file_that_exists_is_not_opened_beside_sqlite(path: str) -> None:
    """To close it would drop the locks that this process has on it."""

    async def init() -> None:
        driver = ClusterMetadata(SqliteStore(path))
        await driver.init_cluster()
        await driver.create_ledger(METADATA)
        with pytest.raises(UsageError, match="already"):
            await driver.init_cluster()
        assert (os.getpid(), os.stat(path).st_ino) in locks()
        await driver.close()

    def locks() -> list[tuple[int, int]]:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
        return [(int(fields[4]), int(fields[5].split(":")[2])) for fields in lines]

    asyncio.run(init())


# -- changes together -------------------------------------------------------------------------------------------------


async def test_changes_that_wait_together_are_one_commit(driver: ClusterMetadata, path: str) -> None:
    with stopped_writer(path):
        changes = [asyncio.ensure_future(driver.create_ledger(METADATA)) for _ in range(200)]
        await driver.bookies()
        watcher = sqlite3.connect(path)
        before = watcher.execute("PRAGMA data_version").fetchone()[0]
    assert sorted([(await change).value for change in changes]) == list(range(200))
    assert watcher.execute("PRAGMA data_version").fetchone()[0] == before + 1
    watcher.close()


async def test_a_change_that_fails_leaves_the_others_of_its_commit_alone(driver: ClusterMetadata, path: str) -> None:
    ledgers = [(await driver.create_ledger(METADATA)).value for _ in range(2)]
    with stopped_writer(path):
        work = [
            driver.write_ledger(ledgers[0], METADATA, 0),
            driver.write_ledger(ledgers[0], METADATA, 0),  # the second compare-and-set of the same version
            driver.write_ledger(99, METADATA, 0),
            driver.create_ledger(METADATA, ledgers[1]),
            driver.write_ledger(ledgers[1], METADATA, 0),
        ]
        changes = [asyncio.ensure_future(each) for each in work]
        await driver.bookies()
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    kinds = [outcome if isinstance(outcome, int) else type(outcome) for outcome in outcomes]
    assert kinds == [1, MetadataConflict, NoSuchLedger, LedgerExists, 1]
    assert [(await driver.read_ledger(ledger)).version for ledger in ledgers] == [1, 1]


async def test_updates_that_wait_together_are_few_statements(driver: ClusterMetadata, path: str) -> None:
    """Beside a loop that is busy the interpreter comes back to the thread 5 ms after each statement."""
    ledgers = [(await driver.create_ledger(METADATA)).value for _ in range(300)]
    statements: list[str] = []
    with stopped_writer(path):
        changes = [asyncio.ensure_future(driver.write_ledger(ledger, METADATA, 0)) for ledger in ledgers]
        await driver.bookies()
        connection = store_of(driver)._tree.file.connection
        assert connection is not None
        connection.set_trace_callback(statements.append)
    assert await asyncio.gather(*changes) == [1] * 300
    connection.set_trace_callback(None)
    assert sum(statement.startswith("UPDATE nodes") for statement in statements) == 1
    assert {(await driver.read_ledger(ledger)).version for ledger in ledgers} == {1}


async def test_an_update_of_a_node_that_has_an_owner_is_made_beside_the_others(
    driver: ClusterMetadata, path: str
) -> None:
    """A node with an owner is no part of the statement for those that last."""
    ledgers = [(await driver.create_ledger(METADATA)).value for _ in range(2)]
    store, owned = store_of(driver), "/owned"
    await store.change(Create(owned, b"", ephemeral=True))
    with stopped_writer(path):
        work = [driver.write_ledger(ledgers[0], METADATA, 0), store.change(Update(owned, b"1", 0))]
        changes = [asyncio.ensure_future(each) for each in (*work, driver.write_ledger(ledgers[1], METADATA, 7))]
        await driver.bookies()
    first, second, third = await asyncio.gather(*changes, return_exceptions=True)
    assert (first, second, type(third)) == (1, None, MetadataConflict)
    found = await store.get(owned)
    assert found is not None
    assert (found.data, found.version) == (b"1", 1)


@pytest.mark.parametrize(
    ("at", "rolled_back", "kind"),
    [
        ("COMMIT", False, MetadataUncertain),
        ("COMMIT", True, MetadataUncertain),
        ("UPDATE nodes", True, MetadataError),
    ],
)
async def test_changes_whose_commit_fails_fail_together(
    driver: ClusterMetadata, path: str, at: str, rolled_back: bool, kind: type[MetadataError]
) -> None:
    ledgers = [(await driver.create_ledger(METADATA)).value for _ in range(3)]
    heard: list[int] = []
    for ledger in ledgers:
        driver.watch_ledger(ledger, partial(heard.append, ledger))
    with stopped_writer(path):
        changes = [asyncio.ensure_future(driver.write_ledger(ledger, METADATA, 0)) for ledger in ledgers]
        await driver.bookies()
        fail_once(store_of(driver)._tree.file, at, rolled_back=rolled_back)
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [kind] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3, "each caller gets an error of its own"
    assert [(await driver.read_ledger(ledger)).version for ledger in ledgers] == [0, 0, 0]
    assert heard == []
    assert await driver.write_ledger(ledgers[0], METADATA, 0) == 1


# -- sharing ----------------------------------------------------------------------------------------------------------


async def test_all_clients_of_a_file_are_one_thread_and_one_poller(
    driver: ClusterMetadata, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [ClusterMetadata(SqliteStore(path)) for _ in range(500)]
    heard: set[int] = set()
    for number, other in enumerate(others):
        other.watch_bookies(partial(heard.add, number))
    assert await others[-1].instance_id() == await driver.instance_id()
    assert {store_of(other)._thread for other in others} == {store_of(driver)._thread}
    await driver.register("bookie-1", INFO)
    await until(lambda: len(heard) == 500)
    for other in others:
        await other.close()
    assert (await driver.bookies()).find("bookie-1")


async def test_a_closed_client_hears_and_asks_nothing_more(driver: ClusterMetadata, path: str) -> None:
    other, heard = ClusterMetadata(SqliteStore(path)), []
    other.watch_bookies(lambda: heard.append(1))
    await other.close()
    await other.close()
    with pytest.raises(MetadataError, match="closed"):
        await other.bookies()
    with pytest.raises(MetadataError, match="closed"):
        other.watch_bookies(lambda: None)
    await driver.register("bookie-1", INFO)
    await driver.bookies()
    assert heard == []


async def test_the_last_client_ends_the_thread(path: str) -> None:
    SqliteTree(path).make()
    for _ in range(2):
        driver = ClusterMetadata(SqliteStore(path))
        await driver.store.sync()
        await driver.close()
        assert "metadata.db-wal" not in os.listdir(os.path.dirname(path)), "the connection is closed"
        store_of(driver)._thread._thread.join(20)
        assert not store_of(driver)._thread._thread.is_alive()


async def test_what_nobody_foresaw_fails_all_calls_and_no_later_client(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those under way, those to come, and watchers hear of it; closing ends; a new client begins anew."""
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    driver, bookie, changed = ClusterMetadata(SqliteStore(path)), ClusterMetadata(SqliteStore(path)), asyncio.Event()
    await driver.init_cluster()
    other = ClusterMetadata(SqliteStore(path))
    await bookie.register("bookie-1", INFO)
    await other.register("bookie-2", INFO)
    driver.watch_bookies(changed.set)
    await driver.bookies()
    thread = store_of(driver)._thread

    def fail(calls: object) -> None:
        raise ValueError("embedded null byte")

    monkeypatch.setattr(thread, "_look", fail)  # after a change, which has its answer by then
    async with asyncio.timeout(20):
        await driver.create_ledger(METADATA)
        for _ in range(2):
            outcomes = await asyncio.gather(driver.bookies(), driver.create_ledger(METADATA), return_exceptions=True)
            for outcome in outcomes:
                assert isinstance(outcome, MetadataError) and "embedded null byte" in str(outcome)
        await changed.wait()
        assert [one.exc_type for one in told] == [ValueError]
        fresh = ClusterMetadata(SqliteStore(path))
        assert not (await fresh.bookies()).writable, "nobody looks after the registration"
        for one in (driver, fresh, bookie, other):
            with contextlib.suppress(MetadataError):
                await one.close()
    thread._thread.join(20)
    assert not thread._thread.is_alive()


async def test_a_read_that_was_taken_with_what_nobody_foresaw_fails_too_and_closing_ends(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the file cannot be closed."""
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    driver, gate = ClusterMetadata(SqliteStore(path)), threading.Event()
    await driver.init_cluster()
    await driver.bookies()  # behind all that the thread does after a change
    thread = store_of(driver)._thread
    close = thread.tree.close

    def fail(*_: object) -> None:
        raise ValueError("embedded null byte")

    def closing() -> None:
        close()
        raise ValueError("not closed")

    monkeypatch.setattr(thread, "_look", fail)
    monkeypatch.setattr(thread.tree, "close", closing)
    thread.post(gate.wait)
    asked = [asyncio.ensure_future(thread.call(lambda: "done", writes=writes)) for writes in (True, False)]
    await asyncio.sleep(0)  # both are in the queue, and are taken together
    gate.set()
    made, read = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
    assert made == "done" and isinstance(read, MetadataError)
    await asyncio.wait_for(driver.close(), 20)
    thread._thread.join(20)
    assert not thread._thread.is_alive()


async def test_a_file_that_took_the_place_of_another_is_another_cluster(driver: ClusterMetadata, path: str) -> None:
    first = await driver.instance_id()
    for name in (path, f"{path}-wal", f"{path}-shm"):
        os.rename(name, f"{name}.old")
    fresh = ClusterMetadata(SqliteStore(path))
    second = await fresh.init_cluster()
    assert await fresh.instance_id() == second != first
    assert await driver.instance_id() == first
    await fresh.close()


async def test_a_fork_beside_the_threads_of_sqlite(driver: ClusterMetadata, path: str) -> None:
    ledger, ended = (await driver.create_ledger(METADATA)).value, False

    async def load() -> None:
        while not ended:
            await asyncio.gather(*(driver.read_ledger(ledger) for _ in range(20)), driver.create_ledger(METADATA))

    loads = [asyncio.ensure_future(load()) for _ in range(3)]

    def child() -> None:
        tree = SqliteTree(path)
        assert has(tree, ledger)
        tree.close()

    try:
        for _ in range(20):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(in_child, child) == 0
    finally:
        ended = True
        await asyncio.gather(*loads)


def test_what_a_child_writes_is_safe_when_its_parent_closes(path: str) -> None:
    """The last connection of all removes the log of the file; so each process must hold SQLite's locks itself."""
    opened, closed = os.pipe(), os.pipe()

    SqliteTree(path).make()
    parent = SqliteTree(path)
    parent.change([Create(at(0))], "")
    forked = os.fork()
    if not forked:
        try:
            child = SqliteTree(path)
            assert has(child, 0)
            os.write(opened[1], b"x")
            os.read(closed[0], 1)
            child.change([Create(at(1))], "")
            os._exit(0)
        finally:
            os._exit(1)
    os.read(opened[0], 1)
    assert has(parent, 0), "the parent opens the file again"
    parent.close()
    os.write(closed[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert has(parent, 0, 1)
    parent.close()


async def test_watchers_hear_of_what_changed_during_a_fork(driver: ClusterMetadata, stranger: SqliteTree) -> None:
    ledger, heard = (await driver.create_ledger(METADATA)).value, []
    driver.watch_ledger(ledger, lambda: heard.append(1))
    await driver.bookies()
    assert in_child(lambda: SqliteTree(stranger.path).change([Update(at(ledger), b"x", 0)], "")) == 0
    await until(lambda: heard == [1])
