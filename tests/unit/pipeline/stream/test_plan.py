from __future__ import annotations

from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.stream.plan import ENTRY_COST_BYTES, LedgerSpan, StreamPartition, plan

S = "t/n/persistent/s"
METADATA = LedgerMetadata(3, 2, 2, (Fragment(0, ("a", "b", "c")), Fragment(5, ("a", "b", "d"))), DigestType.CRC32C)
ADDRESSES = {"a": ("127.0.0.1", 1)}


def span(ledger: int, first: int, last: int, entry_bytes: int = 100) -> LedgerSpan:
    return LedgerSpan(S, ledger, METADATA, first, last, entry_bytes * (last - first + 1))


def entries_of(partition: StreamPartition) -> list[tuple[int, int, int]]:
    return [(r.ledger, r.first, r.last) for range_ in partition.ranges for r in range_.ranges]


def test_small_ledgers_share_a_partition_and_fragments_are_ranges() -> None:
    [partition] = plan([span(7, 3, 9), span(8, 0, 2)], ADDRESSES, Limits())
    assert entries_of(partition) == [(7, 3, 4), (7, 5, 9), (8, 0, 2)]
    assert [(r.bookies[2]) for range_ in partition.ranges for r in range_.ranges] == ["c", "d", "c"]
    assert partition.addresses == ADDRESSES and partition.fail_on_data_loss and not partition.is_raw


def test_partitions_are_cut_by_bytes_and_not_where_the_ensemble_changes() -> None:
    partitions = plan([span(7, 0, 9)], ADDRESSES, Limits(max_partition_bytes=3 * (100 + ENTRY_COST_BYTES)))
    assert [entries_of(each) for each in partitions] == [[(7, 0, 2)], [(7, 3, 4)], [(7, 5, 7)], [(7, 8, 9)]]


def test_what_is_before_goes_with_each_part() -> None:
    before = plan([span(6, 0, 4)], ADDRESSES, Limits())[0].ranges[0].ranges
    first, second = plan([span(7, 2, 9)._replace(before=before)], ADDRESSES, Limits(min_partitions=2))
    assert [(r.ledger, r.first, r.last) for r in first.ranges[0].before] == [(6, 0, 4), (7, 0, 1)]
    assert [(r.ledger, r.first, r.last) for r in second.ranges[0].before] == [(6, 0, 4), (7, 0, 4), (7, 5, 5)]


def test_a_task_knows_what_its_query_wants_of_entries() -> None:
    for is_raw, is_strict in ((True, False), (False, True)):
        [one] = plan([span(7, 0, 2)], ADDRESSES, Limits(), is_raw=is_raw, fail_on_data_loss=is_strict)
        assert (one.is_raw, one.fail_on_data_loss) == (is_raw, is_strict)


def test_nothing_to_read_is_no_partition() -> None:
    assert plan([], ADDRESSES, Limits()) == []
