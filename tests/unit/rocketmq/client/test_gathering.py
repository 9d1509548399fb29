"""Sends of one turn of the loop that go as one batch: what is asked of the broker, and what each call is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.codec.records import SMALLEST
from tallystick.errors import BrokerError, UsageError
from tallystick.rocketmq.broker.send_checks import MAX_BATCH
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.sending import SendStatus
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.headers import read_send
from tallystick.rocketmq.wire.record import decode_batch, decode_properties
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

SINGLE, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
MOST_BYTES = 4000


@pytest.fixture
async def gathering(cluster: FakeCluster) -> AsyncGenerator[RocketMQ, None]:
    settings = BrokerClientSettings(gather_bytes=MOST_BYTES, compress_above_bytes=3000)
    async with topics(cluster.address, settings=settings) as mq:
        yield mq


async def test_sends_of_one_turn_are_one_request_and_each_has_its_own_result(
    cluster: FakeCluster, gathering: RocketMQ
) -> None:
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    bodies = [b"%d" % number for number in range(10)]
    results = await asyncio.gather(*(producer.send("T", body, tags="A", keys="k") for body in bodies))
    assert (fake.count(SINGLE), fake.count(BATCH)) == (0, 1)
    stored = fake.queues["T", 0]
    assert [content[1] for content in stored] == bodies
    properties = [decode_properties(content[2]) for content in stored]
    assert [each["UNIQ_KEY"] for each in properties] == [result.message_id for result in results]
    assert {(each["TAGS"], each["KEYS"], each["WAIT"]) for each in properties} == {("A", "k", "true")}
    assert [result.queue_offset for result in results] == list(range(10))
    assert {(result.status, result.queue) for result in results} == {(SendStatus.SEND_OK, MessageQueue("T", "b", 0))}


async def test_one_alone_goes_as_it_would_without_others(cluster: FakeCluster, gathering: RocketMQ) -> None:
    fake = await cluster.add()
    result = await gathering.producer("g").send("T", b"x", tags="A")
    header = read_send(fake.asked[-1])
    assert (fake.count(SINGLE), fake.count(BATCH), header.batch) == (1, 0, False)
    assert decode_properties(header.properties or "") == {"TAGS": "A", "WAIT": "true", "UNIQ_KEY": result.message_id}


async def test_each_has_the_place_that_the_broker_told(
    cluster: FakeCluster, gathering: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    for told, places in (("X,Y,Z", ["X", "Y", "Z"]), ("X", ["X", "X", "X"])):

        def answers(link: Any, command: Any, told: str = told) -> None:
            response = fake._send(link, command)
            response.fields["msgId"] = told
            link.send(response)

        fake.react[BATCH] = answers
        results = await asyncio.gather(*(producer.send("T", b"x") for _ in range(3)))
        assert [result.offset_id for result in results] == places


async def test_topics_and_what_is_waited_for_are_batches_of_their_own(
    cluster: FakeCluster, gathering: RocketMQ
) -> None:
    fake, producer = await cluster.add(topics=("T", "U")), gathering.producer("g")
    await asyncio.gather(
        *(producer.send("T", b"1") for _ in range(2)),
        *(producer.send("U", b"2") for _ in range(2)),
        *(producer.send("T", b"3", wait_stored=False) for _ in range(2)),
    )
    batches = [read_send(command) for command in fake.asked if command.code == BATCH]
    waits = [decode_properties(each.properties or "")["WAIT"] for each in batches]
    assert sorted(zip([each.topic for each in batches], waits, strict=True)) == [
        ("T", "false"), ("T", "true"), ("U", "true"),
    ]  # fmt: skip


async def test_a_batch_is_no_longer_than_the_setting(cluster: FakeCluster, gathering: RocketMQ) -> None:
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    await asyncio.gather(*(producer.send("T", bytes([number]) * 1000) for number in range(10)))
    batches = [len(command.body) for command in fake.asked if command.code == BATCH]
    assert len(batches) >= 3 and max(batches) <= MOST_BYTES
    assert [content[1][0] for content in fake.queues["T", 0]] == list(range(10))


async def test_a_batch_of_short_messages_is_no_longer_than_the_setting_where_it_is_stored(
    cluster: FakeCluster, gathering: RocketMQ
) -> None:
    """A record has more around its body than a member of a batch: a broker would refuse all of them."""
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    await asyncio.gather(*(producer.send("T", b"x") for _ in range(100)))
    batches = [decode_batch(command.body) for command in fake.asked if command.code == BATCH]
    assert len(batches) > 1 and sum(map(len, batches)) == 100
    for batch in batches:
        assert sum(SMALLEST + len("T") + len(body) + len(properties) for _, body, properties in batch) <= MOST_BYTES


async def test_a_batch_has_no_more_messages_than_a_broker_takes(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    async with topics(cluster.address, settings=BrokerClientSettings(gather_bytes=4 << 20)) as mq:
        producer = mq.producer("g")
        results = await asyncio.gather(*(producer.send_nowait("T", b"x") for _ in range(MAX_BATCH + 1)))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    counts = [len(decode_batch(command.body)) for command in fake.asked if command.code == BATCH]
    assert sum(counts) == MAX_BATCH + 1 and max(counts) <= MAX_BATCH


async def test_what_is_long_or_compressed_or_has_a_queue_goes_alone(cluster: FakeCluster, gathering: RocketMQ) -> None:
    fake, producer = await cluster.add(), gathering.producer("g")
    queue = MessageQueue("T", "b", 1)
    await asyncio.gather(
        producer.send("T", bytes(MOST_BYTES)),
        producer.send("T", bytes(3000)),
        producer.send("T", b"x", queue=queue),
        producer.send_nowait("T", b"y", queue=queue),
    )
    assert (fake.count(SINGLE), fake.count(BATCH)) == (4, 0)


@pytest.mark.parametrize("topic", ["%RETRY%group", "%DLQ%group"])
async def test_where_brokers_take_no_batch_each_goes_alone(
    cluster: FakeCluster, gathering: RocketMQ, topic: str
) -> None:
    fake, producer = await cluster.add(topics=("T", topic)), gathering.producer("g")
    await asyncio.gather(*(producer.send(topic, b"x") for _ in range(3)))
    assert (fake.count(SINGLE), fake.count(BATCH)) == (3, 0)


async def test_a_refusal_is_told_to_each(cluster: FakeCluster, gathering: RocketMQ) -> None:
    fake, producer = await cluster.add(), gathering.producer("g")
    fake.react[BATCH] = lambda link, command: command.response(ResponseCode.MESSAGE_ILLEGAL, "illegal")
    results = await asyncio.gather(*(producer.send("T", b"x") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [BrokerError] * 3


async def test_who_gives_up_before_the_turn_ends_sends_nothing(cluster: FakeCluster, gathering: RocketMQ) -> None:
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    await producer.send("T", b"first")
    futures = [producer.send_nowait("T", b"%d" % number) for number in range(4)]
    futures[1].cancel()
    assert [result.queue_offset for result in await asyncio.gather(futures[0], *futures[2:])] == [1, 2, 3]
    assert [content[1] for content in fake.queues["T", 0]] == [b"first", b"0", b"2", b"3"]
    alone = [producer.send_nowait("T", b"never") for _ in range(2)]
    for future in alone:
        future.cancel()
    await producer.drain()
    assert len(fake.queues["T", 0]) == 4


async def test_who_gives_up_behind_the_turn_leaves_the_others(cluster: FakeCluster, gathering: RocketMQ) -> None:
    fake, producer, held = await cluster.add(queues=1), gathering.producer("g"), list[Any]()
    fake.react[BATCH] = lambda link, command: held.append((link, command))
    futures = [producer.send_nowait("T", b"x") for _ in range(3)]
    await until(lambda: len(held) == 1)
    futures[0].cancel()
    link, command = held[0]
    link.send(fake._send(link, command))
    assert [result.queue_offset for result in await asyncio.gather(*futures[1:])] == [1, 2]


@pytest.mark.parametrize("given_up", [{0}, {1}, {0, 1, 2}])
async def test_what_is_given_up_before_its_route_is_known_is_never_sent(
    cluster: FakeCluster, gathering: RocketMQ, given_up: set[int]
) -> None:
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    futures = [producer.send_nowait("T", b"%d" % number) for number in range(3)]
    producer._gathering.send()  # type: ignore[union-attr]
    others = _give_up(futures, given_up)
    assert [result.queue_offset for result in await asyncio.gather(*others)] == list(range(len(others)))
    await producer.drain()
    bodies = [b"%d" % number for number in range(3) if number not in given_up]
    assert [content[1] for content in fake.queues.get(("T", 0), [])] == bodies
    assert (fake.count(SINGLE) + fake.count(BATCH), producer._inflight_bytes) == (bool(others), 0)


async def test_one_alone_that_is_given_up_before_its_route_is_known_is_never_sent(
    cluster: FakeCluster, gathering: RocketMQ
) -> None:
    fake, producer = await cluster.add(queues=1), gathering.producer("g")
    send = asyncio.create_task(producer.send("T", b"never"))
    for _ in range(3):
        await asyncio.sleep(0)
    send.cancel()
    await producer.drain()
    assert (await producer.send("T", b"the first one")).queue_offset == 0
    assert (fake.count(SINGLE), producer._inflight_bytes) == (1, 0)


@pytest.mark.parametrize("given_up", [{1}, {0, 1, 2}])
async def test_what_is_given_up_is_not_tried_again(
    cluster: FakeCluster, gathering: RocketMQ, given_up: set[int]
) -> None:
    fake, producer, held = await cluster.add(queues=1), gathering.producer("g"), list[Any]()
    fake.react[BATCH] = lambda link, command: held.append(link)
    futures = [producer.send_nowait("T", b"%d" % number) for number in range(3)]
    await until(lambda: len(held) == 1)
    others = _give_up(futures, given_up)
    del fake.react[BATCH]
    held[0].close()  # the answer is lost: another attempt follows
    results = await asyncio.gather(*others)
    assert [(result.queue_offset, result.maybe_twice) for result in results] == [(0, True), (1, True)][: len(others)]
    await producer.drain()
    assert [content[1] for content in fake.queues.get(("T", 0), [])] == ([b"0", b"2"] if others else [])
    assert (fake.count(BATCH), producer._inflight_bytes) == (1 + bool(others), 0)


def _give_up(futures: list[Any], which: set[int]) -> list[Any]:
    for number in which:
        futures[number].cancel()
    return [future for number, future in enumerate(futures) if number not in which]


async def test_drain_and_close_wait_for_what_was_just_gathered(cluster: FakeCluster, gathering: RocketMQ) -> None:
    await cluster.add()
    for wait in ("drain", "close"):
        producer = gathering.producer("g")
        futures = [producer.send_nowait("T", b"x") for _ in range(3)]
        await getattr(producer, wait)()
        assert all(future.done() for future in futures)
    with pytest.raises(UsageError, match="this producer is closed"):
        producer.send_nowait("T", b"x")


async def test_what_no_broker_would_take_is_refused_at_once(cluster: FakeCluster, gathering: RocketMQ) -> None:
    await cluster.add()
    producer = gathering.producer("g")
    refused: list[dict[str, Any]] = [
        {"body": b""}, {"body": b"x", "tags": "a||b"}, {"body": b"x", "properties": {"p": "\x01"}}
    ]  # fmt: skip
    for arguments in refused:
        with pytest.raises(UsageError):
            producer.send_nowait("T", **arguments)
    await producer.drain()


async def test_a_fault_in_one_batch_is_told_to_its_senders_and_leaves_the_others(
    cluster: FakeCluster, gathering: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages waited for ever, and so did all that were sent behind it."""
    fake, producer = await cluster.add(queues=1), gathering.producer("g")

    def breaks(members: list[Any]) -> bytes:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr("tallystick.rocketmq.client.envelope.encode_batch", breaks)
        sends = [producer.send("T", b"1"), producer.send("T", b"2"), producer.send("T", b"3", wait_stored=False)]
        first, second, other = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 5)
    assert isinstance(first, RuntimeError) and isinstance(second, RuntimeError)
    assert not isinstance(other, BaseException) and other.status is SendStatus.SEND_OK
    results = await asyncio.wait_for(asyncio.gather(*(producer.send("T", b"4") for _ in range(2))), 5)
    assert [result.status for result in results] == [SendStatus.SEND_OK] * 2
    assert [content[1] for content in fake.queues["T", 0]] == [b"3", b"4", b"4"]


