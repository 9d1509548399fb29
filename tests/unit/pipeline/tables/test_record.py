import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystick.errors import CheckpointLost, UsageError
from tallystick.pipeline.tables.record import (
    TableRecord,
    application_name,
    is_committed,
    query_halves,
    query_of_halves,
    require_same_query,
)

ONE, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=(1 << 128) - 1))


@given(st.uuids())
@example(uuid.UUID(int=(1 << 127) + (1 << 63)))
def test_an_id_is_two_numbers_of_64_bits(query: uuid.UUID) -> None:
    high, low = query_halves(str(query))
    assert -(1 << 63) <= high < 1 << 63 and -(1 << 63) <= low < 1 << 63
    assert query_of_halves(high, low) == str(query)


def test_the_last_batch_comes_again_with_the_offsets_that_it_had() -> None:
    record = TableRecord(ONE, 5, 77)
    assert is_committed(record, TableRecord(ONE, 5, 77), "a", "t")
    assert not is_committed(record, TableRecord(ONE, 6, 78), "a", "t")
    assert not is_committed(None, TableRecord(ONE, 0, 0), "a", "t")


@pytest.mark.parametrize("written", [TableRecord(ONE, 5, 78), TableRecord(ONE, 4, 77)])
def test_a_checkpoint_from_an_older_copy_loses_no_rows(written: TableRecord) -> None:
    with pytest.raises(CheckpointLost, match="of an older checkpoint, with other rows"):
        is_committed(TableRecord(ONE, 5, 77), written, "a", "t")


@pytest.mark.parametrize("batch", [0, 9])
def test_another_query_is_refused_whatever_its_number(batch: int) -> None:
    with pytest.raises(CheckpointLost, match="Restore the checkpoint, or give it the name of another app") as caught:
        is_committed(TableRecord(ONE, 5, 0), TableRecord(OTHER, batch, 0), "etl", "delta:t")
    assert (caught.value.application, caught.value.query, caught.value.batch) == ("etl", ONE, 5)


def test_a_query_that_is_still_to_be_made_is_another_one() -> None:
    require_same_query(TableRecord(ONE, 5, 0), ONE, "a", "t")
    with pytest.raises(CheckpointLost, match="this is a new one"):
        require_same_query(TableRecord(ONE, 5, 0), None, "a", "t")


@pytest.mark.parametrize("text", ["", "a/b", "-a", "a b", "ä", "a" * 101, ".."])
def test_a_name_that_cannot_be_in_a_files_name_is_refused(text: str) -> None:
    assert application_name("Etl-1.x_y") == "Etl-1.x_y"
    with pytest.raises(UsageError, match="an application is named"):
        application_name(text)
