"""What tasks send to real brokers, without Spark: repeated, dead in between, at once, to a master that was a slave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from support import live_brokers
from support.live_brokers import LiveCluster, live_cluster
from support.waiting import until
from tallystick.admin.topics import create_topic, topic_route
from tallystick.errors import (
    BrokerError,
    BrokerUnavailable,
    CheckpointLost,
    NonDeterministicReplay,
    NoSuchTopic,
    UsageError,
)
from tallystick.pipeline.checkpoint import offsets_digest
from tallystick.pipeline.topic import sink_part
from tallystick.pipeline.topic.sink import BatchEnd, SinkBrokers, TopicFollowingWriter, look_up
from tallystick.pipeline.topic.sink_options import TopicSinkOptions
from tallystick.pipeline.topic.sink_part import OncePart, RepeatablePart
from tallystick.pipeline.topic.sink_rows import SinkRow, encode_row
from tallystick.pipeline.worker import TaskWorker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.client import sinking
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.sinking import SinkPlace, SinkSender, SinkStart
from tallystick.rocketmq.wire.sink_identity import SINK
from tallystick.rocketmq.wire.values import MessageQueue

PLACE = SinkPlace("T", "my app", "q", 0, 2, 0)


class _Dead(Exception):
    """A task dies."""


def _until_death(texts: Sequence[bytes]) -> Iterator[bytes]:
    yield from texts
    raise _Dead


class Tasks:
    """Tasks of a sink."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster

    async def run(
        self,
        rows: Sequence[int],
        place: SinkPlace = PLACE,
        *,
        dies_after: int | None = None,
        sets: Sequence[str] = (),
        offsets: int = 0,
    ) -> int:
        """Returns how many messages were new; a task that dies has sent so many rows, or a few less."""
        return await asyncio.to_thread(self._run, rows, place, dies_after, sets, offsets)

    def _run(
        self, rows: Sequence[int], place: SinkPlace, dies_after: int | None, sets: Sequence[str], offsets: int
    ) -> int:
        worker = TaskWorker(SinkBrokers((self.cluster.name_server,)))
        try:
            queues = worker.ask(lambda sender: sender.queues("T"))
            start = worker.ask(lambda sender: sender.begin(place, queues, sets))
            part = OncePart(worker, place, start, offsets)
            texts = [encode_row(SinkRow(b"%d" % number, "k", None, [("a", "b")], 0)) for number in rows]
            if dies_after is None:
                return part.send_all(texts)
            with contextlib.suppress(_Dead):
                part.send_all(_until_death(texts[:dies_after]))
            return -1
        finally:
            worker.close()

    async def values(self) -> list[int]:
        values = []
        async with topics(self.cluster.name_server) as mq:
            for queue in (await mq.topic("T")).readable:
                for broker in self.cluster.brokers.values():
                    if broker.settings.name == queue.broker and not broker.standing.is_slave:
                        broker.log.catch_up()
                        end = broker.parts.store.queue_range("T", queue.queue_id)[1]
                        values += [int(message.body) async for message in mq.read(queue, 0, end)]
        return values


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with live_cluster(tmp_path) as cluster:
        await cluster.start("broker-a", role="ASYNC_MASTER")
        await create_topic(cluster.operator, "T", queues=2)
        yield cluster


