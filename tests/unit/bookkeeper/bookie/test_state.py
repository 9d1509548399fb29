"""The content of the state file, and those of the versions before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.state import UNKNOWN, Deletion, LedgerRecord, State
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.errors import CorruptRecord

KEY, OTHER = master_key(b"mine"), master_key(b"other")
STATE = State(
    7, 3, 12, (4, 9),
    {1: LedgerRecord(KEY, 2, True).packed(1), 1 << 60: LedgerRecord(OTHER, 11, False, 99).packed(1 << 60)},
    {5: Deletion(1_700_000_000_000), 6: Deletion(8, 1 << 62)}, 77, 6,
)  # fmt: skip
STATE_2 = (  # of the version without the journal's number
    "54414c4c5953543200000000000000070000000000000003000000000000000c000000020000000200000002000000000000004d000000"
    "000000000400000000000000090000000000000001000000000000000201697a1c515ffe19e0abbdca7572ddeeb85705c6dbffffffffff"
    "ffffff1000000000000000000000000000000b001773c02dbd4bbc2be47e2f59dafba542ef6e4fea000000000000006300000000000000"
    "050000018bcfe56800ffffffffffffffff000000000000000600000000000000084000000000000000ae65a1c5"
)
STATE_1 = (  # of the version without creations; the same but for them
    "54414c4c5953543100000000000000070000000000000003000000000000000c0000000200000002000000010000000000000004000000"
    "00000000090000000000000001000000000000000201697a1c515ffe19e0abbdca7572ddeeb85705c6db10000000000000000000000000"
    "00000b001773c02dbd4bbc2be47e2f59dafba542ef6e4fea00000000000000050000018bcfe56800460b64b0"
)


def test_the_state_survives_its_file() -> None:
    assert State.decode(STATE.encode()) == STATE
    assert State.decode(State().encode()) == State()


def test_a_ledger_survives_its_record() -> None:
    for record in (
        LedgerRecord(KEY, 2, True),
        LedgerRecord(OTHER, 1 << 40, False, 99),
        LedgerRecord(KEY, 2, True, unmade=True),
    ):
        assert LedgerRecord.of(record.packed(1 << 60)) == record
    ledgers = Ledgers(State.decode(STATE.encode()))
    assert [(n, each.key, each.born, each.fenced, each.creation) for n, each in ledgers.alive.items()] == [
        (1, KEY, 2, True, UNKNOWN), (1 << 60, OTHER, 11, False, 99),
    ]  # fmt: skip


def test_the_states_of_the_versions_before_are_read() -> None:
    assert State.decode(bytes.fromhex(STATE_2)) == replace(STATE, journal_number=0)
    found = State.decode(bytes.fromhex(STATE_1))
    plain = {
        ledger: replace(LedgerRecord.of(packed), creation=UNKNOWN).packed(ledger)
        for ledger, packed in STATE.ledgers.items()
    }
    assert found == replace(
        STATE, ledgers=plain, deleted={5: Deletion(1_700_000_000_000)}, anchor=UNKNOWN, journal_number=0
    )


def test_a_damaged_state_is_refused() -> None:
    data = STATE.encode()
    for offset in range(len(data)):
        with pytest.raises(CorruptRecord):
            State.decode(data[:offset])
        with pytest.raises(CorruptRecord):
            State.decode(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
