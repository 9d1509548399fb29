from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import tallystick.pipeline.worker as worker_module
from support.fake_brokers import FakeBroker, FakeCluster
from tallystick.codec.records import encode_records
from tallystick.errors import BrokerError, NoSuchMessage, NoSuchTopic, RemoteProtocolError, Unavailable
from tallystick.pipeline.topic.arrow import SCHEMA
from tallystick.pipeline.topic.brokers import Brokers
from tallystick.pipeline.topic.plan import BrokerSets, QueueRange, TopicPartition
from tallystick.pipeline.topic.read import read_partition
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

ROWS = pa.schema([SCHEMA.field(name) for name in ("queueId", "queueOffset", "body")])
PULL = RequestCode.PULL_MESSAGE


def fill(broker: FakeBroker, count: int, queue: int = 0, text: str = "x") -> list[bytes]:
    bodies = [f"{text} {n}".encode() for n in range(count)]
    broker.queues[("T", queue)] = [(0, body, b"") for body in bodies]
    return bodies


async def pair(cluster: FakeCluster) -> tuple[FakeBroker, FakeBroker]:
    """A master and a slave that has what the master has."""
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    slave.queues = master.queues
    return master, slave


def partition(
    *ranges: tuple[int, int, int], brokers: list[FakeBroker], slave_first: bool = False, fail_on_data_loss: bool = True
) -> TopicPartition:
    addresses = {"b": {broker.broker_id: broker.address for broker in brokers}}
    wanted = tuple(QueueRange(MessageQueue("T", "b", queue), first, end) for queue, first, end in ranges)
    return TopicPartition(wanted, BrokerSets(addresses, "G", slave_first), fail_on_data_loss=fail_on_data_loss)


async def read(wanted: TopicPartition) -> list[tuple[int, int, bytes]]:
    table = pa.Table.from_batches(await asyncio.to_thread(lambda: list(read_partition(wanted, ROWS))), ROWS)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("pull_count", [1, 7, 32, 10_000])
async def test_each_message_comes_once_and_in_order(cluster: FakeCluster, pull_count: int) -> None:
    broker = await cluster.add()
    first, second = fill(broker, 300), fill(broker, 10, 1, "y")
    broker.pull_count = pull_count
    rows = await read(partition((0, 7, 290), (1, 0, 10), brokers=[broker]))
    assert rows == [(0, n, first[n]) for n in range(7, 290)] + [(1, n, second[n]) for n in range(10)]


async def test_nothing_is_committed_and_nothing_waited_for(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 5)
    await read(partition((0, 0, 5), brokers=[broker]))
    assert {command.code for command in broker.asked} == {PULL}
    assert not broker.offsets and not broker.members


async def test_what_was_sent_after_planning_is_not_read(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 100)
    assert len(await read(partition((0, 0, 40), brokers=[broker]))) == 40


@pytest.mark.rule("H3", "H13")
async def test_h13_a_dead_master_is_stood_in_for_by_its_slave(cluster: FakeCluster) -> None:
    master, slave = await pair(cluster)
    bodies = fill(master, 200)
    await master.stop()
    assert [body for *_, body in await read(partition((0, 0, 200), brokers=[master, slave]))] == bodies
    assert slave.count(PULL)


@pytest.mark.rule("H13")
async def test_h13_a_master_that_dies_in_the_middle_of_a_task(cluster: FakeCluster) -> None:
    master, slave = await pair(cluster)
    master.pull_count = slave.pull_count = 10
    bodies = fill(master, 300)
    dying = asyncio.Event()

    def die(link: Link, command: Command) -> Command | None:
        if int(command.fields["queueOffset"]) >= 100:
            dying.set()
            link.close()
            return None
        return master._pull(link, command)

    master.react[PULL] = die
    rows = await read(partition((0, 0, 300), brokers=[master, slave]))
    assert dying.is_set() and [body for *_, body in rows] == bodies


@pytest.mark.rule("H13")
async def test_h13_the_slave_first_and_the_master_for_what_it_lacks(cluster: FakeCluster) -> None:
    master, slave = await pair(cluster)
    bodies = fill(master, 100)
    slave.queues = {("T", 0): master.queues[("T", 0)][:64]}
    rows = await read(partition((0, 0, 100), brokers=[master, slave], slave_first=True))
    assert [body for *_, body in rows] == bodies
    assert slave.count(PULL) and all(int(c.fields["queueOffset"]) >= 64 for c in master.asked)


async def test_a_slave_that_lacks_messages_is_no_proof_that_they_are_gone(cluster: FakeCluster) -> None:
    master, slave = await pair(cluster)
    fill(master, 100)
    slave.queues = {("T", 0): master.queues[("T", 0)][:64]}
    await master.stop()
    with pytest.raises(Unavailable, match=r"^\[TALLY-UNAVAILABLE\] a broker does not answer, and the others do not"):
        await read(partition((0, 0, 100), brokers=[master, slave]))


