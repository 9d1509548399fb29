"""What befalls the bookies of a simulated cluster, and its clients."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.sim.chaos import Chaos
from tallystick.sim.cluster_metadata import ADDRESS


class ClusterChaos(Chaos):
    """With the words of ``cluster_faults.CHAOS``."""

    services = (ADDRESS,)

    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        lasts_s = self._lasts_s()
        if what.endswith("of a client"):
            return lasts_s, self._strike_client(what)
        return lasts_s, self._strike(what, self._random.choice(self._servers))

    def _strike_client(self, what: str) -> Callable[[], None]:
        clients = [client for client in self._clients if client.process.alive]
        if not clients:
            return lambda: None
        client = self._random.choice(clients)
        self._world.trace.note("strikes", what, client.name, client.address)
        if what == "cut of a client":
            return self._cut(self._random.choice(("cut in", "cut out", "cut off")), client.address)
        client.process.pause()
        return client.process.go_on
