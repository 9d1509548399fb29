from typing import Any

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.pipeline.tables.target import split_target


@pytest.mark.parametrize(
    ("text", "interval"),
    [("500ms", "500 milliseconds"), ("10s", "10 seconds"), ("2 minutes", "2 minutes"), ("1h", "1 hours")],
)
def test_a_trigger_is_a_time(text: str, interval: str) -> None:
    assert IngestSettings(trigger=text).spark_trigger() == {"processingTime": interval}


def test_or_what_there_is_now() -> None:
    assert IngestSettings(trigger="available-now").spark_trigger() == {"availableNow": True}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"schema": "xml"}, "schema is json, avro, raw, or a function"),
        ({"schema": "avro"}, "the schema avro needs a value_schema"),
        ({"schema": "raw", "value_schema": "a INT"}, "value_schema is of the schemas json and avro"),
        ({"value_header": "confluent"}, "value_header is confluent, of the schema avro"),
        (
            {"schema": "avro", "value_schema": "{}", "value_header": "x"},
            "value_header is confluent, of the schema avro",
        ),
        ({"partition_by": "month"}, "partition_by is day or hour"),
        ({"event_time": "t"}, "event_time says nothing without partition_by"),
        ({"trigger": "often"}, "trigger is available-now, or a time"),
        ({"compact_every": -1}, "compact_every is a whole number from 0"),
        ({"target_file_bytes": 0}, "target_file_bytes is a whole number from 1"),
        ({"catalog": {"uri": 1}}, "catalog has texts"),
        ({"catalog": ["uri"]}, "catalog is a dict"),
        ({"trigger": 10}, "trigger is text"),
        ({"schema": "avro", "value_schema": {"type": "record"}}, "value_schema is text"),
        ({"partition_by": ["day"]}, "partition_by is text"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        IngestSettings(**settings)


def test_partitions() -> None:
    assert IngestSettings().partitions == ()
    assert IngestSettings(partition_by="hour").partitions == ("event_day", "event_hour")


@pytest.mark.parametrize("text", ["table", "delta:", "csv:t", ""])
def test_a_target_has_a_format_and_a_place(text: str) -> None:
    assert split_target("delta:s3://bucket/t") == ("delta", "s3://bucket/t")
    with pytest.raises(UsageError, match="a target is delta:PATH"):
        split_target(text)
