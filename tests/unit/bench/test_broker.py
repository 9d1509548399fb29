"""Who takes a turn and when, with brokers and clients that only pretend to work; and what the report says."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import broker
import broker_report
import pytest
import turns
from broker_plan import CATCH_UPS, CONNECTIONS, PUSH, QUICK, SENDS, Plan
from broker_sides import ASYNC, QUEUES, SYNC, THEIR_CLIENT, THEIRS, Pair, Side
from machine import Meter
from report import OURS, Round
from turns import Failure

TURNS = replace(QUICK, rounds=2, mixes=True)
SENT = 1000
LOADS = 2 * len(SENDS) + len(CATCH_UPS) + len(CONNECTIONS) + 3  # and pulls from either broker, and consumers by push
SIDES = {OURS: "tally", THEIRS: "java", THEIR_CLIENT: "java"}


class Client:
    """Notes what it is asked, in a list that all sides share."""

    def __init__(self, side: str, kind: str, asked: list[tuple[str, str]], broken: str = "") -> None:
        self.pid, self.kind, self._side, self._asked, self._broken = os.getpid(), kind, side, asked, broken

    async def ask(self, verb: str, **values: object) -> dict[str, str]:
        self._asked.append((self._side, f"{verb} {values.get('how', values.get('role'))}"))
        if verb == self._broken:
            raise RuntimeError("the process ended with 137")
        return {"count": str(SENT), "seconds": "0.5", "p50": "2", "p99": "9"}


class Master:
    """Its queues grow each time that a client sent, the last of them not at once."""

    def __init__(self, asked: list[tuple[str, str]]) -> None:
        self.pid, self._asked, self._dispatched = os.getpid(), asked, 0
        self.address = asked  # where those that send from the bench's own process are noted

    async def queue_end(self, topic: str, queue: int) -> int:
        sent = sum(what.startswith("load-sends") for _, what in self._asked)
        if queue == QUEUES - 1:
            self._dispatched, sent = sent, self._dispatched
        return sent * SENT // QUEUES


class Slave(Master):
    """Follows, unless it sleeps."""

    def __init__(self, asked: list[tuple[str, str]]) -> None:
        super().__init__(asked)
        self._ends, self._sleeps = [0] * QUEUES, False

    async def queue_end(self, topic: str, queue: int) -> int:
        assert not self._sleeps, "it cannot answer"
        self._ends[queue] = min(self._ends[queue] + SENT, await super().queue_end(topic, queue))
        return self._ends[queue]

    def pause(self) -> None:
        self._sleeps = True

    def resume(self) -> None:
        self._sleeps = False


@pytest.fixture(autouse=True)
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(clients: object, address: list[tuple[str, str]], *how: object) -> dict[str, str]:
        address.append(("crowd", "load-sends connections"))
        return {"count": str(SENT), "seconds": "0.5"}

    monkeypatch.setattr(broker, "connections", lambda address, count: nullcontext([]))
    monkeypatch.setattr(broker, "send_over", send)


def bench_of(plan: Plan, broken: str = "", age: float = 0.0) -> tuple[Any, list[tuple[str, str]]]:
    asked: list[tuple[str, str]] = []
    pairs: Any = {mode: Pair(SimpleNamespace(ns="n:1"), Master(asked), Slave(asked)) for mode in (ASYNC, SYNC)}  # type: ignore[arg-type]
    sides = {
        name: Side(name, Client(name, kind, asked, broken if name == THEIRS else ""), pairs)  # type: ignore[arg-type]
        for name, kind in SIDES.items()
    }
    return broker.BrokerBench(SimpleNamespace(sides=sides), plan, time.monotonic() - age), asked  # type: ignore[arg-type]


def test_every_load_has_its_rounds_and_sides_take_turns() -> None:
    bench, asked = bench_of(TURNS)
    asyncio.run(bench.run())
    assert bench.failures == [] and bench.skipped_rounds == 0
    counts = {load: [one.side for one in bench.rounds if one.load == load] for load in {o.load for o in bench.rounds}}
    assert len(counts) == LOADS
    assert counts[f"{SENDS[0].name}, {SYNC} replication"] == [OURS, THEIRS, THEIR_CLIENT, OURS, THEIRS]
    assert all(counts[load.name] == [OURS, THEIRS] * 2 for load in (*CATCH_UPS, *CONNECTIONS, PUSH))
    assert counts["pull 1 KB from the slave"] == [THEIRS, THEIR_CLIENT] * 2
    assert (OURS, "load-pulls slave") not in asked


def test_a_side_that_always_fails_is_left_out_and_the_others_go_on() -> None:
    bench, asked = bench_of(TURNS, broken="load-sends")
    asyncio.run(bench.run())
    assert {failure.side for failure in bench.failures} == {THEIRS} and bench.left_out(THEIRS)
    assert len([side for side, _ in asked if side == THEIRS]) == turns.MAX_FAILURES
    assert len({one.load for one in bench.rounds}) == LOADS


def test_no_round_begins_when_the_time_is_nearly_up() -> None:
    bench, asked = bench_of(TURNS, age=TURNS.limit)
    asyncio.run(bench._rounds("catch-up", broker.MAIN, partial(bench._catch_up, CATCH_UPS[0])))
    assert asked == [] and bench.skipped_rounds > 0


def test_a_quick_run_mixes_clients_and_brokers_only_where_nothing_else_is_measured() -> None:
    bench, _ = bench_of(QUICK)
    asyncio.run(bench.run())
    mixed = [one.load for one in bench.rounds if one.side == THEIR_CLIENT]
    assert mixed == ["pull 1 KB from the slave"]


def test_a_catch_up_is_what_the_slave_lacked_when_it_woke() -> None:
    bench, asked = bench_of(QUICK)
    recorded: list[dict[str, str]] = []
    bench.record = lambda load, side, meter, done, roles: recorded.append(done)
    asyncio.run(bench._catch_up(CATCH_UPS[1], OURS))
    assert asked == [(OURS, "load-sends batch")]
    assert [done["count"] for done in recorded] == [str(SENT)]


def test_consumers_join_and_leave_outside_of_the_rounds_and_the_first_one_warms() -> None:
    bench, asked = bench_of(TURNS)
    asyncio.run(bench._pushes([OURS]))
    assert [what.split()[0] for _, what in asked] == ["join-push", *["load-push"] * (TURNS.rounds + 1), "leave-push"]
    assert len(bench.rounds) == TURNS.rounds and bench.failures == []


def test_a_round_that_measured_nothing_has_failed() -> None:
    bench, _ = bench_of(QUICK)
    meter = Meter([])
    meter.stop()
    for nothing in ({"count": "0", "seconds": "1"}, {"count": "5", "seconds": "0"}):
        with pytest.raises(RuntimeError, match="nothing was measured"):
            bench.record("send", OURS, meter, nothing, {"client": [os.getpid()]})
    assert bench.rounds == []


def test_a_pull_that_another_broker_served_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, _ = bench_of(QUICK)
    pair = bench.field.sides[THEIRS].pairs[ASYNC]
    pair.master.pid, pair.slave.pid = 1, 2
    used = {1: 0.5, 2: 0.1, os.getpid(): 0.0}
    meter = SimpleNamespace(cpu=used, others_cores=0.0, stop=lambda: None)
    monkeypatch.setattr(broker, "Meter", lambda pids: meter)
    with pytest.raises(RuntimeError, match="another broker than the slave"):
        asyncio.run(bench._pull_round("pull", "slave", THEIRS))
    asyncio.run(bench._pull_round("pull", "master", THEIRS))
    assert [one.cpu_us["master"] for one in bench.rounds] == [0.5 / SENT * 1e6]


def a_round(side: str, rate: float, master: float, others: float = 0.0) -> Round:
    cpu = {"master": master, "slave": 5.0, "client": 10.0}
    return Round("send", side, rate, 1.5, 9.5, cpu, sum(cpu.values()), others)


def results_of(*rounds: Round, **changes: Any) -> dict[str, Any]:
    memory = {side: {"master": 30.0, "slave": 40.0} for side in (OURS, THEIRS)}
    return {
        "machine": {"cores": 2, "cpu": "Chip", "python": "3.11"},
        "seconds": 61.2,
        "skipped_rounds": 0,
        "failures": [],
        "left_out": [],
        "start_seconds": {OURS: [0.3, 0.4], THEIRS: [3.0]},
        "resident_mb": {"rest": memory, "loaded": memory},
        "rounds": list(rounds),
        **changes,
    }


def test_ratios_are_of_the_medians_of_quiet_rounds() -> None:
    rounds = [a_round(OURS, rate, 10.0) for rate in (1000, 3000, 2000)] + [a_round(OURS, 9999, 99.0, others=1.5)]
    rounds += [a_round(THEIRS, 1000, 25.0), a_round(THEIRS, 1000, 25.0)]
    text = broker_report.markdown(results_of(*rounds))
    cells = ("send", f"**{OURS}**", "2,000 (1.0 3.0 2.0 10.0)", "1.50 / 9.50", "10.00 + 5.00 + 10.00 = 25.00")
    assert f"| {' | '.join(cells)} | 2.00 | 0.40 | 0.62 |" in text
    assert f"| send | {THEIRS} | 1,000 (1.0 1.0) | 1.50 / 9.50 | 25.00 + 5.00 + 10.00 = 40.00 |  |  |  |" in text
    assert f"| **{OURS}** | 0.30 0.40 | 30; 40 | 30; 40 |" in text


def test_what_was_disturbed_failed_or_skipped_is_said() -> None:
    failures = [Failure(THEIRS, "warming", "RuntimeError: ended with 1")] * 3
    text = broker_report.markdown(
        results_of(a_round(OURS, 1, 1, others=0.9), failures=failures, left_out=[THEIRS], skipped_rounds=3)
    )
    assert "1 rounds in 61 s, 3 skipped for lack of time." in text
    assert f"**{THEIRS} failed** 3 times; was left out from then on: warming: RuntimeError: ended with 1" in text
    assert "Others used 0.9 cores in the median round" in text


def test_the_report_goes_to_the_files_that_were_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(plan: Plan) -> dict[str, Any]:
        return results_of(left_out=[] if plan is QUICK else [THEIRS])

    docs = tmp_path / "page.md"
    docs.write_text("<!-- brokers: begin -->\n<!-- brokers: end -->\n")
    monkeypatch.setattr(broker, "missing", lambda: "")
    monkeypatch.setattr(broker, "measure", measured)
    monkeypatch.setattr("sys.argv", ["x", "--quick", "--json", str(tmp_path / "new" / "x.json"), "--docs", str(docs)])
    assert broker.main() == 0
    assert "0 rounds in 61 s." in docs.read_text() and "0 rounds" in capsys.readouterr().out
    assert (tmp_path / "new" / "x.json").exists()
    monkeypatch.setattr("sys.argv", ["x"])
    assert broker.main() == 1
