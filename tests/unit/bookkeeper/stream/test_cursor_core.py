from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.cursor_bytes import decode_cursor_state
from support.cursor_cores import ack, counts, cursor, restored
from tallystick.bookkeeper.stream import cursor_core
from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.entry_counts import EntryCounts
from tallystick.bookkeeper.wire.managed_ledgers import encode_cursor_state
from tallystick.bookkeeper.wire.stream_values import AckedRange, CursorState, Position, StreamInfo, StreamLedger
from tallystick.errors import NoSuchPosition, StreamFull

# -- the mark ----------------------------------------------------------------------------------------------------------


def test_the_mark_follows_what_is_acknowledged() -> None:
    core = cursor((5, 4), (7, None), known=2)
    ack(core, "5:1", "5:2")
    assert (core.mark, core.ranges, core.backlog) == (Position(5, -1), 1, 4)
    ack(core, "5:0")
    assert (core.mark, core.ranges, core.backlog) == (Position(5, 2), 0, 3)
    ack(core, "7:0")
    ack(core, "5:3")
    assert (core.mark, core.ranges, core.backlog) == (Position(7, 0), 0, 1)


def test_the_mark_moves_over_ledgers_without_entries() -> None:
    core = cursor((5, 1), (6, 0), (7, 0), (8, 2))
    ack(core, "8:0")
    ack(core, "5:0")
    assert core.mark == Position(8, 0)
    assert core.after(Position(5, 0)) == Position(8, 0)


def test_the_mark_waits_for_a_ledger_whose_end_is_not_known() -> None:
    core = CursorCore(counts((5, None), (8, 2)), Position(5, -1))
    core.learned(5, 1)
    ack(core, "5:0", "8:0")
    assert core.mark == Position(5, 0)
    core.listed(counts((5, 1), (8, 2)))
    assert core.mark == Position(8, 0)


def test_what_is_known_of_an_open_ledger_only_grows() -> None:
    """Who told less had looked before."""
    core = cursor((7, None), known=3)
    core.learned(7, 2)
    assert core.exists(Position(7, 2)) and core.backlog == 3


def test_a_mark_behind_the_end_of_an_earlier_ledger_is_that_of_its_last_entry() -> None:
    for entry in (3, 4, 9):
        core = restored(counts((5, 4), (7, None)), {7: 2}, CursorState(Position(5, entry)))
        assert (core.mark, core.backlog) == (Position(5, 3), 2)


def test_the_mark_moves_over_what_is_trimmed_and_what_was_acknowledged_there_is_forgotten() -> None:
    core = cursor((5, 4), (6, 3), (7, 2), (9, None), known=1)
    ack(core, "5:2", "6:1", "7:0")
    core.listed(counts((7, 2), (9, None)))
    assert (core.mark, core.ranges, core.backlog) == (Position(7, 0), 0, 2)
    core.listed(counts((9, None)))
    assert (core.mark, core.backlog) == (Position(9, -1), 1)


def test_what_was_acknowledged_in_a_ledger_that_is_gone_counts_no_more() -> None:
    core = cursor((5, 4), (6, 3), (7, 2))
    ack(core, "6:1")
    core.listed(counts((5, 4), (7, 2)))
    assert (core.mark, core.ranges, core.backlog) == (Position(5, -1), 0, 6)


def test_a_ledger_that_was_dropped_at_the_end_leaves_the_mark_where_it_is() -> None:
    core = cursor((5, 1), (6, None))
    core.ack_up_to(Position(6, -1))
    core.listed(counts((5, 1)))
    assert core.mark == Position(6, -1) and core.backlog == 0
    core.listed(counts((5, 1), (8, 1)))
    assert core.mark == Position(8, -1) and core.backlog == 1


def test_a_stream_without_ledgers() -> None:
    core = CursorCore(EntryCounts(StreamInfo()), Position(-1, -1))
    assert core.backlog == 0 and core.after(core.mark) == Position(-1, 0)
    core.listed(counts((3, None)))
    assert core.mark == Position(3, -1)


