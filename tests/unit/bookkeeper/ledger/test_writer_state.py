"""What a writer keeps of its ledger between two sessions."""

from __future__ import annotations

import gc
from dataclasses import fields, replace

import pytest

from tallystick.bookkeeper.ledger.writer_state import WriterState
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata

ONE = LedgerMetadata(3, 3, 2, (Fragment(0, ("b1", "b2", "b3")),), DigestType.CRC32C, b"secret", ctime_ms=5, ctoken=77)


@pytest.mark.parametrize(
    "metadata",
    [
        ONE,
        ONE.with_fragment(9, ("b1", "b2", "b4")),
        replace(ONE, custom={"application": b"test", "b": b""}, ctime_stored=False, ctime_ms=None, ctoken=0),
        replace(ONE, ack_quorum=3, digest_type=DigestType.CRC32, password=b"", has_password=False, format_version=1),
        ONE.in_recovery(),
        ONE.closed(8, 800),
    ],
    ids=["new", "changed", "custom", "format 1", "in recovery", "closed"],
)
def test_nothing_of_the_metadata_is_lost(metadata: LedgerMetadata) -> None:
    state = WriterState.of(7, Versioned(ONE, 0), {"b1": 4, "b2": None})
    state.lac, state.length, state.failed_bookies = 8, 800, ("b2",)
    state._shape = WriterState.of(7, Versioned(metadata, 0), {})._shape
    state.store(Versioned(metadata, 3))
    state._password = metadata.password
    again = WriterState(*state.packed())
    assert again.versioned == Versioned(metadata, 3)
    for field in fields(LedgerMetadata):  # also those that do not make metadata differ
        assert getattr(again.metadata, field.name) == getattr(metadata, field.name), field.name
    assert (again.id, again.lac, again.length, again.failed_bookies) == (7, 8, 800, ("b2",))


def test_what_is_kept_is_nothing_for_the_collector_of_garbage() -> None:
    packed = WriterState.of(7, Versioned(ONE.with_fragment(9, ("b1", "b2", "b4")), 1), {"b1": 4}).packed()
    for _ in range(4):  # each takes out a level of tuples
        gc.collect()
    assert not gc.is_tracked(packed)
