"""What befalls the bookies of a simulated stream, and who uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.sim.chaos import Chaos
from tallystick.sim.cluster_hosts import BookieHost
from tallystick.sim.store_service import ADDRESS
from tallystick.sim.streams_hosts import StreamClientHost, StreamsWorld


class StreamsChaos(Chaos):
    """With the words of ``streams_plan.CHAOS``. A client that is killed is begun again by who has it run."""

    services = (ADDRESS,)

    def __init__(self, world: StreamsWorld, servers: Sequence[BookieHost], clients: Sequence[StreamClientHost]) -> None:
        super().__init__(world, servers, clients)
        self._store = world.service.store

    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        lasts_s = self._lasts_s()
        if what.endswith("client") or what == "cut from the metadata":
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
        if what == "cut from the metadata":
            pairs = [(client.address, ADDRESS), (ADDRESS, client.address)][self._random.randrange(2) :]
            self._world.fabric.cut(pairs)
            return lambda: self._world.fabric.heal(pairs)
        if what == "pause of a client":
            client.process.pause()
            return client.process.go_on
        if what == "kill of a client":
            client.kill()
        else:
            sessions = [session for session in self._store.sessions if session.process is client.process]
            for session in sessions[self._random.randrange(2) :]:  # all, or those of leases alone
                session.expire()
        return lambda: None
