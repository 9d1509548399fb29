"""What a send becomes, and which sends are refused and how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.brokers import send_command
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.locks import QueueLocksCore
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.broker.send_checks import MAX_BATCH, CheckedSend, SendChecks
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import Topics
from tallystick.rocketmq.store.appender import most_members
from tallystick.rocketmq.store.values import PutRequest
from tallystick.rocketmq.wire import record
from tallystick.rocketmq.wire.message_ids import UniqueKeys
from tallystick.rocketmq.wire.record import MAX_PROPERTIES_BYTES, decode_properties, encode_batch
from tallystick.rocketmq.wire.values import GroupConfig, MessageQueue, Perm, ResponseCode, TopicConfig
from tallystick.runtime.clock import SystemClock

SETTINGS = BrokerSettings("/store", "b0", "c0")
ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "c0"}
HOST = bytes(8)


class Desk:
    def __init__(self, settings: BrokerSettings = SETTINGS) -> None:
        clock = SystemClock()
        self.topics = Topics(settings.topic_defaults(), clock, lambda: None)
        self.topics.put(TopicConfig("T", 4, 2), TopicConfig("Many", filter_type="MULTI_TAG"), TopicConfig("None", 0, 0))
        self.groups, self.locks = Groups(clock, lambda: None), QueueLocksCore()
        keys = UniqueKeys(b"\x7f\0\0\1", 1, 2)
        self.send_checks = SendChecks(
            settings, topics=self.topics, groups=self.groups, locks=self.locks, clock=clock, keys=keys
        )

    def of(self, *args: Any, **send: Any) -> CheckedSend | Refusal:
        return self.send_checks.check(send_command(*args, **send), "1.2.3.4:5", HOST)

    def checked_send(self, *args: Any, **send: Any) -> CheckedSend:
        found = self.of(*args, **send)
        assert isinstance(found, CheckedSend), found
        return found

    def code(self, *args: Any, **send: Any) -> ResponseCode | None:
        found = self.of(*args, **send)
        return found.code if isinstance(found, Refusal) else None


def named(put_request: PutRequest) -> dict[str, str]:
    return decode_properties(put_request.messages[0][2])


def test_a_message_gets_the_properties_that_the_broker_sets() -> None:
    found = Desk().checked_send(properties="KEYS\x01k\x02UNIQ_KEY\x01u\x02TAGS\x01a", flag=9, reconsume_times=3)
    assert named(found.put_request) == {"KEYS": "k", "UNIQ_KEY": "u", "TAGS": "a", **ADDED}
    assert (found.put_request.messages[0][0], bytes(found.put_request.messages[0][1])) == (9, b"body")
    assert (found.wait, found.unique_key, found.put_request.reconsume_times) == (True, "u", 3)


def test_a_message_without_an_id_gets_one() -> None:
    found = Desk().checked_send(properties="")
    assert found.unique_key
    assert named(found.put_request) == {"UNIQ_KEY": found.unique_key, **ADDED}


def test_what_a_client_says_for_the_broker_does_not_count() -> None:
    found = Desk().checked_send(properties="CLUSTER\x01other\x02TRACE_ON\x01false\x02POP_CK\x01x\x02UNIQ_KEY\x01u\x02")
    assert named(found.put_request) == {"UNIQ_KEY": "u", **ADDED}
    kept = Desk().checked_send(properties="MYCLUSTER\x01mine\x02UNIQ_KEY\x01u\x02XDELAY\x013\x02")
    assert named(kept.put_request) == {"MYCLUSTER": "mine", "UNIQ_KEY": "u", "XDELAY": "3", **ADDED}


@pytest.mark.rule("H9")
def test_h9_a_message_may_opt_out_of_waiting() -> None:
    for text, wait in (("true", True), ("TRUE", True), ("false", False), ("no", False), ("", False)):
        assert Desk().checked_send(properties=f"WAIT\x01{text}\x02").wait is wait, text
        assert Desk().checked_send(properties=f"A\x01b\x02WAIT\x01{text}\x02").wait is wait, text
    assert Desk().checked_send(properties="XWAIT\x01false\x02").wait


def test_topics_are_checked_in_order() -> None:
    desk = Desk()
    assert desk.code("../../etc") is ResponseCode.INVALID_PARAMETER
    assert desk.code("") is ResponseCode.INVALID_PARAMETER
    assert desk.code("x" * 128) is ResponseCode.INVALID_PARAMETER
    assert desk.code("SELF_TEST_TOPIC") is ResponseCode.NO_PERMISSION
    assert desk.code("Unknown", default_topic="nope") is ResponseCode.TOPIC_NOT_EXIST
    assert desk.code(queue_id=4) is ResponseCode.INVALID_PARAMETER
    assert desk.code(queue_id=3) is None
    assert desk.code("None") is ResponseCode.INVALID_PARAMETER
    assert desk.code("None", queue_id=-1) is ResponseCode.INVALID_PARAMETER
    assert desk.code(body=b"") is ResponseCode.SYSTEM_ERROR


def test_a_topic_makes_itself_where_that_is_allowed() -> None:
    desk = Desk()
    assert desk.code("New", default_topic_queue_nums=3) is None
    made = desk.topics.get("New")
    assert made is not None
    assert (made.read_queues, made.write_queues, made.perm) == (3, 3, 6)
    assert Desk(BrokerSettings("/s", "b0", auto_create_topics=False)).code("New") is ResponseCode.TOPIC_NOT_EXIST


def test_a_topic_that_changed_is_looked_at_again() -> None:
    desk = Desk()
    assert desk.code(queue_id=3) is None
    desk.topics.put(TopicConfig("T", 2, 2))
    assert desk.code(queue_id=3) is ResponseCode.INVALID_PARAMETER
    desk.topics.delete("T")
    assert desk.code(default_topic="nope") is ResponseCode.TOPIC_NOT_EXIST


def test_any_queue_is_one_after_another() -> None:
    desk = Desk()
    assert [desk.checked_send(queue_id=-1).put_request.queue_id for _ in range(4)] in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_an_order_topic_is_closed_on_a_broker_without_write_permission() -> None:
    desk = Desk(BrokerSettings("/s", "b0", perm=int(Perm.READ)))
    desk.topics.put(TopicConfig("Ordered", order=True))
    assert desk.code("Ordered") is ResponseCode.NO_PERMISSION
    assert desk.code() is None


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ("TRAN_MSG\x01true\x02", 16),
        ("DELAY\x013\x02", 13),
        ("DELAY\x01+03\x02", 13),
        (f"DELAY\x01{'9' * 5000}\x02", 13),
        ("TIMER_DELAY_SEC\x015\x02", 1),
        ("TIMER_DELIVER_MS\x015\x02", 1),
        ("INNER_NUM\x012\x02", 13),
    ],
)
def test_what_this_broker_cannot_deliver_is_refused_not_delivered_at_once(properties: str, code: int) -> None:
    assert Desk().code(properties=properties) == code


def test_no_delay_is_none() -> None:
    for text in ("0", "-1", "soon"):
        assert Desk().code(properties=f"DELAY\x01{text}\x02") is None


@pytest.mark.parametrize(
    ("flags", "code"), [(1, None), (0x301, None), (16, None), (4, 16), (8, 16), (0x80, 13), (0x800, 13)]
)
def test_system_flags_that_are_not_a_clients_are_refused(flags: int, code: int | None) -> None:
    assert Desk().code(sys_flag=flags) == code


def test_a_topic_with_several_tags_marks_its_messages() -> None:
    assert Desk().checked_send("Many", sys_flag=1).put_request.sys_flag == 3


def batch(*bodies: bytes) -> bytes:
    return encode_batch([(0, body, b"UNIQ_KEY\x01u\x02") for body in bodies])


def test_members_of_a_batch_are_stored_as_sent() -> None:
    found = Desk().checked_send(body=batch(b"a", b"b"), batch=True, properties="UNIQ_KEY\x01all\x02WAIT\x01false\x02")
    assert [(bytes(body), bytes(named)) for _, body, named in found.put_request.messages] == [
        (b"a", b"UNIQ_KEY\x01u\x02"),
        (b"b", b"UNIQ_KEY\x01u\x02"),
    ]
    assert (found.wait, found.unique_key) == (False, "all")


def test_batches_that_are_none_are_refused() -> None:
    desk = Desk()
    assert desk.code("%RETRY%g", batch(b"a"), batch=True) is ResponseCode.MESSAGE_ILLEGAL
    for body in (b"\xff" * 40, batch(b"a")[:-1]):
        with pytest.raises(RemoteProtocolError):
            desk.of(body=body, batch=True)


def test_a_batch_of_more_members_than_can_be_stored_is_refused_by_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    store = replace(SETTINGS.store, max_message_bytes=1000)
    desk, most = Desk(replace(SETTINGS, store=store)), most_members(1000)
    assert len(desk.checked_send(body=batch(*[b""] * most), batch=True).put_request.messages) == most
    monkeypatch.setattr(record, "split_uniform_batch", lambda data: pytest.fail("all were looked at"))
    for members in (batch(*[b""] * (most + 2)), batch(*[b"", b"x"] * most), batch(*[b""] * most, b"x") + b"garbage"):
        refused = desk.of(body=members, batch=True)
        assert isinstance(refused, Refusal)
        assert refused.code is ResponseCode.MESSAGE_ILLEGAL


def test_a_batch_whose_answer_fits_no_header_is_refused_before_it_is_stored() -> None:
    desk = Desk()
    assert len(desk.checked_send(body=batch(*[b"x"] * MAX_BATCH), batch=True).put_request.messages) == MAX_BATCH
    assert desk.code(body=batch(*[b"x"] * (MAX_BATCH + 1)), batch=True) is ResponseCode.MESSAGE_ILLEGAL
    key = "UNIQ_KEY\x01" + "k" * MAX_PROPERTIES_BYTES
    assert desk.code(body=batch(b"a"), batch=True, properties=key) is ResponseCode.MESSAGE_ILLEGAL


def test_a_message_that_failed_too_often_is_put_aside() -> None:
    desk = Desk()
    desk.groups.put(GroupConfig("g", retry_max_times=2))
    assert desk.checked_send("%RETRY%g", reconsume_times=2).put_request.topic == "%RETRY%g"
    assert desk.checked_send("%RETRY%g", reconsume_times=3).put_request.topic == "%DLQ%g"
    assert desk.checked_send("%RETRY%g", reconsume_times=3, max_reconsume_times=5).put_request.topic == "%RETRY%g"
    assert desk.topics.get("%DLQ%g") is not None


def test_a_retry_comes_at_once_for_there_are_no_delays() -> None:
    found = Desk().checked_send("%RETRY%g", properties="DELAY\x013\x02UNIQ_KEY\x01u\x02")
    assert "DELAY" not in named(found.put_request)


def test_a_group_that_consumes_in_order_retries_nothing() -> None:
    desk = Desk()
    desk.locks.lock("g", "client", "host", [MessageQueue("T", "b0", 0)], desk.send_checks._clock.now())
    assert desk.checked_send("%RETRY%g").put_request.topic == "%DLQ%g"