@pytest.fixture
def tasks(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    monkeypatch.setattr(sink_part, "BATCH_ROWS", 7)
    return Tasks(cluster)


async def test_each_row_is_there_once_in_its_order_however_often_tasks_die(tasks: Tasks) -> None:
    rows = list(range(50))
    for dies_after in (0, 10, 9, 30, 50):
        await tasks.run(rows, dies_after=dies_after)
    assert await tasks.run(rows) > 0
    assert await tasks.run(rows) == 0
    assert await tasks.values() == rows
    assert await tasks.run(list(range(50, 60)), replace(PLACE, batch=1)) == 10
    assert await tasks.values() == list(range(60))


async def test_a_batch_that_ends_elsewhere_puts_nothing_behind_what_is_there(tasks: Tasks) -> None:
    """As of a checkpoint's copy that is one batch old, whose partitions are cut anew: what one has more another had."""
    places = [replace(PLACE, partition=partition) for partition in range(2)]
    for place, rows in zip(places, (range(10), range(10, 20)), strict=True):
        assert await tasks.run(rows, place, offsets=1 << 40 | 1) == 10
        assert await tasks.run(rows, place, offsets=1 << 40 | 1) == 0
    for place, rows in zip(places, (range(15), range(15, 30)), strict=True):
        with pytest.raises(NonDeterministicReplay, match="another message is stored under this number"):
            await tasks.run(rows, place, offsets=1 << 40 | 2)
    assert sorted(await tasks.values()) == list(range(20))


async def test_two_attempts_at_once_send_each_row_once(tasks: Tasks) -> None:
    rows = list(range(200))
    await asyncio.gather(*[tasks.run(rows) for _ in range(3)], *[tasks.run(rows, replace(PLACE, partition=1))])
    assert sorted(await tasks.values()) == sorted(rows * 2)


@pytest.mark.parametrize(
    "rows",
    [
        list(range(1, 51)),
        list(range(30)),
        [*range(20), *range(21, 51)],
        [*range(10), 99, *range(11, 50)],  # the last one that is stored is the same
    ],
)
async def test_a_replay_that_differs_is_refused_and_nothing_of_it_is_sent(tasks: Tasks, rows: list[int]) -> None:
    await tasks.run(list(range(50)), dies_after=45)
    before = await tasks.values()
    with pytest.raises(NonDeterministicReplay, match=r"batch 0 of application my app .* order=arrival"):
        await tasks.run(rows)
    assert await tasks.values() == before


async def test_another_number_of_partitions_is_refused_before_anything_is_sent(tasks: Tasks) -> None:
    await tasks.run(list(range(5)), replace(PLACE, partition=1))
    with pytest.raises(NonDeterministicReplay, match="begun in 2 partitions, and has 3 now"):
        await tasks.run(list(range(9)), replace(PLACE, partitions=3))
    assert await tasks.values() == list(range(5))


async def test_a_query_that_lost_its_checkpoint_is_refused(tasks: Tasks) -> None:
    await tasks.run(list(range(5)))
    with pytest.raises(CheckpointLost, match="began again without its checkpoint"):
        await tasks.run(list(range(5)), replace(PLACE, query="new"))
    assert await tasks.values() == list(range(5))


async def test_a_later_batch_is_told(tasks: Tasks) -> None:
    await tasks.run(list(range(5)), replace(PLACE, batch=4))
    async with topics(tasks.cluster.name_server) as mq:
        sender = SinkSender(mq)
        assert (await sender.begin(PLACE, await sender.queues("T"))).newest == 4


async def test_messages_have_what_rows_say_and_an_id_that_is_the_same_each_time(tasks: Tasks) -> None:
    await tasks.run([1, 2])
    async with topics(tasks.cluster.name_server) as mq:
        queue = (await mq.topic("T")).readable[0]
        first, second = [message async for message in mq.read(queue, 0, 2)]
    assert (first.body, first.keys, first.properties["a"]) == (b"1", ["k"], "b")
    identity = first.properties[SINK]
    assert identity.startswith("my%20app q 0 2 0 0000000000 ") and identity.endswith(" broker-a")
    assert first.message_id[:-1] == second.message_id[:-1] and second.message_id.endswith("1")
    await tasks.run([1], replace(PLACE, batch=1))
    async with topics(tasks.cluster.name_server) as mq:
        (later,) = [message async for message in mq.read(queue, 2, 3)]
    assert later.message_id != first.message_id, "by it a broker finds a message that is repeated"


async def test_a_sink_goes_on_at_a_slave_that_becomes_the_master(tasks: Tasks) -> None:
    cluster, rows = tasks.cluster, list(range(60))
    slave = await cluster.start("broker-a-s1")
    await tasks.run(rows, dies_after=40)
    master = cluster.brokers.pop("broker-a")
    await until(lambda: slave.parts.store.reput_offset == master.parts.store.end)
    await master.stop()
    await slave.take_role(Role.ASYNC_MASTER, 0)
    await tasks.run(rows)
    assert await tasks.values() == rows


@pytest.fixture
async def two_sets(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """The first set has the queue of the partition, and a part of it, and loses its master."""
    monkeypatch.setattr(sinking, "PATIENCE_S", 1.0)
    await tasks.cluster.start("broker-b", role="ASYNC_MASTER")
    await create_topic(tasks.cluster.operator, "T", queues=2)
    return tasks


async def _waited(tasks: Tasks, sets: Sequence[str] = ()) -> list[int]:
    """The set without a master is waited for. Returns what is there when it is back: nothing for the second time."""
    with pytest.raises(BrokerUnavailable, match="nothing is sent elsewhere"):
        await tasks.run(list(range(50)), sets=sets)
    await tasks.cluster.start("broker-a", role="ASYNC_MASTER")
    await tasks.run(list(range(50)), sets=sets)
    return await tasks.values()


async def test_a_set_whose_slave_alone_is_left_is_waited_for(two_sets: Tasks) -> None:
    await two_sets.cluster.start("broker-a-s1")
    await two_sets.run(list(range(50)), dies_after=30)
    await two_sets.cluster.brokers.pop("broker-a").stop()
    assert await _waited(two_sets) == list(range(50))


async def test_a_set_that_no_name_server_knows_any_more_is_waited_for(two_sets: Tasks, tmp_path: Path) -> None:
    cluster, place = two_sets.cluster, {"topic": "T", "checkpointLocation": str(tmp_path / "checkpoint")}
    options = TopicSinkOptions.parse({**place, "nameServer": cluster.name_server}, {}, follows=True)
    schema = StructType([StructField("value", BinaryType())])
    writer = await asyncio.to_thread(TopicFollowingWriter, options, schema)
    assert writer.sets == ("broker-a", "broker-b") and writer.end is None
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "3").write_text('v1\n{}\n{"v":1}')
    await two_sets.run(list(range(50)), dies_after=30)
    await cluster.brokers.pop("broker-a").stop()
    await until(lambda: _has_sets(cluster, ["broker-b"]))
    writer = await asyncio.to_thread(TopicFollowingWriter, options, schema)  # of the query's next start
    assert writer.sets == ("broker-a", "broker-b") and writer.end == BatchEnd(3, offsets_digest('v1\n{}\n{"v":1}'))
    assert await _waited(two_sets, writer.sets) == list(range(50))


async def _has_sets(cluster: LiveCluster, names: list[str]) -> bool:
    return sorted({each.broker for each in await topic_route(cluster.operator, "T")}) == names


@pytest.mark.parametrize("is_once", [True, False])
async def test_a_broker_of_a_small_limit_gets_in_parts_what_it_does_not_take_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_once: bool
) -> None:
    monkeypatch.setitem(live_brokers.SMALL, "maxMessageSize", "10000")
    sizes = [*[3000] * 20, 9900, *[10] * 500]
    rows = [SinkRow(bytes([number % 256]) * size, None, None, [], 0) for number, size in enumerate(sizes)]

    def run(name_server: str, sent: Sequence[SinkRow], batch: int) -> int:
        worker = TaskWorker(SinkBrokers((name_server,)))
        try:
            queues = worker.ask(lambda sender: sender.queues("T"))
            if not is_once:
                return RepeatablePart(worker, "T", list(queues)).send_all(sent)
            place = replace(PLACE, batch=batch)
            part = OncePart(worker, place, worker.ask(lambda sender: sender.begin(place, queues)))
            return part.send_all(map(encode_row, sent))
        finally:
            worker.close()

    async with live_cluster(tmp_path) as cluster:
        await cluster.start("broker-a", role="ASYNC_MASTER")
        await create_topic(cluster.operator, "T", queues=1)
        assert await asyncio.to_thread(run, cluster.name_server, rows, 0) == len(rows)
        cluster.brokers["broker-a"].log.catch_up()
        async with topics(cluster.name_server) as mq:
            queue = (await mq.topic("T")).readable[0]
            bodies = [message.body async for message in mq.read(queue, 0, len(rows))]
        assert bodies == [row.body for row in rows]
        with pytest.raises(BrokerError, match="body length limit 10000B"):
            await asyncio.to_thread(run, cluster.name_server, [SinkRow(bytes(10001), None, None, [], 0)], 1)


