"""Who takes a turn and when, with sides that only pretend to work."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ledger
import pytest
import turns
from ledger_plan import ADDS, AFTER_WRITE, QUICK, READS, TAIL_ENTRIES, Plan
from ledger_sides import BATCHES, BEST, DEFAULT, Side
from report import OURS

TURNS = replace(QUICK, rounds=3, recoveries=2, default=True)
Verbs = Callable[[str], dict[str, str]]


class Client:
    """Notes what it is asked, in a list that all sides share."""

    def __init__(self, side: str, asked: list[tuple[str, str]], broken: str = "") -> None:
        self.pid, self._side, self._asked, self._broken = os.getpid(), side, asked, broken

    async def ask(self, verb: str, **values: object) -> dict[str, str]:
        self._asked.append((self._side, verb))
        if verb == self._broken:
            raise RuntimeError("the process ended with 137")
        return {"ledger": "1", "count": "1000", "seconds": "0.5", "last": str(TAIL_ENTRIES - 1), "p50": "2", "p99": "9"}


def bench_of(plan: Plan, broken: dict[str, str] | None = None, age: float = 0.0) -> tuple[Any, list[tuple[str, str]]]:
    asked: list[tuple[str, str]] = []
    bookie: Any = SimpleNamespace(id="b", pid=os.getpid(), pause=lambda: None, resume=lambda: None)
    sides = {
        name: Side(name, Client(name, asked, (broken or {}).get(name, "")), [bookie] * 3)  # type: ignore[arg-type]
        for name in (OURS, BATCHES, BEST, DEFAULT)
    }
    field: Any = SimpleNamespace(sides=sides)
    return ledger.LedgerBench(field, plan, time.monotonic() - age), asked


def test_sides_take_turns_and_the_main_ones_have_more_rounds() -> None:
    bench, asked = bench_of(TURNS)
    asyncio.run(bench._in_turn(ADDS[0], bench._sides(ADDS[0]), 1.0))
    turns = [side for side, verb in asked if verb == "load-adds"]
    assert turns == [OURS, BEST, BATCHES, DEFAULT] + [OURS, BEST] * 2
    assert [one.side for one in bench.rounds] == turns and bench.rounds[0].rate == 2000


def test_a_whole_run_has_every_load_and_no_round_that_only_warmed() -> None:
    bench, _ = bench_of(TURNS)
    asyncio.run(bench.run())
    counts = {
        load: sum(one.load == load and one.side == OURS for one in bench.rounds)
        for load in {o.load for o in bench.rounds}
    }
    assert len(counts) == 15 and sorted(counts.values()) == [2, *[3] * 14]
    assert bench.failures == [] and bench.skipped_rounds == 0


@pytest.mark.parametrize("verb", ["create", "load-adds", "load-reads", "open"])
def test_a_side_that_always_fails_is_left_out_and_the_others_go_on(verb: str) -> None:
    bench, asked = bench_of(TURNS, broken={BEST: verb})
    asyncio.run(bench.run())
    assert {failure.side for failure in bench.failures} == {BEST}
    assert bench.failures[0].why == "RuntimeError: the process ended with 137"
    assert bench.left_out(BEST) and not bench.left_out(OURS)
    assert sum(call == (BEST, verb) for call in asked) == turns.MAX_FAILURES
    assert len([one for one in bench.rounds if one.side == OURS]) == 44


def test_one_failed_turn_is_one_round_less() -> None:
    bench, _ = bench_of(TURNS)
    client, failing = bench.field.sides[BEST].client, iter(["load-reads"])
    ask: Callable[..., Awaitable[dict[str, str]]] = client.ask

    async def fail_once(verb: str, **values: object) -> dict[str, str]:
        if verb == "load-reads" and next(failing, None):
            raise RuntimeError("a session ran out")
        return await ask(verb, **values)

    client.ask = fail_once
    asyncio.run(bench._reads(READS[0]))
    asyncio.run(bench._reads(READS[1]))
    assert [failure.side for failure in bench.failures] == [BEST] and not bench.left_out(BEST)
    assert sum(one.side == BEST for one in bench.rounds) == 3 * TURNS.rounds  # the turn that failed was for warming


def test_no_round_begins_when_the_time_is_nearly_up() -> None:
    bench, asked = bench_of(TURNS, age=TURNS.limit - TURNS.reserve + 1)
    asyncio.run(bench._in_turn(ADDS[0], bench._sides(ADDS[0]), 1.0))
    asyncio.run(bench._reads(READS[0]))
    assert asked == [] and bench.skipped_rounds > 0


def test_the_report_goes_to_the_files_that_were_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(plan: Plan) -> dict[str, Any]:
        assert plan is QUICK
        return {"rounds": [], "left_out": left_out}

    left_out: list[str] = []
    docs = tmp_path / "page.md"
    docs.write_text("<!-- ledgers: begin -->\n<!-- ledgers: end -->\n")
    monkeypatch.setattr(ledger, "missing", lambda: "")
    monkeypatch.setattr(ledger, "measure", measured)
    monkeypatch.setattr(ledger, "markdown", lambda results: "the table")
    monkeypatch.setattr(sys, "argv", ["x", "--quick", "--json", str(tmp_path / "new" / "x.json"), "--docs", str(docs)])
    assert ledger.main() == 0
    assert capsys.readouterr().out == "the table\n" and "\nthe table\n" in docs.read_text()
    assert (tmp_path / "new" / "x.json").read_text() == '{\n "rounds": [],\n "left_out": []\n}\n'
    left_out.append(BEST)
    assert ledger.main() == 1
    docs.write_text("no place for a table")
    with pytest.raises(SystemExit, match="2"):
        ledger.main()
    assert "ledgers: begin" in capsys.readouterr().err


def test_what_was_just_written_is_read_once_and_each_time_from_a_new_ledger() -> None:
    bench, asked = bench_of(TURNS)
    given: list[dict[str, object]] = []
    client = bench.field.sides[OURS].client
    ask: Callable[..., Awaitable[dict[str, str]]] = client.ask

    async def note(verb: str, **values: object) -> dict[str, str]:
        given.append(values)
        return await ask(verb, **values)

    client.ask = note
    asyncio.run(bench._after_write_round(OURS))
    asyncio.run(bench._after_write_round(OURS))
    assert [verb for _, verb in asked] == ["create", "load-adds", "close", "load-reads"] * 2
    assert [values["once"] for values in given if "once" in values] == ["yes", "yes"]
    assert [one.load for one in bench.rounds] == [AFTER_WRITE.name] * 2


def test_random_reads_are_of_the_ledger_that_was_read_in_order() -> None:
    bench, asked = bench_of(TURNS)
    asyncio.run(bench._reads(READS[0]))
    verbs = [verb for side, verb in asked if side == OURS]
    assert verbs.count("create") == 1 and verbs.count("load-random") == verbs.count("load-reads") == TURNS.rounds + 1
