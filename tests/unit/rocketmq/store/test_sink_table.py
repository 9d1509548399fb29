"""How far sinks have come, by all that may happen to the log that says so."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.message_stores import SMALL, Shelf
from support.sinks import identities, is_stored, newest_in, newest_of, put_sink
from tallystick.rocketmq.broker.sink_requests import PAGE_PARTITIONS, SinkPages
from tallystick.rocketmq.store.queue_state import QueueStateFile, read_queue_state
from tallystick.rocketmq.store.sink_table import SinkState, SinkTable
from tallystick.rocketmq.wire.sink_identity import SinkIdentity

ROOT = "/store"
DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("seed", range(12))
def test_the_table_says_what_the_log_says_whatever_happens_to_it(seed: int) -> None:
    """A message that is taken for stored and is not in the log is lost; one that is there and is not known is stored
    twice."""
    chance, shelf = random.Random(seed), Shelf(seed=seed)
    sent: dict[int, int] = {}  # by partition
    batch = 0
    for _ in range(150):
        match chance.choice(["sink"] * 6 + ["other"] * 3 + ["batch", "flush", "reput", "maintain", "end", "settle"]):
            case "sink":
                partition, count = chance.randrange(3), chance.randrange(1, 4)
                some = identities(sent.get(partition, -1) + 1, count, batch=batch, partition=partition, partitions=3)
                if is_stored(put_sink(shelf, some)):
                    sent[partition] = some[-1].sequence
            case "other":
                shelf.send(b"x" * chance.randrange(200), topic=chance.choice(["Topic", "Other"]))
            case "batch":
                batch, sent = batch + 1, {}
            case "flush":
                shelf.store.flush()
            case "reput":
                shelf.store.reput()
            case "maintain":
                shelf.store.maintain(shelf.clock.ms)
            case "settle":
                shelf.settle()
            case _:
                end = chance.choice(["kill", "power", "stop"])
                if end == "stop":
                    shelf.store.close()
                else:
                    shelf.disk.kill() if end == "kill" else shelf.disk.power_loss()
                shelf.open()
                state = read_queue_state(shelf.disk, ROOT)
                assert 0 <= state.sinks_end <= shelf.store.end, "nothing is noted that the log may lack"
                _, batch, sent = newest_of(shelf.store.sinks).get(("Topic", "app"), ("", batch, {}))
        assert newest_of(shelf.store.sinks) == newest_in(shelf)


def test_what_power_loss_took_is_not_taken_for_stored() -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 3))
    shelf.settle()
    put_sink(shelf, identities(3, 3))
    shelf.store.reput()
    for _ in range(3):
        shelf.store.maintain(shelf.clock.ms)  # the log is not synced: no checkpoint may speak of it
    durable = shelf.store.flushed
    shelf.disk.power_loss()
    shelf.open()
    assert durable <= shelf.store.end
    assert newest_of(shelf.store.sinks) == newest_in(shelf)


def test_a_table_that_knows_more_than_the_log_is_made_again_from_the_log() -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 3))
    shelf.settle()
    shelf.store.close()
    state_file = QueueStateFile(shelf.disk, ROOT)
    assert state_file.state is not None
    (row,) = state_file.state.sinks.values()
    (last,) = row.partitions
    ahead = msgspec.structs.replace(last, sequence=9, end=last.end + 100)
    state_file.append(state_file.state.change(sinks=[msgspec.structs.replace(row, partitions=[ahead])]))
    state_file.close()
    shelf.open()
    assert newest_of(shelf.store.sinks) == newest_in(shelf)
    shelf.send(b"x" * 200)
    for _ in range(2):
        shelf.settle()  # what was noted is not believed later either, when the log is longer
        shelf.disk.kill()
        shelf.open()
        assert newest_of(shelf.store.sinks) == newest_in(shelf)


def test_what_comes_is_known_though_the_table_was_noted_for_a_longer_log() -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 3))
    shelf.settle()
    shelf.store.close()
    state_file = QueueStateFile(shelf.disk, ROOT)
    assert state_file.state is not None
    state_file.append(state_file.state.change(sinks_end=state_file.state.sinks_end + 2000))
    state_file.close()
    shelf.open()
    put_sink(shelf, identities(3, 3))
    shelf.send(b"x" * 900, b"x" * 900, b"x" * 900)
    shelf.disk.kill()
    shelf.open()
    assert newest_of(shelf.store.sinks) == newest_in(shelf)


def test_a_table_that_is_lost_is_made_again_from_the_log() -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 3))
    shelf.settle()
    shelf.store.close()
    shelf.disk.unlink(f"{ROOT}/tally-queues")
    shelf.open()
    assert newest_of(shelf.store.sinks) == newest_in(shelf)


def test_a_slave_learns_of_what_it_copies_and_knows_it_as_a_master() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 5))
    put_sink(master, identities(0, 2, partition=1))
    master.send(b"other", topic="%RETRY%G", TALLY_SINK=identities(9, 1)[0].text)  # given back by a consumer
    master.send(b"another")
    data = bytes(master.store.slice(0, 1 << 20))
    slave.store.append_raw(0, data[:-3])
    slave.settle()
    assert newest_of(slave.store.sinks) == newest_of(master.store.sinks)
    slave.store.promote()
    slave.store.take_role(slave=False)
    assert newest_of(slave.store.sinks) == newest_in(slave)
    put_sink(slave, identities(5, 1))
    slave.disk.kill()
    slave.open(slave=False)
    assert newest_of(slave.store.sinks) == newest_in(slave)


def test_a_slave_that_lacks_the_end_does_not_take_it_for_stored() -> None:
    """The master's table has it, and is copied; the log of the slave does not."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2))
    copied = master.store.end
    put_sink(master, identities(2, 2))
    slave.store.append_raw(0, bytes(master.store.slice(0, copied)))
    slave.settle()
    slave.store.replicated.learn_sinks(master.store.sinks.rows())
    assert newest_of(slave.store.sinks)["Topic", "app"][2] == {0: 1}


