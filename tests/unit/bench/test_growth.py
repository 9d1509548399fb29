"""What an operation costs at each size, and the table of it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import growth
import pytest
from growth import AXES, FULL, QUICK, Cost, Costs, markdown, sizes_of


def test_sizes_grow_whatever_order_they_were_given_in() -> None:
    assert sizes_of("1_000,10,100000") == (10, 1000, 100_000)


@pytest.mark.parametrize("sizes", ["many", "10,", "0", "-5", "1e3", ""])
def test_what_is_no_size_is_refused_before_anything_starts(
    sizes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "measure", lambda quick, **chosen: pytest.fail("it was measured"))
    monkeypatch.setattr(sys, "argv", ["growth.py", f"--topics={sizes}"])
    with pytest.raises(SystemExit, match="2"):
        growth.main()
    assert f"sizes are whole numbers above 0 with commas between them, not {sizes!r}" in capsys.readouterr().err


def test_every_axis_has_sizes_that_grow() -> None:
    for plan in (FULL, QUICK):
        assert set(plan) == set(AXES)
        assert all(sizes == tuple(sorted(sizes)) and len(sizes) > 1 for sizes in plan.values())


def test_an_operation_costs_what_its_client_used_for_each() -> None:
    costs = Costs("entries", 10, [])

    async def work() -> None:
        sum(range(2_000_000))

    asyncio.run(costs.of("sum", 1000, work()))
    [one] = costs.costs
    assert (one.axis, one.size, one.operation, one.count, one.servers_us) == ("entries", 10, "sum", 1000, 0)
    assert one.client_us > 0


def test_the_last_size_stands_beside_the_first() -> None:
    costs = [
        Cost("entries", 1000, "append", 5, 4.0, 6.0, 0.1), Cost("entries", 10**7, "append", 5, 5.0, 10.0, 0.1),
        Cost("ledgers", 10, "open", 5, 0.0, 0.0, 0.1), Cost("ledgers", 10**5, "open", 5, 1.0, 0.0, 0.1),
    ]  # fmt: skip
    costs.append(Cost("topics", 10, "send", 5, 4.0, 6.0, 0.1))
    machine = {"cores": 2, "cpu": "Chip", "python": "3.11", "codec": "python"}
    text = markdown({"machine": machine, "load": 1.0, "seconds": 9.0, "costs": costs})
    assert "| operation | 1,000 | 10,000,000 | last ÷ first |" in text
    assert "| append | 4.0 + 6.0 = 10.0 | 5.0 + 10.0 = 15.0 | 1.50 |" in text
    assert "| open | 0.0 + 0.0 = 0.0 | 1.0 + 0.0 = 1.0 | - |" in text
    assert "| send | 4.0 + 6.0 = 10.0 | - |" in text, "there is nothing that it grew from"


def test_sizes_of_the_command_line_reach_the_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Any] = []

    def measured(quick: bool, **chosen: tuple[int, ...]) -> dict[str, Any]:
        given.append((quick, chosen))
        return {}

    monkeypatch.setattr(growth, "measure", measured)
    monkeypatch.setattr(growth, "markdown", lambda results: "the table")
    monkeypatch.setattr(sys, "argv", ["x", "--quick", "--entries", "10,20"])
    assert growth.main() == 0 and capsys.readouterr().out == "the table\n"
    assert given == [(True, {"entries": (10, 20)})]