async def test_no_broker_at_all(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    await broker.stop()
    with pytest.raises(Unavailable, match=r"^\[TALLY-UNAVAILABLE\] .*nobody answers"):
        await read(partition((0, 0, 1), brokers=[broker]))
    with pytest.raises(Unavailable, match="nobody answers"):
        await read(partition((0, 0, 1), brokers=[]))


@pytest.mark.parametrize(("first", "count"), [(10, 100), (0, 50)])
async def test_a_queue_that_shrank_is_an_error(cluster: FakeCluster, first: int, count: int) -> None:
    """Old messages expired, or the topic was made anew, after the query was planned."""
    broker = await cluster.add()
    fill(broker, count)
    broker.first[("T", 0)] = first
    with pytest.raises(NoSuchMessage, match=r"^\[TALLY-NO-SUCH-MESSAGE\] .*any more"):
        await read(partition((0, 0, 100), brokers=[broker]))


async def test_a_topic_that_was_deleted_is_an_error(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    broker.react[PULL] = lambda link, command: command.response(ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist")
    with pytest.raises(NoSuchTopic, match=r"^\[TALLY-NO-SUCH-TOPIC\] topic\[T\] not exist"):
        await read(partition((0, 0, 1), brokers=[broker]))


async def test_another_refusal_is_an_error(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    broker.react[PULL] = lambda link, command: command.response(ResponseCode.NO_PERMISSION, "forbidden")
    with pytest.raises(BrokerError, match=r"^\[TALLY-BROKER-ERROR\] forbidden"):
        await read(partition((0, 0, 1), brokers=[broker]))


@pytest.mark.parametrize("missing", [3, 0])
async def test_a_gap_is_an_error(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """Also one before all that a broker gave: it was asked for the first one, and gave others."""
    broker = await cluster.add()
    fill(broker, 10)
    whole = encode_records

    def without_one(rows: list, *rest: object) -> bytes:  # type: ignore[type-arg]
        return whole([row for row in rows if row[2] != missing], *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("support.fake_brokers.encode_records", without_one)
    with pytest.raises(NoSuchMessage, match=rf"has a gap .*offset={missing} next={missing + 1}"):
        await read(partition((0, 0, 10), brokers=[broker]))


@pytest.mark.parametrize("pull_count", [1, 7, 10_000])
async def test_what_a_gap_lacks_is_left_out_and_nothing_around_it(cluster: FakeCluster, pull_count: int) -> None:
    broker = await cluster.add()
    bodies = fill(broker, 300)
    broker.pull_count = pull_count
    broker.missing["T", 0] = missing = {0, 3, 40, 41, *range(100, 200), 299}
    rows = await read(partition((0, 0, 300), brokers=[broker], fail_on_data_loss=False))
    assert rows == [(0, n, bodies[n]) for n in range(300) if n not in missing]


async def test_what_is_there_and_cannot_be_read_yet_is_never_left_out(cluster: FakeCluster) -> None:
    """As of a queue that a broker builds again from its log."""
    master, slave = await pair(cluster)
    bodies = fill(master, 10)
    master.react[PULL] = lambda link, command: master._pulled(command, ResponseCode.PULL_NOT_FOUND, 0, 0, 10)
    with pytest.raises(Unavailable, match="cannot be read now"):
        await read(partition((0, 0, 10), brokers=[master], fail_on_data_loss=False))
    assert [body for *_, body in await read(partition((0, 0, 10), brokers=[master, slave]))] == bodies


@pytest.mark.rule("N11")
async def test_a_damaged_body_is_passed_over_and_the_last_one_is_an_error(cluster: FakeCluster) -> None:
    master, slave = await pair(cluster)
    bodies = fill(master, 10)

    def damaged(link: Link, command: Command) -> Command | None:
        answer = master._pull(link, command)
        assert answer is not None
        answer.body = bytes(answer.body).replace(bodies[4], b"X" * len(bodies[4]))
        return answer

    master.react[PULL] = damaged
    assert [body for *_, body in await read(partition((0, 0, 10), brokers=[master, slave]))] == bodies
    with pytest.raises(RemoteProtocolError, match=r"^\[TALLY-REMOTE-PROTOCOL-ERROR\] .*damaged"):
        await read(partition((0, 0, 10), brokers=[master]))


async def test_a_projection_has_the_wanted_schema(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    bodies = fill(broker, 3)
    wanted = pa.schema([pa.field("BODY", pa.binary()), pa.field("tags", pa.string())])
    [batch] = await asyncio.to_thread(lambda: list(read_partition(partition((0, 0, 3), brokers=[broker]), wanted)))
    assert batch.schema == wanted and batch.column(0).to_pylist() == bodies


async def test_an_empty_partition_asks_nobody() -> None:
    assert await read(partition(brokers=[])) == []
    assert Brokers not in worker_module._workers