def test_a_slave_takes_no_message_for_stored_that_it_has_not_dispatched() -> None:
    """What is not dispatched may be a part of a message, which is cut off when the slave becomes the master."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2))
    slave.store.append_raw(0, bytes(master.store.slice(0, master.store.end)))
    slave.store.replicated.learn_sinks(master.store.sinks.rows())
    assert newest_of(slave.store.sinks) == {}


def test_a_property_whose_name_ends_like_that_of_sinks_hides_none_of_their_messages() -> None:
    """Any producer may set it: what is hidden would be stored twice."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2))
    master.send(b"x", X_TALLY_SINK=identities(7, 1)[0].text)
    slave.store.append_raw(0, bytes(master.store.slice(0, master.store.end)))
    slave.settle()
    assert newest_of(slave.store.sinks) == newest_of(master.store.sinks) == {("Topic", "app"): ("q", 0, {0: 1})}


def test_a_slave_that_dies_before_it_has_dispatched_all_knows_it_later() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2))
    copied = master.store.end
    put_sink(master, identities(2, 2))
    slave.store.append_raw(0, bytes(master.store.slice(0, copied)))
    slave.settle()
    slave.store.append_raw(copied, bytes(master.store.slice(copied, master.store.end - copied)))
    slave.store.flush()
    slave.store.maintain(slave.clock.ms)
    slave.disk.kill()
    slave.open()
    assert newest_of(slave.store.sinks) == newest_of(master.store.sinks)


def test_a_slave_is_not_told_of_sinks_of_a_topic_that_is_deleted() -> None:
    """The master's table was read before the deletion, and what is deleted would be taken for stored."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2))
    rows = master.store.sinks.rows()
    slave.store.append_raw(0, bytes(master.store.slice(0, master.store.end)))
    slave.settle()
    deletion = slave.store.replicated.learn_deletions({"Topic": master.store.end})
    assert deletion is not None
    deletion.run()
    slave.store.replicated.learn_sinks(rows)
    assert newest_of(slave.store.sinks) == {}


def test_what_is_further_behind_in_the_log_is_newer_whenever_it_is_told() -> None:
    """A slave is told of messages by the log and by its master's table, which may be older or newer."""
    table = SinkTable(SMALL)

    def put(end: int, *, batch: int, sequence: int, query: str = "q", brokers: str = "b0") -> None:
        identity = SinkIdentity("app", query, batch, 1, 0, sequence, 0, brokers)
        table.put("Topic", identity, (0, sequence, end), end)

    put(200, batch=1, sequence=5, brokers="b0,b1")
    put(100, batch=0, sequence=9)
    put(180, batch=1, sequence=4)
    (row,) = table.rows()
    assert (row.batch, row.partitions[0].sequence, row.brokers) == (1, 5, "b0,b1")
    put(300, batch=1, sequence=6, brokers="b0,b1,b2")
    assert table.rows()[0].brokers == "b0,b1,b2", "all that the application may have sent to"
    put(400, batch=1, sequence=0, query="another")
    assert [(row.query, row.partitions[0].sequence) for row in table.rows()] == [("another", 0)]


