from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import (
    BrokerError,
    BrokerUnavailable,
    NoSuchTopic,
    RequestTimeout,
    TallyError,
    Unavailable,
    UsageError,
)
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.sending import SendResult, SendStatus
from tallystick.rocketmq.wire.headers import read_send
from tallystick.rocketmq.wire.record import Message, decode_properties
from tallystick.rocketmq.wire.system_properties import SYSTEM_PROPERTIES
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events

SEND = RequestCode.SEND_MESSAGE_V2


async def test_messages_go_to_one_queue_after_the_other(cluster: FakeCluster, mq: RocketMQ) -> None:
    one, two = await cluster.add("b1"), await cluster.add("b2")
    producer = mq.producer("g")
    results = [await producer.send("T", b"x") for _ in range(8)]
    assert [len(b.queues[q]) for b in (one, two) for q in (("T", 0), ("T", 1))] == [2, 2, 2, 2]
    assert {result.queue for result in results} == {MessageQueue("T", b, q) for b in ("b1", "b2") for q in (0, 1)}
    assert [result.queue_offset for result in results] == [0] * 4 + [1] * 4


async def test_what_a_message_is_made_of(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    result = await mq.producer("g").send(
        "T", bytearray(b"body"), tags="A", keys=["k1", "k2"], properties={"u": "v"}, flag=7, wait_stored=False
    )
    header = read_send(fake.asked[-1])
    assert decode_properties(header.properties or "") == {
        "u": "v",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "WAIT": "false",
        "UNIQ_KEY": result.message_id,
    }
    assert (header.producer_group, header.flag, header.broker, header.default_topic) == ("g", 7, "b", "TBW102")
    assert fake.asked[-1].body == b"body"
    assert len(result.message_id) == 32
    assert result.offset_id == "F" * 32


@pytest.mark.parametrize("name", sorted(SYSTEM_PROPERTIES))
async def test_a_property_of_the_system_is_refused_wherever_a_message_is_sent(mq: RocketMQ, name: str) -> None:
    producer, properties = mq.producer("g"), {"own": "x", name: "y"}
    with pytest.raises(UsageError, match=f"the property {name} is the system's: leave it out"):
        await producer.send("T", b"x", properties=properties)
    with pytest.raises(UsageError, match=f"the property {name} is"):
        producer.send_nowait("T", b"x", properties=properties)
    with pytest.raises(UsageError, match=f"the property {name} is"):
        await producer.send_one_way("T", b"x", properties=properties)
    with pytest.raises(UsageError, match=f"the property {name} is"):
        await producer.send_batch("T", [b"x", Message("T", b"x", properties=properties)])


async def test_keys_may_be_one_text(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    await mq.producer("g").send("T", b"x", keys="key")
    assert decode_properties(read_send(fake.asked[-1]).properties or "")["KEYS"] == "key"


@pytest.mark.parametrize(
    "status", [SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE]
)
@pytest.mark.rule("H9", "H10")
async def test_h9_h10_a_stored_message_is_not_sent_again_whatever_its_status(
    cluster: FakeCluster, mq: RocketMQ, status: SendStatus
) -> None:
    fake = await cluster.add()

    def late(link: Any, command: Any) -> Any:
        response = fake._send(link, command)
        response.code = int(status.value)
        return response

    fake.react[SEND] = late
    result = await mq.producer("g").send("T", b"x")
    assert (result.status, fake.count(SEND)) == (status, 1)


async def test_a_refused_message_is_sent_again_at_another_broker(
    cluster: FakeCluster, mq: RocketMQ, told: list[Any]
) -> None:
    bad, good = await cluster.add("b1"), await cluster.add("b2")
    bad.react[SEND] = lambda link, command: command.response(ResponseCode.SYSTEM_BUSY, "busy")
    for _ in range(6):
        result = await mq.producer("g").send("T", b"x")
        assert result.queue.broker == "b2"
        assert not result.maybe_twice  # a refusal leaves no doubt
    assert len(good.queues["T", 0]) + len(good.queues["T", 1]) == 6
    assert [event.kind for event in told if event.kind == "send retried"]


async def test_a_message_that_cannot_become_right_is_not_sent_again(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    fake.react[SEND] = lambda link, command: command.response(ResponseCode.MESSAGE_ILLEGAL, "illegal")
    with pytest.raises(BrokerError, match="illegal") as caught:
        await mq.producer("g").send("T", b"x")
    assert (caught.value.response_code, caught.value.ambiguous, fake.count(SEND)) == (13, False, 1)


async def test_retries_are_few_and_the_last_refusal_is_raised(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    fake.react[SEND] = lambda link, command: command.response(ResponseCode.SERVICE_NOT_AVAILABLE, "no")
    with pytest.raises(BrokerError):
        await mq.producer("g").send("T", b"x")
    assert fake.count(SEND) == 3


async def test_a_lost_connection_leaves_doubt_and_the_retry_says_so(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()

    def once(link: Any, command: Any) -> None:
        del fake.react[SEND]
        fake._send(link, command)
        link.abort("test")

    fake.react[SEND] = once
    result = await mq.producer("g").send("T", b"x")
    assert result.maybe_twice
    stored = [decode_properties(content[2])["UNIQ_KEY"] for queue in fake.queues.values() for content in queue]
    assert stored == [result.message_id] * 2  # a consumer can tell


async def test_silence_is_ambiguous(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    fake.react[SEND] = lambda link, command: None
    with pytest.raises(RequestTimeout) as caught:
        await mq.producer("g").send("T", b"x")
    assert caught.value.ambiguous
    assert fake.count(SEND) == 1  # all its time is gone


async def test_doubt_is_not_forgotten_when_a_later_attempt_is_refused(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()

    def first(link: Any, command: Any) -> None:
        fake.react[SEND] = lambda link, command: command.response(ResponseCode.NO_PERMISSION, "read only now")
        link.abort("test")

    fake.react[SEND] = first
    with pytest.raises(TallyError) as caught:
        await mq.producer("g").send("T", b"x")
    assert caught.value.ambiguous


async def test_an_unknown_topic_is_created_after_the_template(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=8, topics=("TBW102", "X"))
    producer = mq.producer("g")
    results = [await producer.send("New", b"x") for _ in range(8)]
    assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
    assert read_send(fake.asked[-1]).default_topic_queue_nums == 4


async def test_the_brokers_of_an_unknown_topic_may_move(cluster: FakeCluster, mq: RocketMQ) -> None:
    """As when a slave becomes the master: a topic that has no route will never tell where they are."""
    fake = await cluster.add(topics=("TBW102", "X"))
    producer = mq.producer("g")
    await producer.send("New", b"x")
    await fake.stop()
    cluster.name_server.routes.unregister("c", fake.name, fake.address)
    moved = await cluster.add(topics=("TBW102", "X"))

    async def is_sent() -> bool:
        with contextlib.suppress(TallyError):
            await producer.send("New", b"y")
        return moved.count(SEND) > 0

    await until(is_sent)
    assert moved.count(SEND) > 0


async def test_an_unknown_topic_that_cannot_be_created(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    with pytest.raises(NoSuchTopic) as caught:
        await mq.producer("g").send("New", b"x")
    assert caught.value.topic == "New"


async def test_a_name_server_that_knows_nothing_yet_is_asked_again(cluster: FakeCluster) -> None:
    """It has just started: for up to 30 s a new producer got NoSuchTopic."""
    told: list[Event] = []
    settings = replace(_settings(), send_timeout_s=20.0, topic_wait_s=20.0)
    async with topics(cluster.address, settings=settings, events=Events(told.append)) as mq:
        sent = asyncio.ensure_future(mq.producer("g").send("T", b"x"))
        await until(lambda: [event.kind for event in told].count("route not found") > 2)
        await cluster.add()
        assert (await sent).status is SendStatus.SEND_OK


async def test_a_topic_without_a_master_takes_nothing(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add(broker_id=1)
    with pytest.raises(BrokerUnavailable, match="takes messages"):
        await mq.producer("g").send("T", b"x")


async def test_a_broker_that_registered_no_address_fails_its_messages(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    fake.address = "nonsense"
    cluster.register(fake)
    with pytest.raises(UsageError, match="host:port"):
        await mq.producer("g").send("T", b"x")


async def test_no_name_server(mq: RocketMQ) -> None:
    async with topics("127.0.0.1:1") as lonely:
        with pytest.raises(Unavailable, match="no name server"):
            await lonely.producer("g").send("T", b"x")


async def test_the_next_name_server_is_asked(cluster: FakeCluster) -> None:
    await cluster.add()
    async with topics(f"127.0.0.1:1;{cluster.address}") as mq:
        assert (await mq.producer("g").send("T", b"x")).status is SendStatus.SEND_OK


async def test_messages_without_waiting_keep_their_order_even_before_the_route_is_known(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    producer = mq.producer("g")
    futures = [producer.send_nowait("T", b"%d" % n) for n in range(100)]
    results = await asyncio.gather(*futures)
    assert [content[1] for content in fake.queues["T", 0]] == [b"%d" % n for n in range(100)]
    assert [result.queue_offset for result in results] == list(range(100))
    assert len({result.message_id for result in results}) == 100


async def test_what_waits_for_a_route_that_does_not_come_fails(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    future = mq.producer("g").send_nowait("Nope", b"x")
    with pytest.raises(NoSuchTopic):
        await future


async def test_bytes_in_flight_are_bounded_by_waiting(cluster: FakeCluster) -> None:
    fake = await cluster.add()
    held: list[Any] = []
    fake.react[SEND] = lambda link, command: held.append((link, command))
    settings = replace(_settings(), max_inflight_bytes=2000, send_timeout_s=20.0)
    async with topics(cluster.address, settings=settings) as mq:
        producer = mq.producer("g")
        sends = [asyncio.create_task(producer.send("T", bytes(1000))) for _ in range(6)]
        await until(lambda: len(held) == 2)
        sends[2].cancel()  # who gives up while waiting holds up nobody
        await asyncio.sleep(0.05)
        assert len(held) == 2
        del fake.react[SEND]
        for link, command in held:
            link.send(fake._send(link, command))
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [isinstance(result, BaseException) for result in results] == [False, False, True, False, False, False]


def _settings() -> Any:
    from tallystick.rocketmq.client.settings import BrokerClientSettings

    return BrokerClientSettings()


async def test_a_batch_is_one_request_to_one_queue(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    result = await mq.producer("g").send_batch("T", [b"1", Message("T", b"2", tags="A"), b"3"])
    stored = fake.queues["T", result.queue.queue_id]
    assert [content[1] for content in stored] == [b"1", b"2", b"3"]
    assert len({decode_properties(content[2])["UNIQ_KEY"] for content in stored}) == 3
    header = read_send(fake.asked[-1])
    assert (header.batch, decode_properties(header.properties or "")["WAIT"]) == (True, "true")


async def test_bodies_alone_and_messages_of_nothing_else_are_a_batch_of_the_same(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add()
    bodies = [bytes([number + 1]) * number for number in range(1, 20)]
    batches: list[list[Message | bytes | bytearray | memoryview]] = [
        [*bodies],
        [Message("T", body) for body in bodies],
        [bytearray(bodies[0]), memoryview(bodies[1]), *bodies[2:]],
        [Message("T", bodies[0], wait_stored=False), Message("T", bodies[1], flag=7), *bodies[2:]],
    ]
    for batch in batches:
        result = await mq.producer("g").send_batch("T", batch)
        stored = fake.queues["T", result.queue.queue_id][-len(batch) :]
        assert [content[1] for content in stored] == bodies
        properties = [decode_properties(content[2]) for content in stored]
        assert len({each["UNIQ_KEY"] for each in properties}) == len(batch)
        has_more = batch is batches[-1]
        assert [content[0] for content in stored[:2]] == [0, 7 if has_more else 0]
        assert [each["WAIT"] for each in properties[:2]] == ["false" if has_more else "true", "true"]


async def test_one_way(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    await mq.producer("g").send_one_way("T", b"x", tags="A")
    await until(lambda: fake.count(SEND) == 1)
    assert fake.asked[-1].is_one_way


async def test_a_given_queue_is_kept(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add(queues=4)
    queue = MessageQueue("T", "b", 3)
    producer = mq.producer("g")
    assert {(await producer.send("T", b"x", queue=queue)).queue for _ in range(5)} == {queue}
    with pytest.raises(Unavailable):
        await producer.send("T", b"x", queue=MessageQueue("T", "nobody", 0))


async def test_long_bodies_are_compressed_when_asked_to(cluster: FakeCluster) -> None:
    fake = await cluster.add()
    async with topics(cluster.address, settings=replace(_settings(), compress_above_bytes=1000)) as mq:
        await mq.producer("g").send("T", bytes(5000))
        assert len(fake.asked[-1].body) < 100
        async with mq.consumer("c", "T", start="first") as consumer:
            assert (await anext(consumer)).body == bytes(5000)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"topic": "", "body": b"x"}, "topic"),
        ({"topic": "T" * 128, "body": b"x"}, "topic"),
        ({"topic": "T", "body": b""}, "body"),
        ({"topic": "T", "body": bytes(4 * 1024 * 1024 + 1)}, "body"),
        ({"topic": "T", "body": b"x", "properties": {"p": "v" * 32767}}, "properties"),
        ({"topic": "T", "body": b"x", "properties": {"p": "\x01"}}, "properties"),
        ({"topic": "T", "body": b"x", "properties": {"p\x02": "v"}}, "properties"),
        ({"topic": "T", "body": b"x", "properties": {"": "v"}}, "properties"),
        ({"topic": "T", "body": b"x", "tags": "a\x02b"}, "properties"),
    ],
)
async def test_what_no_broker_would_take_is_refused_here(mq: RocketMQ, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        await mq.producer("g").send(**arguments)


async def test_each_topic_is_checked(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    producer = mq.producer("g")
    for _ in range(2):
        await producer.send("T", b"x")
        for topic in ("T" * 128, "a b", b"T", ["T"]):
            with pytest.raises(UsageError, match="topic"):
                await producer.send(topic, b"x")  # type: ignore[arg-type]


async def test_batches_that_no_broker_would_take(mq: RocketMQ) -> None:
    producer = mq.producer("g")
    for members in (
        [],
        [b""],
        [b"x", b""],
        [bytearray(b"")],
        [Message("T", b"")],
        [Message("T", b"", tags="A")],
        [bytes(3 * 1024 * 1024)] * 2,
        [Message("Other", b"x")],
        [b"x", Message("T", b"x", tags="A"), Message("Other", b"x")],
        [b"x", "text"],
        [b"x", 7],
    ):
        with pytest.raises(UsageError):
            await producer.send_batch("T", members)  # type: ignore[arg-type]


async def test_what_waits_for_room_does_not_go_behind_a_close(cluster: FakeCluster) -> None:
    """Nobody would wait for its response: it might be stored, or not, when the client closes as well."""
    fake = await cluster.add()
    held: list[Any] = []
    fake.react[SEND] = lambda link, command: held.append((link, command))
    settings = replace(_settings(), max_inflight_bytes=2000, send_timeout_s=20.0)
    async with topics(cluster.address, settings=settings) as mq:
        producer = mq.producer("g")
        sends = [asyncio.create_task(producer.send("T", bytes(1000))) for _ in range(5)]
        await until(lambda: len(held) == 2)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        for link, command in held:
            link.send(fake._send(link, command))
        await closing
        results = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(result) for result in results] == [SendResult] * 2 + [UsageError] * 3
    assert sum(len(queue) for queue in fake.queues.values()) == 2


async def test_closing_waits_for_what_is_under_way(cluster: FakeCluster) -> None:
    fake = await cluster.add()
    async with topics(cluster.address) as mq:
        producer = mq.producer("g")
        futures = [producer.send_nowait("T", b"x") for _ in range(10)]
    assert all(future.done() and future.exception() is None for future in futures)
    with pytest.raises(UsageError):
        producer.send_nowait("T", b"x")
    assert fake.count(RequestCode.UNREGISTER_CLIENT) == 1
