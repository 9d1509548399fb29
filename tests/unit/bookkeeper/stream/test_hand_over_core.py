"""What a broker with its default settings deletes: compared with its behaviour in ``tests/interop``."""

from __future__ import annotations

from tallystick.bookkeeper.stream.hand_over_core import BrokerDeletions, broker_deletions
from tallystick.bookkeeper.wire.pulsar_policies import UNLIMITED, NamespacePolicies
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger

DEFAULT = NamespacePolicies()
KEPT = NamespacePolicies(retention_s=UNLIMITED, retention_bytes=UNLIMITED)
MIB = 1 << 20
THREE = StreamInfo(tuple(StreamLedger(id, 10, MIB, 1000) for id in (3, 4, 7)))
BEFORE_ALL, HALF, ALL = Position(3, -1), Position(4, 9), Position(7, 9)


def ledgers(deletions: BrokerDeletions) -> list[int]:
    return [each.ledger for each in deletions.ledgers]


def test_without_a_durable_cursor_all_goes() -> None:
    """The newest ledger, too: the broker closes it."""
    deletions = broker_deletions(THREE, [], DEFAULT)
    assert deletions and ledgers(deletions) == [3, 4, 7] and deletions.topic_after_s == 60
    assert str(deletions) == (
        "the whole topic when nobody uses it for 60 s, as it has no durable cursor; "
        "ledgers 3 to 7 (30 entries, 3145728 bytes) that no durable cursor holds, soon"
    )


def test_a_durable_cursor_holds_what_it_has_not_acknowledged() -> None:
    nothing = broker_deletions(THREE, [BEFORE_ALL, ALL], DEFAULT)
    assert not nothing and str(nothing) == "nothing"
    half = broker_deletions(THREE, [ALL, HALF], DEFAULT)
    assert ledgers(half) == [3, 4] and half.topic_after_s is None
    assert str(half) == "ledgers 3 to 4 (20 entries, 2097152 bytes) that durable cursors do not hold, soon"
    assert ledgers(broker_deletions(THREE, [ALL], DEFAULT)) == [3, 4, 7]


def test_a_retention_without_limits_keeps_ledgers_and_topic() -> None:
    assert not broker_deletions(THREE, [], KEPT)


def test_a_limit_alone_deletes_beyond_it() -> None:
    by_size = NamespacePolicies(retention_s=UNLIMITED, retention_bytes=2 * MIB)
    assert ledgers(broker_deletions(THREE, [], by_size)) == [3]
    assert broker_deletions(THREE, [], by_size).topic_after_s is None
    by_time = broker_deletions(THREE, [HALF], NamespacePolicies(retention_s=7200, retention_bytes=UNLIMITED))
    assert ledgers(by_time) == [3, 4] and "7200 s after they were closed" in str(by_time)
    assert broker_deletions(THREE, [], NamespacePolicies(retention_s=7200)).topic_after_s == 7200


def test_a_cursor_that_the_namespace_moves_holds_nothing() -> None:
    assert ledgers(broker_deletions(THREE, [BEFORE_ALL], NamespacePolicies(moves_subscriptions=True))) == [3, 4, 7]
    gone = broker_deletions(THREE, [BEFORE_ALL], NamespacePolicies(deletes_subscriptions=True))
    assert ledgers(gone) == [3, 4, 7] and gone.topic_after_s == 60
    assert not broker_deletions(
        THREE, [BEFORE_ALL], NamespacePolicies(retention_s=-1, retention_bytes=-1, moves_subscriptions=True)
    )


def test_a_topic_is_deleted_as_its_namespace_says() -> None:
    slow = NamespacePolicies(max_inactive_s=600)
    assert broker_deletions(StreamInfo(), [], slow).topic_after_s == 600
    assert broker_deletions(StreamInfo(), [], NamespacePolicies(deletes_inactive=False)).topic_after_s is None
    caught_up = NamespacePolicies(deletes_caught_up=True)
    assert broker_deletions(THREE, [HALF], caught_up).topic_after_s is None
    assert broker_deletions(THREE, [ALL], caught_up).topic_after_s == 60


def test_whether_a_cursor_would_keep_it_depends_on_why_it_goes() -> None:
    assert broker_deletions(THREE, [], DEFAULT).cursor_keeps
    assert broker_deletions(THREE, [ALL], DEFAULT).cursor_keeps
    assert broker_deletions(THREE, [ALL], NamespacePolicies(deletes_caught_up=True)).cursor_keeps
    for policies in (NamespacePolicies(moves_subscriptions=True), NamespacePolicies(deletes_subscriptions=True)):
        assert not broker_deletions(THREE, [], policies).cursor_keeps
        assert not broker_deletions(THREE, [HALF], policies).cursor_keeps
