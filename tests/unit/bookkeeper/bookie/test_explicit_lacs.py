"""The explicit LACs of stored ledgers."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.bookie.explicit_lacs import ExplicitLacs, fits, is_body, ledger_of


def lac_body(ledger: int, lac: int, digest: bytes = b"crc!") -> bytes:
    return ledger.to_bytes(8, "big", signed=True) + lac.to_bytes(8, "big", signed=True) + digest


def test_the_highest_lac_of_each_ledger_is_kept() -> None:
    lacs = ExplicitLacs({1: lac_body(1, 5)})
    assert not lacs.note(1, lac_body(1, 4)) and not lacs.note(1, lac_body(1, 5, b"other"))
    assert lacs.note(1, lac_body(1, 6)) and lacs.note(2, lac_body(2, -1))
    assert [lacs.lac(ledger) for ledger in (1, 2, 3)] == [6, -1, -1]
    assert (lacs.body(1), lacs.body(3)) == (lac_body(1, 6), None)
    assert lacs.copy() == {1: lac_body(1, 6), 2: lac_body(2, -1)}


def test_a_deleted_ledger_has_none() -> None:
    lacs = ExplicitLacs({1: lac_body(1, 5)})
    lacs.forget(1)
    lacs.forget(2)
    assert lacs.body(1) is None and lacs.copy() == {}
    assert lacs.note(1, lac_body(1, 0)), "the id is that of another ledger now"


@pytest.mark.parametrize(
    ("digest_bytes", "good"), [(-1, False), (0, True), (4, True), (8, True), (20, True), (21, False)]
)
def test_a_body_has_a_digest_of_any_kind_and_nothing_more(digest_bytes: int, good: bool) -> None:
    body = (lac_body(7, 2) + bytes(40))[: 16 + digest_bytes]
    assert is_body(body) is good and fits(body, 7, 2) is good


def test_a_body_names_its_ledger_and_lac() -> None:
    body = lac_body(7, -1)
    assert ledger_of(body) == 7 and fits(body, 7, -1)
    assert not fits(body, 7, 0) and not fits(body, 8, -1)
