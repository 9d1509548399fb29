"""``tally sim``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cyclopts import App, Parameter

from tallystick.cli.options import NUMBER, WHOLE

if TYPE_CHECKING:
    from tallystick.sim.series import Life

app = App(name="sim", help="Run production code through seeded faults: whole clusters and brokers, stores.")

Kind = Literal[
    "cluster",
    "repairs",
    "restores",
    "storage",
    "storage-folders",
    "handshakes",
    "streams",
    "sinks",
    "replication",
    "metadata",
    "brokers",
    "broker-sinks",
]
_MODULES: dict[Kind, str] = {
    "replication": "ha",
    "broker-sinks": "broker_sinks",
    "storage-folders": "storage_folders",
}  # the others have the names of their kinds


def _life(kind: Kind) -> Life:
    """What runs one life of a kind; only that one's module is imported."""
    import importlib

    run: Life = importlib.import_module(f"tallystick.sim.{_MODULES.get(kind, kind)}").run
    return run


@app.command
def run(
    *,
    seeds: Annotated[
        int | None, WHOLE, Parameter(help="How many lives of each kind; by default as the time allows.")
    ] = None,
    seconds: Annotated[
        float, NUMBER, Parameter(help="Stop after this long; an equal part of it for each kind.")
    ] = 60.0,
    kind: Annotated[tuple[Kind, ...], Parameter(help="Which kinds of lives; all by default. Repeatable.")] = (),
    first: Annotated[int | None, WHOLE, Parameter(help="The first seed; a random one by default.")] = None,
) -> int:
    """Run lives of clusters, bookies' storage, streams, sinks, masters with slaves, brokers, their tables and sinks.

    Messages are lost, late and doubled, links cut, disks full, failing and without power. Every promise is checked.

    Example: `tally sim run --seconds 600 --kind cluster --kind brokers`
    """
    from functools import partial
    from itertools import count

    from tallystick.errors import UsageError
    from tallystick.sim import series

    if not seconds > 0 or (seeds is not None and seeds < 1):
        raise UsageError("--seconds must be above 0 and --seeds at least 1", seconds=seconds, seeds=seeds)
    start = series.random_start() if first is None else first
    print(f"seeds from {start}", flush=True)
    failed_count = 0
    kinds: tuple[Kind, ...] = kind or get_args(Kind)
    for name in kinds:
        seed_numbers = count(start) if seeds is None else range(start, start + seeds)
        summary = series.run_many(
            _life(name), seed_numbers, seconds=seconds / len(kinds), progress=partial(_progress, name)
        )
        rate = summary.lives / summary.seconds
        print(
            f"{name}: {summary.lives:,} schedules, {summary.promise_count:,} entries promised, {rate:,.0f} schedules/s"
        )
        for outcome in summary.failures:
            print(f"  seed {outcome.seed}: {outcome.violation}")
            print(f"    again: tally sim replay {outcome.seed} --kind {name}")
        failed_count += len(summary.failures)
    print(f"{failed_count} schedules broke a promise" if failed_count else "every promise held")
    return 1 if failed_count else 0


def _progress(kind: str, lives: int) -> None:
    print(f"  {lives:,} {kind} lives", flush=True)


@app.command
def replay(
    seed: Annotated[int, WHOLE, Parameter(help="As printed by: tally sim run")],
    /,
    *,
    kind: Annotated[Kind, Parameter(help="Which kind of life.")] = "cluster",
) -> int:
    """Run one schedule again and print every step with its virtual time.

    Where whole servers and clients live, their events are printed as they stand in a server's log.

    Example: `tally sim replay 4024886387 --kind storage`
    """
    outcome = _life(kind)(seed, keep_trace=True)
    print("\n".join(outcome.trace))
    print(f"seed {seed}: {outcome.violation or 'every promise held'} (trace {outcome.fingerprint})")
    return 1 if outcome.violation else 0
