"""Producers, consumers and admin commands of both kinds, on name servers and brokers of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.broker_peers import CLUSTER, PAUSE_S, Broker
from support.clusters import KINDS, OTHER
from support.following_topics import FollowingTopics
from support.houses import House
from support.java import Java
from support.messages import expected, message
from support.peers import Driver
from support.spark_workers import close_workers
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.pipeline.topic.sink import SinkBrokers, look_up
from tallystick.pipeline.topic.sink_options import TopicSinkOptions
from tallystick.pipeline.topic.sink_part import OncePart, RepeatablePart
from tallystick.pipeline.topic.sink_rows import SinkRow, encode_row
from tallystick.pipeline.worker import worker
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.sending import SendStatus
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.sinking import SinkPlace
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.values import MessageQueue

WAYS = ("sync", "async", "batch", "oneway")
PER_WAY = 60
ALL = PER_WAY * len(WAYS)
SIZE = 500
ALONE = [(kind, kind) for kind in KINDS] + [(kind, OTHER[kind]) for kind in KINDS]


@dataclass(frozen=True)
class Place:
    """A name server and one master of it; ``sender`` and ``reader`` by kind."""

    house: House
    broker: Broker

    async def send(self, kind: str, topic: str, *, first: int, count: int, how: str) -> dict[str, str]:
        return await self.house.clients[kind].ask(
            "send", ns=self.house.ns, topic=topic, seed=7, first=first, count=count, size=SIZE, how=how
        )

    async def send_in_every_way(self, kind: str, topic: str) -> list[str | None]:
        """How many answers of each way said OK."""
        await self.house.make_topic(topic)
        answers = [
            await self.send(kind, topic, first=number * PER_WAY, count=PER_WAY, how=how)
            for number, how in enumerate(WAYS)
        ]
        return [answer.get("SEND_OK") for answer in answers]

    async def poll(self, kind: str, topic: str, group: str, count: int, tags: str = "*") -> dict[str, str]:
        return await self.client(kind).ask(
            "poll", ns=self.house.ns, topic=topic, group=group, count=count, seconds=30, tags=tags
        )

    def client(self, kind: str) -> Driver:
        return self.house.clients[kind]


@pytest.fixture(scope="module", params=ALONE, ids=[f"{ns}-names-{broker}-broker" for ns, broker in ALONE])
def place(
    request: pytest.FixtureRequest, rocketmq: Java, folder: Path, new_house: Callable[[str], Coroutine[Any, Any, House]]
) -> Iterator[Place]:
    name_server, kind = request.param
    house = asyncio.run(new_house(name_server))
    broker = Broker(kind, folder, rocketmq if kind == "java" else None, house.ns, {})
    try:
        asyncio.run(house.start(broker))
        yield Place(house, broker)
    finally:
        broker.kill()
        asyncio.run(house.forget())


@pytest.fixture
def topic() -> str:
    return f"T{secrets.token_hex(4)}"


def unordered(found: dict[str, str]) -> dict[str, str]:
    """One-way messages overtake each other in the sender, and a batch is in one queue: no order to check."""
    return {key: value for key, value in found.items() if key != "ordered"}


@pytest.mark.parametrize("sender", KINDS)
async def test_what_each_kind_sends_in_every_way_all_kinds_of_consumers_read(
    place: Place, topic: str, sender: str
) -> None:
    assert await place.send_in_every_way(sender, topic) == ["60", "60", "3", None]
    wanted = unordered(expected(7, 0, ALL - 1, SIZE))
    # The group's members count, so nothing is missed of what has no answer.
    assert unordered(await place.poll("tally", topic, f"{topic}-tally", ALL)) == wanted
    for kind in KINDS:
        assert unordered(await place.client(kind).ask("pull", ns=place.house.ns, topic=topic, **{"from": 0})) == wanted
    assert unordered(await place.poll("java", topic, f"{topic}-java", ALL)) == wanted


async def test_messages_that_are_gathered_into_a_batch_have_places_of_their_own(place: Place, topic: str) -> None:
    await place.house.make_topic(topic)
    async with topics(place.house.ns, settings=BrokerClientSettings(gather_bytes=16 * 1024)) as mq:
        producer = mq.producer("gathering")
        messages = (message(topic, 7, number, SIZE) for number in range(ALL))
        results = await asyncio.gather(
            *(
                producer.send(topic, one.body, tags=one.tags, keys=one.keys, properties=one.properties)
                for one in messages
            )
        )
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert len({result.offset_id for result in results}) == len({result.message_id for result in results}) == ALL
    by_queue: dict[MessageQueue, list[int]] = {}
    for result in results:
        by_queue.setdefault(result.queue, []).append(result.queue_offset)
    assert all(sorted(offsets) == list(range(len(offsets))) for offsets in by_queue.values()) and len(by_queue) > 1
    for kind in KINDS:
        found = await place.client(kind).ask("pull", ns=place.house.ns, topic=topic, **{"from": 0})
        assert unordered(found) == unordered(expected(7, 0, ALL - 1, SIZE))


@pytest.mark.parametrize("sender", KINDS)
async def test_a_waiting_push_consumer_is_woken_and_goes_on_where_its_group_was(
    place: Place, topic: str, sender: str
) -> None:
    await place.house.make_topic(topic)
    java, group = place.client("java"), f"{topic}-pushed"
    await java.ask("subscribe", ns=place.house.ns, topic=topic, group=group)
    for first in range(0, 60, 20):
        await place.send(sender, topic, first=first, count=20, how="sync")
        found = await java.ask("received", group=group, count=first + 20, seconds=30)
        assert found == expected(7, 0, first + 19, SIZE)
    await java.ask("unsubscribe", group=group)
    await place.send(sender, topic, first=60, count=20, how="sync")
    # A member of the other kind takes the group over: it has what was not committed, and nothing twice.
    assert await place.poll("tally", topic, group, 20) == expected(7, 60, 79, SIZE)


async def test_consumers_of_both_kinds_share_a_group(place: Place, topic: str) -> None:
    """Ours reads half of the queues while theirs reads the other half: together everything once."""
    await place.house.make_topic(topic)
    java, group = place.client("java"), f"{topic}-shared"
    await java.ask("subscribe", ns=place.house.ns, topic=topic, group=group)
    ours = asyncio.create_task(
        place.client("tally").ask("poll", ns=place.house.ns, topic=topic, group=group, count=40, seconds=30)
    )
    await until(partial(_has_two_members, place.broker, group), pause=PAUSE_S)
    number = 0
    while not ours.done():
        await place.send("java", topic, first=number, count=8, how="sync")
        number += 8
    await java.ask("received", group=group, count=number - 40, seconds=10)
    theirs = await java.ask("received", group=group, count=number - 40, seconds=0)
    await java.ask("unsubscribe", group=group)
    assert int((await ours)["count"]) == 40
    assert int(theirs["count"]) >= number - 40


async def test_what_our_consumer_gives_back_comes_again_once(place: Place, topic: str) -> None:
    await place.house.make_topic(topic)
    await place.send("java", topic, first=0, count=20, how="sync")
    group = f"{topic}-back"
    found = await place.client("tally").ask(
        "give-back", ns=place.house.ns, topic=topic, group=group, count=20, seconds=60
    )
    assert unordered(found) == unordered(expected(7, 0, 19, SIZE)) | {"first": "20", "lag": "0"}


@pytest.mark.parametrize("reader", KINDS)
async def test_tags_are_filtered(place: Place, topic: str, reader: str) -> None:
    await place.house.make_topic(topic)
    await place.send(OTHER[reader], topic, first=0, count=30, how="sync")
    assert await place.poll(reader, topic, f"{topic}-green", 10, tags="green") == expected(7, 0, 29, SIZE, "green")


async def test_admin_commands_of_the_original(place: Place, topic: str) -> None:
    house, broker = place.house, place.broker
    assert "success" in await house.admin(f"updateTopic -c {CLUSTER} -t {topic} -r 3 -w 3")
    await house.name_server.routes(topic)
    sent = await place.send("java", topic, first=0, count=1, how="sync")

    line = next(line for line in (await house.admin("clusterList")).splitlines() if broker.address in line)
    assert line.split()[:4] == [CLUSTER, "b0", "0", broker.address]
    route = await house.admin(f"topicRoute -t {topic}")
    assert f'"brokerAddrs":{{0:"{broker.address}"' in re.sub(r"\s", "", route)
    assert '"readQueueNums":3' in re.sub(r"\s", "", route)
    assert topic in (await house.admin("topicList")).split()
    status = await house.admin(f"brokerStatus -b {broker.address}")
    shown = dict(line.split(":", 1) for line in status.replace(" ", "").splitlines() if ":" in line)
    assert shown["msgPutTotalTodayNow"] != "0" and int(shown["bootTimestamp"]) > 0, status
    found = await house.admin(f"queryMsgById -t {topic} -i {sent['id']}")
    assert re.search(rf"Topic:\s+{topic}\b", found) and re.search(r"Keys:\s+\[k7-0\]", found), found
    query = f"queryMsgByKey -t {topic} -k k7-0"
    await until(partial(_prints, house, query, sent["key"]))  # the index is filled a little later
    offsets = [line.split()[:4] for line in (await house.admin(f"topicStatus -t {topic}")).splitlines() if "b0" in line]
    assert sorted(int(maximum) for _, _, _, maximum in offsets) == [0, 0, 1]


async def test_what_operators_order_and_ask_of_a_broker(place: Place, topic: str) -> None:
    house, address, group = place.house, place.broker.address, f"{topic}-g"
    await house.make_topic(topic, queues=1)
    await place.send("java", topic, first=0, count=3, how="sync")
    assert "success" in await house.admin(f"updateSubGroup -b {address} -g {group}")
    assert (await place.poll("java", topic, group, 3))["count"] == "3"
    status = await house.admin(f"brokerStatus -b {address}")
    for name in ("putLatency99", "commitLogDirCapacity", "getMissTps", "EndTransactionQueueSize"):
        assert name in status, name
    for order in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in await house.admin(f"{order} -b {address}"), order
    printed = {
        line: await house.admin(line)
        for line in (
            f"resetOffsetByTime -g {group} -t {topic} -s 0",
            f"skipAccumulatedMessage -g {group} -t {topic}",
            f"brokerConsumeStats -b {address}",
            f"queryCq -t {topic} -q 0 -i 0 -b {address}",
            f"producer -b {address}",
            f"haStatus -b {address}",
            "getNamesrvConfig",
        )
    }
    for line, text in printed.items():
        assert "not supported" not in text, (line, text)
        assert "Exception" not in text, (line, text)
    shown = list(printed.values())
    assert re.search(r"b0\s+0\s+0\b", shown[0]), shown[0]
    assert re.search(r"b0\s+0\s+3\b", shown[1]), shown[1]
    assert topic in shown[2]
    assert "max: 3, min: 0" in shown[3]
    assert "listenPort" in shown[-1] or "kvConfigPath" in shown[-1]


async def test_a_streaming_query_follows_a_topic_and_shows_how_far_it_is(place: Place, topic: str) -> None:
    await place.house.make_topic(topic)
    query = await FollowingTopics(
        place.house.ns, subscribe=topic, groupId=f"{topic}-q", maxOffsetsPerTrigger="25"
    ).start()
    try:
        for first in (0, PER_WAY):
            await place.send("java", topic, first=first, count=PER_WAY, how="sync")
            await until(lambda count=first + PER_WAY: query.has_read(count), 30.0, pause=0.1)  # type: ignore[misc]
        sent = [message(topic, 7, number, SIZE).body for number in range(2 * PER_WAY)]
        assert Counter(query.rows) == Counter(sent)
        shown = await place.house.admin(f"consumerProgress -g {topic}-q")
        for queue in range(4):  # broker offset, consumer offset
            assert re.search(rf"{topic}\s+b0\s+{queue}\s+(\d+)\s+\1\s", shown), shown
        assert "Diff Total: 0" in shown, shown
    finally:
        await query.close()
        close_workers()


async def test_what_a_sink_sends_twice_is_there_once_at_our_broker_and_twice_at_an_original(
    place: Place, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """An original does not know the request of a sink: that is found before anything is sent, and said."""
    await place.house.make_topic(topic)
    is_ours = place.broker.kind == "tally"
    options = {"nameServer": place.house.ns, "topic": topic}
    rows = [_sink_row(message(topic, 7, number, SIZE)) for number in range(PER_WAY)]
    for _ in range(2):
        assert await asyncio.to_thread(_sink, options, topic, rows) == is_ours
    assert ("at least once" in capfd.readouterr().err) == (not is_ours)
    found = await place.poll("java", topic, f"{topic}-java", PER_WAY if is_ours else 2 * PER_WAY)
    if is_ours:
        assert unordered(found) == unordered(expected(7, 0, PER_WAY - 1, SIZE))
    assert found["count"] == str(PER_WAY if is_ours else 2 * PER_WAY)
    with pytest.raises(UsageError, match="delivery=at-least-once") if not is_ours else contextlib.nullcontext():
        await asyncio.to_thread(_sink, {**options, "delivery": "exactly-once"}, topic, rows)
    close_workers()


def _sink(options: dict[str, str], topic: str, rows: Sequence[SinkRow]) -> bool:
    """A task of a sink. Returns whether it sends each message once."""
    own = TopicSinkOptions.parse(options, {}, follows=True)
    task_worker = worker(SinkBrokers(own.name_servers))
    queues, is_once = task_worker.ask(lambda sender: look_up(sender, own))
    if not is_once:
        RepeatablePart(task_worker, topic, list(queues)).send_all(rows)
    else:
        at = SinkPlace(topic, "app", "q", 0, 1, 0)
        start = task_worker.ask(lambda sender: sender.begin(at, queues))
        OncePart(task_worker, at, start).send_all(map(encode_row, rows))
    return is_once


def _sink_row(own: Message) -> SinkRow:
    return SinkRow(bytes(own.body), " ".join(own.keys) or None, own.tags, sorted(own.properties.items()), own.flag)


async def _has_two_members(broker: Broker, group: str) -> bool:
    return len(await broker.members(group)) == 2


async def _prints(house: House, line: str, text: str) -> bool:
    return text in await house.admin(line)
