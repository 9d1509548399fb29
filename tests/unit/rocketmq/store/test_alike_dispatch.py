"""Records that are alike, taken together: queues and index have of them what they have of each taken alone."""

from __future__ import annotations

import dataclasses
import random

import pytest

from support.message_stores import HOST, SMALL, Shelf
from tallystick.codec.implementation import is_compiled
from tallystick.errors import DiskFull
from tallystick.rocketmq.store import keys
from tallystick.rocketmq.store.alike_dispatch import AlikeDispatch, Dispatched
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.reput import RECORD_COST_BYTES
from tallystick.rocketmq.store.values import PutRequest

INDEXED = dataclasses.replace(SMALL, index_entries=4096)
SINK = b"TALLY_SINK\x01app q 0 2 1 7 00000000 b0\x02"
OTHERS = (b"TAGS\x01a\x02", b"KEYS\x01k1 k2\x02", SINK, b"X\x01y\x02")


class Spy(AlikeDispatch):
    """Counts what it takes, or takes nothing."""

    taken_count, takes = 0, True

    def take(self, data: bytes, base: int, most: int, now_ms: int, *, hold: bool) -> Dispatched | None:
        dispatched = super().take(data, base, most, now_ms, hold=hold) if self.takes else None
        self.taken_count += dispatched.record_count if dispatched is not None else 0
        return dispatched


def spied(shelf: Shelf) -> Spy:
    reput = shelf.store._reput
    spy = reput._alike = Spy(reput._hashes, reput._queues, reput._index)
    return spy


def requests(chance: random.Random, number: int) -> list[PutRequest]:
    """Mostly of one topic and alike."""
    put_requests = []
    for at in range(chance.randrange(1, 6)):
        contents = []
        for member in range(chance.choice((1, 1, 3, 8))):
            properties = b"WAIT\x01true\x02UNIQ_KEY\x01%032X\x02R\x01r\x02" % (number << 20 | at << 10 | member)
            more = chance.choice(OTHERS) if chance.random() < 0.05 else b""
            contents.append((0, chance.randbytes(chance.randrange(1, 60)), properties + more))
        topic = "Topic" if chance.random() < 0.9 else "Other"
        flag = 4 if chance.random() < 0.02 else 0
        put_requests.append(PutRequest(topic, chance.randrange(3), contents, 5, HOST, flag))
    return put_requests


def outcome(seed: int, *, slave: bool, together: bool) -> tuple[object, int]:
    """What became of the same messages."""
    chance, shelf = random.Random(seed), Shelf(INDEXED)
    store, spy = shelf.store, spied(shelf)
    spy.takes = together
    for number in range(25):
        store.put(requests(chance, number))
        if number == 0 and slave:
            store.take_role(slave=True)
        if chance.random() < 0.05:
            store.delete_topics(["Topic"])
        for _ in range(chance.choice((0, 1, 1, 3))):
            store.reput(chance.choice((64, 700, 1 << 20, 1 << 20)))
        if chance.random() < 0.1:
            shelf.settle()
    while store.reput_offset < store.end:
        store.reput()
    ranges = {(topic, each): store.queue_range(topic, each) for topic, ids in store.queues().items() for each in ids}
    units = {queue: store.queue_units(*queue, first, end) for queue, (first, end) in ranges.items()}
    hits = [store.query("Topic", f"{number << 20:032X}", 9, 0, 1 << 50) for number in range(25)]
    return (store.indexed, units, hits, store._reput.last_ms, store.sinks.rows()), spy.taken_count


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("slave", [False, True])
def test_queues_and_index_are_those_of_records_taken_alone(
    monkeypatch: pytest.MonkeyPatch, seed: int, slave: bool
) -> None:
    monkeypatch.setattr(keys, "is_compiled", lambda: True)  # in Python too, by the same function
    monkeypatch.setattr(keys, "_FEW", 1)
    together, taken_count = outcome(seed, slave=slave, together=True)
    alone, _ = outcome(seed, slave=slave, together=False)
    assert together == alone, seed
    assert taken_count > 20, seed


def plain(number: int, queue_id: int = 0) -> PutRequest:
    properties = b"WAIT\x01true\x02UNIQ_KEY\x01%032X\x02" % number
    return PutRequest("Topic", queue_id, [(0, b"body", properties)], 5, HOST)


def test_in_python_nothing_is_taken_together() -> None:
    """It would take longer."""
    shelf = Shelf(INDEXED)
    spy = spied(shelf)
    for number in range(3):
        shelf.store.put([plain(number)])
        shelf.store.reput()
    assert spy.taken_count == (2 if is_compiled() else 0)


