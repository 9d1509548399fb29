from __future__ import annotations

import pytest

from tallystick.codec.records import encode_records, topic_field
from tallystick.errors import BrokerError, RemoteProtocolError
from tallystick.rocketmq.client.pulling import PullPosition
from tallystick.rocketmq.client.subscription import TagFilter
from tallystick.rocketmq.wire.headers import PullResponse
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode

HOST = encode_host("127.0.0.1", 1)
FOUND, NOT_FOUND, RETRY, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def pull(tags: str = "*") -> PullPosition:
    return PullPosition(MessageQueue("T", "b", 0), TagFilter.parse(tags), 5)


def answer(
    code: int, next_offset: int, offsets: tuple[int, ...] = (), suggested: int = 0, mark: str | None = None
) -> Command:
    header = PullResponse(
        suggest_which_broker_id=suggested, next_begin_offset=next_offset, max_offset=100, min_offset=0, mark=mark
    )
    rows = [(topic_field("T"), 0, n, 0, 1, HOST, 0, [(0, b"x", b"TAGS\x01A\x02")]) for n in offsets]
    return request(11).response(code, None, header.to_fields(), encode_records(rows, 0, 1, HOST))


def test_messages_in_order_and_where_to_go_on() -> None:
    asked = pull()
    assert [message.offset for message in asked.responded(answer(FOUND, 8, (5, 6, 7), 1))] == [5, 6, 7]
    assert (asked.next_offset, asked.broker_id) == (8, 1)


def test_what_was_delivered_before_is_not_delivered_again() -> None:
    assert [message.offset for message in pull().responded(answer(FOUND, 8, (3, 4, 5, 6)))] == [5, 6]


def test_the_properties_are_those_stored() -> None:
    [message] = pull("A").responded(answer(FOUND, 6, (5,)))
    assert (message.topic, message.tags, message.properties, message.body) == ("T", "A", {}, b"x")
    assert message.record.properties is message.record.properties  # read once


def test_other_tags_are_passed_over() -> None:
    asked = pull("B")
    assert asked.responded(answer(FOUND, 8, (5, 6, 7))) == []
    assert asked.next_offset == 8


@pytest.mark.parametrize(
    ("code", "next_offset", "then"), [(NOT_FOUND, 5, 5), (RETRY, 9, 9), (RETRY, 3, 5), (NOT_FOUND, 2, 5)]
)
def test_without_messages_an_offset_only_grows(code: int, next_offset: int, then: int) -> None:
    asked = pull()
    assert asked.responded(answer(code, next_offset)) == []
    assert (asked.next_offset, asked.corrected) == (then, False)


@pytest.mark.parametrize("next_offset", [2, 50])
def test_only_a_moved_offset_goes_either_way(next_offset: int) -> None:
    asked = pull()
    assert asked.responded(answer(MOVED, next_offset)) == []
    assert (asked.next_offset, asked.corrected) == (next_offset, True)


def test_refusals_and_damage_are_raised_and_change_nothing() -> None:
    asked = pull()
    with pytest.raises(BrokerError):
        asked.responded(request(11).response(ResponseCode.NO_PERMISSION, "no"))
    broken = answer(FOUND, 8, (5, 6))
    broken.body = bytes(broken.body)[:-3]
    with pytest.raises(RemoteProtocolError):
        asked.responded(broken)
    assert asked.next_offset == 5


def test_the_mark_of_the_last_message_goes_with_the_offset() -> None:
    asked = pull()
    for code, next_offset, told, then in (
        (FOUND, 8, "7.a", "7.a"),
        (NOT_FOUND, 8, None, "7.a"),  # of an original, or of a slave that lags
        (RETRY, 3, "2.b", "7.a"),  # not where this one stands
        (MOVED, 4, None, ""),
        (NOT_FOUND, 4, "3.c", "3.c"),
    ):
        asked.responded(answer(code, next_offset, (5,) if code == FOUND else (), mark=told))
        assert asked.mark == then
