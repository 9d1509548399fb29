"""What it takes to read a bookie entry by entry."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.batch_reads import CLOSED_CONNECTIONS, RETRY_S, BatchReads


def test_only_several_connections_one_after_another_prove_that_a_bookie_knows_no_batches() -> None:
    batch_reads = BatchReads()
    for connection in range(1, CLOSED_CONNECTIONS + 1):
        assert batch_reads.allowed("a", 0.0)
        batch_reads.closed("a", connection, 0.0)
    assert not batch_reads.allowed("a", 0.0) and batch_reads.allowed("b", 0.0)


def test_all_that_one_connection_lost_is_one_piece_of_evidence() -> None:
    batch_reads = BatchReads()
    for _ in range(10):
        batch_reads.closed("a", 7, 0.0)
    batch_reads.closed("a", 6, 0.0)  # heard of late
    assert batch_reads.allowed("a", 0.0)


def test_a_batch_that_is_answered_clears_it() -> None:
    batch_reads = BatchReads()
    for connection in range(1, 50):
        batch_reads.closed("a", connection, 0.0)
        if connection % 2:
            batch_reads.answered("a")
        assert batch_reads.allowed("a", 0.0)


def test_it_is_tried_again_after_a_while_and_once_if_nothing_has_changed() -> None:
    batch_reads = BatchReads()
    for connection in range(CLOSED_CONNECTIONS):
        batch_reads.closed("a", connection + 1, 0.0)
    assert not batch_reads.allowed("a", RETRY_S - 1) and batch_reads.allowed("a", RETRY_S)
    batch_reads.closed("a", CLOSED_CONNECTIONS + 1, RETRY_S)
    assert not batch_reads.allowed("a", 2 * RETRY_S - 1) and batch_reads.allowed("a", 2 * RETRY_S)
    batch_reads.answered("a")  # it was replaced by a newer one
    batch_reads.closed("a", CLOSED_CONNECTIONS + 2, 2 * RETRY_S)
    assert batch_reads.allowed("a", 2 * RETRY_S)
