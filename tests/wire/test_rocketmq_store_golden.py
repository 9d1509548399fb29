"""Store files as RocketMQ 5.5.0 wrote them: read here, written again to the same bytes, opened as a directory."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from support.stores import SteppingClock
from tallystick.codec.records import encode_records, scan_records, topic_field
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.message_ids import decode_host, decode_message_id, encode_host, encode_message_id
from tallystick.rocketmq.wire.record import IndexType, decode_batch, decode_messages, encode_batch, encode_properties
from tallystick.runtime.disk import File
from tallystick.runtime.events import Events
from tallystick.sim.disk import SimDisk

GOLDEN = json.loads((Path(__file__).parent / "golden" / "rocketmq_store.json").read_text())
LOG = bytes.fromhex(GOLDEN["commit_log"]["hex"])
RECORDS: list[dict[str, Any]] = GOLDEN["commit_log"]["records"]
SETTINGS = StoreSettings(
    commit_log_file_bytes=1 << 16, consume_queue_file_units=3000, index_slots=5000, index_entries=20_000
)


def test_records_decode_as_recorded() -> None:
    messages = decode_messages(LOG)
    assert len(messages) == len(RECORDS)
    for message, record in zip(messages, RECORDS, strict=True):
        assert message.physical_offset == record["offset"]
        assert (message.size, message.topic, message.queue_id) == (record["size"], record["topic"], record["queue"])
        assert (message.queue_offset, message.sys_flag) == (record["queueOffset"], record["sysFlag"])
        assert (message.flag, message.body_crc) == (record["flag"], record["crc"])
        assert (message.born_timestamp, message.store_timestamp) == (record["born"], record["stored"])
        assert (message.prepared_offset, message.reconsume_times) == (record["prepared"], record["reconsume"])
        assert decode_host(message.born_host) == tuple(record["bornHost"])
        assert decode_host(message.store_host) == tuple(record["storeHost"])
        assert message.properties == record["properties"]


def test_records_are_encoded_to_the_same_bytes() -> None:
    for message in decode_messages(LOG):
        if message.prepared_offset:
            continue  # only transactions have one
        properties = LOG[message.physical_offset : message.physical_offset + message.size]
        stored = properties[len(properties) - len(encode_properties(message.properties)) :]
        row = (
            topic_field(message.topic),
            message.queue_id,
            message.queue_offset,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            message.reconsume_times,
            [(message.flag, message.stored_body, stored)],
        )
        encoded = encode_records([row], message.physical_offset, message.store_timestamp, message.store_host)
        assert encoded == LOG[message.physical_offset : message.physical_offset + message.size]


def test_the_scan_finds_the_same_records() -> None:
    run = scan_records(LOG, 0, verify=True)
    assert run.positions == [record["offset"] for record in RECORDS]
    assert run.topics == [record["topic"].encode() for record in RECORDS]


def test_message_ids() -> None:
    message_id = GOLDEN["send_v2_json"]["response"]["ext"]["msgId"]
    address, port, offset = decode_message_id(message_id)
    assert (address, port) == ("127.0.0.1", 22500)
    assert encode_message_id(encode_host(address, port), offset) == message_id


def test_the_body_of_a_batch() -> None:
    frame = bytes.fromhex(GOLDEN["send_batch"]["request"])
    body = frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :]
    members = decode_batch(body)
    assert len(members) == 2
    assert encode_batch(members) == body


def put_file(disk: SimDisk, path: str, data: bytes, size: int) -> None:
    disk.makedirs(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.write([data], 0)
    file.truncate(size)


def original_directory(*, clean: bool) -> SimDisk:
    """The recorded files, in shorter CommitLog files."""
    disk = SimDisk(random.Random(1))
    put_file(disk, "/store/commitlog/" + "0" * 20, LOG, SETTINGS.commit_log_file_bytes)
    for name, units in GOLDEN["queues"].items():
        topic, _, queue_id = name.rpartition("_")
        put_file(disk, f"/store/consumequeue/{topic}/{queue_id}/" + "0" * 20, bytes.fromhex(units), 60_000)
    index, header = GOLDEN["index"], bytes.fromhex(GOLDEN["index"]["header"])
    slots = bytearray(5000 * 4)
    for slot, number in index["used_slots"]:
        struct.pack_into(">i", slots, slot * 4, number)
    put_file(disk, "/store/index/20261121100304216", header + slots + bytes.fromhex(index["entries"]), index["size"])
    put_file(disk, "/store/checkpoint", bytes.fromhex(GOLDEN["checkpoint"]), 4096)
    put_file(disk, "/store/lock", b"lock", 4)
    if not clean:
        put_file(disk, "/store/abort", GOLDEN["abort"].encode(), len(GOLDEN["abort"]))
    return disk


def content(file: File) -> bytes:
    return file.read(file.size(), 0)


def derived(disk: SimDisk) -> dict[str, bytes]:
    """Queue files, and the content of the index."""
    found = {}
    for name in GOLDEN["queues"]:
        topic, _, queue_id = name.rpartition("_")
        found[name] = content(disk.open(f"/store/consumequeue/{topic}/{queue_id}/" + "0" * 20))
    (index,) = disk.listdir("/store/index")
    found["index"] = content(disk.open(f"/store/index/{index}"))
    return found


@pytest.mark.rule("H11")
@pytest.mark.parametrize("clean", [True, False], ids=["orderly stop", "crash"])
def test_h11_the_originals_directory_opens_and_is_built_to_the_same_bytes(clean: bool) -> None:
    disk = original_directory(clean=clean)
    before = derived(disk)
    store = MessageStore.open(disk, "/store", SETTINGS, SteppingClock(), Events())
    assert (store.first, store.end) == (0, len(LOG))
    assert store.queue_range("GoldTopic", 1) == (0, 5)
    (record,) = store.query("GoldTopic", "kk0", 32, 0, 1 << 50)
    assert record == LOG[: RECORDS[0]["size"]]
    assert len(store.query("GoldTopic", "TagA", 32, 0, 1 << 50, IndexType.TAG)) == 3
    store.close()
    assert derived(disk) == before


@pytest.mark.rule("H11")
def test_h11_queues_and_index_built_from_the_log_alone_are_the_originals_bytes() -> None:
    disk = SimDisk(random.Random(1))
    original = derived(original_directory(clean=True))
    put_file(disk, "/store/commitlog/" + "0" * 20, LOG, SETTINGS.commit_log_file_bytes)
    put_file(disk, "/store/abort", b"1", 1)
    MessageStore.open(disk, "/store", SETTINGS, SteppingClock(), Events()).close()
    assert derived(disk) == original


def test_the_check_finds_nothing_wrong_in_the_originals_directory() -> None:
    report = check_store(original_directory(clean=True), "/store", SETTINGS)
    assert report.findings == []
    assert (report.records, report.entries) == (len(RECORDS), 41)
    assert report.units == sum(len(units) // 40 for units in GOLDEN["queues"].values())


def test_our_directory_has_the_originals_layout() -> None:
    disk = original_directory(clean=True)
    store = MessageStore.open(disk, "/store", SETTINGS, SteppingClock(), Events())
    store.flush()
    store.maintain(0)
    assert disk.listdir("/store") == [
        "abort", "checkpoint", "commitlog", "consumequeue", "index", "lock", "tally-queues", "tally-synced"
    ]  # fmt: skip
    assert disk.listdir("/store/commitlog") == ["0" * 20, f"{1 << 16:020}"]
    store.close()
    assert "abort" not in disk.listdir("/store")
    assert disk.open("/store/checkpoint").size() == 4096
