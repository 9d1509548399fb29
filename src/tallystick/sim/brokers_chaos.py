"""What befalls simulated brokers and their name server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tallystick.sim.brokers_hosts import BrokerClientHost, BrokerHost, BrokersWorld, NameServerHost
from tallystick.sim.brokers_stranger import Stranger
from tallystick.sim.chaos import Chaos
from tallystick.sim.hosts import client_address

NAMES_SHARE = 0.15  # of what happens
SOON_S = 1.0  # at most, until a stranger comes
NEW_CLIENTS = 50  # that come at most while a stranger is there


class BrokersChaos(Chaos):
    """With the words of ``brokers_plan.CHAOS``, and of ``metadata``."""

    def __init__(
        self,
        world: BrokersWorld,
        names: NameServerHost,
        brokers: Sequence[BrokerHost],
        clients: Sequence[BrokerClientHost],
    ) -> None:
        """``clients`` may grow."""
        super().__init__(world, (names, *brokers), clients, world.plan.longest_s)
        self._names, self._brokers, self._brokers_world = names, brokers, world

    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        if what == "stranger":
            return self._lasts_s(), self._stranger()
        host = self._names if self._random.random() < NAMES_SHARE else self._random.choice(self._brokers)
        return self._lasts_s(), self._strike(what, host)

    def _stranger(self) -> Callable[[], None]:
        """Kill the master, and let a stranger answer slaves at its address: one with an empty log follows it."""
        master, slaves = self._brokers[0], self._brokers[1:]
        if master.retired or not slaves or not all(slave.has_synced for slave in slaves):
            return lambda: None
        stranger, fabric = Stranger(self._brokers_world, master.address), self._world.fabric
        clients = [(client_address(number), master.address) for number in range(len(self._clients) + NEW_CLIENTS)]
        fabric.cut(clients)
        self._strike("power loss", master)  # so that name servers go on to tell of it
        master.retired = True
        fabric.loop.call_later(self._random.random() * SOON_S, stranger.boot, context=fabric.context)
        return partial(self._leave, stranger, master, clients)

    def _leave(self, stranger: Stranger, master: BrokerHost, cuts: Sequence[tuple[str, str]]) -> None:
        stranger.retired, master.retired = True, False
        stranger.kill()
        self._world.fabric.heal(cuts)
        self._restore(master)

    def _keepers(self) -> Sequence[BrokerHost]:
        return self._brokers
