"""Who may add, and the state file."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.bookie.ledgers import LedgerRecord, Ledgers, State
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.v2 import Code
from tallystick.errors import CorruptRecord

KEY, OTHER = master_key(b"mine"), master_key(b"other")
STATE = State(
    7, 3, 12, (4, 9), {1: LedgerRecord(KEY, 2, True), 1 << 60: LedgerRecord(OTHER, 11, False)}, {5: 1_700_000_000_000}
)


def test_the_state_survives_its_file() -> None:
    assert State.decode(STATE.encode()) == STATE
    assert State.decode(State().encode()) == State()


def test_a_damaged_state_is_refused() -> None:
    data = STATE.encode()
    for offset in range(len(data)):
        with pytest.raises(CorruptRecord):
            State.decode(data[:offset])
        with pytest.raises(CorruptRecord):
            State.decode(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])


def test_the_first_key_is_the_key() -> None:
    ledgers = Ledgers(State())
    assert ledgers.admit(1, KEY, 0) == Code.OK
    assert ledgers.admit(1, OTHER, 0) == Code.UNAUTHORIZED
    assert ledgers.fence(1, OTHER, 0) == Code.UNAUTHORIZED
    assert ledgers.admit(1, KEY, 0) == Code.OK, "the refused fence did nothing"


def test_negative_ledgers_are_bad_requests() -> None:
    ledgers = Ledgers(State())
    assert ledgers.admit(-1, KEY, 0) == ledgers.fence(-1, KEY, 0) == Code.BAD_REQUEST
    assert not ledgers.alive


@pytest.mark.rule("Q11", "Q14")
def test_q11_a_fence_stops_writers_and_q14_not_recovery() -> None:
    ledgers = Ledgers(State())
    assert ledgers.fence(1, KEY, 0) == Code.OK, "of a ledger that this bookie never heard of"
    assert ledgers.admit(1, KEY, 0) == Code.FENCED
    assert ledgers.admit(1, KEY, 0, recovery=True) == Code.OK
    assert ledgers.fence(1, KEY, 0) == Code.OK, "again"


def test_a_deleted_ledger_is_remembered_from_its_last_access() -> None:
    ledgers = Ledgers(State())
    for ledger in (1, 2, 3):
        ledgers.admit(ledger, KEY, 0)
        ledgers.delete(ledger, 1000 + ledger, 0)
    assert ledgers.admit(1, KEY, 5000) == ledgers.admit(1, KEY, 5000, recovery=True) == Code.FENCED
    assert ledgers.fence(2, KEY, 5000) == Code.NO_LEDGER
    assert set(ledgers.remembered((), 2000, 10, 0)) == {1, 2}
    assert set(ledgers.remembered((), 0, 2, 0)) == {1, 2}, "the ones asked for last"
    assert set(ledgers.remembered({2}, 0, 10, 0)) == {1, 3}, "2 exists again"


def test_a_deleted_ledger_is_remembered_while_the_journal_has_adds_to_it() -> None:
    ledgers = Ledgers(State())
    ledgers.admit(1, KEY, 0)
    ledgers.delete(1, 0, 8)
    assert set(ledgers.remembered({1}, 1 << 60, 1, 7)) == {1}
    assert set(ledgers.remembered({1}, 1 << 60, 1, 8)) == set()


def test_keys_are_not_shown() -> None:
    ledgers = Ledgers(STATE)
    for shown in (repr(ledgers.alive), repr(STATE)):
        assert repr(KEY) not in shown and KEY.hex() not in shown
