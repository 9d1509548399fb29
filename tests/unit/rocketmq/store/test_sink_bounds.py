"""What a slave, or a store that is opened, learns of sinks has the bounds of what a master takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.message_stores import SMALL, Shelf
from support.sinks import identities, newest_of, put_sink
from tallystick.rocketmq.store.queue_state import QueueStateFile
from tallystick.rocketmq.store.sink_table import SinkBatch, SinkPartition, SinkTable
from tallystick.rocketmq.wire.sink_identity import SinkIdentity

ROOT = "/store"
DAY_MS = 24 * 3_600_000


def forged(shelf: Shelf, count: int, *, application: str = "stranger{}", topic: str = "Topic") -> None:
    """What a producer sends, as an original stores it."""
    for number in range(count):
        identity = SinkIdentity(application.format(number), "x", 0, 1, 0, 0, 0, "b0")
        shelf.send(b"x", topic=topic, TALLY_SINK=identity.text)


def copied(master: Shelf, slave: Shelf) -> None:
    while slave.store.end < master.store.end:
        slave.store.append_raw(slave.store.end, bytes(master.store.slice(slave.store.end, 1 << 20)))
        slave.settle()


def test_a_log_with_more_sinks_than_allowed_takes_no_place_of_those_that_are_here() -> None:
    """An original stores what anybody sends: strangers fill the table, and no more."""
    master, slave = Shelf(), Shelf(replace(SMALL, max_sink_partitions=4), seed=2, slave=True)
    put_sink(master, identities(0, 2))
    put_sink(master, identities(0, 2, partition=1))
    forged(master, 50)
    copied(master, slave)
    forged(master, 50, application="later{}")
    put_sink(master, identities(2, 2))
    put_sink(master, identities(0, 1, batch=1))
    copied(master, slave)
    for _ in range(2):
        sinks = slave.store.sinks
        assert sinks.partition_count <= 4 and sinks.count <= 4
        assert newest_of(sinks)["Topic", "app"] == ("q", 1, {0: 0}), "it has its own places"
        slave.disk.kill()
        slave.open()


def test_what_is_refused_is_said_once() -> None:
    sinks = SinkTable(replace(SMALL, max_sink_partitions=1))
    identity = SinkIdentity("a", "q", 0, 200, 0, 0, 0, "b0")

    def learn(*partitions: int) -> None:
        for partition in partitions:
            last = SinkPartition(partition, 0, 0, 0, 0, partition + 1, 0)
            sinks.learn([SinkBatch("Topic", *identity[:4], "b0", [last])], 200)

    learn(0)
    assert sinks.refusals() == 0
    learn(1, 2)
    assert [sinks.refusals(), sinks.refusals()] == [2, 0]
    learn(3)
    assert [sinks.refusals(), sinks.refused_count] == [0, 3]
    sinks.forget({"Topic": 100})
    assert sinks.refusals() == 0
    learn(104, 105)
    assert sinks.refusals() == 1, "there was room in between"


def test_the_refusal_is_an_event() -> None:
    master, slave = Shelf(), Shelf(replace(SMALL, max_sink_partitions=4), seed=2, slave=True)
    forged(master, 9)
    copied(master, slave)
    slave.settle()
    (event,) = [event for event in slave.events if event.kind == "no room for sinks"]
    assert event.fields == {"partitions": 5, "most": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"application": "a" * 1100},
        {"application": ""},
        {"application": "two words"},
        {"application": "\u00e4"},
        {"brokers": "b" * 1100},
        {"partition_count": 0},
        {"batch": -1},
        {"topic": "t" * 300},
        {"topic": "../x"},
    ],
)
def test_a_masters_table_says_nothing_that_no_message_says(change: dict[str, Any]) -> None:
    """A name server may have named a master that is none."""
    sinks = SinkTable(SMALL)
    row = SinkBatch("Topic", "app", "q", 0, 1, "b0", [SinkPartition(0, 0, 0, 0, 0, 50, 0)])
    sinks.learn([msgspec.structs.replace(row, **change)], 100)
    assert sinks.rows() == []
    sinks.learn([row], 100)
    assert sinks.rows() == [row]


def test_a_log_that_is_read_again_finds_room_where_others_were_gone() -> None:
    """Else what is long over, or deleted, takes the place of what somebody counts on."""
    settings = replace(SMALL, max_sink_partitions=2, sink_expire_days=2, file_reserved_hours=1000)
    shelf = Shelf(settings)
    forged(shelf, 2, topic="Gone")
    shelf.store.delete_topics(["Gone"]).run()
    for application in ("one", "two"):
        put_sink(shelf, [replaced(application)])
    shelf.settle()
    shelf.clock.ms += 3 * DAY_MS
    shelf.settle()
    put_sink(shelf, identities(0, 2))
    shelf.settle()
    shelf.store.close()
    state_file = QueueStateFile(shelf.disk, ROOT)
    assert state_file.state is not None
    state_file.append(state_file.state.change(sinks_end=0, removed_sinks=list(state_file.state.sinks)))
    state_file.close()
    shelf.open()
    assert newest_of(shelf.store.sinks).get(("Topic", "app")) == ("q", 0, {0: 1})


def replaced(application: str) -> SinkIdentity:
    return identities(0, 1)[0]._replace(application=application)
