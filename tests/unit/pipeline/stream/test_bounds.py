from __future__ import annotations

import pytest

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamLedger
from tallystick.errors import NoSuchPosition, PositionTrimmed, UsageError
from tallystick.pipeline.stream.bounds import StreamBound, StreamExtent, Word
from tallystick.pipeline.stream.spans import StreamSpan

S = "t/n/persistent/s"
# Ledgers 5 and 7 are closed; 6 left the list, as nothing was stored there; 9 is open.
LEDGERS = (StreamLedger(5, 10, 100, 1), StreamLedger(7, 3, 30, 1), StreamLedger(9, has_counts=False))
EXTENT = StreamExtent(S, LEDGERS, Position(9, 4))
EMPTY = StreamExtent(S, (), EARLIEST)


def parse(text: str, default: Word = "earliest") -> StreamBound:
    return StreamBound.parse("startingOffsets", text, default)


def test_words() -> None:
    assert parse("") == parse(" Earliest ", "latest") == StreamBound("startingOffsets", "earliest")
    assert parse("", "latest") == parse("latest") == StreamBound("startingOffsets", "latest")
    assert parse("").position(EXTENT, None) == Position(5, 0)
    assert parse("latest").position(EXTENT, None) == Position(9, 4)
    assert parse("").position(EMPTY, None) == parse("latest").position(EMPTY, None) == EARLIEST


def test_what_ends_before_the_first_entry_of_a_ledger_needs_nothing_of_it() -> None:
    """The ledger may be gone: nobody wrote to it, and the next owner dropped it."""
    for end, ledgers in ((Position(7, 0), [5]), (Position(7, 1), [5, 7]), (Position(9, 0), [5, 7])):
        assert [each.ledger for each in StreamSpan(EXTENT, Position(5, 2), end).ledgers] == ledgers


def test_streams_by_name_and_the_others_by_default() -> None:
    bound = parse('{"persistent://t/n/s": "7:1", "t/n/persistent/o": "Latest"}')
    assert bound.named_positions == {S: Position(7, 1), "t/n/persistent/o": "latest"}
    assert bound.position(EXTENT, None) == Position(7, 1)
    assert bound.position(StreamExtent("t/n/persistent/x", LEDGERS, Position(9, 4)), None) == Position(5, 0)
    assert parse('{"t/n/persistent/o": "7:1"}', "latest").position(EXTENT, None) == Position(5, 0)
    end = StreamBound.parse("endingOffsets", '{"t/n/persistent/o": "7:1"}', "latest")
    assert end.position(EXTENT, None) == Position(9, 4)
    with pytest.raises(UsageError, match="startingOffsets names a stream that the query does not read"):
        bound.check([S])
    bound.check([S, "t/n/persistent/o"])


@pytest.mark.parametrize(
    "text",
    ["newest", "[1]", "1", '"7:1"', '{"x": "7:1"}', '{"t/n/persistent/s": 7}', '{"t/n/persistent/s": "7"}',
     '{"t/n/persistent/s": "7:1:0"}', '{"t/n/persistent/s": "7:-1"}', '{"t/n/persistent/s": "-1:0"}'],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets"):
        parse(text)


@pytest.mark.parametrize(
    ("position", "next_position"),
    [((5, 0), (5, 0)), ((5, 9), (5, 9)), ((5, 10), (7, 0)), ((6, 0), (7, 0)), ((7, 3), (9, 0)), ((9, 0), (9, 0)),
     ((9, 4), (9, 4)), ((-1, -1), (5, 0))],
)  # fmt: skip
def test_reading_goes_on_at_the_next_ledger(position: tuple[int, int], next_position: tuple[int, int]) -> None:
    assert EXTENT.next(Position(*position)) == Position(*next_position)


@pytest.mark.parametrize("position", [(5, 11), (6, 1), (7, 4), (9, 5), (10, 0)])
def test_a_position_that_is_not_there_is_an_error(position: tuple[int, int]) -> None:
    bound = StreamBound("startingOffsets", "earliest", {S: Position(*position)})
    for is_strict in (True, False):
        with pytest.raises(NoSuchPosition, match="does not reach"):
            bound.position(EXTENT, None, is_strict=is_strict)


@pytest.mark.parametrize("position", [(0, 0), (4, 0), (4, 7)])
def test_a_deleted_position_is_an_error_or_passed_over(position: tuple[int, int]) -> None:
    bound = StreamBound("startingOffsets", "earliest", {S: Position(*position)})
    with pytest.raises(PositionTrimmed) as raised:
        bound.position(EXTENT, None)
    assert raised.value.first == Position(5, 0)
    assert bound.position(EXTENT, None, is_strict=False) == Position(5, 0)


def test_a_ledger_that_left_the_end_of_the_list() -> None:
    extent = StreamExtent(S, LEDGERS[:2], Position(7, 3))
    assert extent.next(Position(7, 3)) == Position(7, 3)  # no other one is known


def test_a_time_ends_where_the_stream_ends() -> None:
    bound = StreamBound("startingOffsets", "earliest", timestamp_ms=5)
    assert bound.position(EXTENT, Position(7, 2)) == Position(7, 2)
    assert bound.position(EXTENT, Position(9, 9)) == Position(9, 4)
    assert bound.position(EMPTY, Position(0, 0)) == EARLIEST


@pytest.mark.parametrize("end", [(3, 0), (4, 0), (5, 0)])
def test_a_batch_in_which_nothing_was_stored_is_planned_when_all_of_it_is_gone(end: tuple[int, int]) -> None:
    extent = StreamExtent(S, LEDGERS, Position(*end), trimmed=Position(3, 0))
    assert extent.next(Position(3, 0)) == Position(*end)
    with pytest.raises(PositionTrimmed):
        extent.next(Position(2, 9))


def test_what_was_empty_when_it_was_looked_at_first() -> None:
    """Where ledgers without entries have left the list nothing was missed."""
    for trimmed in (EARLIEST, Position(3, 0)):
        assert StreamExtent(S, LEDGERS, Position(9, 4), trimmed=trimmed).next(EARLIEST) == Position(5, 0)
    with pytest.raises(PositionTrimmed, match="what this stream had first is deleted"):
        StreamExtent(S, LEDGERS, Position(9, 4), trimmed=Position(3, 2)).next(EARLIEST)
    assert StreamExtent(S, (), EARLIEST, trimmed=Position(3, 2)).next(EARLIEST) == EARLIEST
