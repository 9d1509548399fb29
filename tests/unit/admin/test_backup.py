"""Backups of metadata in SQLite: what a restored cluster has, and which ids it gives."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import until
from support.watched import METADATA
from tallystick import sync
from tallystick.admin import cluster, repair
from tallystick.admin.backup import backup, restore
from tallystick.admin.dev import DevCluster
from tallystick.admin.reconcile import Confirmation, reconcile
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire import cookie
from tallystick.bookkeeper.wire.cookie import Cookie
from tallystick.errors import MetadataError, UsageError

ROWS = [b"%d" % number for number in range(20)]
STREAM = "t/n/persistent/s"


@pytest.fixture
async def uri(tmp_path: Path) -> str:
    """A cluster that has no bookies."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    await cluster.init(uri)
    return uri


async def make_ledgers(uri: str, count: int) -> list[int]:
    driver = await open_driver(uri)
    ledgers = [(await driver.create_ledger(METADATA)).value for _ in range(count)]
    await driver.close()
    return ledgers


def damaged_copies(folder: Path, copy: str) -> Iterator[str]:
    damaged = folder / "damaged.db"
    for content in (b"", b"text", Path(copy).read_bytes()[:5000]):
        damaged.write_bytes(content)
        yield str(damaged)


def assert_nothing_goes_until_confirmed(uri: str, since: list[int]) -> None:
    """Bookies say what the metadata lacks, which is kept, and an operator confirms."""

    async def all_have_said() -> bool:
        found = await reconcile(uri)
        return found is not None and not found.unheard

    asyncio.run(until(all_have_said, pause=0.05))
    assert not asyncio.run(repair.cluster_status(uri)).is_well
    found = asyncio.run(reconcile(uri))
    assert found is not None and found.restored.epoch == 1 and found.restored.streams == (STREAM,)
    lacking = {ledger for run in found.lacking for ledger in range(run.first, run.last + 1)}
    assert set(since) <= lacking and all(run.is_kept for run in found.lacking)
    confirmed = asyncio.run(reconcile(uri, confirmation=Confirmation("op@host", found.code)))
    assert confirmed is not None and confirmed.restored.confirmed_ms is not None
    assert asyncio.run(repair.cluster_status(uri)).is_well


@pytest.mark.real_time
def test_what_was_made_since_stays_on_the_bookies_and_no_id_is_given_twice(tmp_path: Path) -> None:
    dev, copy = DevCluster(str(tmp_path / "dev")), str(tmp_path / "copy.db")
    uri = dev.up(4).uri
    try:
        with sync.connect(uri) as bk:
            with bk.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2) as closed:
                closed.append_batch(ROWS)
            open_ledger = bk.create_ledger(ensemble=3, write_quorum=3, ack_quorum=2)
            open_ledger.append_batch(ROWS)
            with bk.open_stream(STREAM) as stream:
                stream.append(b"before")
            assert set(backup(uri, copy).ledgers) == set(bk.ledgers())
            dev.kill([open_ledger.metadata.fragments[0].bookies[0]])
            open_ledger.append_batch(ROWS)
            open_ledger.close()
            with bk.open_stream(STREAM) as stream:
                stream.append(b"after")
            since = []
            for _ in range(50):
                with bk.create_ledger(ensemble=3, write_quorum=2, ack_quorum=2) as made:
                    made.append_batch(ROWS[:2])
                since.append(made.id)
            before = set(bk.ledgers())
        with pytest.raises(UsageError, match="in use"):
            restore(uri, copy, do=True)
        dev.down()
        plan = restore(uri, copy)
        assert set(since) <= set(plan.lost_ledgers) and open_ledger.id in plan.open_ledgers
        assert plan.streams == (STREAM,) and not plan.unknown and len(plan.highest) == 4
        assert max(plan.highest.values()) == max(before) < plan.next_ledger
        done = restore(uri, copy, do=True)
        assert done.done and done.aside is not None
        dev.up()
        assert_nothing_goes_until_confirmed(uri, since)
        with sync.connect(uri) as bk:
            assert closed.id in bk.ledgers() and not set(since) & set(bk.ledgers())
            for ledger, rows in ((closed.id, ROWS), (open_ledger.id, ROWS + ROWS)):
                with bk.open_ledger(ledger, recover=True) as reader:
                    assert [bytes(entry.data) for entry in reader] == rows
            with bk.create_ledger(ensemble=3, write_quorum=2, ack_quorum=2) as made:
                made.append(b"new")
            assert made.id > max(before)
        dev.down()
        restore(uri, done.aside, do=True)
        dev.up()
        held = asyncio.run(reconcile(uri))
        assert held is not None and held.restored.epoch == 2, "the newer file was restored, too"
        with sync.connect(uri) as bk:
            for ledger in since:
                with bk.open_ledger(ledger) as reader:
                    assert [bytes(entry.data) for entry in reader] == ROWS[:2], "nothing of it was deleted"
    finally:
        dev.down(delete=True)


