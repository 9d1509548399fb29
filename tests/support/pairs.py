"""A master and its slaves, of one kind or of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from support.broker_peers import PAUSE_S, TOPICS, Broker
from support.clusters import KINDS
from support.houses import House
from support.java import Java
from support.messages import expected
from support.waiting import until

TOPIC, SIZE = "Copied", 1000
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
        self.brokers: list[Broker] = []
        self.master = self.broker(kind, settings)
        self.sent = 0

    def broker(self, kind: str, settings: Mapping[str, object]) -> Broker:
        broker = Broker(kind, self._folder, self._java if kind == "java" else None, self.house.ns, settings)
        self._stack.callback(broker.kill)
        self.brokers.append(broker)
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

    async def takes_messages(self) -> bool:
        """Whether the master has its slave again."""
        return set(await self.send(10)) == {"SEND_OK"}

    async def copied(self, slave: Broker) -> None:
        """Wait until the slave has what the master has, from where it began, and knows the topic."""

        def same() -> bool:
            if TOPIC not in slave.table(TOPICS).get("topicConfigTable", {}):
                return False
            theirs, ours = self.master.log(), slave.log()
            return bool(ours) and ours == {name: data for name, data in theirs.items() if name >= min(ours)}

        await until(same, seconds=60, pause=PAUSE_S)

    async def read_by_all(self) -> None:
        """Every message sent, from whatever broker there is, by clients of both kinds."""
        for broker in self.brokers:
            if broker.process is not None:
                await broker.serves(TOPIC, self.sent)
        for kind in KINDS:
            pulled = await self.house.clients[kind].ask("pull", ns=self.house.ns, topic=TOPIC, **{"from": 0})
            assert pulled["count"] == str(self.sent)
            assert pulled["sha256"] == expected(3, 0, self.sent - 1, SIZE)["sha256"]

    async def restart_master(self) -> None:
        await self.house.start(self.master)
        await self.house.name_server.routes(TOPIC, to=self.master.address)


PairOf = Callable[[str, str], Awaitable[Pair]]
