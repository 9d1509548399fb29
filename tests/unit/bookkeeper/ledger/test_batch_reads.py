"""What it takes to read a bookie entry by entry."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.batch_reads import CLOSED_CONNECTIONS, RETRY_S, BatchReads


def test_only_several_connections_one_after_another_prove_that_a_bookie_knows_no_batches() -> None:
    known = BatchReads()
    for connection in range(1, CLOSED_CONNECTIONS + 1):
        assert known.allowed("a", 0.0)
        known.closed("a", connection, 0.0)
    assert not known.allowed("a", 0.0) and known.allowed("b", 0.0)


def test_all_that_one_connection_lost_is_one_piece_of_evidence() -> None:
    known = BatchReads()
    for _ in range(10):
        known.closed("a", 7, 0.0)
    known.closed("a", 6, 0.0)  # heard of late
    assert known.allowed("a", 0.0)


def test_a_batch_that_is_answered_clears_it() -> None:
    known = BatchReads()
    for connection in range(1, 50):
        known.closed("a", connection, 0.0)
        if connection % 2:
            known.answered("a")
        assert known.allowed("a", 0.0)


def test_it_is_tried_again_after_a_while_and_once_if_nothing_has_changed() -> None:
    known = BatchReads()
    for connection in range(CLOSED_CONNECTIONS):
        known.closed("a", connection + 1, 0.0)
    assert not known.allowed("a", RETRY_S - 1) and known.allowed("a", RETRY_S)
    known.closed("a", CLOSED_CONNECTIONS + 1, RETRY_S)
    assert not known.allowed("a", 2 * RETRY_S - 1) and known.allowed("a", 2 * RETRY_S)
    known.answered("a")  # it was replaced by a newer one
    known.closed("a", CLOSED_CONNECTIONS + 2, 2 * RETRY_S)
    assert known.allowed("a", 2 * RETRY_S)