def test_the_last_position_of_a_terminated_stream_is_its_end() -> None:
    info = StreamInfo((StreamLedger(5, has_counts=False),), terminated=Position(5, 2))
    core = CursorCore(EntryCounts(info), Position(5, -1))
    assert core.backlog == 3
    with pytest.raises(NoSuchPosition):
        ack(core, "5:3")


# -- acknowledging -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["5:4", "6:0", "6:-1", "7:2", "8:0", "8:-1"])
def test_a_position_that_does_not_exist_is_refused(position: str) -> None:
    core = cursor((5, 4), (7, None), known=2)
    for call in (core.ack, core.ack_up_to):
        with pytest.raises(NoSuchPosition) as caught:
            call(Position.parse(position))
        assert caught.value.position == Position.parse(position)
    assert (core.mark, core.changes, core.ranges) == (Position(5, -1), 0, 0)


def test_what_is_acknowledged_already_changes_nothing() -> None:
    core = cursor((5, 9))
    ack(core, "5:0", "5:3")
    ack(core, "5:5:1", size=4)
    changes = core.changes
    ack(core, "5:0", "5:3", "3:7")  # 3:7 may have been trimmed
    ack(core, "5:5:1", "5:3:2", size=4)
    core.ack_up_to(Position(5, 0))
    assert core.changes == changes


def test_a_batch_is_acknowledged_with_its_last_message() -> None:
    core = cursor((5, 3))
    ack(core, "5:1:0", "5:1:2", size=3)
    assert (
        core.is_acked(Position(5, 1, 0)) and not core.is_acked(Position(5, 1, 1)) and not core.is_acked(Position(5, 1))
    )
    assert core.state().batches == {Position(5, 1): (0b010,)}
    ack(core, "5:0")
    assert (core.mark, core.backlog) == (Position(5, 0), 2)
    ack(core, "5:1:1", size=3)
    assert (core.mark, core.state().batches) == (Position(5, 1), {})


def test_an_index_beyond_the_batch_is_refused() -> None:
    core = cursor((5, 3))
    for size, index in ((3, 3), (0, 1)):
        with pytest.raises(NoSuchPosition) as caught:
            core.ack(Position(5, 1, index), size)
        assert caught.value.position == Position(5, 1, index)
    ack(core, "5:1:0", size=3)
    with pytest.raises(NoSuchPosition):
        core.ack(Position(5, 1, 3), 3)
    core.ack(Position(5, 0, 0), 0)  # the only message of its entry
    assert core.mark == Position(5, 0)


def test_all_up_to_a_message_of_a_batch() -> None:
    core = cursor((5, 9))
    ack(core, "5:1", "5:4", "5:7")
    ack(core, "5:2:0", "5:6:0", size=2)
    core.ack_up_to(Position(5, 3, 1), 4)
    changes = core.changes
    core.ack_up_to(Position(5, 3, 1), 4)
    assert core.changes == changes
    core.ack_up_to(Position(5, 3, 2), 4)
    assert core.mark == Position(5, 2) and core.changes > changes, "it is to be written, though the mark stays"
    assert core.state() == CursorState(
        Position(5, 2),
        (AckedRange(Position(5, 3), Position(5, 4)), AckedRange(Position(5, 6), Position(5, 7))),
        {Position(5, 3): (0b1000,), Position(5, 6): (0b10,)},
        {},
    )
    core.ack_up_to(Position(5, 3, 3), 4)
    assert core.mark == Position(5, 4)


def test_all_up_to_a_message_behind_which_the_rest_of_its_batch_is_acknowledged() -> None:
    core = cursor((5, 10))
    ack(core, "5:3:3", size=4)
    core.ack_up_to(Position(5, 3, 2), 4)
    assert (core.mark, core.is_acked(Position(5, 3)), core.state().batches) == (Position(5, 3), True, {})


def test_all_up_to_the_beginning_of_a_ledger() -> None:
    core = cursor((5, 4), (7, None), known=2)
    core.ack_up_to(Position(7, -1))
    assert core.mark == Position(7, -1) and core.backlog == 2


def test_a_reset_moves_back_and_forgets_what_was_acknowledged() -> None:
    core = cursor((5, 9))
    core.ack_up_to(Position(5, 4))
    ack(core, "5:6")
    core.reset(Position(5, 2, 2), 4)
    assert core.state() == CursorState(Position(5, 1), (), {Position(5, 2): (0b1100,)}, {})
    assert core.backlog == 7


