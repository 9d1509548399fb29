"""A master of one kind with a slave of the other: the log byte for byte, the tables, what acknowledgements promise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from support.broker_peers import GROUPS, OFFSETS, TOPICS, Broker
from support.clusters import KINDS, OTHER
from support.houses import House
from support.java import Java
from support.messages import expected
from support.waiting import until

TOPIC, GROUP, SIZE = "Copied", "copied_readers", 1000
# The original waits for slaves only when it is told how many; ours takes the same keys.
MODES: dict[str, dict[str, object]] = {
    "async": {"brokerRole": "ASYNC_MASTER"},
    "sync": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2, "slaveTimeout": 1000},
}
SLAVE = {"brokerId": 1, "brokerRole": "SLAVE"}


class Pair:
    """A master, and slaves of it when they are made."""

    def __init__(
        self, house: House, folder: Path, java: Java, kind: str, settings: Mapping[str, object], stack: ExitStack
    ) -> None:
        self.house, self.kind = house, kind
        self._folder, self._java, self._stack = folder, java, stack
        self.master = self.broker(kind, settings)
        self.sent = 0

    def broker(self, kind: str, settings: Mapping[str, object]) -> Broker:
        broker = Broker(kind, self._folder, self._java if kind == "java" else None, self.house.ns, settings)
        self._stack.callback(broker.kill)
        return broker

    async def slave(self, kind: str) -> Broker:
        """A new one, with the tables that an original would ask for only after a minute."""
        slave = self.broker(kind, SLAVE)
        if kind == "java":
            await until(lambda: TOPIC in self.master.table(TOPICS).get("topicConfigTable", {}))
            slave.take_tables(self.master)
        await self.house.start(slave)
        return slave

    async def send(self, count: int, how: str = "async", sender: str = "java", wait: str = "yes") -> dict[str, str]:
        """How many got which status."""
        answer = await self.house.clients[sender].ask(
            "send", ns=self.house.ns, topic=TOPIC, seed=3, first=self.sent, count=count, size=SIZE, how=how, wait=wait
        )
        self.sent += count
        return {name: number for name, number in answer.items() if name.isupper()}

    async def copied(self, slave: Broker) -> None:
        """Wait until the slave has what the master has, from where it began, and knows the topic."""

        def same() -> bool:
            if TOPIC not in slave.table(TOPICS).get("topicConfigTable", {}):
                return False
            theirs, ours = self.master.log(), slave.log()
            return bool(ours) and ours == {name: data for name, data in theirs.items() if name >= min(ours)}

        await until(same, seconds=60)

    async def read_by_all(self) -> None:
        """Every message sent, from whatever broker there is, by clients of both kinds."""
        for kind in KINDS:
            pulled = await self.house.clients[kind].ask("pull", ns=self.house.ns, topic=TOPIC, **{"from": 0})
            assert pulled["count"] == str(self.sent)
            assert pulled["sha256"] == expected(3, 0, self.sent - 1, SIZE)["sha256"]

    async def restart_master(self) -> None:
        await self.house.start(self.master)
        await until(lambda: self._master_routed())

    async def _master_routed(self) -> bool:
        return self.master.address in await self.house.admin(f"topicRoute -t {TOPIC}")


PairOf = Callable[[str, str], Awaitable[Pair]]


@pytest.fixture
async def pair_of(
    rocketmq: Java, tmp_path: Path, new_house: Callable[[str], Awaitable[House]]
) -> AsyncIterator[PairOf]:
    """Makes a house with a running master of a kind and mode, and the topic."""
    houses = []
    with ExitStack() as stack:

        async def make(kind: str, mode: str) -> Pair:
            pair = Pair(await new_house("tally"), tmp_path, rocketmq, kind, MODES[mode], stack)
            houses.append(pair.house)
            await pair.house.start(pair.master)
            await pair.house.make_topic(TOPIC)
            return pair

        yield make
        for house in houses:
            await house.forget()


@pytest.mark.rule("H3", "H4", "H5", "H8", "H9", "H10", "H13")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_slave_of_the_other_kind_through_everything(pair_of: PairOf, kind: str, mode: str) -> None:
    pair = await pair_of(kind, mode)
    # Without a slave: stored all the same, and a message that need not be waited for is none to complain about.
    alone = {"async": {"SEND_OK"}, "sync": {"SLAVE_NOT_AVAILABLE" if kind == "tally" else "FLUSH_SLAVE_TIMEOUT"}}
    assert set(await pair.send(40)) == alone[mode]
    assert await pair.send(40, wait="no") == {"SEND_OK": "40"}

    slave = await pair.slave(OTHER[kind])
    await pair.copied(slave)
    for how, sender in (("sync", "java"), ("async", "tally"), ("batch", "java")):
        assert set(await pair.send(200, how, sender)) == {"SEND_OK"}
    await pair.copied(slave)

    slave.kill()
    await pair.send(1500, wait="no")  # more than a file: the slave is in the middle of the log when it comes back
    await pair.house.start(slave)
    await pair.copied(slave)

    assert await pair.send(300) == {"SEND_OK": "300"}
    if mode == "async":
        await pair.copied(slave)
    pair.master.kill()  # synchronous: all that was acknowledged is on the slave at this moment
    await pair.house.name_server.has_lost(pair.master)
    await pair.read_by_all()

    await pair.restart_master()
    await until(partial(_takes_messages, pair))
    await pair.copied(slave)
    await pair.read_by_all()
    for broker in (pair.master, slave):
        broker.kill()
        assert broker.check() == []


async def _takes_messages(pair: Pair) -> bool:
    """Whether the master has its slave again."""
    return set(await pair.send(10)) == {"SEND_OK"}


@pytest.mark.rule("H4")
@pytest.mark.parametrize("kind", KINDS)
async def test_h4_an_empty_slave_of_the_other_kind_begins_with_the_newest_file(pair_of: PairOf, kind: str) -> None:
    pair = await pair_of(kind, "async")
    await pair.send(2000, "batch")
    slave = await pair.slave(OTHER[kind])
    await pair.copied(slave)
    assert list(slave.log()) == list(pair.master.log())[-1:] != list(pair.master.log())[:1]
    await pair.send(1500, "batch")
    await pair.copied(slave)
    assert len(slave.log()) > 1


@pytest.mark.rule("H9")
@pytest.mark.parametrize("kind", KINDS)
async def test_h9_a_slave_that_hangs_costs_a_time_out_and_no_message(pair_of: PairOf, kind: str) -> None:
    pair = await pair_of(kind, "sync")
    slave = await pair.slave(OTHER[kind])
    await until(partial(_takes_messages, pair))
    slave.pause()
    assert await pair.send(20) == {"FLUSH_SLAVE_TIMEOUT": "20"}
    slave.resume()
    await until(partial(_takes_messages, pair))
    await pair.copied(slave)
    await pair.read_by_all()


@pytest.mark.rule("H12")
async def test_h12_our_slave_has_the_tables_of_an_original_master(
    pair_of: PairOf,
) -> None:
    await _tables_copied(await pair_of("java", "async"), "tally", seconds=20)


@pytest.mark.rule("H6", "H12")
async def test_h12_an_original_slave_has_the_tables_of_our_master_and_keeps_an_idle_link(
    pair_of: PairOf,
) -> None:
    # It asks for the first time after 61 s; the link idles for longer than anybody listens in silence (20 s).
    await _tables_copied(await pair_of("tally", "async"), "java", seconds=90)


async def _tables_copied(pair: Pair, kind: str, seconds: float) -> None:
    await pair.send(40)
    slave = pair.broker(kind, SLAVE)
    await pair.house.start(slave)
    polled = await pair.house.clients["java"].ask(
        "poll", ns=pair.house.ns, topic=TOPIC, group=GROUP, count=40, seconds=20
    )
    assert polled["count"] == "40"
    await pair.house.admin(f"updateSubGroup -b {pair.master.address} -g made_by_command -r 3")

    await until(partial(_tables_equal, pair.master, slave), seconds)
    assert set(await pair.send(40)) == {"SEND_OK"}
    await pair.copied(slave)
    pair.master.kill()
    await pair.house.name_server.has_lost(pair.master)
    # The group goes on at the slave where it was at the master.
    polled = await pair.house.clients["java"].ask(
        "poll", ns=pair.house.ns, topic=TOPIC, group=GROUP, count=40, seconds=30
    )
    assert {key: polled[key] for key in ("count", "sha256")} == {
        key: expected(3, 40, 79, SIZE)[key] for key in ("count", "sha256")
    }


def _tables_equal(master: Broker, slave: Broker) -> bool:
    """Versions too. A slave may have system topics that its master is set not to have."""
    theirs, ours = master.table(TOPICS), slave.table(TOPICS)
    topics, copied = theirs.get("topicConfigTable", {}), ours.get("topicConfigTable", {})
    groups = master.table(GROUPS), slave.table(GROUPS)
    offsets = [broker.table(OFFSETS).get("offsetTable", {}) for broker in (master, slave)]
    return (
        {name: copied.get(name) for name in topics} == topics
        and theirs.get("dataVersion") == ours.get("dataVersion")
        and groups[0] == groups[1] != {}
        and offsets[0] == offsets[1]
        and TOPIC in topics
        and f"{TOPIC}@{GROUP}" in offsets[0]
        and "made_by_command" in groups[0]["subscriptionGroupTable"]
    )
