"""Where queues end and what was deleted: from a master to its slave, by pages or as an original tells it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.stores import SteppingClock
from support.table_peers import PROVEN, Master, Slave
from tallystick.rocketmq.broker import queue_pages
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, TopicConfig

RUNTIME = b'{"table":{"commitLogMaxOffset":"500","commitLogMinOffset":"0","dispatchBehindBytes":"0"}}'


def told(slave: Slave) -> dict[tuple[str, int], int]:
    state = slave.shelf.store._parts.state.state
    assert state is not None
    return state.ends


@pytest.mark.rule("H12")
async def test_a_slave_learns_ends_and_deletions_in_pages(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_pages, "PAGE_ENTRIES", 2)
    slave.copy_queues()
    for number in range(5):
        master.shelf.send(*[b"m"] * (number + 1), topic=f"Topic{number}")
    slave.shelf.store.append_raw(0, bytes(master.shelf.store.slice(0, 4096)))
    slave.shelf.store.reput()
    master.shelf.store.delete_topics(["Topic1"]).run()
    assert await slave.copy(master) == {}
    assert told(slave) == {(f"Topic{number}", 0): number + 1 for number in (0, 2, 3, 4)}
    state = slave.shelf.store._parts.state.state
    assert state is not None and state.master_first == 0
    assert slave.shelf.store.queue_range("Topic1", 0) == (0, 0)
    assert slave.shelf.bodies("Topic2") == [b"m"] * 3
    assert master.asked.count(RequestCode.GET_TABLE_PAGE) >= 2


@pytest.mark.rule("H12", "H13")
async def test_h13_what_was_consumed_of_a_deleted_topic_counts_for_no_topic_of_its_name(
    master: Master, slave: Slave
) -> None:
    """A slave that copies the log from its start serves a topic's messages until it hears that they are deleted, and
    the counters of resets are here by then. Its commit would pass over messages that the new topic gets."""
    slave.copy_queues()
    for each in (master, slave):
        each.tables.topics.put(TopicConfig("Topic", 4, 4))
        each.tables.groups.put(GroupConfig("g"))
    master.shelf.send(b"m", topic="Topic")
    slave.shelf.store.append_raw(0, bytes(master.shelf.store.slice(0, 4096)))
    slave.shelf.store.reput()
    master.shelf.store.delete_topics(["Topic"]).run()
    slave.tables.offsets.commit("Topic", "g", 0, 1)
    slave.tables.offsets.commit("Other", "g", 0, 1)
    master.refuse(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert await slave.copy(master) == {}
    assert slave.tables.offsets.table().offsets == {"Other@g": {0: 1}}
    slave.tables.offsets.commit("Topic", "g", 0, 2)  # of the new topic: it stays
    assert await slave.copy(master) == {}
    assert slave.tables.offsets.table().offsets == {"Other@g": {0: 1}, "Topic@g": {0: 2}}


@pytest.mark.rule("H12")
async def test_a_slave_carries_out_what_its_master_deleted(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its disk keeps the queues' files until the next start."""
    steps: list[str] = []

    class Deletion:
        topics: tuple[str, ...] = ()

        def run(self) -> None:
            steps.append("run")

    def learned(deleted: object) -> Deletion:
        steps.append("learned")
        return Deletion()

    monkeypatch.setattr(slave.shelf.store.replicated, "learn_deletions", learned)
    slave.copy_queues()
    assert await slave.copy(master) == {}
    assert steps == ["learned", "run"]


@pytest.mark.rule("H12")
async def test_no_page_has_more_than_its_share_of_deletions(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of 140,000 in the first page fit no frame: slaves heard of none for days."""
    monkeypatch.setattr(queue_pages, "PAGE_ENTRIES", 2)
    slave.copy_queues()
    for number in range(8):
        master.shelf.send(b"m", topic=f"Topic{number}")
    slave.shelf.store.append_raw(0, bytes(master.shelf.store.slice(0, 4096)))
    for shelf in (master.shelf, slave.shelf):
        shelf.store.reput()
    gone = [f"Topic{number}" for number in range(5)]
    for topic in gone:
        master.shelf.store.delete_topics([topic]).run()
    pages, start = [], 0
    while (page := queue_pages.QueuePages(master.shelf.store).page(start)).next is not None:
        pages.append(dialect.read_as(page.body, queue_pages.QueueEndsPage))
        start = page.next
    assert all(len(page.ends) + len(page.deleted) <= 2 for page in pages)
    assert await slave.copy(master) == {}
    assert list(slave.shelf.store.replicated.deletions) == gone
    assert not any(slave.shelf.bodies(topic) for topic in gone) and slave.shelf.bodies("Topic5") == [b"m"]


@pytest.mark.rule("H12")
async def test_an_original_master_is_asked_for_each_topic(master: Master, slave: Slave) -> None:
    slave.copy_queues()
    await slave.copy(master)
    master.react[RequestCode.GET_TABLE_PAGE] = lambda command: command.response(3, " request type not supported")
    master.tables.topics.put(TopicConfig("Mine"))
    master.shelf.send(b"a", b"b", topic="Mine", queue_id=1)
    master.shelf.store.reput()
    assert await slave.copy(master) == {}
    assert told(slave)["Mine", 1] == 2


@pytest.mark.rule("H12")
async def test_an_original_master_is_asked_for_each_topic_every_half_minute_not_in_each_round(
    master: Master, slave: Slave
) -> None:
    """A round comes every ten seconds, and there may be thousands of topics."""
    clock = SteppingClock()
    slave.copy_queues(clock)
    master.become_original()
    slave.link = replace(PROVEN, proven=False, master_hello=None)
    master.react[RequestCode.GET_TABLE_PAGE] = lambda command: command.response(3, " request type not supported")
    master.react[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda command: command.response(0, body=RUNTIME)
    asked = []
    for _ in range(6):
        assert await slave.copy(master) == {}
        asked.append(master.asked.count(RequestCode.GET_TOPIC_STATS_INFO))
        clock.ms += 10_000
    topics = len(slave.tables.topics.all)
    assert asked == [topics, topics, topics, 2 * topics, 2 * topics, 2 * topics]


@pytest.mark.rule("H12")
async def test_what_an_original_master_did_not_tell_is_asked_for_in_the_next_round(
    master: Master, slave: Slave
) -> None:
    clock = SteppingClock()
    slave.copy_queues(clock)
    master.become_original()
    slave.link = replace(PROVEN, proven=False, master_hello=None)
    master.react[RequestCode.GET_TABLE_PAGE] = lambda command: command.response(3, " request type not supported")
    master.refuse(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert "queue ends" in await slave.copy(master)
    assert RequestCode.GET_TOPIC_STATS_INFO not in master.asked
    master.react[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda command: command.response(0, body=RUNTIME)
    clock.ms += 10_000
    assert await slave.copy(master) == {}
    assert RequestCode.GET_TOPIC_STATS_INFO in master.asked


@pytest.mark.rule("H12")
async def test_a_master_of_ours_tells_its_ends_in_each_round(master: Master, slave: Slave) -> None:
    slave.copy_queues(SteppingClock())
    for number in (1, 2):
        master.shelf.send(b"m", topic="Mine")
        master.shelf.store.reput()
        assert await slave.copy(master) == {}
        assert told(slave) == {("Mine", 0): number}
