"""``tally sim``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from tallystick.sim.series import Outcome

app = App(name="sim", help="Run production code through seeded faults: protocol cores, stores, whole clusters.")

Kind = Literal["ledger", "cluster", "storage", "replication", "metadata", "brokers"]
Cluster = Annotated[bool, Parameter(help="A life of a cluster: whole clients and bookies instead of their cores.")]
Storage = Annotated[bool, Parameter(help="A life of a bookie's storage instead of one of a ledger.")]
Replication = Annotated[
    bool, Parameter(name="--ha", help="A life of a master and its slaves instead of one of a ledger.")
]
Metadata = Annotated[bool, Parameter(help="A life of a master's and a slave's tables instead of one of a ledger.")]
Brokers = Annotated[bool, Parameter(help="A life of brokers: name server, master, slaves and whole clients.")]


@app.command
def run(
    *,
    seeds: Annotated[int | None, Parameter(help="How many lives of each kind; by default as the time allows.")] = None,
    seconds: Annotated[float, Parameter(help="Stop after this long; an equal part of it for each kind.")] = 60.0,
    kind: Annotated[tuple[Kind, ...], Parameter(help="Which kinds of lives; all by default. Repeatable.")] = (),
    first: Annotated[int | None, Parameter(help="The first seed; a random one by default.")] = None,
) -> int:
    """Lives of ledgers, clusters, a bookie's storage, masters with slaves and their stores, their tables, brokers.

    Messages are lost, late and doubled, links cut, disks full, failing and without power. Every promise is checked.
    """
    from functools import partial
    from itertools import count

    from tallystick.errors import UsageError
    from tallystick.sim import brokers, cluster, cores, ha, metadata, series, storage

    if seconds <= 0 or (seeds is not None and seeds < 1):
        raise UsageError("--seconds must be above 0 and --seeds at least 1", seconds=seconds, seeds=seeds)
    start = series.random_start() if first is None else first
    print(f"seeds from {start}", flush=True)
    failed = 0
    lives: dict[Kind, tuple[str, Callable[[int], Outcome]]] = {
        "ledger": ("", cores.run),
        "cluster": ("--cluster ", cluster.run),
        "storage": ("--storage ", storage.run),
        "replication": ("--ha ", ha.run),
        "metadata": ("--metadata ", metadata.run),
        "brokers": ("--brokers ", brokers.run),
    }
    kinds: tuple[Kind, ...] = kind or get_args(Kind)
    for name in kinds:
        option, life = lives[name]
        wanted = count(start) if seeds is None else range(start, start + seeds)
        summary = series.run_many(life, wanted, seconds=seconds / len(kinds), progress=partial(_progress, name))
        rate = summary.lives / summary.seconds
        print(f"{name}: {summary.lives:,} schedules, {summary.promised:,} entries promised, {rate:,.0f} schedules/s")
        for outcome in summary.failed:
            print(f"  seed {outcome.seed}: {outcome.violation}\n    again: tally sim replay {option}{outcome.seed}")
        failed += len(summary.failed)
    print(f"{failed} schedules broke a promise" if failed else "every promise held")
    return 1 if failed else 0


def _progress(kind: str, done: int) -> None:
    print(f"  {done:,} {kind} lives", flush=True)


@app.command
def replay(
    seed: Annotated[int, Parameter(help="As printed by: tally sim run")],
    /,
    *,
    cluster: Cluster = False,
    storage: Storage = False,
    ha: Replication = False,
    metadata: Metadata = False,
    brokers: Brokers = False,
) -> int:
    """Run one schedule again; of all but a storage's life every step is printed."""
    if storage:
        from tallystick.sim import storage as bookie_storage

        life = bookie_storage.run(seed)
        print(
            f"seed {seed}: {life.violation or 'every promise held'} ({life.promised} promised, {life.crashes} crashes)"
        )
        return 1 if life.violation else 0
    from tallystick.sim import brokers as whole_brokers
    from tallystick.sim import cluster as whole
    from tallystick.sim import cores
    from tallystick.sim import ha as replication
    from tallystick.sim import metadata as tables

    tier = whole if cluster else whole_brokers if brokers else replication if ha else tables if metadata else cores
    outcome = tier.run(seed, keep_trace=True)
    print("\n".join(outcome.trace))
    print(f"seed {seed}: {outcome.violation or 'every promise held'} (trace {outcome.fingerprint})")
    return 1 if outcome.violation else 0
