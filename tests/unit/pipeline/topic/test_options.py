from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.schema import COLUMNS


def parse(environment: dict[str, str] | None = None, /, **given: str) -> TopicOptions:
    return TopicOptions.parse({"nameServer": "h:1", "topic": "T", **given}, environment or {})


def test_the_name_server_and_the_topic_are_enough() -> None:
    assert parse() == TopicOptions(("h:1",), "T")
    options = parse()
    assert options.columns == COLUMNS.names and options.limits == Limits()
    assert (options.start, options.end) == (Bound(EARLIEST), Bound(LATEST))
    assert (options.slave_first, options.group, options.decode) == (False, "TOOLS_CONSUMER", True)


def test_all_that_can_be_said() -> None:
    options = parse(
        startingoffsets='{"T": {"b": {"0": 5}}}',
        endingTimestamp="77",
        columns="body,tags",
        readFrom="Slave",
        group="G",
        decode="FALSE",
        minPartitions="3",
    )
    assert options.start == Bound(EARLIEST, {("b", 0): 5}) and options.end == Bound(timestamp_ms=77)
    assert options.columns == ("body", "tags") and options.limits.min_partitions == 3
    assert (options.slave_first, options.group, options.decode) == (True, "G", False)


def test_several_name_servers_and_the_environment() -> None:
    assert parse(nameServer=" a:1 ; b:2;").name_servers == ("a:1", "b:2")
    assert TopicOptions.parse({"topic": "T"}, {"TALLY_NAMESRV": "e:1"}).name_servers == ("e:1",)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nameServer": " ; "}, "nameServer is host:port"),
        ({"nameServer": "h"}, "an address is host:port"),
        ({"topic": ""}, "topic is missing"),
        ({"topics": "T"}, "unknown option: topics"),
        ({"readFrom": "both"}, "readFrom is master or slave"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "two answers to one question"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "after endingTimestamp"),
        ({"endingTimestamp": "yesterday"}, "whole number"),
        ({"columns": "value"}, "columns are some of topic, brokerName"),
    ],
)
def test_what_means_nothing_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse(**given)
