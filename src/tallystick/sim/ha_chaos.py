"""What befalls a simulated master and its slaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tallystick.rocketmq.wire.ha import REPORT
from tallystick.sim import ha_plan as plans
from tallystick.sim.chaos import Chaos
from tallystick.sim.ha_hosts import MASTER, PORT, HaHost, HaWorld
from tallystick.sim.ha_log import FILE_BYTES
from tallystick.sim.hosts import Host
from tallystick.sim.virtual.process import Process

PAUSE_S = 0.5  # of a stranger, between two words
CONNECT_S = 5.0


class HaChaos(Chaos):
    """With the words of ``ha_plan.CHAOS``."""

    def __init__(self, world: HaWorld, nodes: Sequence[HaHost]) -> None:
        super().__init__(world, nodes, ())
        self._nodes = nodes
        self._strangers = 0

    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        node = self._random.choice(self._nodes)
        match what:
            case "retention":
                node.log.retain()
            case "full disk":
                node.log.fill(self._random.randint(0, FILE_BYTES))
            case "failing disk":
                node.log.fail()
            case "forget":
                self._world.fabric.forget_all(node.address)
            case plans.EMPTY_DISK:
                node = self._random.choice(self._nodes[1:])
                node.lose_disk()
            case "stranger":
                self._stranger()
            case _:
                return self._lasts_s(), self._strike(what, node)
        self._world.trace.note("strikes", what, node.id)
        return self._lasts_s(), node.log.heal

    def darken_soon(self) -> None:
        """Take the power from all nodes as soon as the present turn has ended."""
        fabric = self._world.fabric
        fabric.loop.call_soon(self.darken, context=fabric.context)

    def _stranger(self) -> None:
        """Open a connection to the HA port that is no slave's."""
        rng, end = self._random, self._nodes[0].log.end
        words = rng.choice(
            (
                [rng.randbytes(rng.randint(1, 40))],
                [REPORT.pack(end + rng.randint(1, 2000))],
                [REPORT.pack(max(end, 1)), REPORT.pack(end + rng.choice((1 << 20, 1 << 62)))],
                [REPORT.pack(-rng.randint(1, 5)), REPORT.pack(-2), rng.randbytes(8)],
            )
        )
        self._strangers += 1
        process = Process(self._world.loop, f"stranger {self._strangers}", f"10.0.2.{self._strangers}")
        process.start(self._say(process, words))

    async def _say(self, process: Process, words: Sequence[bytes]) -> None:
        try:
            transport = await self._world.fabric.network(process).connect(MASTER, PORT, asyncio.Protocol, CONNECT_S)
        except OSError:
            return  # the master is not there
        for word in words:
            transport.write(word)
            await asyncio.sleep(PAUSE_S)

    def _restore(self, host: Host[HaWorld]) -> None:
        assert isinstance(host, HaHost)
        host.log.heal()
        super()._restore(host)
