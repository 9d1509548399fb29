"""A name server, a master and its slaves in this process: the real ones, on small files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from support.waiting import until
from tallystick.admin import brokers
from tallystick.admin.brokers import Operator
from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.keys import SCHEMA
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.runtime.machine import this_machine

SMALL = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "100", "maxIndexNum": "400"}


@dataclass
class LiveCluster:
    """``brokers`` by the ids of the command line: broker-a, broker-a-s1."""

    folder: Path
    name_server: str
    operator: Operator
    brokers: dict[str, Broker] = field(default_factory=dict)

    async def start(self, node: str, *, role: str = "SYNC_MASTER", store: str = "") -> Broker:
        """It is registered when this returns; ``role`` is that of a master, ``store`` another folder than its own."""
        name, _, slave = node.partition("-s")
        settings = {"brokerName": name, "brokerId": slave or "0", "namesrvAddr": self.name_server, "listenPort": "0"}
        settings |= {"storePathRootDir": str(self.store(store or node)), **SMALL}
        settings["brokerRole"] = "SLAVE" if slave else role
        outside = this_machine()
        broker = self.brokers[node] = await start_broker(SCHEMA.read(settings).settings, outside)
        await until(lambda: self.registered(node))
        return broker

    def store(self, node: str) -> Path:
        return self.folder / node

    async def registered(self, node: str) -> bool:
        return node in {process.id for process in await brokers.list_processes(self.operator)}


@contextlib.asynccontextmanager
async def live_cluster(folder: Path, *nodes: str) -> AsyncIterator[LiveCluster]:
    """With these brokers, masters first."""
    settings = NameServerSettings(port=0)
    server = NameServer(settings, this_machine())
    host, port = await server.start()
    try:
        async with brokers.operator(f"{host}:{port}") as operator:
            cluster = LiveCluster(folder, f"{host}:{port}", operator)
            try:
                for node in nodes:
                    await cluster.start(node)
                yield cluster
            finally:
                for broker in reversed(cluster.brokers.values()):
                    await broker.stop()
    finally:
        await server.close()
