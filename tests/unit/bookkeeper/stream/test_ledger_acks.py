"""What is kept of what was encoded: it is written again only while it says what is acknowledged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.bookkeeper.stream.ledger_acks import LedgerAcks


def filled() -> LedgerAcks:
    acks = LedgerAcks(5)
    for entry in (7, 8, 70):
        acks.set_batch(entry, 0b1110)
    for entry in (10, 20, 200):
        acks.add(entry, entry)
    return acks


def written(acks: LedgerAcks) -> tuple[bytes, bytes]:
    return acks.encoded_batches(acks.batch_order()), acks.encoded_bitmap(acks.entries.runs)


@pytest.mark.parametrize(
    "change",
    [
        lambda acks: acks.add(7, 7),
        lambda acks: acks.add(11, 69),
        lambda acks: acks.set_batch(8, 0b1100),
        lambda acks: acks.set_batch(9, 0b1000),
        lambda acks: acks.discard_before(15),
        lambda acks: acks.discard_before(100),
    ],
)
def test_after_a_change_what_was_encoded_before_is_not_written(change: Callable[[LedgerAcks], None]) -> None:
    acks, never_written = filled(), filled()
    before = written(acks)
    for each in (acks, never_written):
        change(each)
    assert written(acks) == written(never_written) != before