@pytest.mark.parametrize("place", [Position(5, 2), Position(5, 2, 1)])
def test_a_seek_to_what_was_trimmed_just_now_goes_to_what_is_left(place: Position) -> None:
    core = cursor((5, 4), (6, 3), (7, 2))
    core.listed(counts((6, 3), (7, 2)))
    core.reset(place, 3)
    assert (core.mark, core.backlog, core.state()) == (Position(6, -1), 5, CursorState(Position(6, -1)))


def test_too_many_batches_in_part_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_core, "MOST_BATCH_BYTES", 300)
    core = cursor((5, 100))
    ack(core, "5:10:0", "5:20:0", size=64)
    with pytest.raises(StreamFull):
        ack(core, "5:30:0", "5:40:0", size=64)
    ack(core, "5:10:1", size=64)
    ack(core, "5:10", "5:20")
    ack(core, "5:40:0", size=64)
    ack(core, "5:40")
    with pytest.raises(StreamFull):
        ack(core, "5:50:0", size=64 * 64)  # its bitmap alone is more than that


# -- where to read -----------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_not_read_again() -> None:
    core = cursor((5, 4), (7, 2), (8, None))
    ack(core, "5:1", "5:3", "7:0", "7:1")
    assert core.first_unacked(Position(5, 0)) == Position(5, 0)
    assert core.first_unacked(Position(5, 1)) == Position(5, 2)
    assert core.first_unacked(Position(5, 3)) == Position(8, 0)
    assert core.first_unacked(Position(5, 4)) == Position(8, 0)


# -- against a plain set -----------------------------------------------------------------------------------------------

LEDGERS = ((3, 5), (4, 0), (6, 70), (9, 3), (12, 40))
ENTRIES = [Position(ledger, entry) for ledger, entries in LEDGERS for entry in range(entries)]
SIZE = 3
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ack", "ack", "ack", "part", "part", "up_to", "up_to_part", "reset", "restore", "save"]),
        st.integers(0, len(ENTRIES) - 1),
        st.integers(0, SIZE - 1),
    ),
    max_size=60,
)


def unacked_messages(core: CursorCore) -> set[Position]:
    messages = (entry._replace(batch_index=index) for entry in ENTRIES for index in range(SIZE))
    return {each for each in messages if not core.is_acked(each)}


@settings(deadline=None)
@given(STEPS)
def test_it_is_a_set_of_messages(steps: list[tuple[str, int, int]]) -> None:
    core = cursor(*LEDGERS)
    messages = [entry._replace(batch_index=index) for entry in ENTRIES for index in range(SIZE)]
    unacked = set(messages)
    for step, at, index in steps:
        entry = ENTRIES[at]
        message = entry._replace(batch_index=index)
        mark = core.mark
        if step == "ack":
            core.ack(entry)
            unacked -= {entry._replace(batch_index=index) for index in range(SIZE)}
        elif step == "part":
            core.ack(message, SIZE)
            unacked.discard(message)
        elif step == "up_to":
            core.ack_up_to(entry)
            unacked = {each for each in unacked if each.of_entry > entry}
        elif step == "up_to_part":
            core.ack_up_to(message, SIZE)
            unacked = {each for each in unacked if each > message}
        elif step == "reset":
            core.reset(message, SIZE)
            unacked = {each for each in messages if each >= message}
        elif step == "save":  # what is kept of that is written again later, unless it has changed
            assert decode_cursor_state(core.encoded(), where="") == core.state()
        else:
            core = restored(core.counts, {}, core.state())
        assert step == "reset" or core.mark >= mark
    assert unacked_messages(core) == unacked
    whole = {each.of_entry for each in unacked}
    assert core.backlog == len(whole)
    first = min(whole, default=None)
    assert first is None or (core.first_unacked(Position(3, 0)) == core.after(core.mark) == first)
    assert decode_cursor_state(core.encoded(), where="") == core.state()
    assert core.encoded() == encode_cursor_state(core.state())
