from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.ledger.plan import ENTRY_COST_BYTES, LedgerExtent, plan
from tallystick.pipeline.ledger.selection import IdSpan

ADDRESSES = {f"bookie-{n}": ("127.0.0.1", 3180 + n) for n in range(4)}
MIB = 1 << 20


def extent(
    ledger: int, last: int, length: int = 0, firsts: tuple[int, ...] = (0,), digest: DigestType = DigestType.CRC32C
) -> LedgerExtent:
    fragments = tuple(Fragment(first, (f"bookie-{n % 4}", f"bookie-{(n + 1) % 4}")) for n, first in enumerate(firsts))
    return LedgerExtent(ledger, LedgerMetadata(2, 2, 1, fragments, digest, b"secret"), last, length)


@st.composite
def extents(draw: st.DrawFn) -> list[LedgerExtent]:
    found = []
    for ledger in range(draw(st.integers(0, 6))):
        last = draw(st.integers(-1, 300))
        firsts = {0, *draw(st.sets(st.integers(1, 400), max_size=4))}
        found.append(extent(ledger * 3, last, draw(st.integers(0, 100_000)) if last >= 0 else 0, tuple(sorted(firsts))))
    return found


@given(
    extents(), st.builds(IdSpan, st.integers(0, 300), st.integers(0, 400)), st.integers(1, 40_000), st.integers(1, 9)
)
def test_every_wanted_entry_is_planned_once_and_in_order(
    ledgers: list[LedgerExtent], entries: IdSpan, max_bytes: int, min_partitions: int
) -> None:
    partitions = plan(ledgers, entries, ADDRESSES, Limits(max_bytes, min_partitions))
    planned = [(r.ledger, e) for p in partitions for r in p.ranges for e in range(r.first, r.last + 1)]
    assert planned == [(found.ledger, e) for found in ledgers for e in range(found.last + 1) if e in entries]
    assert all(partition.count > 0 for partition in partitions)


@given(extents(), st.integers(1, 40_000))
def test_a_range_lies_in_one_fragment(ledgers: list[LedgerExtent], max_bytes: int) -> None:
    by_ledger = {found.ledger: found.metadata for found in ledgers}
    for partition in plan(ledgers, IdSpan(), ADDRESSES, Limits(max_bytes)):
        for found in partition.ranges:
            metadata = by_ledger[found.ledger]
            assert metadata.ensemble_of(found.first) == found.bookies == metadata.ensemble_of(found.last)
            assert not any(found.first < fragment.first <= found.last for fragment in metadata.fragments)


@given(extents(), st.integers(1, 40_000))
def test_no_partition_is_much_fatter_than_allowed(ledgers: list[LedgerExtent], max_bytes: int) -> None:
    weights = {x.ledger: ENTRY_COST_BYTES + -(-x.length // max(1, x.last + 1)) for x in ledgers}
    for partition in plan(ledgers, IdSpan(), ADDRESSES, Limits(max_bytes)):
        size = sum((found.last - found.first + 1) * weights[found.ledger] for found in partition.ranges)
        assert size <= max_bytes + max(weights.values())


def test_small_ledgers_share_one_partition() -> None:
    (partition,) = plan([extent(n, 9, 1000) for n in range(1000)], IdSpan(), ADDRESSES, Limits())
    assert partition.count == 10_000


def test_a_large_ledger_is_cut_by_bytes() -> None:
    last = 1024 * 1024 - 1
    partitions = plan([extent(1, last, 1024 * (last + 1))], IdSpan(), ADDRESSES, Limits(128 * MIB))
    assert len(partitions) == 9  # 1 GiB of payload and the entries' own weight
    assert max(p.count for p in partitions) - min(p.count for p in partitions) <= 1


def test_more_partitions_are_made_when_asked_for() -> None:
    assert [p.count for p in plan([extent(1, 99)], IdSpan(), ADDRESSES, Limits(min_partitions=4))] == [25] * 4


def test_more_partitions_than_entries_cannot_be_made() -> None:
    assert [p.count for p in plan([extent(1, 2)], IdSpan(), ADDRESSES, Limits(min_partitions=10))] == [1, 1, 1]


@pytest.mark.rule("Q6", "Q17")
def test_q6_nothing_beyond_the_lac_is_planned() -> None:
    (partition,) = plan([extent(1, 41, firsts=(0, 40, 60))], IdSpan(), ADDRESSES, Limits())
    assert [(found.first, found.last) for found in partition.ranges] == [(0, 39), (40, 41)]


def test_what_a_query_has_read_of_a_ledger_is_not_planned_again() -> None:
    [partition] = plan([extent(7, 9, 100, firsts=(0, 5))._replace(first=3)], IdSpan(), ADDRESSES, Limits())
    assert [(each.first, each.last) for each in partition.ranges] == [(3, 4), (5, 9)]
    [partition] = plan([extent(7, 9, 100)._replace(first=3)], IdSpan(1, 6), ADDRESSES, Limits())
    assert [(each.first, each.last) for each in partition.ranges] == [(3, 6)]


def test_nothing_to_read_is_no_partition() -> None:
    assert plan([extent(1, -1)], IdSpan(), ADDRESSES, Limits()) == []
    assert plan([extent(1, 9)], IdSpan(10, 20), ADDRESSES, Limits()) == []


def test_no_password_is_in_a_plan() -> None:
    for digest in DigestType:
        (partition,) = plan([extent(1, 9, digest=digest)], IdSpan(), ADDRESSES, Limits())
        assert b"secret" not in pickle.dumps(partition)


def test_a_password_is_not_shown() -> None:
    (partition,) = plan([extent(1, 9, digest=DigestType.HMAC)], IdSpan(), ADDRESSES, Limits())
    assert "secret" not in repr(partition)


def test_a_partition_survives_pickling() -> None:
    (partition,) = plan([extent(1, 9)], IdSpan(), ADDRESSES, Limits())
    assert pickle.loads(pickle.dumps(partition)) == partition