@pytest.mark.parametrize("flag", [None, 0.0, 1 << 31])
async def test_a_flag_that_is_none_is_refused_at_once(cluster: FakeCluster, gathering: RocketMQ, flag: Any) -> None:
    await cluster.add()
    for send in gathering.producer("g").send, gathering.producer("g").send_nowait:
        with pytest.raises(UsageError, match="flag"):
            await asyncio.wait_for(send("T", b"x", flag=flag), 5)


async def test_gathered_bytes_count_as_in_flight(cluster: FakeCluster) -> None:
    fake, held = await cluster.add(queues=1), list[Any]()
    fake.react[BATCH] = lambda link, command: held.append((link, command))
    settings = BrokerClientSettings(gather_bytes=2 * MOST_BYTES, max_inflight_bytes=2500, send_timeout_s=20.0)
    async with topics(cluster.address, settings=settings) as mq:
        producer = mq.producer("g")
        sends = [asyncio.create_task(producer.send("T", bytes(1000))) for _ in range(6)]
        await until(lambda: len(held) == 1)
        assert len(held[0][1].body) < 4000, "three of them"
        del fake.react[BATCH]
        link, command = held[0]
        link.send(fake._send(link, command))
        assert len(await asyncio.gather(*sends)) == 6


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_who_waits_for_room_has_that_of_a_batch_that_never_went(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    """All of it was given up, or could not be encoded: nothing comes back that would let the next ones in."""
    fake = await cluster.add(queues=1)

    def breaks(members: list[Any]) -> bytes:
        raise RuntimeError("a fault of ours")

    settings = BrokerClientSettings(gather_bytes=2 * MOST_BYTES, max_inflight_bytes=1500)
    async with topics(cluster.address, settings=settings) as mq:
        producer = mq.producer("g")
        with monkeypatch.context() as patch:
            patch.setattr("tallystick.rocketmq.client.envelope.encode_batch", breaks)
            bodies = bytes(1000), bytes(1000), b"next", b"next"
            sends = [asyncio.create_task(producer.send("T", body)) for body in bodies]
            gathered, waiting = sends[:2], sends[2:]
            await asyncio.sleep(0)
            if is_given_up:
                for send in gathered:
                    send.cancel()
            outcomes = await asyncio.gather(*gathered, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError if is_given_up else RuntimeError}
        results = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert [content[1] for content in fake.queues["T", 0]] == [b"next"] * 2


def test_a_batch_is_no_longer_than_a_message() -> None:
    with pytest.raises(UsageError, match="gather_bytes is not above max_message_bytes"):
        BrokerClientSettings(gather_bytes=2000, max_message_bytes=1000)
