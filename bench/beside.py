"""A run beside an original: what is measured, by whom, and the report that comes of it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from machine import RESTED_S, Meter, describe
from report import Round
from turns import Turns

from support.java import Java, Original, prepare


class Field(Protocol):
    """All processes that take part."""

    start_seconds: dict[str, list[float]]

    async def start(self) -> None: ...

    def memory(self) -> dict[str, dict[str, float]]:
        """Resident MB by side and role."""
        ...

    def stop(self) -> None: ...


class Bench(Turns, ABC):
    """The rounds of a run, as they come."""

    def __init__(self, start: float, limit: float, reserve: float) -> None:
        super().__init__(start, limit, reserve)
        self.rounds: list[Round] = []

    def record(
        self, load: str, side: str, meter: Meter, outcome: Mapping[str, str], roles: Mapping[str, Sequence[int]]
    ) -> None:
        """``done`` is what the client says of a round; processes by role. Raises RuntimeError without work."""
        count, seconds = int(outcome["count"]), float(outcome["seconds"])
        if count <= 0 or seconds <= 0:
            raise RuntimeError(f"nothing was measured: {count} in {seconds} s")
        cpu = {role: sum(meter.cpu[pid] for pid in pids) / count * 1e6 for role, pids in roles.items()}
        measurement = Round(
            load=load,
            side=side,
            rate=count / seconds,
            p50_ms=float(outcome.get("p50", 0)),
            p99_ms=float(outcome.get("p99", 0)),
            cpu_us={role: used / len(roles[role]) for role, used in cpu.items()},
            total_us=sum(cpu.values()),
            others_cores=meter.others_cores,
        )
        self.rounds.append(measurement)
        self.say(str(measurement))

    @abstractmethod
    async def run(self) -> None:
        """All rounds."""

    async def restarts(self) -> dict[str, dict[str, float]]:
        """What it costs to start again, after all else."""
        return {}


async def beside_original(
    original: Original, plan: object, field_of: Callable[[Java, Path], Field], bench_of: Callable[[Any, float], Bench]
) -> dict[str, Any]:
    """Everything that a report needs. ``bench_of`` gets the field, and when the run began."""
    java = prepare(original)  # the first run downloads the original: that is not part of the time
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tally-bench-", dir="/var/tmp") as folder:
        field, machine = field_of(java, Path(folder) / "peers"), describe(Path(folder))
        try:
            await field.start()
            rest = field.memory()
            bench = bench_of(field, start)
            await bench.run()
            if rest:
                await asyncio.sleep(RESTED_S)
            loaded = field.memory()
            restarts = await bench.restarts()
        finally:
            field.stop()
    return {
        "machine": machine,
        "plan": plan,
        "seconds": time.monotonic() - start,
        "skipped_rounds": bench.skipped_rounds,
        "failures": bench.failures,
        "left_out": [name for name in dict.fromkeys(f.side for f in bench.failures) if bench.left_out(name)],
        "start_seconds": field.start_seconds,
        "restarts": restarts,
        "resident_mb": {"rest": rest, "loaded": loaded},
        "rounds": bench.rounds,
    }
