from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.wire.values import MessageQueue


def parse(environment: dict[str, str] | None = None, /, **given: str) -> TopicOptions:
    return TopicOptions.parse({"nameServer": "h:1", "subscribe": "T", **given}, environment or {})


def following(**given: str) -> TopicOptions:
    return TopicOptions.parse({"nameServer": "h:1", "subscribe": "T", **given}, {}, follows=True)


def test_the_name_server_and_the_topic_are_enough() -> None:
    assert parse() == TopicOptions(("h:1",), ("T",))
    options = parse()
    assert options.columns == COLUMNS.names and options.limits == Limits()
    assert (options.start, options.end) == (Bound("startingOffsets", EARLIEST), Bound("endingOffsets", LATEST))
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
    assert options.start == Bound("startingOffsets", EARLIEST, {MessageQueue("T", "b", 0): 5})
    assert options.end == Bound("endingTimestamp", timestamp_ms=77)
    assert options.columns == ("body", "tags") and options.limits.min_partitions == 3
    assert (options.slave_first, options.group, options.decode) == (True, "G", False)


def test_several_name_servers_and_the_environment() -> None:
    assert parse(nameServer=" a:1 ; b:2;").name_servers == ("a:1", "b:2")
    assert TopicOptions.parse({"subscribe": "T"}, {"TALLY_NAMESRV": "e:1"}).name_servers == ("e:1",)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nameServer": " ; "}, "nameServer is host:port"),
        ({"nameServer": ""}, "the option nameServer is empty"),
        ({"endingOffsets": "earliest"}, "endingOffsets is latest or JSON"),
        ({"nameServer": "h"}, "an address is host:port"),
        ({"subscribe": "T,"}, "a topic's name has 1 to 127"),
        ({"subscribes": "T"}, "unknown option: subscribes .did you mean subscribe"),
        ({"subscribePattern": "T"}, "give one of the options subscribe, subscribePattern and assign"),
        ({"groupId": "a b"}, "a group's name has 1 to 255"),
        ({"group": "a b"}, "a group's name has 1 to 255"),
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


def test_what_only_a_streaming_query_has() -> None:
    options = following(
        maxOffsetsPerTrigger="9",
        maxBytesPerTrigger="2k",
        minOffsetsPerTrigger="3",
        maxTriggerDelay="90s",
        groupId="etl",
        maxRecordsPerPartition="5",
        failOnDataLoss="false",
    )
    assert options.trigger == TriggerLimits(9, 2048, 3, 90.0) and options.group_id == "etl"
    assert options.limits.max_partition_items == 5 and not options.fail_on_data_loss
    assert options.start.default == LATEST  # as Kafka's source
    assert following(startingOffsets='{"T": {"b": {"0": 5}}}').start.default == EARLIEST


def test_options_of_the_other_kind_of_query_are_refused() -> None:
    with pytest.raises(UsageError, match=r"endingOffsets is an option of spark\.read$"):
        following(endingOffsets="latest")
    with pytest.raises(UsageError, match=r"groupId is an option of spark\.readStream$"):
        TopicOptions.parse({"nameServer": "h:1", "subscribe": "T", "groupId": "g"}, {}, follows=False)


def test_topics_by_name_by_pattern_and_queue_by_queue() -> None:
    def given(**named: str) -> TopicOptions:
        return TopicOptions.parse({"nameServer": "h:1", **named}, {})

    queue = MessageQueue("A", "b", 1)
    assert given(path="B , A").topics == ("A", "B")
    for options in (given(subscribe="A"), given(subscribePattern="A|C"), given(assign='{"A": {"b": [1, 2]}}')):
        assert options.wants(queue) and not options.wants(MessageQueue("AA", "b", 1))
    assert given(assign='{"A": {"b": [1]}}').topics == ("A",)
    assert not given(assign='{"A": {"b": [0]}}').wants(queue)


@pytest.mark.parametrize(
    "text", ["A", "{}", '{"A": {}}', '{"A": {"b": 1}}', '{"A": {"b": ["0"]}}', '{"A": {"b": [-1]}}']
)
def test_what_assigns_no_queue_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="assign is JSON as in"):
        TopicOptions.parse({"nameServer": "h:1", "assign": text}, {})


@pytest.mark.parametrize("text", ["(", "(" * 20_000, "a{99999999999999999999}"])
def test_a_pattern_is_a_regular_expression(text: str) -> None:
    with pytest.raises(UsageError, match="subscribePattern is no regular expression"):
        TopicOptions.parse({"nameServer": "h:1", "subscribePattern": text}, {})
