"""Another broker that answers slaves at their master's address while that one is away."""

from __future__ import annotations

from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.wire.values import GroupConfig, TopicConfig
from tallystick.sim.brokers_hosts import HA, NAME, PORT, STORE, BrokersWorld
from tallystick.sim.hosts import Host
from tallystick.sim.virtual.process import Process

FOREIGN = "Foreign"


class Stranger(Host[BrokersWorld]):
    """A broker of another cluster, with a disk, an empty log, and a topic and a group of its own."""

    def __init__(self, world: BrokersWorld, address: str) -> None:
        super().__init__(world, "stranger", address)
        self._broker: Broker | None = None

    @property
    def answers(self) -> bool:
        return self._broker is not None

    async def _run(self, process: Process) -> None:
        settings = BrokerSettings(
            "/broker", NAME, role=Role.ASYNC_MASTER, host=self.address, port=PORT, ha=HA, store=STORE
        )
        broker = self._broker = await start_broker(settings, self._outside(process))
        broker.tables.topics.put(TopicConfig(FOREIGN))
        broker.tables.groups.put(GroupConfig(FOREIGN))

    async def _stop(self) -> None:
        assert self._broker is not None, "only one that answers is asked to stop"
        await self._broker.stop()
