"""The content of the state file, and those of the versions before."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.state import UNKNOWN, DeletedLedger, LedgerRecord, State
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, StorageError

PATH = "/ledgers/state"
KEY, OTHER = master_key(b"mine"), master_key(b"other")
STATE = State(
    7,
    3,
    12,
    (4, 9),
    {1: LedgerRecord(KEY, 2, True).packed(1), 1 << 60: LedgerRecord(OTHER, 11, False, 99).packed(1 << 60)},
    {5: DeletedLedger(1_700_000_000_000), 6: DeletedLedger(8, 1 << 62)},
    77,
    6,
)
STATE_4 = (
    "54414c4c59535434000000000000000700000000000000030000000000000006000000000000000c000000000000004d00010000000000"
    "00000000100000000000000004000000000000000900020000000000000000005a0000000000000001000000000000000201697a1c515f"
    "fe19e0abbdca7572ddeeb85705c6dbffffffffffffffff1000000000000000000000000000000b001773c02dbd4bbc2be47e2f59dafba5"
    "42ef6e4fea000000000000006300030000000000000000003000000000000000050000018bcfe56800ffffffffffffffff000000000000"
    "00060000000000000008400000000000000068752130"
)
GIVEN_UP = {1 << 60: (99, 5), 3: (1 << 62,)}
SECTION_OF_GIVEN_UP = (
    "000400000000000000000030100000000000000000000000000000631000000000000000000000000000000500000000000000034000000000"
    "000000"
)
EXPLICIT_LACS = {7: bytes(7) + b"\x07" + bytes(7) + b"\x02" + b"crc!", 1 << 60: (1 << 60).to_bytes(8, "big") + bytes(8)}
SECTION_OF_LACS = (
    "00050000000000000000002800140000000000000007000000000000000263726321001010000000000000000000000000000000"
)
STATE_3 = (  # of the version without sections
    "54414c4c5953543300000000000000070000000000000003000000000000000c000000020000000200000002000000000000004d000000"
    "0000000006000000000000000400000000000000090000000000000001000000000000000201697a1c515ffe19e0abbdca7572ddeeb857"
    "05c6dbffffffffffffffff1000000000000000000000000000000b001773c02dbd4bbc2be47e2f59dafba542ef6e4fea00000000000000"
    "6300000000000000050000018bcfe56800ffffffffffffffff0000000000000006000000000000000840000000000000000ee1b860"
)
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


def decoded(data: bytes) -> State:
    return State.decode(data, PATH)


def sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "big")


def test_the_state_survives_its_file() -> None:
    assert decoded(STATE.encode()) == STATE
    assert decoded(State().encode()) == State()


def test_it_is_written_as_it_was_recorded() -> None:
    """Later versions read these bytes."""
    assert STATE.encode().hex() == STATE_4
    more = replace(STATE, given_up=GIVEN_UP)
    assert more.encode()[:-4].hex() == STATE_4[:-8] + SECTION_OF_GIVEN_UP
    assert list(decoded(more.encode()).given_up.items()) == [*GIVEN_UP.items()], "in this order"
    confirmed = replace(STATE, explicit_lacs=EXPLICIT_LACS)
    assert confirmed.encode()[:-4].hex() == STATE_4[:-8] + SECTION_OF_LACS
    assert decoded(confirmed.encode()) == confirmed


def test_ledgers_in_limbo_are_a_section_of_their_own() -> None:
    in_limbo = replace(STATE, limbo=(1 << 60, 7))
    section = "000600000000000000000010" + "1000000000000000" + "0000000000000007"
    assert in_limbo.encode()[:-4].hex() == STATE_4[:-8] + section
    assert decoded(in_limbo.encode()) == in_limbo
    with pytest.raises(CorruptRecord, match="do not fit together"):
        decoded(sealed(bytes.fromhex(STATE_4[:-8]) + struct.pack(">HHQ", 6, 0, 7) + bytes(7)))


@pytest.mark.parametrize("body", ["00", "000f" + 15 * "00", "0025" + 37 * "00", "0010" + 15 * "00", "0010" + 17 * "00"])
def test_explicit_lacs_that_do_not_fit_together_are_refused(body: str) -> None:
    section = struct.pack(">HHQ", 5, 0, len(body) // 2) + bytes.fromhex(body)
    with pytest.raises(CorruptRecord, match="do not fit together"):
        decoded(sealed(bytes.fromhex(STATE_4[:-8]) + section))


@pytest.mark.parametrize(
    ("kind", "version"),
    [(1, 1), (2, 1), (3, 9), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 0), (0, 0), (0xFFFF, 3)],
)
def test_a_section_of_a_newer_version_is_named(kind: int, version: int) -> None:
    whole = STATE.encode()[:-4]
    for body in (b"", bytes(45)):
        with pytest.raises(StorageError, match="start the version of tallystick that wrote it") as refused:
            decoded(sealed(whole + struct.pack(">HHQ", kind, version, len(body)) + body))
        assert not isinstance(refused.value, CorruptRecord), "it is not damaged"
        assert refused.value.fields == {
            "path": PATH,
            "offset": len(whole),
            "type": f"0x{kind:04x}",
            "version": version,
        }


def test_a_file_of_a_newer_version_is_named() -> None:
    with pytest.raises(StorageError, match="the state file is of a newer version") as refused:
        decoded(sealed(b"TALLYST5" + b"whatever it may have"))
    assert not isinstance(refused.value, CorruptRecord)
    assert refused.value.fields == {"path": PATH, "offset": 0, "version": 5}


def test_a_section_that_is_not_there_has_nothing_in_it() -> None:
    """So a later version may have more of them, and read what this one wrote."""
    assert len(State(anchor=9).encode()) == 8 + 5 * 8 + 4, "nor is one that has nothing in it"
    head = STATE.encode()[: 8 + 5 * 8]
    assert decoded(sealed(head)) == replace(STATE, logs=(), ledgers={}, deleted={})


@pytest.mark.parametrize(
    "tail",
    [
        b"\0\1",
        struct.pack(">HHQ", 1, 0, 8) + bytes(7),
        struct.pack(">HHQ", 1, 0, 7) + bytes(7),
        struct.pack(">HHQ", 2, 0, 44) + bytes(44),
        struct.pack(">HHQ", 2, 0, 45) + bytes(16) + b"\4" + bytes(28),
        struct.pack(">HHQ", 3, 0, 25) + bytes(25),
        struct.pack(">HHQ", 3, 0, 1 << 63) + bytes(24),
        struct.pack(">HHQ", 4, 0, 17) + bytes(17),
    ],
    ids=[
        "half a head",
        "cut short",
        "half a log",
        "half a ledger",
        "an unknown flag",
        "half a deletion",
        "a length",
        "half of one given up",
    ],
)
def test_a_section_that_cannot_be_is_refused(tail: bytes) -> None:
    with pytest.raises(CorruptRecord, match="do not fit together"):
        decoded(sealed(State().encode()[: 8 + 5 * 8] + tail))


def test_a_ledger_survives_its_record() -> None:
    for record in (
        LedgerRecord(KEY, 2, True),
        LedgerRecord(OTHER, 1 << 40, False, 99),
        LedgerRecord(KEY, 2, True, unmade=True),
    ):
        assert LedgerRecord.of(record.packed(1 << 60)) == record
    ledgers = Ledgers(decoded(STATE.encode()))
    assert [(n, each.key, each.born, each.fenced, each.creation) for n, each in ledgers.alive.items()] == [
        (1, KEY, 2, True, UNKNOWN),
        (1 << 60, OTHER, 11, False, 99),
    ]


def test_the_states_of_the_versions_before_are_read() -> None:
    assert decoded(bytes.fromhex(STATE_3)) == STATE
    assert decoded(bytes.fromhex(STATE_2)) == replace(STATE, journal_number=0)
    found = decoded(bytes.fromhex(STATE_1))
    plain = {
        ledger: replace(LedgerRecord.of(packed), creation=UNKNOWN).packed(ledger)
        for ledger, packed in STATE.ledgers.items()
    }
    assert found == replace(
        STATE, ledgers=plain, deleted={5: DeletedLedger(1_700_000_000_000)}, anchor=UNKNOWN, journal_number=0
    )


def test_a_damaged_state_is_refused() -> None:
    data = STATE.encode()
    for offset in range(len(data)):
        with pytest.raises(CorruptRecord):
            decoded(data[:offset])
        with pytest.raises(CorruptRecord):
            decoded(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
