"""When an open ledger has stored nothing for too long."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

from tallystick.bookkeeper.ledger.running_time import BEAT_S, SLACK_S
from tallystick.bookkeeper.stream.rollover import Limits, RollOverCore
from tallystick.bookkeeper.stream.stalls import Stalls


class Play:
    def __init__(self) -> None:
        self.core = RollOverCore(Limits(10, 1000, 1e9, 60.0), 7, 0.0)
        self.flow = SimpleNamespace(waits_since=None)
        self.stalls = Stalls(cast(Any, self.flow), self.core, patience_s=60.0, answer_s=5.0)


def test_nothing_is_over_while_no_append_waits() -> None:
    play = Play()
    assert play.stalls.due_at(1000.0) == math.inf and not play.stalls.is_over(1000.0)


def test_it_is_over_when_nothing_was_stored_for_so_long() -> None:
    play = Play()
    play.flow.waits_since = 10.0
    assert play.stalls.due_at(10.0) == 75.0 and not play.stalls.is_over(74.9) and play.stalls.is_over(75.0)
    play.flow.waits_since = 75.0
    assert play.stalls.due_at(75.0) == 140.0 and not play.stalls.is_over(75.0)


def test_it_is_over_once_for_a_ledger() -> None:
    play = Play()
    play.flow.waits_since = 10.0
    play.core.sent(1, 1, 10.0)
    play.core.stalled()
    assert play.stalls.due_at(80.0) == math.inf and not play.stalls.is_over(80.0)


def test_a_ledger_that_was_opened_late_has_as_long_as_a_bookie_may_take() -> None:
    play = Play()
    play.flow.waits_since, play.core.opened_at = 10.0, 100.0
    assert play.stalls.due_at(100.0) == 105.0 and not play.stalls.is_over(104.9) and play.stalls.is_over(105.0)


def test_a_loop_that_stood_still_reads_first_what_came_meanwhile() -> None:
    play = Play()
    play.flow.waits_since = 10.0
    late = 75.0 + 2 * SLACK_S
    assert not play.stalls.is_over(late) and play.stalls.due_at(late) == late + BEAT_S
    assert play.stalls.is_over(late + BEAT_S)
    play.flow.waits_since = 100.0
    assert not play.stalls.is_over(120.0)
    assert not play.stalls.is_over(165.0 + 2 * SLACK_S), "it may stand still again"
