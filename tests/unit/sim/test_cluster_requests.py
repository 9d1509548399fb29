"""What a simulated bookie must answer to a long poll, by what it took of a ledger's LAC."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import WriteLacResponse
from tallystick.sim.cluster_judge import ClusterJudge
from tallystick.sim.cluster_requests import SLACK_S, RequestWatch
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace


class End:
    peer: End
    is_over = False

    def __init__(self, process: str) -> None:
        self.process = SimpleNamespace(name=process)


class Ends:
    """Two ends of one connection, and a watch that hears what they say of ledger 7."""

    def __init__(self) -> None:
        self.now = 0.0
        self.judge = ClusterJudge(1, Trace(lambda: self.now))
        self.watch = RequestWatch(self.judge, lambda: self.now)
        self.client: Any = End("writer")
        self.bookie: Any = End("b1.1")
        self.client.peer, self.bookie.peer = self.bookie, self.client
        self.judge.keeps_lac = lambda *_: None  # type: ignore[method-assign]  # there is no disk

    def made(self) -> None:
        self.judge.books[7] = cast(Any, SimpleNamespace(damaged={}))

    def tells_lac(self, number: int, lac: int) -> None:
        self.watch.requested(self.client, v3.WriteLacRequest(v3.Header(number), 7, lac, b"", b""))

    def takes_lac(self, number: int) -> None:
        self.watch.responded(self.bookie, v3.Operation.WRITE_LAC, WriteLacResponse(number, Code.OK, 7))

    def polls(self, number: int) -> None:
        request = v3.ReadRequest(v3.Header(number), 7, 0, previous_lac=-1, timeout_ms=60_000)
        self.watch.requested(self.client, request)

    def check(self) -> None:
        self.now += 2 * SLACK_S
        for waiting in self.watch._waiting(0.0):
            self.watch._check_waiting(*waiting)


def test_a_bookie_that_took_a_lac_answers_who_polls_for_it() -> None:
    ends = Ends()
    ends.made()
    ends.tells_lac(1, 0)
    ends.takes_lac(1)
    ends.polls(2)
    with pytest.raises(Violation, match="b1 knows that 0 of ledger 7 is confirmed"):
        ends.check()


@pytest.mark.parametrize("is_late", [False, True])
def test_what_it_took_of_a_deleted_ledger_is_not_of_the_next_one_with_its_id(is_late: bool) -> None:
    ends = Ends()
    ends.made()
    ends.tells_lac(1, 0)
    if not is_late:
        ends.takes_lac(1)
    ends.made()
    if is_late:
        ends.takes_lac(1)
    ends.polls(2)
    ends.check()
    ends.tells_lac(3, 0)
    ends.takes_lac(3)
    with pytest.raises(Violation):
        ends.check()
