import uuid

import pytest

from tallystick.pipeline.tables.names import FileName
from tallystick.pipeline.tables.record import TableRecord

QUERY, OTHER = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))
CHANCE = "0123456789abcdef.parquet"


@pytest.mark.parametrize("application", ["etl", "a-b", f"x-{OTHER}-0000000001"])
def test_a_name_says_whose_it_is(application: str) -> None:
    name = FileName(application, QUERY, 12)
    assert FileName.parse(f"{name.prefix}{CHANCE}") == name


@pytest.mark.parametrize(
    "text", ["part-0.parquet", f"tally-a-{QUERY}-1-{CHANCE}", f"tally-a-{QUERY}-0000000001-{CHANCE}.crc"]
)
def test_other_names_are_none_of_ours(text: str) -> None:
    assert FileName.parse(text) is None


def test_only_what_no_commit_can_list_any_more_is_over() -> None:
    record = TableRecord(QUERY, 5, 0)
    assert [FileName("etl", QUERY, batch).is_over("etl", record) for batch in (4, 5, 6)] == [True, True, False]
    assert FileName("etl", OTHER, 9).is_over("etl", record)  # of a query that was refused since
    assert not FileName("another", QUERY, 1).is_over("etl", record)
