from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.schema import COLUMNS
from tallystick.pipeline.trigger import TriggerLimits

URI = "sqlite:///somewhere"
S = "t/n/persistent/s"


def parse(**options: str) -> StreamSourceOptions:
    return StreamSourceOptions.parse({"uri": URI, **options}, {})


def test_the_defaults() -> None:
    options = parse(subscribe=f"{S}, persistent://t/n/a")
    assert options == StreamSourceOptions(URI, ("t/n/persistent/a", S))
    assert options.columns == COLUMNS.names and options.fail_on_data_loss and not options.is_raw
    assert parse(path=S).streams == (S,)


def test_all_of_them() -> None:
    options = parse(
        subscribePattern="t/.*", columns="value,key", startingOffsets="latest", endingTimestamp="7",
        failOnDataLoss="False", maxBytesPerPartition="1m", minPartitions="3", maxRecordsPerPartition="9",
    )  # fmt: skip
    assert options.pattern is not None and options.pattern.pattern == "t/.*" and options.streams == ()
    assert options.columns == ("value", "key") and not options.fail_on_data_loss
    assert (options.start.default, options.end.timestamp_ms) == ("latest", 7)
    assert options.limits == Limits(1 << 20, 3, 9)
    assert parse(subscribe=S, entryFormat="raw").is_raw
    following = parse(subscribe=S, maxOffsetsPerTrigger="9", maxBytesPerTrigger="2k", minOffsetsPerTrigger="3",
                      maxTriggerDelay="90s", cursor="etl")  # fmt: skip
    assert following.trigger == TriggerLimits(9, 2048, 3, 90.0) and following.cursor == "etl"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give one of the options subscribe and subscribePattern"),
        ({"subscribe": S, "subscribePattern": "."}, "give one of the options"),
        ({"subscribe": S, "path": S}, "say the same thing"),
        ({"subscribe": "flights"}, "the name of a stream is"),
        ({"subscribe": ""}, "the option subscribe is empty"),
        ({"subscribePattern": ""}, "the option subscribePattern is empty"),
        ({"subscribe": S, "startingOffsets": ""}, "the option startingOffsets is empty"),
        ({"subscribe": S, "maxBytesPerPartition": " "}, "the option maxBytesPerPartition is empty"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"subscribe": S, "endingOffsets": "earliest"}, "endingOffsets is latest or JSON: nothing ends at its"),
        ({"subscribe": S, "startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"subscribe": S, "startingOffsets": "latest", "startingTimestamp": "1"}, "two answers to one question"),
        ({"subscribe": S, "startingTimestamp": "2", "endingTimestamp": "1"}, "after endingTimestamp"),
        ({"subscribe": S, "endingOffsets": '{"t/n/persistent/o": "1:0"}'}, "endingOffsets names a stream"),
        ({"subscribe": S, "entryFormat": "raw", "startingTimestamp": "1"}, "raw entries do not say"),
        ({"subscribe": S, "entryFormat": "avro"}, "entryFormat is pulsar or raw"),
        ({"subscribe": S, "failOnDataLoss": "maybe"}, "failOnDataLoss is true or false"),
        ({"subscribe": S, "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition is a whole number from 1"),
        ({"subscribe": S, "uri": "memory://x"}, "memory"),
        ({"subscribe": S, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is above maxOffsetsPerTrigger"),
        ({"subscribe": S, "maxTriggerDelay": "1m"}, "says nothing without minOffsetsPerTrigger"),
        ({"subscribe": S, "minOffsetsPerTrigger": "9", "maxTriggerDelay": "1 day"}, "maxTriggerDelay is a time"),
        ({"subscribe": S, "cursor": ".."}, "the name of a cursor"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse(**options)