class _Sends:
    """Stands for a worker, whose sends are done when somebody waits for them."""

    def __init__(self) -> None:
        self.waited = list[bool]()

    def begin(self, question: object) -> Any:
        assert all(self.waited), "one send is under way at a time, or they could overtake each other"
        number = len(self.waited)
        self.waited.append(False)
        future = Mock()
        future.result.side_effect = lambda: self.waited.__setitem__(number, True)
        return future


def test_a_part_is_sent_in_order_and_not_done_before_all_of_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_part, "BATCH_ROWS", 7)
    sends = _Sends()
    part = OncePart(cast(Any, sends), PLACE, SinkStart(MessageQueue("T", "b", 0), -1, ("b",), -1))
    assert part.send_all(encode_row(SinkRow(b"%d" % number, None, None, [], 0)) for number in range(20)) == 20
    assert sends.waited == [True] * 3


async def test_at_least_once_sends_all_each_time(tasks: Tasks) -> None:
    def run() -> int:
        worker = TaskWorker(SinkBrokers((tasks.cluster.name_server,)))
        try:
            part = RepeatablePart(worker, "T", list(worker.ask(lambda sender: sender.queues("T"))))
            return part.send_all(SinkRow(b"%d" % number, None, None, [], 0) for number in range(20))
        finally:
            worker.close()

    assert [await asyncio.to_thread(run) for _ in range(2)] == [20, 20]
    assert sorted(await tasks.values()) == sorted([*range(20)] * 2)
    async with topics(tasks.cluster.name_server) as mq:
        queue = (await mq.topic("T")).readable[0]
        assert all([SINK not in message.properties async for message in mq.read(queue, 0, 1)])


