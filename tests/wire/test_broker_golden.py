"""What an original broker answered to producers and consumers, byte for byte, played against one of ours in its order.

The store begins with the recorded CommitLog up to the first of these requests. What others sent to the original between
them is appended as it was recorded, so that offsets and message ids agree to the last. The requests of tools and slaves
are in test_broker_admin_golden.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.brokers import SMALL, Bench, Peer, benched
from support.frames import decode
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.wire.headers import CreateTopicHeader, PullHeader
from tallystick.rocketmq.wire.record import decode_message
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode

GOLDEN = Path(__file__).parent / "golden"
REMOTING = json.loads((GOLDEN / "rocketmq_remoting.json").read_text())
REQUESTS = {each["name"]: each["frame"] for each in REMOTING["requests"]}
EXCHANGES = {each["name"]: each for each in REMOTING["exchanges"]}
LOG = bytes.fromhex(json.loads((GOLDEN / "rocketmq_store.json").read_text())["commit_log"]["hex"])
FIRST = 0xAA2  # where the first of these sends was stored
# After which request the original stored something for somebody else, and where that begins and ends.
OTHERS = {"send_v2_json": (0xB8D, 0xCE6), "pull_hold_1s": (0x10BF, len(LOG))}
IN_ORDER = [
    "send_v2_json", "send_v2_binary", "send_v1_json", "send_batch", "send_autocreate", "send_no_topic",
    "send_bad_queue", "send_empty_body", "send_missing_field", "pull_found", "pull_found_binary", "pull_not_found",
    "pull_hold_1s", "pull_too_small_empty_queue", "pull_empty_queue_offset", "pull_offset_too_big", "pull_no_topic",
    "pull_tag", "heartbeat", "consumer_list", "lock_batch", "unlock_batch",
]  # fmt: skip
# The original fails in its own code here and shows that; ours says what is wrong with the request.
OWN_REMARKS = {
    "send_empty_body": "the message has no body",
    "send_missing_field": "the custom field <b> is null",
}
# The original sends a reader beyond the end to the end; ours to where its group stands or the queue begins.
OWN_FIELDS = {"pull_offset_too_big": {"nextBeginOffset": "0"}}


def recorded(name: str) -> tuple[Command, Command]:
    return decode(bytes.fromhex(EXCHANGES[name]["request"])), decode(bytes.fromhex(EXCHANGES[name]["response"]))


def told(command: Command, broker: Broker | None = None) -> Any:
    """Everything of an answer that must be equal; message ids and remarks without the port of this run."""
    fields = dict(command.fields)
    if broker is not None and "msgId" in fields:
        here, there = f"7F000001{broker.address[1]:08X}", "7F000001000057E4"
        fields["msgId"] = fields["msgId"].replace(here, there)
    remark = command.remark and command.remark.partition(" Producer: ")[0]
    return command.code, remark, fields, bytes(command.body)


async def original(bench: Bench) -> tuple[Broker, Peer]:
    """A broker in the state of the recorded one when the first of these requests came."""
    log = bench.folder / "b0" / "commitlog" / f"{0:020}"
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG[:FIRST].ljust(SMALL.commit_log_file_bytes, b"\0"))
    locks = bench.folder / "b0" / "config" / "tallyLocks.json"  # else it is one that may have been a slave till now
    locks.parent.mkdir()
    locks.write_text('{"locks":[]}')
    broker = await bench.broker()
    peer = await bench.peer(broker)
    topic = CreateTopicHeader(
        topic="GoldTopic",
        default_topic="TBW102",
        read_queue_nums=2,
        write_queue_nums=2,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    assert (await peer.code(RequestCode.UPDATE_AND_CREATE_TOPIC, topic.to_fields())).code == 0
    return broker, peer


def shortened(question: Command) -> Command:
    """A pull that waits only for a moment."""
    header = PullHeader.of(question)
    question.ext = header.to_fields() | {"suspendTimeoutMillis": "50"}
    return question


@pytest.mark.rule("H13")
async def test_the_recorded_answers_in_their_order_are_ours_too(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, peer = await original(bench)
        for name in IN_ORDER:
            question, answer = recorded(name)
            ours = await peer.ask(shortened(question) if name == "pull_hold_1s" else question)
            assert ours.is_response
            if name in OWN_REMARKS:
                assert (ours.code, ours.remark) == (answer.code, OWN_REMARKS[name])
            else:
                answer.ext = answer.fields | OWN_FIELDS.get(name, {})
                assert told(ours, broker) == told(answer), name
            if name in OTHERS:
                first, end = OTHERS[name]
                assert broker.parts.store.end == first, name
                broker.parts.store.append_raw(first, LOG[first:end])
                broker.log._dispatch()


async def test_records_have_the_fields_and_properties_of_the_recorded_ones(tmp_path: Path) -> None:
    """The original writes the properties in the order of a Java hash table."""
    async with benched(tmp_path) as bench:
        broker, peer = await original(bench)
        await peer.ask(recorded("send_v2_json")[0])
        ours, theirs = decode_message(broker.parts.store.record(FIRST) or b""), decode_message(LOG, FIRST)
        assert ours.properties == theirs.properties
        for name in ("topic", "queue_id", "queue_offset", "flag", "sys_flag", "reconsume_times", "body_crc", "size"):
            assert getattr(ours, name) == getattr(theirs, name), name


async def test_a_changed_group_hears_of_it_before_the_heartbeat_is_answered(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        _, peer = await original(bench)
        question, answer = recorded("heartbeat")
        assert told(await peer.ask(question)) == told(answer)
        assert [command.code for command in peer.order[1:]] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0]
        (pushed,) = peer.pushed
        assert pushed.is_one_way
        assert pushed.fields == {"consumerGroup": "GoldGroup"}


async def test_the_fast_port_refuses_pulls(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker, _ = await original(bench)
        fast = await bench.peer(broker, fast=True)
        question, answer = recorded("fast_port_pull")
        assert told(await fast.ask(question)) == told(answer)


async def test_a_java_consumer_may_give_a_message_back(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        _, peer = await original(bench)
        question = decode(bytes.fromhex(REQUESTS["client-broker_36"]))
        message = decode_message(LOG[0x24A:])  # the recorded one was another: its id and topic are told, too
        names = {"originMsgId": str(message.unique_key), "originTopic": message.topic}
        question.ext = {**question.fields, "offset": str(0x24A), **names}
        assert told(await peer.ask(question)) == (0, None, {}, b"")
