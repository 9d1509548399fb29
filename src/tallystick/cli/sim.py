"""``tally sim``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

app = App(name="sim", help="Run the production protocol cores through seeded faults.")


@app.command
def run(
    *,
    seeds: Annotated[int | None, Parameter(help="How many schedules; by default as many as the time allows.")] = None,
    seconds: Annotated[float, Parameter(help="Stop after this long.")] = 60.0,
    first: Annotated[int | None, Parameter(help="The first seed; a random one by default.")] = None,
) -> int:
    """Run schedules of lost, late and doubled messages, deaths and rivals; check every promise while they run."""
    from itertools import count

    from tallystick.errors import UsageError
    from tallystick.sim import cores

    if seconds <= 0 or (seeds is not None and seeds < 1):
        raise UsageError("--seconds must be above 0 and --seeds at least 1", seconds=seconds, seeds=seeds)
    start = cores.random_start() if first is None else first
    wanted = count(start) if seeds is None else range(start, start + seeds)
    print(f"seeds from {start}", flush=True)
    summary = cores.run_many(wanted, seconds=seconds, progress=lambda done: print(f"  {done:,} schedules", flush=True))
    rate = summary.schedules / summary.seconds
    print(f"{summary.schedules:,} schedules, {summary.acked:,} entries acknowledged, {rate:,.0f} schedules/s")
    for outcome in summary.failed:
        print(f"seed {outcome.seed}: {outcome.violation}\n  again, with every step: tally sim replay {outcome.seed}")
    print("every promise held" if not summary.failed else f"{len(summary.failed)} schedules broke a promise")
    return 1 if summary.failed else 0


@app.command
def replay(seed: Annotated[int, Parameter(help="As printed by: tally sim run")], /) -> int:
    """Run one schedule again and print every step."""
    from tallystick.sim import cores

    outcome = cores.run(seed, keep_trace=True)
    print("\n".join(outcome.trace))
    print(f"seed {seed}: {outcome.violation or 'every promise held'} (trace {outcome.fingerprint})")
    return 1 if outcome.violation else 0
