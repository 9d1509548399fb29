"""What an operator is told of replication, at a real master and its slave in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

import tallystick
from support.live_brokers import LiveCluster, live_cluster
from support.waiting import until
from tallystick.admin import ha
from tallystick.admin.brokers import BrokerProcess
from tallystick.admin.ha import Replication, _StatusResponse, ha_status, pair_links
from tallystick.cli.ha import is_well
from tallystick.rocketmq.wire.bodies import HaStatus, MasterLink, SlaveLink

NO_SLAVE = "it has no slave, and is a SYNC_MASTER: each send is answered SLAVE_NOT_AVAILABLE"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with live_cluster(tmp_path, "broker-a") as cluster:
        yield cluster


async def only(cluster: LiveCluster) -> Replication:
    (found,) = await ha_status(cluster.operator)
    return found


async def in_sync(cluster: LiveCluster) -> bool:
    found = await only(cluster)
    return found.in_sync is True and found.behind_bytes == 0


async def send(cluster: LiveCluster, count: int) -> None:
    async with tallystick.topics(cluster.name_server) as mq:
        for _ in range(count):
            await mq.producer("P").send("T", b"x")


@pytest.mark.parametrize(
    ("in_sync", "tables", "ends", "well"),
    [
        (True, True, True, True),
        (True, True, None, True),
        (True, True, False, False),
        (True, False, True, False),
        (False, True, True, False),
    ],
)
def test_what_an_original_slave_does_not_say_is_nothing_amiss(
    in_sync: bool, tables: bool, ends: bool | None, well: bool
) -> None:
    found = Replication("b", "s", "h:1", in_sync, 0, 0, 0.0, 1.0, "", tables, ends)
    assert is_well(found) is well


def test_a_slave_that_does_not_answer_is_not_well_though_its_master_has_not_noticed() -> None:
    found = Replication("b", "s", "h:1", True, 213, None, 9.4, None, "it does not answer: no answer in time")
    assert is_well(found) and not is_well(replace(found, answers=False))


def test_a_master_without_slaves_is_well_if_it_waits_for_none() -> None:
    alone = Replication("b", None, None, None, None, None, None, None, "it has no slave")
    assert is_well(alone)
    assert not is_well(replace(alone, in_sync=False))


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (MasterLink(), "it has everything"),
        (MasterLink(ends_known=True), "it has everything"),
        (MasterLink(ends_known=False), "queueEndsMayBeUnknown"),
        (MasterLink(ends_known=False, tables_why="cut off"), "its tables are not copied: cut off"),
    ],
)
def test_ends_are_unknown_where_a_slave_says_so(own: MasterLink, why: str) -> None:
    process = cast("BrokerProcess", None)
    master = _StatusResponse(process, HaStatus(True), "")
    slave = _StatusResponse(process, HaStatus(False, link=own), "")
    assert why in ha._why(master, slave, SlaveLink("h:1", 0, 0, True, why="it has everything"))


async def test_a_synchronous_master_without_slaves_is_not_in_sync_and_says_why(cluster: LiveCluster) -> None:
    found = await only(cluster)
    assert (found.slave, found.in_sync) == (None, False)
    assert found.why == NO_SLAVE


async def test_an_asynchronous_master_without_slaves_is_not_expected_to_have_one(cluster: LiveCluster) -> None:
    await cluster.start("broker-b", role="ASYNC_MASTER")
    _, found = await ha_status(cluster.operator)
    assert found == Replication("broker-b", None, None, None, None, None, None, None, "it has no slave")


async def test_a_broker_set_of_which_nothing_is_registered_is_missed_where_it_is_expected(cluster: LiveCluster) -> None:
    found = await ha_status(cluster.operator, ["broker-c", "broker-a", "broker-b"])
    assert [one.broker for one in found] == ["broker-a", "broker-b", "broker-c"]
    assert all("nothing of it is registered" in one.why and not is_well(one) for one in found[1:])
    assert found[0] == await only(cluster), "one that is registered is shown once"


async def test_a_master_without_slaves_that_does_not_answer_is_not_well(cluster: LiveCluster) -> None:
    process = BrokerProcess("c", "broker-a", 0, "127.0.0.1:1")
    for answer in (_StatusResponse(process, None, "it refused"), _StatusResponse(process, HaStatus(True), "")):
        found = await ha._alone(cluster.operator, "broker-a", answer)
        assert found.in_sync is False and not is_well(found)
    assert "does not say whether it waits for one" in found.why


@pytest.mark.rule("H10")
async def test_h10_a_slave_in_sync_and_one_that_is_gone(cluster: LiveCluster) -> None:
    await cluster.start("broker-a-s1")
    await until(lambda: in_sync(cluster))
    await send(cluster, 3)
    await until(lambda: _why(cluster, "it has everything"))  # its tables wait for the first messages to be proven
    found = await only(cluster)
    assert (found.slave, found.in_sync) == ("broker-a-s1", True)
    assert (found.behind_bytes, found.behind_messages, found.behind_s) == (0, 0, 0.0)
    await cluster.brokers["broker-a-s1"].stop()
    await until(lambda: _why(cluster, NO_SLAVE))


async def test_two_masters_of_one_name_are_both_named(cluster: LiveCluster) -> None:
    old = cluster.brokers.pop("broker-a")
    promoted = await cluster.start("broker-a", role="ASYNC_MASTER", store="promoted")
    cluster.brokers["old"] = old
    both = ["{}:{}".format(*broker.address) for broker in (old, promoted)]
    await until(lambda: _named(cluster, both[1]))
    found, alone = await ha_status(cluster.operator)
    assert not is_well(found) and (found.slave, found.in_sync) == (None, False) and is_well(alone)
    assert all(address in found.why for address in both) and "broker-a" in found.why


@pytest.mark.rule("H3")
async def test_h3_with_the_master_away_its_slave_says_why_it_does_not_follow(cluster: LiveCluster) -> None:
    await cluster.start("broker-a-s1")
    await until(lambda: in_sync(cluster))
    await cluster.brokers["broker-a"].stop()
    await until(lambda: _why(cluster, "its master is not registered"))
    found = await only(cluster)
    assert (found.slave, found.in_sync, found.behind_bytes, found.behind_messages) == ("broker-a-s1", False, None, None)


async def test_what_a_slave_lacks_is_counted_in_messages(cluster: LiveCluster) -> None:
    slave = await cluster.start("broker-a-s1")
    await until(lambda: in_sync(cluster))
    await send(cluster, 1)
    await until(lambda: in_sync(cluster))
    slave.log.follow(None)
    await until(lambda: _lost(cluster))
    await send(cluster, 4)
    found = await only(cluster)
    assert (found.in_sync, found.behind_messages, found.why) == (False, 4, "no master is known")
    master = cluster.brokers["broker-a"].parts.store.end
    assert found.behind_bytes == master - slave.parts.store.end > 0


async def test_a_slave_whose_tables_are_not_copied_is_not_well(cluster: LiveCluster) -> None:
    slave = await cluster.start("broker-a-s1")
    await until(lambda: in_sync(cluster))
    await until(lambda: _well(cluster))
    await slave.sync.close()
    slave.sync.status.failures["topics"] = "the master refuses"
    found = await only(cluster)
    assert (found.in_sync, found.tables_copied, is_well(found)) == (True, False, False)
    assert found.why == "its tables are not copied: topics: the master refuses"
    await slave.stop()
    await until(lambda: _why(cluster, NO_SLAVE))
    assert not is_well(await only(cluster))


async def test_a_slave_that_does_not_know_where_its_masters_queues_end_is_not_well(cluster: LiveCluster) -> None:
    slave = await cluster.start("broker-a-s1")
    await until(lambda: in_sync(cluster))
    await until(lambda: _well(cluster))
    assert (await only(cluster)).ends_known is True
    await slave.sync.close()
    slave.parts.store._upkeep.note(begin_offset=1, ends_at=-1)  # as if its log began in the middle of its master's
    found = await only(cluster)
    assert (found.in_sync, found.tables_copied, found.ends_known, is_well(found)) == (True, True, False, False)
    assert "not told yet where its master's queues end" in found.why and "queueEndsMayBeUnknown=true" in found.why
    await send(cluster, 1)
    await until(lambda: in_sync(cluster))
    await slave.sync.sync("{}:{}".format(*cluster.brokers["broker-a"].address))
    found = await only(cluster)
    assert (found.ends_known, found.why, is_well(found)) == (True, "it has everything", True)


async def _well(cluster: LiveCluster) -> bool:
    return is_well(await only(cluster))


async def _why(cluster: LiveCluster, expected: str) -> bool:
    return (await only(cluster)).why == expected


async def _named(cluster: LiveCluster, address: str) -> bool:
    return (await ha_status(cluster.operator))[0].address == address


async def _lost(cluster: LiveCluster) -> bool:
    return not (await only(cluster)).in_sync


def link(slave_id: str | None, address: str = "h:1") -> SlaveLink:
    return SlaveLink(address, 0, 0, True, slave_id=slave_id)


def test_connections_belong_to_slaves_by_their_ids_and_an_original_one_by_being_the_only_one_left() -> None:
    one, two, nameless = link("b:1"), link("b:2"), link(None, "h:9")
    assert pair_links("b", [1, 2], [two, one]) == {1: one, 2: two}
    assert pair_links("b", [1, 2], [one, nameless]) == {1: one, 2: nameless}
    assert pair_links("b", [1, 2], [nameless]) == {}
    assert pair_links("b", [1], [nameless, link(None, "h:8")]) == {}
    assert pair_links("c", [1], [one]) == {}
