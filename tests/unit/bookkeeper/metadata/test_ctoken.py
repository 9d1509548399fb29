"""Creation tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallystick.bookkeeper.metadata import ctoken
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import MAX_ID, Fragment, LedgerMetadata
from tallystick.errors import UsageError

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))


def test_each_create_has_its_own_token_unless_the_caller_chose_one() -> None:
    tokens = {ctoken.stamped(METADATA).ctoken for _ in range(10)}
    assert len(tokens) == 10
    assert all(0 < token <= MAX_ID for token in tokens)
    assert ctoken.stamped(replace(METADATA, ctoken=5)).ctoken == 5


def test_an_own_create_is_known_by_its_token() -> None:
    mine, other = ctoken.stamped(METADATA), ctoken.stamped(METADATA)
    assert ctoken.is_own(wire.encode(mine), mine)
    assert not ctoken.is_own(wire.encode(other), mine)
    assert not ctoken.is_own(b"damaged", mine)


def test_a_rewrite_carries_no_token() -> None:
    assert wire.decode(ctoken.rewritten(ctoken.stamped(METADATA))).ctoken == 0


@pytest.mark.parametrize("ledger", [-1, MAX_ID + 1])
def test_ids_out_of_range(ledger: int) -> None:
    with pytest.raises(UsageError):
        ctoken.check_ledger_id(ledger)
