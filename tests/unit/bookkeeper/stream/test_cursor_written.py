"""What is written of a cursor, and read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cursor_bytes import decode_cursor_state
from support.cursor_cores import ack, counts, cursor, restored
from tallystick.bookkeeper.stream import cursor_core, ledger_acks
from tallystick.bookkeeper.stream.cursor_core import STEP_PARTS, STEP_RESTORED, CursorCore
from tallystick.bookkeeper.stream.ledger_acks import WORDS_OF_ONE
from tallystick.bookkeeper.wire.stream_values import AckedRange, CursorState, Position

GOLDEN = json.loads((Path(__file__).parents[3] / "wire" / "golden" / "pulsar.json").read_text())


def test_a_state_that_was_written_is_restored() -> None:
    core = cursor((5, 300), (6, 70), (7, None), known=900)
    core.properties["written by"] = 1
    ack(core, "5:3", "5:4", "5:299", "6:0", "7:63", "7:64", "7:800")
    ack(core, "5:7:1", "7:9:63", size=64)
    for state in (core.state(), decode_cursor_state(core.encoded(), where="")):
        again = restored(core.counts, {7: 900}, state)
        assert again.state() == core.state() and again.backlog == core.backlog and again.changes == 0


def test_much_is_restored_and_encoded_in_steps() -> None:
    ledgers = [(ledger, 100) for ledger in range(1, 3001)]
    core = cursor(*ledgers)
    ack(core, *(f"{ledger}:5" for ledger, _ in ledgers))
    ack(core, *(f"{ledger}:7:1" for ledger, _ in ledgers), size=64)
    assert sum(1 for _ in CursorCore.restored(core.counts, {}, core.state())) == 3000 // STEP_RESTORED * 2
    assert sum(1 for _ in core.prepare()) == 6000 // STEP_PARTS  # batches, and a bitmap of each ledger
    assert sum(1 for _ in core.prepare()) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(ledger_acks.LedgerAcks, "_encode_bitmap")
        patch.delattr(ledger_acks.LedgerAcks, "_encode")
        prepared = core.encoded()
    assert decode_cursor_state(prepared, where="") == core.state()


def test_long_batches_are_encoded_in_steps() -> None:
    """Of a batch of a million messages one may be acknowledged: its bitmap has 15,625 words."""
    core = cursor((1, 500))
    ack(core, *(f"1:{entry}:1" for entry in range(1, 101)), size=1_000_000)
    assert sum(1 for _ in core.prepare()) >= 100 * 15_625 // WORDS_OF_ONE // STEP_PARTS // 2
    assert decode_cursor_state(core.encoded(), where="") == core.state()


def test_long_bitmaps_are_encoded_in_steps() -> None:
    """Of a ledger of a million entries the last may be acknowledged."""
    ledgers = [(ledger, 1_000_000) for ledger in range(1, 101)]
    core = cursor(*ledgers)
    ack(core, *(f"{ledger}:999999" for ledger, _ in ledgers))
    assert sum(1 for _ in core.prepare()) >= 100 * 15_625 // WORDS_OF_ONE // STEP_PARTS // 2
    assert decode_cursor_state(core.encoded(), where="") == core.state()


def test_one_range_over_very_many_ledgers_is_restored_in_steps() -> None:
    known = counts(*((ledger, 2) for ledger in range(1, 3001)))
    state = CursorState(Position(1, -1), (AckedRange(Position(1, 0), Position(3000, 1)),))
    assert sum(1 for _ in CursorCore.restored(known, {}, state)) == 3000 // STEP_RESTORED


def test_a_broker_writes_the_same_bytes() -> None:
    """What Pulsar wrote into cursor ledgers, read and written again."""
    recorded = [bytes.fromhex(each["hex"]) for each in GOLDEN["cursor_states"]]
    known = counts((1, 5), (28, 9), (30, 3), (31, 2), (37, 3), (40, None))
    states = [decode_cursor_state(each, where="") for each in recorded]
    assert [restored(known, {}, each).encoded() for each in states] == recorded
    assert len(recorded) > 5


def test_entries_far_apart_are_written_as_ranges() -> None:
    core = cursor((5, 100_000_000))
    ack(core, "5:1", "5:90000000")
    assert decode_cursor_state(core.encoded(), where="") == core.state()
    assert len(core.encoded()) < 100


def test_a_range_over_ledgers_is_taken_apart() -> None:
    state = CursorState(
        Position(5, 0), (AckedRange(Position(5, 1), Position(8, 0)), AckedRange(Position(6, 0), Position(8, 1)))
    )
    core = restored(counts((5, 4), (6, 2), (7, 0), (8, 9)), {}, state)
    assert [(each.after, each.to) for each in core.state().acked] == [
        (Position(5, 1), Position(5, 3)),
        (Position(6, -1), Position(6, 1)),
        (Position(8, -1), Position(8, 1)),
    ]


def test_a_range_that_begins_where_nothing_is_any_more() -> None:
    state = CursorState(Position(5, 0), (AckedRange(Position(6, 3), Position(8, 1)),))
    core = restored(counts((5, 4), (8, 9)), {}, state)
    assert core.state().acked == (AckedRange(Position(8, -1), Position(8, 1)),)


def test_what_was_written_beyond_the_end_is_left_out() -> None:
    far = Position(7, 1 << 61)
    state = CursorState(
        Position(5, 0),
        (
            AckedRange(Position(4, 3), Position(4, 9)),
            AckedRange(Position(5, 2), Position(5, 99)),
            AckedRange(Position(7, 4), far),
        ),
        {Position(6, 0): (1,), Position(5, 9): (1,), far: (1,), Position(5, 2): (0,)},
    )
    core = restored(counts((5, 4), (7, None)), {7: 3}, state)
    assert core.mark == Position(5, 0) and not core.state().batches
    acked = [Position(5, 2), Position(5, 3), Position(7, 5), Position(7, 2 + cursor_core.MOST_AHEAD)]
    unacked = [Position(5, 1), Position(7, 4), Position(7, 3 + cursor_core.MOST_AHEAD), far]
    assert [each for each in acked + unacked if core.is_acked(each)] == acked


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (Position(7, (1 << 63) - 1), Position(7, 2)),
        (Position((1 << 63) - 1, (1 << 63) - 1), Position(7, 2)),
        (Position(8, -1), Position(7, 2)),
        (Position(7, 4), Position(7, 4)),  # confirmed to whoever wrote it: what is known here lags behind
        (Position(5, 9), Position(5, 3)),
        (Position(6, 2), Position(7, -1)),
        (Position(2, 2), Position(5, -1)),
    ],
)
def test_where_a_mark_is_that_the_stream_does_not_have(written: Position, expected: Position) -> None:
    assert restored(counts((5, 4), (7, None)), {7: 3}, CursorState(written)).mark == expected


def test_what_is_written_is_bounded_by_what_is_next_to_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_RANGES", "MOST_BATCHES", "MOST_BATCH_WORDS"):
        monkeypatch.setattr(cursor_core, name, 3)
    core = cursor((5, 99), (6, 99))
    ack(core, "5:2", "5:4", "6:2")
    assert not core.is_beyond and len(core.state().acked) == 3
    ack(core, "5:6", "6:5")
    assert core.is_beyond
    written = decode_cursor_state(core.encoded(), where="")
    assert written == core.state()
    assert [str(each.to) for each in written.acked] == ["5:2", "5:4", "5:6"]
    core.ack_up_to(Position(5, 50))
    assert not core.is_beyond and [str(each.to) for each in core.state().acked] == ["6:2", "6:5"]
    ack(core, "6:60:0", "6:61:0", "6:62:0", "6:63:0", size=4)
    assert core.is_beyond and list(core.state().batches) == [Position(6, 60), Position(6, 61), Position(6, 62)]
    core.ack_up_to(Position(6, 61))
    ack(core, "6:80:0", size=130)  # three words
    assert core.is_beyond and list(core.state().batches) == [Position(6, 62), Position(6, 63)]
    assert decode_cursor_state(core.encoded(), where="") == core.state()


def test_a_save_encodes_what_has_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    core = cursor((5, 50_000), (6, 50_000))
    ack(core, "5:1", "6:1")
    ack(core, "5:7:0", "5:8:0", "6:8:0", size=4)
    core.encoded()
    encoded: list[object] = []

    def counted(part: Callable[..., bytes]) -> Callable[..., bytes]:
        return lambda *values: encoded.append(values[0]) or part(*values)  # type: ignore[func-returns-value]

    for name in ("batch_part", "bitmap_part"):
        monkeypatch.setattr(ledger_acks, name, counted(getattr(ledger_acks, name)))
    ack(core, "5:8:1", size=4)
    core.encoded()
    assert encoded == [Position(5, 8)]
    ack(core, "6:3")
    assert decode_cursor_state(core.encoded(), where="") == core.state()
    assert encoded == [Position(5, 8), 6]


def test_a_batch_may_have_the_most_messages_that_there_are() -> None:
    core, size = cursor((5, 9)), 1 << 18
    ack(core, "5:3:0", f"5:3:{size - 1}", size=size)
    state = decode_cursor_state(core.encoded(), where="")
    assert len(state.batches[Position(5, 3)]) == size // 64
    again = restored(core.counts, {}, state)
    assert again.is_acked(Position(5, 3, size - 1)) and not again.is_acked(Position(5, 3, size - 2))


def test_a_list_may_be_long() -> None:
    core = CursorCore(counts(*((ledger, 2) for ledger in range(10_000)), (10_000, None)), Position(0, -1))
    core.ack(Position(9_000, 1))
    core.ack_up_to(Position(5_000, 0))
    assert core.backlog == 1 + 2 * 4_999 - 1 and core.first_unacked(Position(9_000, 1)) == Position(9_001, 0)
