"""Which acknowledged entries are not durable yet, and over which connection they were acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.force_core import AckedRun, ForceCore
from tallystick.bookkeeper.ledger.striping import Striping


def test_what_came_over_an_older_connection_has_to_be_shown() -> None:
    core = ForceCore(Striping(2, 2, 2))
    core.acked(0, 1, 0, 4)
    core.acked(0, 1, 5, 5)
    assert core.unproven(0, 1) == []
    core.acked(0, 2, 6, 9)
    assert core.unproven(0, 2) == [AckedRun(1, 0, 5)]
    assert core.unproven(0, 3) == [AckedRun(1, 0, 5), AckedRun(2, 6, 9)]
    assert core.unproven(1, 9) == []
    core.proven(0, 3)
    assert core.unproven(0, 3) == []
    core.acked(0, 3, 10, 10)
    assert core.begin(0) == [AckedRun(3, 0, 5), AckedRun(3, 6, 10)]


def test_what_a_force_took_is_there_again_when_it_failed() -> None:
    core = ForceCore(Striping(1, 1, 1))
    core.acked(0, 1, 0, 4)
    taken = core.begin(0)
    assert core.unproven(0, 2) == []
    core.acked(0, 2, 5, 6)
    core.failed(0, taken)
    assert core.unproven(0, 2) == [AckedRun(1, 0, 4)]
    assert core.begin(0) == [AckedRun(1, 0, 4), AckedRun(2, 5, 6)]


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_runs_have_what_was_acknowledged_and_nothing_else(size: int, quorum: int, data: st.DataObject) -> None:
    striping = Striping(size, min(size, quorum), 1)
    core, wanted = ForceCore(striping), set[tuple[int, int]]()
    last, connection = -1, 1
    for _ in range(data.draw(st.integers(1, 10))):
        first = last + data.draw(st.integers(1, 3))
        last = first + data.draw(st.integers(0, 5))
        connection += data.draw(st.integers(0, 1))
        core.acked(0, connection, first, last)
        wanted |= {(connection, entry) for entry in striping.stripe(0, first, last)}
    assert {
        (run.connection, entry) for run in core.begin(0) for entry in striping.stripe(0, run.first, run.last)
    } == wanted