def test_no_checkpoint_looks_between_the_log_and_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that all messages of the log are in the table, and one of them would be stored twice later."""
    shelf, looked = Shelf(), list[bool]()
    put, sinks = shelf.store._appender.put, shelf.store.sinks

    def appended(*arguments: Any) -> Any:
        results = put(*arguments)
        looks = threading.Thread(target=lambda: sinks.changes(lambda: shelf.store.end, 1 << 60))
        looks.start()
        looks.join(0.1)
        looked.append(not looks.is_alive())
        threads.append(looks)
        return results

    threads = list[threading.Thread]()
    monkeypatch.setattr(shelf.store._appender, "put", appended)
    put_sink(shelf, identities(0, 1))
    threads[0].join()
    assert looked == [False]


def test_a_slave_that_lacks_the_beginning_is_told_of_it() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2, partition=1))
    master.send(*[b"x" * 900] * 6)
    put_sink(master, identities(0, 2))
    begin = 4096
    slave.store.append_raw(begin, bytes(master.store.slice(begin, master.store.end - begin)))
    slave.settle()
    assert newest_of(slave.store.sinks)["Topic", "app"][2] == {0: 1}
    slave.store.replicated.learn_sinks(master.store.sinks.rows())
    assert newest_of(slave.store.sinks) == newest_of(master.store.sinks)
    slave.settle()
    slave.disk.kill()
    slave.open()
    assert newest_of(slave.store.sinks) == newest_of(master.store.sinks)


def test_a_topic_that_is_deleted_takes_its_sinks_along() -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 2))
    put_sink(shelf, identities(0, 2), topic="Other")
    shelf.settle()
    shelf.store.delete_topics(["Topic"]).run()
    assert list(newest_of(shelf.store.sinks)) == [("Other", "app")]
    shelf.store.delete_topics(["Other"]).run()  # right behind its last message
    assert not newest_of(shelf.store.sinks)
    put_sink(shelf, identities(0, 2), topic="Other")
    shelf.disk.kill()
    shelf.open()
    assert list(newest_of(shelf.store.sinks)) == [("Other", "app")]
    put_sink(shelf, identities(0, 1))
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    assert newest_of(shelf.store.sinks)["Topic", "app"][2] == {0: 0}


def test_a_sink_that_sends_nothing_for_long_is_forgotten_for_good() -> None:
    shelf = Shelf(replace(SMALL, sink_expire_days=2, file_reserved_hours=1000))
    put_sink(shelf, identities(0, 2))
    shelf.settle()
    shelf.clock.ms += DAY_MS
    shelf.settle()
    put_sink(shelf, identities(2, 1))
    shelf.clock.ms += 2 * DAY_MS - 1
    shelf.settle()
    assert shelf.store.sinks.count == 1, "its last message counts, not its first"
    shelf.clock.ms += DAY_MS
    shelf.settle()
    assert not shelf.store.sinks.count and shelf.store.sinks.room == SMALL.max_sink_partitions
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    assert not shelf.store.sinks.count


def test_another_query_or_a_later_batch_replaces_what_there_was() -> None:
    shelf = Shelf()
    for some in (identities(0, 2), identities(0, 2, partition=1), identities(0, 1, batch=1)):
        put_sink(shelf, some)
    assert newest_of(shelf.store.sinks)["Topic", "app"] == ("q", 1, {0: 0})
    assert shelf.store.sinks.room == SMALL.max_sink_partitions - 1
    put_sink(shelf, identities(0, 3, query="r"))
    assert newest_of(shelf.store.sinks)["Topic", "app"] == ("r", 0, {0: 2})


def filled(applications: int) -> SinkTable:
    table = SinkTable(SMALL)
    for number in range(applications):
        table.put("Topic", SinkIdentity(f"app{number}", "q", 0, 1, 0, 0, 0, "b0"), (0, number, number + 1), 0)
    return table


def test_a_page_costs_what_it_has_however_many_sinks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, copied, row = Shelf(), [0], SinkState.row

    def counted(state: SinkState, key: tuple[str, str]) -> object:
        copied[0] += 1
        return row(state, key)

    monkeypatch.setattr(SinkState, "row", counted)
    shelf.store.sinks = filled(3 * PAGE_PARTITIONS + 1)
    pages, place, read = SinkPages(shelf.store), 0, 0
    while True:
        copied[0] = 0
        page = pages.page(place)
        read += len(msgspec.json.decode(page.body))
        assert copied[0] <= PAGE_PARTITIONS
        if page.next is None:
            break
        place = page.next
    assert read == 3 * PAGE_PARTITIONS + 1


def test_pages_leave_out_no_sink_though_others_are_forgotten_between_them() -> None:
    """A slave that lacks one, and becomes the master, would store its messages twice."""
    shelf = Shelf()
    shelf.store.sinks = filled(PAGE_PARTITIONS + 10)
    pages = SinkPages(shelf.store)
    first = pages.page(0)
    assert first.next is not None
    shelf.store.sinks.forget({"Topic": 5})
    second = pages.page(first.next)
    read = {row[1] for page in (first, second) for row in msgspec.json.decode(page.body)}
    assert second.next is None and shelf.store.sinks.count == PAGE_PARTITIONS + 5
    assert read == {f"app{number}" for number in range(PAGE_PARTITIONS + 10)}


def test_whoever_sends_does_not_wait_while_all_sinks_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's lock is held for some of them at a time."""
    table, row = filled(5000), SinkState.row
    runs, lock = [0], threading.RLock()

    class Lock:
        def __enter__(self) -> None:
            lock.acquire()
            runs.append(0)

        def __exit__(self, *_: object) -> None:
            lock.release()

    def counted(state: SinkState, key: tuple[str, str]) -> object:
        runs[-1] += 1
        return row(state, key)

    monkeypatch.setattr(SinkState, "row", counted)
    monkeypatch.setattr(table, "lock", Lock())
    changes = table.changes(lambda: 5000, 5000)
    assert changes is not None and len(changes.rows) == 5000
    assert max(runs) <= 1024
