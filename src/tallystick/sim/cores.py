"""One simulated life of a ledger: written, disturbed, recovered by rivals, closed; every promise checked on the way.

First everything may go wrong (safety), then the faults stop and the ledger must come to its end (liveness, P9).
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.sim.bookies import Bookie, Cluster
from tallystick.sim.clients import Recoverer, Writer
from tallystick.sim.faults import Scenario
from tallystick.sim.invariants import Checker, Violation
from tallystick.sim.registry import Registry
from tallystick.sim.world import World

STORM_S = 40.0
CALM_S = 300.0
MAX_STEPS = 200_000


@dataclass(frozen=True)
class Outcome:
    """How one schedule ended; ``violation`` None is a pass; ``promised`` entries were acknowledged."""

    seed: int
    violation: str | None
    promised: int
    fingerprint: str
    trace: tuple[str, ...] = ()


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    world = World(seed, keep_trace=keep_trace)
    scenario = Scenario.draw(world.random)
    world.note(scenario)
    cluster = Cluster(world, scenario.faults, scenario.bookies)
    checker = Checker(world, cluster, scenario.striping)
    violation = None
    try:
        _live(world, scenario, cluster, checker)
    except Violation as found:
        violation = str(found)
    except AssertionError as broken:  # an invariant inside a core
        violation = f"core: {broken or type(broken).__name__}"
    return Outcome(seed, violation, checker.acked + 1, world.fingerprint, tuple(world.trace or ()))


def _live(world: World, scenario: Scenario, cluster: Cluster, checker: Checker) -> None:
    striping = scenario.striping
    ensemble = tuple(world.random.sample(list(cluster.bookies), striping.ensemble_size))
    metadata = LedgerMetadata(
        striping.ensemble_size, striping.write_quorum, striping.ack_quorum, (Fragment(0, ensemble),), DigestType.CRC32C
    )
    checker.on_metadata(metadata)
    registry = Registry(world, scenario.faults, metadata, checker.on_metadata)
    writer = Writer(world, cluster, registry, checker)
    recoverers = [
        Recoverer(world, cluster, registry, checker, f"recoverer {number}") for number in range(scenario.recoverers)
    ]
    _schedule(world, scenario, cluster, writer, recoverers)
    if not world.run(STORM_S, MAX_STEPS):
        raise Violation("P9: something spins in the storm")
    cluster.calm = True
    for bookie in cluster.bookies.values():
        cluster.start(bookie)
    if not world.run(STORM_S + CALM_S, MAX_STEPS):
        raise Violation("P9: something spins in the calm")
    if writer.alive and writer.core.failure is None:
        checker.on_calm_writer(scenario.entries)
    last = Recoverer(world, cluster, registry, checker, "last recoverer")
    world.after(0.0, last.begin)
    if not world.run(STORM_S + 2 * CALM_S, MAX_STEPS):
        raise Violation("P9: recovery spins in the calm")
    checker.at_the_end(world.seed)


def _schedule(world: World, scenario: Scenario, cluster: Cluster, writer: Writer, recoverers: list[Recoverer]) -> None:
    """When who does what; all of it inside the storm."""
    rng, faults = world.random, scenario.faults
    left = scenario.entries
    moment = 0.0
    while left:
        count = min(left, rng.choice((1, 1, 2, 3)))
        world.after(moment, writer.hears, writer.append, count)
        left -= count
        moment += rng.choice((0.0, 0.01, 0.1, 2.0)) * rng.random()
    end = moment + rng.random() * rng.choice((0.05, 1.0, 12.0))
    world.after(end, _end_writer, world, faults.writer_end, writer)
    for recoverer in recoverers:
        world.after(rng.random() * rng.choice((0.1, 3.0, 15.0)), recoverer.begin)
    for bookie in cluster.bookies.values():
        if world.chance(faults.kill_bookie / len(cluster.bookies)):
            died = rng.random() * rng.choice((0.2, 5.0, 20.0))
            world.after(died, cluster.kill, bookie)
            world.after(died + rng.random() * rng.choice((0.5, 10.0, 60.0)), cluster.start, bookie)
        if world.chance(faults.pause / len(cluster.bookies)):
            world.after(rng.random() * 5.0, _pause, world, bookie, rng.random() * 20.0)


def _end_writer(world: World, how: str, writer: Writer) -> None:
    world.note("writer", how)
    if how == "kill":
        writer.alive = False
    elif how == "pause":
        writer.silent_until = world.now + world.random.random() * 30.0
    elif how == "close":
        writer.hears(writer.close)


def _pause(world: World, bookie: Bookie, seconds: float) -> None:
    until = world.now + seconds
    world.note(bookie.id, "pauses until", f"{until:.3f}")
    bookie.silent_until = until
