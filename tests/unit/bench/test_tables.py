from __future__ import annotations

import tables
from tables import LOADS, Round


def test_the_table_has_medians() -> None:
    rounds = [Round(load, 10.0 * number, number, 5, 0.25, 9.0, 0.5) for load in LOADS for number in (1, 9, 3)]
    _, _, first, *others = tables.markdown({"rounds": rounds}).splitlines()
    assert first == "| a heartbeat of 100 unknown groups | 30 | 3 | 0.2 | 9 | 0.50 |"
    assert len(others) == 3
