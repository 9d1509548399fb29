from __future__ import annotations

from tallystick.runtime.sparing import (
    ALWAYS,
    MAX_HOSTS,
    MAX_OF_ALL,
    MAX_OF_HOST,
    MAX_OF_KIND,
    MAX_OF_NOBODY,
    MAX_OF_UNKNOWN,
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


def test_of_very_many_hosts_those_are_forgotten_whose_minute_began_first() -> None:
    sparing = Sparing()
    assert said(sparing, MAX_OF_HOST) == MAX_OF_HOST
    for number in range(MAX_HOSTS - 1):
        said(sparing, 1, CHANGED, host=f"h{number}", now=1.0)
    assert said(sparing, MAX_OF_HOST, now=MINUTE_S) == MAX_OF_HOST
    said(sparing, 1, CHANGED, host="newcomer", now=MINUTE_S)
    assert said(sparing, 1, now=MINUTE_S) == 0, "its second minute has just begun"


def test_very_many_hosts_silence_nobody_and_take_no_more_memory() -> None:
    """An operator's own orders would leave no trace."""
    sparing = Sparing()
    assert said(sparing, MAX_OF_KIND, CHANGED) == MAX_OF_HOST
    for number in range(MAX_OF_KIND // MAX_OF_HOST):
        said(sparing, MAX_OF_HOST, CHANGED, host=f"stranger{number}")
    assert said(sparing, 10, CHANGED, host="operator") == ALWAYS
    for number in range(3 * MAX_HOSTS):
        said(sparing, 1, host=f"h{number}")
    for number in range(3 * MAX_HOSTS):
        said(sparing, 1, host=f"h{number}", now=number / 10)
    assert len(sparing._hosts) == len(sparing._first_line_at) == MAX_HOSTS


def test_hosts_that_nobody_heard_of_before_leave_the_last_lines_to_the_others() -> None:
    """6,000 addresses had 6,000 lines in a minute, and 3 more of each with every round."""
    sparing = Sparing()
    assert said(sparing, 1, CHANGED, host="operator") == 1
    now = 2 * MINUTE_S
    lines = sum(said(sparing, ALWAYS, host=f"h{number}", now=now) for number in range(2 * MAX_HOSTS))
    lines += sum(said(sparing, ALWAYS, host=f"h{number}", now=now + 1) for number in range(MAX_HOSTS))
    assert lines == MAX_OF_UNKNOWN
    assert said(sparing, 10, host="operator", now=now) == ALWAYS
    assert said(sparing, 10, host="newcomer", now=now) == 0
    assert said(sparing, 1, CHANGED, host="newcomer", now=now) == 1, "another kind"


def test_who_had_a_line_lately_is_remembered_before_who_had_one_long_ago() -> None:
    sparing = Sparing()
    for host in ("operator", *(f"h{number}" for number in range(MAX_HOSTS - 1)), "operator", "newcomer"):
        assert said(sparing, 1, CHANGED, host=host) == 1
    now = 2 * MINUTE_S
    for number in range(MAX_OF_UNKNOWN):
        said(sparing, ALWAYS, host=f"stranger{number}", now=now)
    assert said(sparing, 10, host="operator", now=now) == ALWAYS


def test_a_minute_has_an_end_for_known_hosts_too() -> None:
    sparing, hosts = Sparing(), [f"h{number}" for number in range(MAX_HOSTS)]
    for number, host in enumerate(hosts):
        assert said(sparing, 1, kind=f"k{number % 3}", host=host) == 1
    for _ in range(2):
        assert sum(said(sparing, ALWAYS, host=host, now=MINUTE_S) for host in hosts) in (MAX_OF_ALL, 0)
    assert sparing.left_out(None) == {FAILED: 2 * ALWAYS * MAX_HOSTS - MAX_OF_ALL}


def test_what_was_left_out_because_of_others_is_no_line_of_a_host() -> None:
    sparing = Sparing()
    for number in range(MAX_HOSTS):
        said(sparing, ALWAYS, host=f"h{number}")
    assert said(sparing, 2 * MAX_OF_HOST, host="newcomer", now=MINUTE_S / 2) == 0
    assert said(sparing, 2 * MAX_OF_HOST, host="newcomer", now=MINUTE_S) == MAX_OF_HOST


def test_what_is_left_out_of_one_host_takes_no_lines_of_others() -> None:
    sparing = Sparing()
    assert said(sparing, 10 * MAX_OF_KIND) == MAX_OF_HOST
    assert said(sparing, 100, host="other") == MAX_OF_HOST
