"""The blocking façade, against a cluster on a loop of its own."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from support.small_cluster import SmallCluster
from tallystick import sync
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.errors import EntryExists, LedgerFenced, NoSuchEntry, NoSuchLedger, UsageError
from tallystick.runtime.events import Event, Events
from tallystick.sync import loop as loops


def test_write_and_read(bk: sync.BookKeeper) -> None:
    with bk.create_ledger(
        3, write_quorum=2, ack_quorum=2, digest="crc32", password=b"pw", custom_metadata={"k": b"v"}
    ) as writer:
        assert writer.append(b"zero") == 0
        assert writer.append_batch([b"one", b"two"]) == range(1, 3)
        futures = [writer.append_nowait(b"%d" % number) for number in range(3, 1000)]
        writer.drain()
        assert [future.result() for future in futures] == list(range(3, 1000))
        assert [entry.data for entry in writer.read(0, 1)] == [b"zero", b"one"]
        assert (writer.lac, writer.length > 0) == (999, True)
    assert bk.ledger_metadata(writer.id).last_entry == 999
    with bk.open_ledger(writer.id, password=b"pw") as reader:
        assert (reader.is_closed, reader.last_entry, reader.refresh()) == (True, 999, 999)
        assert [entry.id for entry in reader.read(0, 999)] == list(range(1000))
        assert [entry.id for entry in reader.follow(998)] == [998, 999]
        assert reader.length == reader.metadata.length == writer.length
        with pytest.raises(NoSuchEntry):
            list(reader.read(0, 1000))
    assert list(bk.ledgers()) == [writer.id]
    assert sorted(bk.bookies().writable) == ["b0", "b1", "b2", "b3"]
    bk.delete_ledger(writer.id)
    with pytest.raises(NoSuchLedger):
        bk.open_ledger(writer.id)


def test_threads_give_the_ids_in_any_order(bk: sync.BookKeeper) -> None:
    with bk.create_ledger(entry_ids="given") as writer:
        futures = [writer.append_nowait(b"%d" % entry, entry) for entry in (2, 1, 0)]
        assert [future.result() for future in futures] == [2, 1, 0]
        assert writer.append(b"3", entry=3) == 3
        with pytest.raises(EntryExists):
            writer.append(b"again", entry=3)
        assert [entry.data for entry in writer.read(0, 3)] == [b"0", b"1", b"2", b"3"]


def test_arrow_batches(bk: sync.BookKeeper) -> None:
    pytest.importorskip("pyarrow")
    with bk.create_ledger() as writer:
        writer.append_batch([b"x" * number for number in range(100)])
    with bk.open_ledger(writer.id) as reader:
        batches = list(reader.read_arrow(0, 99, columns=["entry", "payload"], batch_rows=40))
        short = list(reader.read_arrow(0, 99, batch_bytes=1000))
    assert [batch.schema.names for batch in batches] == [["entry", "payload"]] * len(batches)
    assert max(batch.num_rows for batch in batches) == 40
    assert len(short) > 4 and sum(batch.num_rows for batch in short) == 100
    assert [row for batch in batches for row in batch.column("entry").to_pylist()] == list(range(100))


def test_recovery_and_the_fenced_writer(bk: sync.BookKeeper, cluster: SmallCluster) -> None:
    writer = bk.create_ledger()
    writer.append(b"x")
    events: list[Event] = []
    with sync.connect(f"memory://{cluster.name}", events=Events(events.append)) as other:
        assert other.open_ledger(writer.id, recover=True).last_entry == 0
    assert "ledger closed" in [event.kind for event in events]
    with pytest.raises(LedgerFenced):
        writer.append(b"y")
    with pytest.raises(LedgerFenced):
        writer.close()
    writer.abort()


def test_an_iterator_can_be_left_early(bk: sync.BookKeeper) -> None:
    with bk.create_ledger() as writer:
        writer.append_batch([b"x"] * 2000)
    with bk.open_ledger(writer.id) as reader:
        for entry in reader.read(0, 1999):
            if entry.id == 3:
                break
        left = reader.read(0, 1999)
        assert [next(left).id, next(left).id] == [0, 1], "another one begins at its own start"
    bk.close()
    left.close()  # type: ignore[attr-defined]
    assert list(left) == []


def test_one_loop_for_each_settings_and_none_when_all_are_closed(cluster: SmallCluster) -> None:
    uri = f"memory://{cluster.name}"
    clients = [sync.connect(uri), sync.connect(uri), sync.connect(uri, settings=ClientSettings(add_timeout_s=1))]
    assert loops._loops == {}
    for client in clients:
        client.bookies()
    assert sorted(loop.users for loop in loops._loops.values()) == [1, 2]
    for client in clients:
        client.close()
        client.close()
    assert loops._loops == {}
    with pytest.raises(UsageError, match="closed"):
        clients[0].bookies()


def test_a_call_on_its_own_loop_is_refused(bk: sync.BookKeeper) -> None:
    bk.bookies()
    (loop,) = loops._loops.values()
    with pytest.raises(UsageError, match="own loop"):
        loop.call(bk.bookies)


def test_a_failed_connect_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    client = sync.connect("zk+hierarchical://127.0.0.1:1/ledgers")
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(UsageError, match="kazoo"):
        client.bookies()
    assert loops._loops == {}


def test_handles_of_a_closed_client(bk: sync.BookKeeper) -> None:
    writer = bk.create_ledger()
    bk.close()
    with pytest.raises(UsageError):
        writer.append(b"x")


def test_several_threads_share_a_writer(bk: sync.BookKeeper) -> None:
    with bk.create_ledger() as writer:
        got: list[int] = []
        threads = [
            threading.Thread(target=lambda: got.extend(writer.append(b"x") for _ in range(20))) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == list(range(100))


def test_handles_of_another_process_are_refused(bk: sync.BookKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = bk.create_ledger()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(UsageError, match="another process"):
            writer.append(b"x")
    assert writer.append(b"x") == 0
