"""Which copies a bookie needs not, and when so many of them are dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallystick.bookkeeper.bookie.garbage import GarbageRules
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.bookie.surplus import SurplusCore, surplus_metadata
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.lost_runs import with_lost
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata, LedgerState
from tallystick.codec.steps import finished

CLOSED = LedgerMetadata(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    digest_type=DigestType.CRC32C,
    password=b"",
    fragments=(Fragment(0, ("b1", "b2")), Fragment(5, ("b2", "b3"))),
    state=LedgerState.CLOSED,
    last_entry=9,
    length=90,
)
RULES = GarbageRules(0.0, 0.25, 100, 1000.0)


def node(metadata: LedgerMetadata) -> Znode:
    return Znode(wire.encode(metadata), 0, 42, 0)


@pytest.mark.parametrize(
    ("metadata", "bookie", "identity", "is_surplus"),
    [
        (CLOSED, "b0", LedgerIdentity(42, False), True),
        (CLOSED, "b1", LedgerIdentity(42, False), False),
        (CLOSED, "b3", LedgerIdentity(42, False), False),
        (CLOSED, "b0", LedgerIdentity(41, False), False),
        (CLOSED, "b0", LedgerIdentity(UNKNOWN, False), False),
        (CLOSED, "b0", LedgerIdentity(42, True), False),
        (CLOSED, "b0", None, False),
        (None, "b0", LedgerIdentity(42, False), False),
        (with_lost(CLOSED, [(3, 4)]), "b0", LedgerIdentity(42, False), False),
        (replace(CLOSED, state=LedgerState.OPEN, last_entry=-1, length=0), "b0", LedgerIdentity(42, False), False),
        (
            replace(CLOSED, state=LedgerState.IN_RECOVERY, last_entry=-1, length=0),
            "b0",
            LedgerIdentity(42, False),
            False,
        ),
    ],
)
def test_only_a_closed_ledger_that_names_others_and_is_this_one_is_a_surplus(
    metadata: LedgerMetadata | None, bookie: str, identity: LedgerIdentity | None, is_surplus: bool
) -> None:
    stored = None if metadata is None else node(metadata)
    assert (surplus_metadata(7, stored, bookie, identity) is not None) is is_surplus


def test_metadata_that_cannot_be_read_says_nothing() -> None:
    assert surplus_metadata(7, node(CLOSED)._replace(data=b"junk"), "b0", LedgerIdentity(42, False)) is None


def found(core: SurplusCore, surplus: range, stored: int, now: float, *, override: bool = False) -> tuple[int, ...]:
    return finished(core.found(list(surplus), stored, now, override=override))


def test_much_at_once_waits_and_little_does_not() -> None:
    def core() -> SurplusCore:
        return SurplusCore(RULES, WaitingDeletions("cluster"))

    assert found(core(), range(100), 100, 0.0) == tuple(range(100))
    assert found(core(), range(101), 404, 0.0) == tuple(range(101))
    waiting = core()
    assert found(waiting, range(101), 403, 0.0) == () and waiting.waits_s == 1000.0
    assert found(waiting, range(150), 403, 600.0) == () and waiting.waits_s == 400.0
    assert found(waiting, range(150), 403, 1000.0) == tuple(range(101)), "the others came later"
    assert waiting.waiting.count == 49
    assert found(waiting, range(101, 150), 403, 1001.0) == tuple(range(101, 150)), "these are not many"
    assert waiting.waiting.count == 0


def test_an_operator_need_not_wait() -> None:
    core = SurplusCore(RULES, WaitingDeletions("cluster"))
    assert found(core, range(101), 101, 0.0) == ()
    assert found(core, range(101), 101, 1.0, override=True) == tuple(range(101))
    assert core.waiting.count == 0