@pytest.mark.parametrize("full", [(ConsumeQueue, "write"), (Index, "put")])
def test_a_full_disk_stops_it_and_nothing_comes_twice(monkeypatch: pytest.MonkeyPatch, full: tuple[type, str]) -> None:
    monkeypatch.setattr(keys, "is_compiled", lambda: True)
    monkeypatch.setattr(keys, "_FEW", 1)
    shelf = Shelf(INDEXED)
    store, spy = shelf.store, spied(shelf)
    store.put([plain(number, number % 2) for number in range(4)])
    store.reput()
    store.put([plain(number, number % 2) for number in range(4, 8)])
    kind, name = full
    work, calls = getattr(kind, name), list[object]()

    def failing(*args: object, **kwargs: object) -> None:
        calls.append(args)
        if len(calls) == (2 if kind is ConsumeQueue else 1):
            raise DiskFull("no room")
        work(*args, **kwargs)

    monkeypatch.setattr(kind, name, failing)
    assert store.reput() == []
    assert store.refusal == "the disk is full"
    while store.reput_offset < store.end:
        store.reput()
    assert store.refusal is None
    assert [store.queue_range("Topic", queue_id) for queue_id in (0, 1)] == [(0, 4), (0, 4)]
    assert [len(store.query("Topic", f"{number:032X}", 9, 0, 1 << 50)) for number in range(8)] == [1] * 8
    assert spy.taken_count == 0
    store.put([plain(8)])
    store.reput()
    assert spy.taken_count == 1


@pytest.fixture
def taken_alike(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """Whose next messages are taken together: one was there before."""
    monkeypatch.setattr(keys, "is_compiled", lambda: True)
    monkeypatch.setattr(keys, "_FEW", 1)
    shelf = Shelf(dataclasses.replace(INDEXED, commit_log_file_bytes=1 << 20))
    shelf.store.put([plain(0)])
    shelf.settle()
    return shelf


def test_one_call_takes_no_more_of_them_than_of_others(taken_alike: Shelf) -> None:
    """A broker dispatches between other requests: a call has a bound of records, however short they are."""
    store, spy = taken_alike.store, spied(taken_alike)
    store.put([plain(number) for number in range(1, 101)])
    counts = []
    while store.reput_offset < store.end:
        before = store.queue_range("Topic", 0)[1]
        store.reput(10 * RECORD_COST_BYTES)
        counts.append(store.queue_range("Topic", 0)[1] - before)
    assert counts == [10] * 10 and spy.taken_count == 100


def test_a_checkpoint_knows_when_the_last_of_them_was_stored(taken_alike: Shelf) -> None:
    spy = spied(taken_alike)
    taken_alike.clock.ms += 5000
    taken_alike.store.put([plain(1)])
    taken_alike.clock.ms += 5000
    taken_alike.store.put([plain(2)])
    taken_alike.store.reput()
    assert (spy.taken_count, taken_alike.store._reput.last_ms) == (2, taken_alike.clock.ms)


def test_who_waits_is_told_of_all_of_them(taken_alike: Shelf) -> None:
    spy = spied(taken_alike)
    taken_alike.store.put([plain(number) for number in range(1, 4)])
    [arrival] = taken_alike.store.reput()
    assert spy.taken_count == 3
    assert (arrival.topic, arrival.queue_id, arrival.next_offset, len(arrival.tags)) == ("Topic", 0, 4, 3)


def test_dispatch_that_goes_on_with_them_stands_still_no_more(
    taken_alike: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a broker would try again once a second instead of at once."""
    store, spy = taken_alike.store, spied(taken_alike)
    store.put([plain(1)])

    def full(*_: object, **__: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as filled:
        filled.setattr(ConsumeQueue, "write", full)
        store.reput()
        refusals = [store.refusal]
    store.reput()
    assert [*refusals, store.refusal] == ["the disk is full", None]
    assert spy.taken_count == 1


def test_a_checkpoint_has_their_units(taken_alike: Shelf) -> None:
    """What it says is dispatched is not dispatched again after a crash."""
    spy = spied(taken_alike)
    taken_alike.store.put([plain(1), plain(2)])
    taken_alike.settle()
    assert spy.taken_count == 2
    taken_alike.disk.kill()
    store = taken_alike.open()
    store.reput()
    assert store.queue_range("Topic", 0) == (0, 3)
    assert len(taken_alike.bodies()) == 3
