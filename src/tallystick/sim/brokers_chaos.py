"""What befalls simulated brokers and their name server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.sim.brokers_hosts import BrokerClientHost, BrokerHost, BrokersWorld, NameServerHost
from tallystick.sim.chaos import Chaos

NAMES_SHARE = 0.15  # of what happens


class BrokersChaos(Chaos):
    """With the words of ``brokers_plan.CHAOS``."""

    def __init__(
        self, world: BrokersWorld, names: NameServerHost, brokers: Sequence[BrokerHost],
        clients: Sequence[BrokerClientHost],
    ) -> None:  # fmt: skip
        """``clients`` may grow."""
        super().__init__(world, (names, *brokers), clients)
        self._names, self._brokers = names, brokers

    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        host = self._names if self._random.random() < NAMES_SHARE else self._random.choice(self._brokers)
        return self._lasts_s(), self._strike(what, host)

    def _keepers(self) -> Sequence[BrokerHost]:
        return self._brokers
