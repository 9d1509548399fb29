"""One simulated life of clients and servers that show each other who they are; TLS is no part of it.

Bookies with SCRAM and DIGEST-MD5, a name server and a broker that ask for signatures, and whole clients of both: with
the right secret, with an old one beside the new, with one that ends, with none. Secrets change. Somebody hears all that
is written, and repeats it to whom he likes; somebody takes a bookie's address. ``handshakes_judge`` says what is
promised.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.sim.brokers_hosts import NameServerHost
from tallystick.sim.chaos import Chaos
from tallystick.sim.cluster_metadata import MetadataFaults, MetadataService
from tallystick.sim.handshakes_hosts import (
    KeyedBookieHost,
    KeyedBrokerHost,
    KeyedClientHost,
    KeyedWorld,
    SenderHost,
    ServedHost,
)
from tallystick.sim.handshakes_judge import IMPOSTOR, HandshakeJudge
from tallystick.sim.handshakes_keys import Keyring
from tallystick.sim.handshakes_plan import HandshakePlan
from tallystick.sim.handshakes_strangers import Heard, Replayer, listen
from tallystick.sim.hosts import Host, client_address
from tallystick.sim.life import live
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import CALM, Fabric
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.transport import SimTransport

BOOKIES = 2
SERVED_S = 60.0  # in which who has a secret that counts is served, when the faults have ended
START_S = 60.0
MAX_TURNS = 60_000
REPLAYER_ADDRESS = client_address(100)


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = HandshakePlan.draw(rng)
    loop = VirtualLoop(max_seconds=START_S + 2 * plan.storm_s + SERVED_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = HandshakeJudge(trace, loop.time)
    judge.stop = loop.stop
    with tempfile.TemporaryDirectory(prefix="tally-sim-") as folder:
        keys = Keyring(folder, rng)
        life = HandshakeLife(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge, keys=keys)
        return live(seed, life.live(), loop, trace, judge, "A3")


class _KeyedChaos(Chaos):
    """It strikes any server."""

    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        return self._lasts_s(), self._strike(what, self._random.choice(self._servers))


class HandshakeLife:
    """One life; ``live`` it once."""

    def __init__(
        self,
        seed: int,
        *,
        rng: random.Random,
        plan: HandshakePlan,
        loop: VirtualLoop,
        trace: Trace,
        judge: HandshakeJudge,
        keys: Keyring,
    ) -> None:
        self._plan, self._random, self._loop, self._trace, self._judge = plan, rng, loop, trace, judge
        self._name, self._keys, self._heard = f"handshakes-{seed}", keys, Heard()

    async def live(self) -> None:
        """Live it to its end."""
        plan, judge, fabric = self._plan, self._judge, Fabric(self._random, self._trace)
        self._fabric = fabric
        service = MetadataService(fabric, self._random, self._name, MetadataFaults(), judge)
        try:
            await service.driver.init_cluster()
            world = KeyedWorld(
                self._loop,
                rng=self._random,
                trace=self._trace,
                fabric=fabric,
                service=service,
                judge=judge,
                plan=plan,
                keys=self._keys,
            )
            clients, senders = self._clients(world)
            self._bookies = [KeyedBookieHost(world, number, 1e9) for number in range(BOOKIES)]
            servers: list[Host[Any]] = [
                *self._bookies,
                NameServerHost(world, users_file=world.keys.names_file),
                KeyedBrokerHost(world),
            ]
            for server in servers:
                server.boot()
            while not all(server.answers for server in servers):  # noqa: ASYNC110  # as an operator looks
                await asyncio.sleep(0.1)
            fabric.on_write = self._wrote
            fabric.faults = plan.links
            programs: list[ServedHost[Any]] = [*clients, *senders]
            self._programs = [program.begin() for program in programs]
            await self._storm(_KeyedChaos(world, servers, programs))
            fabric.faults = CALM
            await self._serve([client for client in clients if self._is_served(client)], senders[0])
        finally:
            service.end()

    def _clients(self, world: KeyedWorld) -> tuple[list[KeyedClientHost], list[SenderHost]]:
        keys, judge = self._keys, self._judge
        clients = [
            KeyedClientHost(world, number, keys.register(number, plan))
            for number, plan in enumerate(self._plan.clients)
        ]
        keys.write()
        senders = [
            SenderHost(world, len(clients), "sender", keys.sender),
            SenderHost(world, len(clients) + 1, "liar", keys.liar),
        ]
        judge.secrets, judge.offered = keys.secrets, self._plan.offered
        judge.holders = {client.address: client.holder for client in clients}
        judge.signed.signers = {sender.address: sender.credentials is keys.sender for sender in senders}
        judge.signed.signers[KeyedBrokerHost(world).address] = True
        self._heard.ignored[REPLAYER_ADDRESS] = None
        return clients, senders

    def _wrote(self, end: SimTransport, data: bytes) -> None:
        self._judge.wrote(end, data)
        self._heard.wrote(end, data)

    def _is_served(self, client: KeyedClientHost) -> bool:
        return client.holder.plan.kind == "right" and client.holder.plan.plugin(self._plan.offered) is not None

    async def _storm(self, chaos: Chaos) -> None:
        plan, keys, rng = self._plan, self._keys, self._random
        replayer = Process(self._loop, "replayer", REPLAYER_ADDRESS)
        addresses = [bookie.address for bookie in self._bookies]
        repeating = Replayer(self._fabric, replayer, self._heard, addresses, random.Random(rng.getrandbits(64)))
        tasks = [asyncio.create_task(chaos.strike(at, what)) for at, what in plan.chaos]
        tasks += [asyncio.create_task(self._impostor(*each)) for each in plan.impostors]
        tasks.append(replayer.start(repeating.run(plan.replays, plan.storm_s)))
        steps: tuple[Callable[[], None], ...] = (keys.renew, keys.switch, self._end_old)
        now = 0.0
        for at, step in zip(plan.rotation, steps, strict=True):
            await asyncio.sleep(at - now)
            now = at
            step()
            self._trace.note("secrets change")
        await asyncio.sleep(plan.storm_s - now)
        chaos.end()
        await asyncio.gather(*tasks)
        chaos.end()

    def _end_old(self) -> None:
        self._keys.end_old(self._loop.time())

    async def _impostor(self, at: float, lasts_s: float, script: str) -> None:
        """Let somebody have the address of a bookie that is down."""
        await asyncio.sleep(at)
        host, fabric = self._random.choice(self._bookies), self._fabric
        if host.retired:
            return
        host.retired = True
        host.kill()
        fabric.power_on(host.address)
        process = Process(self._loop, IMPOSTOR, host.address)
        self._trace.note(IMPOSTOR, host.id, script)
        listen(fabric, process, script, self._heard, random.Random(self._random.getrandbits(64)))
        await asyncio.sleep(lasts_s)
        fabric.kill(process)
        host.retired = False
        host.boot()

    async def _serve(self, keyed: Sequence[KeyedClientHost], sender: SenderHost) -> None:
        """Wait until each of them was served from now on."""
        clients: list[ServedHost[Any]] = [*keyed, sender]
        began_at = self._loop.time()
        while waiting := [client.name for client in clients if client.success_began_at < began_at]:
            if self._loop.time() > began_at + SERVED_S:
                self._judge.fail("A3", f"{waiting} have the right secret, and are not served")
            if ended := [task for task in self._programs if task.done()]:
                self._judge.fail("A3", f"a program ended: {ended[0].exception()!r}")
            await asyncio.sleep(0.5)