async def test_a_backup_is_for_its_owner_alone_and_overwrites_nothing(uri: str, tmp_path: Path) -> None:
    ledgers, copy = await make_ledgers(uri, 3), str(tmp_path / "copy.db")
    content = backup(uri, copy)
    assert sorted(content.ledgers) == ledgers and content.next_ledger == 3
    assert os.stat(copy).st_mode & 0o777 == 0o600 and sorted(os.listdir(tmp_path))[0] == "copy.db"
    with pytest.raises(UsageError, match="overwrites none"):
        backup(uri, copy)
    with pytest.raises(UsageError, match="only metadata in SQLite"):
        backup("zk://127.0.0.1:1/ledgers", str(tmp_path / "other"))


async def test_ids_go_on_above_those_that_the_newer_file_gave(uri: str, tmp_path: Path) -> None:
    await make_ledgers(uri, 3)
    copy = str(tmp_path / "copy.db")
    backup(uri, copy)
    later = await make_ledgers(uri, 5)
    assert restore(uri, copy).lost_ledgers == tuple(later)
    assert (await make_ledgers(uri, 1)) == [8], "which changed nothing"
    restore(uri, copy, do=True)
    assert (await make_ledgers(uri, 1)) == [9]
    lost = tmp_path / "metadata.db"
    lost.unlink()
    (tmp_path / "metadata.db-wal").write_bytes(b"of the lost file")
    assert not restore(uri, copy, do=True, next_ledger=2**33 + 5).compared
    assert (await make_ledgers(uri, 2)) == [2**33 + 5, 2**33 + 6]


async def test_a_bookie_that_cannot_be_asked_needs_the_operator(uri: str, tmp_path: Path) -> None:
    driver = await open_driver(uri)
    folder = str(tmp_path / "nowhere")
    await driver.write_cookie("b1", cookie.encode(Cookie("b1", (folder,), (folder,), "x")), None)
    await driver.close()
    copy = str(tmp_path / "copy.db")
    backup(uri, copy)
    assert "no such folder" in restore(uri, copy).unknown["b1"]
    with pytest.raises(UsageError, match=r"b1: .*--next-ledger"):
        restore(uri, copy, do=True)
    assert restore(uri, copy, do=True, next_ledger=70).next_ledger == 70
    assert (await make_ledgers(uri, 1)) == [70]


async def test_what_is_no_backup_of_this_cluster_is_refused(uri: str, tmp_path: Path) -> None:
    other, copy = f"sqlite://{tmp_path}/other.db", str(tmp_path / "copy.db")
    await cluster.init(other)
    backup(other, copy)
    with pytest.raises(UsageError, match="of another cluster"):
        restore(uri, copy, do=True)
    for damaged in damaged_copies(tmp_path, copy):
        with pytest.raises(MetadataError):
            restore(uri, damaged, do=True)
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(MetadataError):
        restore(uri, str(tmp_path / "nothing.db"), do=True)
