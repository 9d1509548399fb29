"""The client of a sink, by what brokers say: what it takes for stored, what it sends again, where it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from support.fake_brokers import FakeBroker, FakeCluster
from tallystick.errors import BrokerError, BrokerUnavailable, CheckpointLost, NonDeterministicReplay, Unavailable
from tallystick.rocketmq.client import sinking
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.sinking import SinkPlace, SinkSender
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import headers
from tallystick.rocketmq.wire.headers import SinkStateHeader, SinkStateResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

PLACE = SinkPlace("T", "my app", "my query", 3, 2, 1)
CONTENTS = [(0, b"x", b"KEYS\x01a\x02")]


def says(broker: FakeBroker, code: int, codes: Sequence[int], state: SinkStateResponse | None = None) -> None:
    """Have a broker respond with these codes, one after another; the last one stays."""
    left = list(codes)

    def response(link: Link, command: Command) -> Command:
        each = left.pop(0) if len(left) > 1 else left[0]
        return command.response(each, "said", (state or SinkStateResponse()).to_fields() if not each else None)

    broker.react[code] = response


def state(batch: int = 3, sequence: int | None = None, brokers: str = "b1", **fields: object) -> SinkStateResponse:
    given = {"query": "my%20query", "partitions": 2, "queue_id": 1, **fields}
    return SinkStateResponse(batch=batch, sequence=sequence, brokers=brokers, **given)  # type: ignore[arg-type]


NOT_YET = [
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.SYSTEM_ERROR,
]


@pytest.mark.parametrize("code", NOT_YET)
async def test_what_disk_or_slaves_may_lack_is_sent_again(cluster: FakeCluster, mq: RocketMQ, code: int) -> None:
    broker = await cluster.add("b1")
    says(broker, RequestCode.SEND_SINK_BATCH, [code, code, 0])
    sender = SinkSender(mq)
    await sender.send_once(PLACE, MessageQueue("T", "b1", 0), CONTENTS)
    sends = [command for command in broker.asked if command.code == RequestCode.SEND_SINK_BATCH]
    assert len(sends) == 3 and len({bytes(each.body) for each in sends}) == 1
    assert all("WAIT\x01true\x02" in (headers.read_send(each).properties or "") for each in sends), (
        "for disk and slaves"
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ResponseCode.SINK_DIFFERS, NonDeterministicReplay),
        (ResponseCode.SINK_PARTITIONS, NonDeterministicReplay),
        (ResponseCode.SINK_QUERY, CheckpointLost),
        (ResponseCode.SINK_GAP, Unavailable),
        (ResponseCode.SINK_FULL, BrokerError),
    ],
)
async def test_what_a_broker_refuses_is_not_sent_again(
    cluster: FakeCluster, mq: RocketMQ, code: int, error: type[Exception]
) -> None:
    broker = await cluster.add("b1")
    says(broker, RequestCode.SEND_SINK_BATCH, [code])
    with pytest.raises(error):
        await SinkSender(mq).send_once(PLACE, MessageQueue("T", "b1", 0), CONTENTS)
    assert broker.count(RequestCode.SEND_SINK_BATCH) == 1


async def test_errors_of_a_broker_are_few(cluster: FakeCluster, mq: RocketMQ) -> None:
    broker = await cluster.add("b1")
    says(broker, RequestCode.SEND_SINK_BATCH, [ResponseCode.SYSTEM_ERROR])
    with pytest.raises(BrokerError):
        await SinkSender(mq).send_once(PLACE, MessageQueue("T", "b1", 0), CONTENTS)
    assert broker.count(RequestCode.SEND_SINK_BATCH) == 3


async def test_patience_has_an_end(cluster: FakeCluster, mq: RocketMQ) -> None:
    broker, clock = await cluster.add("b1"), mq._context.clock
    says(broker, RequestCode.SEND_SINK_BATCH, [ResponseCode.SLAVE_NOT_AVAILABLE])
    begun = clock.now()
    with pytest.raises(Unavailable, match="does not say that disk and slaves have the messages"):
        await SinkSender(mq).send_once(PLACE, MessageQueue("T", "b1", 0), CONTENTS)
    assert sinking.PATIENCE_S <= clock.now() - begun < 2 * sinking.PATIENCE_S < 600


async def test_at_least_once_goes_to_another_queue(cluster: FakeCluster, mq: RocketMQ) -> None:
    bad, good = await cluster.add("b1"), await cluster.add("b2")
    says(bad, RequestCode.SEND_BATCH_MESSAGE, [ResponseCode.SERVICE_NOT_AVAILABLE])
    await SinkSender(mq).send_again([MessageQueue("T", "b1", 0), MessageQueue("T", "b2", 0)], CONTENTS)
    assert (bad.count(RequestCode.SEND_BATCH_MESSAGE), good.count(RequestCode.SEND_BATCH_MESSAGE)) == (1, 1)


async def test_at_least_once_a_send_that_came_through_is_not_repeated(cluster: FakeCluster, mq: RocketMQ) -> None:
    """Whatever was said before: it would be stored again and again, until patience ends."""
    broker = await cluster.add("b1")
    says(broker, RequestCode.SEND_BATCH_MESSAGE, [ResponseCode.SYSTEM_ERROR, 0])
    await SinkSender(mq).send_again([MessageQueue("T", "b1", 0)], CONTENTS)
    assert broker.count(RequestCode.SEND_BATCH_MESSAGE) == 2


async def test_all_broker_sets_of_the_application_are_asked(cluster: FakeCluster, mq: RocketMQ) -> None:
    """Also those that have no queue to write to by now."""
    one, two, gone = [await cluster.add(name) for name in ("b1", "b2", "b3")]
    says(one, RequestCode.GET_SINK_STATE, [0], state(sequence=4, brokers="b1,b3"))
    says(two, RequestCode.GET_SINK_STATE, [ResponseCode.SYSTEM_BUSY, 0])
    says(gone, RequestCode.GET_SINK_STATE, [0], state(sequence=7, brokers="b1,b3"))
    queues = [MessageQueue("T", broker, 0) for broker in ("b1", "b2")]
    start = await SinkSender(mq).begin(PLACE, queues)
    assert (start.queue, start.stored) == (MessageQueue("T", "b3", 1), 7), "it goes on where its newest message is"
    assert start.brokers == ("b1", "b2", "b3") and start.newest == 3
    asked = [command for command in gone.asked if command.code == RequestCode.GET_SINK_STATE]
    assert SinkStateHeader.of(asked[-1]) == SinkStateHeader(topic="T", application="my%20app", partition=1)


async def test_an_original_that_has_no_queue_to_write_to_is_not_asked(cluster: FakeCluster, mq: RocketMQ) -> None:
    """Nobody sent to it once; it may be of before, and only read."""
    says(await cluster.add("b1"), RequestCode.GET_SINK_STATE, [0], state(2, sequence=5))
    says(await cluster.add("b2"), RequestCode.GET_SINK_STATE, [ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
    start = await SinkSender(mq).begin(PLACE, [MessageQueue("T", "b1", 0)])
    assert (start.brokers, start.stored, start.newest) == (("b1",), -1, 2)


async def test_a_set_of_which_only_another_one_tells_is_waited_for(cluster: FakeCluster, mq: RocketMQ) -> None:
    """No name server knows it by now, and it may have a part of this batch."""
    says(await cluster.add("b1"), RequestCode.GET_SINK_STATE, [0], state(sequence=4, brokers="b1,b4"))
    with pytest.raises(BrokerUnavailable, match="nothing is sent elsewhere"):
        await SinkSender(mq).begin(PLACE, [MessageQueue("T", "b1", 0)])


async def test_the_newest_batch_of_all_broker_sets_counts(cluster: FakeCluster, mq: RocketMQ) -> None:
    for name, batch in (("b1", 9), ("b2", 2)):
        says(await cluster.add(name), RequestCode.GET_SINK_STATE, [0], state(batch, sequence=5))
    start = await SinkSender(mq).begin(PLACE, [MessageQueue("T", "b1", 0), MessageQueue("T", "b2", 0)])
    assert (start.newest, start.stored) == (9, -1), "what another batch has is none of this one"
    assert start.queue == MessageQueue("T", "b2", 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (state(query="another"), CheckpointLost),
        (state(2, query="another"), CheckpointLost),
        (state(partitions=3), NonDeterministicReplay),
    ],
)
async def test_nothing_is_begun_that_cannot_be_sent(
    cluster: FakeCluster, mq: RocketMQ, answer: SinkStateResponse, error: type[Exception]
) -> None:
    says(await cluster.add("b1"), RequestCode.GET_SINK_STATE, [0], answer)
    with pytest.raises(error):
        await SinkSender(mq).begin(PLACE, [MessageQueue("T", "b1", 0)])


async def test_a_broker_set_that_does_not_say_how_far_is_not_passed_over(cluster: FakeCluster, mq: RocketMQ) -> None:
    broker = await cluster.add("b1")
    says(broker, RequestCode.GET_SINK_STATE, [ResponseCode.SYSTEM_ERROR])
    with pytest.raises(BrokerError):
        await SinkSender(mq).begin(PLACE, [MessageQueue("T", "b1", 0)])
    says(broker, RequestCode.GET_SINK_STATE, [ResponseCode.SYSTEM_BUSY])
    with pytest.raises(BrokerUnavailable, match="nothing is sent elsewhere"):
        await SinkSender(mq).begin(PLACE, [MessageQueue("T", "b1", 0)])


async def test_another_master_is_found(cluster: FakeCluster, mq: RocketMQ) -> None:
    first = await cluster.add("b1")
    says(first, RequestCode.SEND_SINK_BATCH, [ResponseCode.SERVICE_NOT_AVAILABLE])
    sender = SinkSender(mq)
    assert await sender.queues("T")

    def moves(link: Link, command: Command) -> Command:
        second = FakeBroker("b1")
        second.address = others.address
        cluster.register(second)
        return command.response(ResponseCode.SYSTEM_BUSY, "a slave now")

    others = await cluster.add("b2")
    says(others, RequestCode.SEND_SINK_BATCH, [0])
    first.react[RequestCode.SEND_SINK_BATCH] = moves
    await sender.send_once(PLACE, MessageQueue("T", "b1", 0), CONTENTS)
    assert others.count(RequestCode.SEND_SINK_BATCH) == 1


async def test_queues_are_waited_for_while_the_master_is_away(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add("b1", broker_id=1)  # the slave, which the name server has alone for now
    looking = asyncio.create_task(SinkSender(mq).queues("T"))
    await asyncio.sleep(sinking.PATIENCE_S / 2 + 3)  # just after all routes were looked up, as they are now and then
    assert not looking.done()
    await cluster.add("b1")
    back = mq._context.clock.now()
    assert {queue.broker for queue in await looking} == {"b1"}
    assert mq._context.clock.now() - back < 10, "the route is asked for again with each look"


async def test_queues_are_not_waited_for_without_end(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add("b1", broker_id=1)
    begun = mq._context.clock.now()
    with pytest.raises(BrokerUnavailable, match="no set of it has a master"):
        await SinkSender(mq).queues("T")
    assert sinking.PATIENCE_S <= mq._context.clock.now() - begun < 2 * sinking.PATIENCE_S
