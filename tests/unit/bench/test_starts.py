"""Which server is started by whom, with servers that only pretend."""

from __future__ import annotations

import asyncio
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from report import OURS, PYTHON
from starts import BOOKIE, BROKER, LOADS, QUICK, ROLES, STEPS, THEIRS, Plan, StartsBench, steps_table


class Server:
    """Notes what is done with it."""

    def __init__(self) -> None:
        self.pid, self.command = os.getpid(), ["run"]
        self.done: list[str] = []

    def kill(self) -> None:
        self.done.append("kill")

    async def start(self) -> float:
        self.done.append(f"start {' '.join(self.command)}")
        return 0.5

    def leave(self) -> float:
        self.done.append("stop")
        return 0.25


class Client:
    """Adds so many at a time, whatever it is asked for."""

    def __init__(self, each: int) -> None:
        self.each, self.asked = each, list[tuple[str, Any]]()

    async def ask(self, verb: str, **given: Any) -> dict[str, str]:
        self.asked.append((verb, given.get("most")))
        return {"ledger": "1", "count": str(min(self.each, given.get("most", 0)))}


def bench_of(monkeypatch: pytest.MonkeyPatch, each: int = 1000, codec: str = "compiled", plan: Plan = QUICK) -> Any:
    monkeypatch.setattr("starts.implementation.in_use", lambda: codec)
    monkeypatch.setattr("starts.QUIET_WITHIN_S", 0.0)
    keys = [(role, side) for role in ROLES for side in (OURS, THEIRS)]
    field = SimpleNamespace(
        servers={key: Server() for key in keys},
        clients={key: Client(each) for key in keys},
        houses={side: SimpleNamespace(ns="n:1") for side in (OURS, THEIRS)},
    )
    return StartsBench(field, plan, time.monotonic())  # type: ignore[arg-type]


def test_each_server_goes_through_all_steps_and_ours_with_either_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, each=QUICK.count)
    asyncio.run(bench.run())
    assert bench.failures == [] and {one.load for one in bench.rounds} == set(LOADS)
    assert [one.side for one in bench.rounds[:: len(STEPS)]] == [OURS, PYTHON, THEIRS] * 2
    assert bench.rounds[0].p50_ms == 500 and bench.rounds[1].p50_ms == 250
    ours, pure = ["kill", "start run", "stop", "start run"], "start env TALLY_CODEC=python run"
    assert bench.field.servers[BROKER, OURS].done == [*ours, "kill", pure, "stop", pure]
    assert bench.field.servers[BOOKIE, THEIRS].done == ours


def test_the_table_has_the_time_of_each_step_beside_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, each=QUICK.count)
    asyncio.run(bench.run())
    lines = steps_table(bench.rounds).splitlines()
    assert len(lines) == 2 + 3 * len(LOADS)
    assert lines[2].startswith(f"| {LOADS[0]} | **{OURS}** | 500 (500) | ") and lines[2].endswith(" | 1.00 |")
    assert lines[4].startswith(f"| {LOADS[0]} | {THEIRS} | 500 (500) | ") and lines[4].endswith(" |  |")


def test_without_a_compiled_codec_ours_starts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, codec="python")
    asyncio.run(bench.run())
    assert {one.side for one in bench.rounds} == {OURS, THEIRS}


def test_servers_are_filled_in_pieces_until_they_have_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, each=QUICK.count // 2 + 1)
    asyncio.run(bench._fill(BOOKIE, OURS))
    client = bench.field.clients[BOOKIE, OURS]
    adds = [most for verb, most in client.asked if verb == "load-adds"]
    assert adds == [QUICK.count, QUICK.count // 2 - 1] and bench.held == {f"{BOOKIE}, {OURS}": QUICK.count}
