from __future__ import annotations

from tallystick.runtime.sparing import (
    ALWAYS,
    MAX_HOSTS,
    MAX_OF_HOST,
    MAX_OF_KIND,
    MAX_OF_NOBODY,
    MINUTE_S,
    Sparing,
)

FAILED, CHANGED = "request failed", "topic changed"


def said(sparing: Sparing, count: int, kind: str = FAILED, host: str = "h", now: float = 0.0) -> int:
    """How many of so many are worth a line, each from another port."""
    return sum(sparing.is_worth(kind, f"{host}:{port}", now) for port in range(count))


def test_a_host_has_so_many_lines_of_a_kind_a_minute() -> None:
    sparing = Sparing()
    assert said(sparing, 1000) == MAX_OF_HOST
    assert (said(sparing, 3, CHANGED), said(sparing, 3, host="other")) == (3, 3)
    assert not sparing.is_worth(FAILED, "h:1", MINUTE_S - 0.1)
    assert said(sparing, 1000, now=MINUTE_S) == MAX_OF_HOST


def test_what_was_left_out_is_told_when_the_minute_is_over_or_all_ends() -> None:
    sparing = Sparing()
    said(sparing, MAX_OF_HOST + 7)
    said(sparing, MAX_OF_HOST + 5, CHANGED, now=30.0)
    assert sparing.left_out(MINUTE_S - 0.1) == {}
    assert sparing.left_out(MINUTE_S) == {FAILED: 7}
    assert sparing.left_out(MINUTE_S) == {}
    said(sparing, MAX_OF_HOST + 1, now=MINUTE_S)
    assert sparing.left_out(None) == {FAILED: 1, CHANGED: 5}
    said(sparing, 3, now=MINUTE_S)
    said(sparing, 1, now=5 * MINUTE_S)
    assert sparing.left_out(5 * MINUTE_S) == {FAILED: 3}, "also of a minute that another event ended"


def test_what_a_server_does_by_itself_has_a_line_for_each_of_very_many_queues() -> None:
    sparing = Sparing()
    assert sum(sparing.is_worth("consumer offset cut", "", 0.0) for _ in range(2 * MAX_OF_NOBODY)) == MAX_OF_NOBODY
    assert said(sparing, 5) == 5


def test_very_many_hosts_silence_nobody_and_take_no_more_memory() -> None:
    """An operator's own orders would leave no trace."""
    sparing = Sparing()
    assert said(sparing, MAX_OF_KIND, CHANGED) == MAX_OF_HOST
    for number in range(MAX_OF_KIND // MAX_OF_HOST):
        said(sparing, MAX_OF_HOST, CHANGED, host=f"stranger{number}")
    assert said(sparing, 10, CHANGED, host="operator") == ALWAYS
    for number in range(3 * MAX_HOSTS):
        said(sparing, 1, host=f"h{number}")
    assert len(sparing._hosts) == MAX_HOSTS
