"""A name server with the brokers that it knows, and clients of either kind to look at them."""

from __future__ import annotations

from dataclasses import dataclass

from support.broker_peers import CLUSTER, Broker, NameServer
from support.peers import Driver


@dataclass(frozen=True)
class House:
    """``clients`` by kind: "java", "tally". They are shared with other houses."""

    name_server: NameServer
    clients: dict[str, Driver]

    @property
    def ns(self) -> str:
        return self.name_server.address

    async def admin(self, line: str) -> str:
        """What an admin command of the original printed."""
        return (await self.clients["java"].ask("admin", line=f"{line} -n {self.ns}"))["printed"]

    async def make_topic(self, name: str, queues: int = 4) -> str:
        """By the original's admin client on all masters."""
        await self.clients["java"].ask("topic", ns=self.ns, cluster=CLUSTER, topic=name, queues=queues)
        await self.name_server.routes(name)
        return name

    async def start(self, *brokers: Broker) -> None:
        """One after another, each until the name server knows it."""
        for broker in brokers:
            await broker.start()
            await self.name_server.knows(broker)

    async def forget(self) -> None:
        """Clients ask its name server no more: it is about to go."""
        for client in self.clients.values():
            await client.ask("forget", ns=self.ns)
