"""Topics as an operator makes and finds them, at real brokers in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.live_brokers import LiveCluster, live_cluster
from support.waiting import until
from tallystick.admin import topics
from tallystick.admin.brokers import list_processes, operator
from tallystick.errors import NoSuchTopic, NotFound, Unavailable, UsageError
from tallystick.rocketmq.wire.headers import CreateTopicHeader
from tallystick.rocketmq.wire.values import Perm, RequestCode


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with live_cluster(tmp_path, "broker-a", "broker-b") as cluster:
        yield cluster


async def test_a_topic_is_at_all_masters_or_at_the_one_that_was_named(cluster: LiveCluster) -> None:
    made = await topics.create_topic(cluster.operator, "Everywhere", queues=3)
    assert [one.broker for one in made] == ["broker-a", "broker-b"]
    await topics.create_topic(cluster.operator, "Here", queues=2, broker="broker-b")
    found = [
        (one.topic, one.broker, one.read_queues, one.write_queues) for one in await topics.list_topics(cluster.operator)
    ]
    assert found == [("Everywhere", "broker-a", 3, 3), ("Everywhere", "broker-b", 3, 3), ("Here", "broker-b", 2, 2)]
    (here,) = await topics.topic_route(cluster.operator, "Here")
    assert (here.perm, here.slaves) == (Perm.READ | Perm.WRITE, ())
    assert here.master == "127.0.0.1:{}".format(cluster.brokers["broker-b"].address[1])


async def test_a_topic_is_known_when_its_broker_says_that_it_is_made(cluster: LiveCluster) -> None:
    """Tools of the original ask for the route at once; 2 of 40 topics were not there yet."""
    [master] = [one for one in await list_processes(cluster.operator) if one.broker == "broker-a"]
    for number in range(40):
        name = f"T{number}"
        header = CreateTopicHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        await cluster.operator.ask(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert len(await topics.topic_route(cluster.operator, name)) == 1


async def test_creating_it_again_changes_how_many_queues_are_written_and_hides_none(cluster: LiveCluster) -> None:
    for queues, read, write in ((2, 2, 2), (5, 5, 5), (3, 5, 3), (None, 5, 3)):
        (made,) = await topics.create_topic(cluster.operator, "T", queues=queues, broker="broker-a")
        assert (made.read_queues, made.write_queues) == (read, write)
        assert await topics.topic_route(cluster.operator, "T") == [made]
    made, new = await topics.create_topic(cluster.operator, "T")
    assert [(one.broker, one.write_queues) for one in (made, new)] == [("broker-a", 3), ("broker-b", 4)]


async def test_what_brokers_have_for_themselves_is_shown_when_asked_for(cluster: LiveCluster) -> None:
    assert await topics.list_topics(cluster.operator) == []
    shown = {one.topic for one in await topics.list_topics(cluster.operator, system=True)}
    assert {"TBW102", "broker-a", "DefaultCluster", "SELF_TEST_TOPIC"} <= shown


async def test_what_cannot_be_is_refused_before_anything_is_done(cluster: LiveCluster) -> None:
    for wrong in ("", "a/b", "../x", "x" * 128):
        with pytest.raises(UsageError):
            await topics.create_topic(cluster.operator, wrong, queues=1)
    with pytest.raises(UsageError, match="1 to 65536 queues"):
        await topics.create_topic(cluster.operator, "T", queues=0)
    for place in ({"broker": "broker-c"}, {"cluster": "Other"}):
        with pytest.raises(NotFound, match="knows broker-a of DefaultCluster, broker-b of DefaultCluster"):
            await topics.create_topic(cluster.operator, "T", queues=1, **place)
    with pytest.raises(NoSuchTopic, match=r"for the topic: T \("):  # one line: the rest is a link
        await topics.topic_route(cluster.operator, "T")


async def test_a_dead_broker_is_not_listed_and_a_dead_name_server_is_told(cluster: LiveCluster) -> None:
    await cluster.brokers["broker-b"].stop()
    await until(lambda: _names(cluster, ["broker-a"]))
    async with operator("127.0.0.1:9") as nobody:
        with pytest.raises(Unavailable, match="no name server answers"):
            await list_processes(nobody)


async def test_a_broker_that_is_taken_for_a_name_server_is_said_to_be_none(cluster: LiveCluster) -> None:
    address = "127.0.0.1:{}".format(cluster.brokers["broker-a"].address[1])
    async with operator(address) as wrong:
        with pytest.raises(UsageError, match=f"^{address} answers and is no name server"):
            await list_processes(wrong)
    async with operator(f"{address};{cluster.name_server}") as one_of_two:
        assert len(await list_processes(one_of_two)) == 2


async def _names(cluster: LiveCluster, expected: list[str]) -> bool:
    return [process.id for process in await list_processes(cluster.operator)] == expected