async def test_a_broker_that_does_not_know_sinks_gets_rows_at_least_once_and_it_is_said(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"nameServer": tasks.cluster.name_server, "topic": "T"}
    async with topics(tasks.cluster.name_server) as mq:
        sender = SinkSender(mq)
        own = TopicSinkOptions.parse(options, {}, follows=True)
        assert (await look_up(sender, own))[1]

        async def unaware(topic: str, brokers: Sequence[str]) -> list[str]:
            return ["original"]

        monkeypatch.setattr(sender, "unaware", unaware)
        assert not (await look_up(sender, own))[1]
        assert "tally-topic: broker original does not know" in capsys.readouterr().err
        with pytest.raises(UsageError, match="delivery=at-least-once"):
            await look_up(sender, TopicSinkOptions.parse({**options, "delivery": "exactly-once"}, {}, follows=True))
        assert not (
            await look_up(sender, TopicSinkOptions.parse({**options, "delivery": "at-least-once"}, {}, follows=True))
        )[1]
        assert capsys.readouterr().err == ""


async def test_a_topic_that_is_not_there_is_not_made(tasks: Tasks) -> None:
    options = TopicSinkOptions.parse({"nameServer": tasks.cluster.name_server, "topic": "Nope"}, {}, follows=True)
    async with topics(tasks.cluster.name_server) as mq:
        with pytest.raises(NoSuchTopic, match=r"make it with `tally topic create` \(topic=Nope\)"):
            await look_up(SinkSender(mq), options)
