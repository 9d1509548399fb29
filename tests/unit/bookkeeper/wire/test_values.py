"""Ledger metadata as a value: fragments, states, and parts that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.bookkeeper.wire.values import BookieInfo, Endpoint, Fragment, LedgerMetadata, LedgerState
from tallystick.errors import UsageError

ABC, ABD, AED = ("a", "b", "c"), ("a", "b", "d"), ("a", "e", "d")


def ledger(*fragments: Fragment, **fields: Any) -> LedgerMetadata:
    return LedgerMetadata(3, 2, 2, fragments or (Fragment(0, ABC),), **fields)


@pytest.mark.rule("Q2")
@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 2, 3), (3, 0, 0), (0, 0, 0), (3, 3, 0), (2, 3, 2)])
def test_q2_ensemble_not_below_write_quorum_not_below_ack_quorum(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="ensemble >= write quorum >= ack quorum >= 1"):
        LedgerMetadata(*sizes, (Fragment(0, ("a",) * sizes[0]),))


@pytest.mark.rule("Q3")
def test_q3_contradictions_are_refused() -> None:
    for fragments in ((), (Fragment(0, ("a", "b")),), (Fragment(0, ABC), Fragment(0, ABD))):
        with pytest.raises(UsageError):
            LedgerMetadata(3, 2, 2, fragments)
    with pytest.raises(UsageError, match="ascend"):
        ledger(Fragment(5, ABC), Fragment(3, ABD))
    for state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
        with pytest.raises(UsageError, match="closed"):
            ledger(state=state, last_entry=4)
        with pytest.raises(UsageError, match="closed"):
            ledger(state=state, length=4)


@pytest.mark.rule("Q3")
def test_q3_each_entry_has_the_ensemble_of_its_fragment() -> None:
    metadata = ledger(Fragment(0, ABC), Fragment(5, ABD), Fragment(9, AED))
    assert [metadata.ensemble_of(entry) for entry in (0, 4, 5, 8, 9, 1 << 60)] == [ABC, ABC, ABD, ABD, AED, AED]
    assert metadata.ensemble == AED


@pytest.mark.rule("Q8")
def test_q8_a_change_appends_a_fragment_or_replaces_an_empty_one() -> None:
    once = ledger().with_fragment(5, ABD)
    assert once.fragments == (Fragment(0, ABC), Fragment(5, ABD))
    assert once.with_fragment(5, AED).fragments == (Fragment(0, ABC), Fragment(5, AED))
    assert ledger().with_fragment(0, ABD).fragments == (Fragment(0, ABD),)
    with pytest.raises(UsageError, match="ascend"):
        once.with_fragment(3, AED)


@pytest.mark.rule("Q16")
def test_q16_closing_sets_the_end() -> None:
    recovering = ledger().in_recovery()
    assert (recovering.state, recovering.is_closed) == (LedgerState.IN_RECOVERY, False)
    closed = recovering.closed(7, 700)
    assert (closed.state, closed.is_closed, closed.last_entry, closed.length) == (LedgerState.CLOSED, True, 7, 700)


def test_passwords_are_not_shown() -> None:
    assert "hidden" not in repr(ledger(password=b"hidden"))


def test_a_bookies_address_is_its_bookie_protocol_endpoint() -> None:
    assert BookieInfo.at("10.0.0.1", 3181).address == ("10.0.0.1", 3181)
    http = Endpoint("httpserver", "10.0.0.1", 8080, "http")
    assert BookieInfo((http,)).address is None
    assert BookieInfo((http, Endpoint("bookie", "h", 1, "bookie-rpc"))).address == ("h", 1)
