from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.admin_desk import Desk
from support.message_stores import SMALL
from tallystick.rocketmq.broker import message_requests
from tallystick.rocketmq.wire.record import decode_message, decode_messages
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode

FOREVER = 1 << 62


@pytest.fixture
def desk() -> Desk:
    """With three messages, a second apart."""
    desk = Desk()
    for number in range(3):
        desk.shelf.send(b"%d" % number, KEYS=f"k{number} all", UNIQ_KEY=f"U{number}", TAGS="t")
        desk.clock.ms += 1000
    desk.shelf.settle()
    return desk


def of_queue(desk: Desk, code: RequestCode, **fields: Any) -> Command:
    return desk.ask(code, {"topic": "Topic", "queueId": 0} | fields)


def by_key(desk: Desk, key: str, **fields: Any) -> list[bytes]:
    asked = {"topic": "Topic", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": FOREVER} | fields
    answer = desk.ask(RequestCode.QUERY_MESSAGE, asked)
    assert answer.fields == {
        "indexLastUpdatePhyoffset": str(desk.shelf.store.indexed[0]),
        "indexLastUpdateTimestamp": str(desk.clock.ms - 1000),
    }
    assert answer.code == (0 if answer.parts else 22)
    return [decode_message(bytes(part)).stored_body for part in answer.parts]


def test_the_ends_of_a_queue(desk: Desk) -> None:
    assert of_queue(desk, RequestCode.GET_MIN_OFFSET).fields == {"offset": "0"}
    assert of_queue(desk, RequestCode.GET_MAX_OFFSET).fields == {"offset": "3"}
    assert of_queue(desk, RequestCode.GET_EARLIEST_MSG_STORETIME).fields == {"timestamp": str(desk.clock.ms - 3000)}


@pytest.mark.parametrize("fields", [{"queueId": 5}, {"queueId": -1}, {"topic": "Nope"}, {"topic": "../.."}])
def test_the_ends_of_a_queue_without_messages(desk: Desk, fields: dict[str, Any]) -> None:
    assert of_queue(desk, RequestCode.GET_MIN_OFFSET, **fields).fields == {"offset": "0"}
    assert of_queue(desk, RequestCode.GET_MAX_OFFSET, **fields).fields == {"offset": "0"}
    assert of_queue(desk, RequestCode.GET_EARLIEST_MSG_STORETIME, **fields).fields == {"timestamp": "-1"}


def test_a_slave_that_may_lack_all_of_a_queue_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.shelf.store, "lacks_beginning", lambda topic, queue_id: True)
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        assert of_queue(desk, code, queueId=5).fields == {"offset": "0", "tallyLacksBeginning": "true"}
    assert of_queue(desk, RequestCode.GET_MAX_OFFSET).fields == {"offset": "3"}, "it knows where this one ends"


def test_an_offset_by_time(desk: Desk) -> None:
    first_ms = desk.clock.ms - 3000

    def at(ms: int, **fields: str) -> str:
        return of_queue(desk, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=ms, **fields).fields["offset"]

    assert [at(first_ms), at(first_ms + 1), at(first_ms + 1, boundaryType="UPPER"), at(FOREVER)] == ["0", "1", "0", "3"]


def test_a_message_by_its_place(desk: Desk) -> None:
    size = len(bytes(desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}).body))
    second = desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": size})
    assert decode_message(bytes(second.body)).stored_body == b"1"
    for offset in (1, -1, FOREVER):
        answer = desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


def test_messages_by_key(desk: Desk) -> None:
    assert by_key(desk, "k1") == [b"1"]
    assert by_key(desk, "all") == [b"2", b"1", b"0"]
    assert by_key(desk, "all", maxNum=2) == [b"2", b"1"]
    assert by_key(desk, "all", maxNum=0) == by_key(desk, "all", maxNum=-5) == by_key(desk, "nope") == []
    assert by_key(desk, "U2") == by_key(desk, "U2", indexType="U") == [b"2"]
    assert by_key(desk, "U2", maxNum=0, _UNIQUE_KEY_QUERY="true") == [b"2"]
    assert by_key(desk, "t", indexType="T") == [b"2", b"1", b"0"]
    assert by_key(desk, "k1", indexType="U") == by_key(desk, "t") == []


def test_a_query_with_a_long_search_is_answered_in_slices_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(store=replace(SMALL, index_entries=8000, commit_log_file_bytes=1 << 18))
    desk.shelf.send(b"early", KEYS="k")
    desk.clock.ms += 60_000
    for number in range(10):
        desk.shelf.send(b"%d" % number, KEYS=" ".join(["k"] * 600))
    desk.shelf.settle()
    until = str(desk.clock.ms - 50_000)
    fields = {"topic": "Topic", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": until}
    asked = request(RequestCode.QUERY_MESSAGE, fields)
    before = desk.sliced
    assert [message.stored_body for message in decode_messages(desk.handle(asked).body)] == [b"early"]
    assert desk.sliced == before + 1
    monkeypatch.setattr(message_requests, "MOST_STEPS", 40)
    answer = desk.handle(asked)
    assert (answer.code, answer.body) == (1, b"") and "ask for later ones" in (answer.remark or "")
