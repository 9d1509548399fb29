from __future__ import annotations

from tallystick.runtime.sparing import MAX_HOSTS, MAX_OF_HOST, MAX_OF_KIND, MINUTE_S, Sparing


def said(sparing: Sparing, count: int, kind: str = "request failed", host: str = "h", now: float = 0.0) -> int:
    """How many of so many are worth a line, each from another port."""
    return sum(sparing.unsaid(kind, f"{host}:{port}", now) is not None for port in range(count))


def test_a_host_has_so_many_lines_of_a_kind_a_minute() -> None:
    sparing = Sparing()
    assert said(sparing, 1000) == MAX_OF_HOST
    assert (said(sparing, 3, "topic changed"), said(sparing, 3, host="other")) == (3, 3)
    assert sparing.unsaid("request failed", "h:1", MINUTE_S - 0.1) is None
    assert said(sparing, 1000, now=MINUTE_S) == MAX_OF_HOST


def test_the_next_line_tells_how_many_there_were() -> None:
    sparing = Sparing()
    said(sparing, MAX_OF_HOST + 7)
    assert sparing.unsaid("topic changed", "h:1", 0.0) == 0
    assert [sparing.unsaid("request failed", "other:1", 0.0) for _ in range(2)] == [7, 0]


def test_very_many_hosts_have_no_more_lines_and_take_no_more_memory() -> None:
    sparing = Sparing()
    assert sum(said(sparing, 1, host=f"h{number}") for number in range(5 * MAX_HOSTS)) == MAX_OF_KIND
    assert len(sparing._hosts) == MAX_HOSTS
    assert said(sparing, 1, "topic changed") == 1
