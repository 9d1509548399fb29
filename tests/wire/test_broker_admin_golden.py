"""What an original broker answered to the requests of tools, clients and slaves, played against ours.

The store holds the recorded CommitLog, the tables what the recorded broker had made by then. Answers are equal in code,
remark, fields and body; in bodies the order of a table's entries is that of a Java hash table and is not compared, and
times and rates of the moment are not either.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.admin_desk import MASTER, Desk
from support.copied_offsets import take_over
from support.frames import decode
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable, GroupTable, OffsetTable, TopicTableResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode

GOLDEN = Path(__file__).parent / "golden"
STORED = json.loads((GOLDEN / "rocketmq_store.json").read_text())
REMOTING = json.loads((GOLDEN / "rocketmq_remoting.json").read_text())
EXCHANGES = {each["name"]: each for each in REMOTING["exchanges"]}
REQUESTS = {each["name"]: each["frame"] for each in REMOTING["requests"]}
LOG = bytes.fromhex(STORED["commit_log"]["hex"])
SETTINGS = StoreSettings(
    commit_log_file_bytes=1 << 16, consume_queue_file_units=3000, index_slots=5000, index_entries=20_000
)
HERE_AND_NOW = {"topicPutTps", "consumeTps", "mappingDataVersion"}
IN_ORDER = [
    "unknown_code", "unknown_code_binary", "query_consumer_offset_none", "update_consumer_offset",
    "query_consumer_offset", "max_offset", "min_offset", "search_offset", "view_message", "query_message",
    "all_topic_config", "all_topic_config_paged", "all_topic_config_paged_2", "all_consumer_offset",
    "all_delay_offset", "delay_offset_after_delivery", "all_subscription_group", "all_subscription_group_paged",
    "all_message_request_mode", "ha_status", "topic_stats", "consume_stats", "create_topic", "create_topic_attr",
    "get_topic_config", "create_group", "pop", "query_assignment",
]  # fmt: skip
NOT_OURS = {"pop", "query_assignment"}  # message queues that the broker assigns, and POP: refused as unknown


def recorded(name: str) -> tuple[Command, Command]:
    return decode(bytes.fromhex(EXCHANGES[name]["request"])), decode(bytes.fromhex(EXCHANGES[name]["response"]))


def body_of(name: str) -> bytes:
    return bytes(recorded(name)[1].body)


def original() -> Desk:
    """A broker in the state of the recorded one when the first of these requests came."""
    desk = Desk(replace(MASTER, store=SETTINGS), SETTINGS)
    desk.shelf.store.append_raw(0, LOG)
    desk.shelf.settle()
    desk.tables.topics.replace(dialect.read_as(body_of("all_topic_config"), TopicTableResponse))
    desk.tables.groups.replace(dialect.read_as(body_of("all_subscription_group"), GroupTable))
    offsets = dialect.read_as(body_of("all_consumer_offset"), OffsetTable)
    take_over(desk.tables.offsets, OffsetTable(offsets.version, {}, offsets.pull_offsets))
    delays = body_of("all_delay_offset")
    desk.tables.delays.take(delays, dialect.read_as(delays, DelayTable))
    return desk


def told(command: Command) -> Any:
    """Everything of an answer that must be equal."""
    body = bytes(command.body) + b"".join(bytes(part) for part in command.parts)
    if body[:1] == b"{":
        table = dialect.read(body)
        return command.code, command.remark, command.fields, {k: v for k, v in table.items() if k not in HERE_AND_NOW}
    return command.code, command.remark, command.fields, body


def test_the_recorded_answers_in_their_order_are_ours_too() -> None:
    desk = original()
    for name in IN_ORDER:
        question, answer = recorded(name)
        ours = desk.handle(question)
        assert ours.opaque == question.opaque
        if name in NOT_OURS:
            assert (ours.code, ours.remark) == (3, f" request type {question.code} not supported")
        elif name == "query_message":  # the index was at an earlier record than at the end of the recorded log
            assert told(ours)[3] == told(answer)[3]
            assert ours.fields.keys() == answer.fields.keys()
        else:
            assert told(ours) == told(answer), name


def test_the_fast_port_says_the_same_as_after_the_changes() -> None:
    desk = original()
    for name in ("create_topic", "create_topic_attr"):
        desk.handle(recorded(name)[0])
    question, answer = recorded("fast_port_topic_config")
    ours, theirs = told(desk.handle(question)), told(answer)
    assert ours[2] == theirs[2]
    assert ours[3]["topicConfigTable"] == theirs[3]["topicConfigTable"]
    assert ours[3]["dataVersion"]["counter"] == theirs[3]["dataVersion"]["counter"]


@pytest.mark.parametrize("name", ["client-broker_17", "client-broker_351", "client-broker_200", "client-broker_29"])
def test_a_java_tool_gets_the_answer_it_knows(name: str) -> None:
    desk = original()
    desk.handle(recorded("client-broker_17")[0])  # makes the topic that the others ask for
    question, answer = recorded(name)
    ours = desk.handle(question)
    assert (ours.code, ours.remark, bytes(ours.body)) == (answer.code, answer.remark, bytes(answer.body))


def test_timers_are_answered_in_the_recorded_form() -> None:
    desk = original()
    for name in ("timer_checkpoint", "timer_metrics"):
        question, answer = recorded(name)
        ours = desk.handle(question)
        assert (ours.code, ours.remark, len(ours.body)) == (answer.code, answer.remark, len(answer.body))
    assert dialect.read(bytes(ours.body)).keys() == {"dataVersion", "timingCount"}


def test_what_a_java_slave_asks_for_is_answered() -> None:
    desk = original()
    for code in (60, 21, 43, 45, 201, 402, 61):
        answer = desk.handle(decode(bytes.fromhex(REQUESTS[f"slave_asks_{code}"])))
        assert answer.code == 0
        assert answer.body


def test_runtime_information_and_settings_come_in_the_recorded_form() -> None:
    desk = original()
    info = desk.handle(decode(bytes.fromhex(REQUESTS["runtime_info"])))
    assert dialect.read(bytes(info.body))["table"]["commitLogMaxOffset"] == str(len(LOG))
    config = desk.handle(decode(bytes.fromhex(REQUESTS["broker_config"])))
    assert dialect.read(config.fields["version"]).keys() == {"counter", "stateVersion", "timestamp"}
    assert b"brokerRole=ASYNC_MASTER\n" in bytes(config.body)


def test_no_request_of_a_stranger_makes_it_raise() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    desk = original()
    frames = [bytes.fromhex(EXCHANGES[name]["request"]) for name in IN_ORDER]
    for _ in range(1500):
        command = decode(rng.choice(frames))
        fields = {
            name: rng.choice(["", "-1", "99999999999", "x", "../..", value]) for name, value in command.fields.items()
        }
        for name in rng.sample(sorted(fields), min(len(fields), rng.randrange(2))):
            del fields[name]
        code = rng.choice([command.code, int(rng.choice(list(RequestCode)))])
        command = Command(code, ext=fields, body=rng.choice([b"", bytes(command.body), b"{", b"[]", rng.randbytes(9)]))
        answer = desk.handle(command)
        assert answer.is_response, f"seed {seed}"
