"""Puts: one write a tick, limits, queue offsets, the borders of files, full disks."""

from __future__ import annotations

import dataclasses

import pytest

from support.message_stores import ROOT, SMALL, Shelf, batch, put_request
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.values import PutRequest, TimeBoundary
from tallystick.rocketmq.wire.values import PutStatus

OK = PutStatus.PUT_OK


def test_all_messages_of_a_tick_are_one_write() -> None:
    shelf = Shelf()
    shelf.send(b"first")
    seen: list[str] = []
    shelf.disk.fault = lambda operation, path: seen.append(operation)
    puts = shelf.store.put([put_request(b"1"), put_request(b"2", queue_id=1), batch([b"3", b"4"]), put_request(b"5")])
    assert seen == ["write"]
    assert [put.status for put in puts] == [OK] * 4
    assert [put.queue_offset for put in puts] == [1, 0, 2, 4]
    assert [len(put.offsets) for put in puts] == [1, 1, 2, 1]
    assert puts[-1].end == shelf.store.end
    assert [put.end for put in puts[:-1]] == [put.offsets[0] for put in puts[1:]]


@pytest.mark.rule("H11")
def test_h11_no_record_spans_two_files_and_a_batch_moves_as_a_whole() -> None:
    shelf = Shelf()
    for number in range(30):
        shelf.store.put([batch([b"%d" % number * 100, b"x" * 200]), put_request(b"%d" % number * 50)])
    shelf.store.reput()
    messages = shelf.read()
    assert [message.queue_offset for message in messages] == list(range(90))
    for message in messages:
        assert message.physical_offset // 4096 == (message.physical_offset + message.size + 7) // 4096
    for first, second in zip(messages[::3], messages[1::3], strict=True):
        assert first.physical_offset + first.size == second.physical_offset


def test_limits() -> None:
    shelf = Shelf(dataclasses.replace(SMALL, commit_log_file_bytes=1 << 20, max_message_bytes=100_000))
    put = shelf.store.put

    def status(**fields: object) -> PutStatus:
        base = PutRequest("T", 0, ((0, b"x", b""),), 1, bytes(8))
        return put([dataclasses.replace(base, **fields)])[0].status  # type: ignore[arg-type]

    assert status(messages=((0, bytes(100_000), b"p" * 32767),)) is OK
    assert status(messages=((0, bytes(100_001), b""),)) is PutStatus.MESSAGE_ILLEGAL
    assert status(messages=((0, b"x", b"p" * 32768),)) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert status(messages=((0, b"x", b"p\0"),)) is PutStatus.MESSAGE_ILLEGAL
    assert status(messages=((0, bytes(90_000), b""), (0, bytes(90_000), b""))) is PutStatus.MESSAGE_ILLEGAL
    assert status(topic="t" * 127) is OK
    for topic in ("t" * 128, "ä" * 64, "", "t" * 70_000, "%RETRY%" + "t" * 249):
        assert status(topic=topic) is PutStatus.MESSAGE_ILLEGAL
    assert status(topic="%RETRY%" + "t" * 248) is OK
    # A refused one takes no queue offset, and does not disturb its neighbours.
    puts = put([put_request(b"a"), put_request(b"b", big="p" * 40_000), put_request(b"c")])
    assert [entry.status for entry in puts] == [OK, PutStatus.PROPERTIES_SIZE_EXCEEDED, OK]
    assert (puts[0].queue_offset, puts[2].queue_offset) == (0, 1)
    shelf.store.reput()
    assert shelf.bodies() == [b"a", b"c"]


def test_a_message_longer_than_a_file_is_refused() -> None:
    shelf = Shelf()
    assert shelf.send(bytes(5000))[0].status is PutStatus.MESSAGE_ILLEGAL
    assert shelf.send(b"fits")[0].status is OK


def test_store_times_never_go_back() -> None:
    shelf = Shelf()
    first = shelf.send(b"a")[0].store_timestamp
    shelf.clock.ms -= 5000
    assert shelf.send(b"b")[0].store_timestamp == first


def test_a_full_disk_is_a_status_and_what_was_half_written_never_counts() -> None:
    shelf = Shelf()
    shelf.send(b"kept" * 10)
    shelf.settle()
    end = shelf.store.end
    file = shelf.disk.open(f"{ROOT}/commitlog/{0:020}")

    def fault(operation: str, path: str) -> StorageError | None:
        if operation != "write":
            return None
        shelf.disk.fault = None
        file.write([image], end)  # it was written, and the disk said no
        return DiskFull("no space")

    twin = Shelf()
    twin.send(b"kept" * 10)
    twin.send(b"lost", b"lost too", TAGS="t")
    image = bytes(twin.store.slice(end, 4096))
    shelf.disk.fault = fault
    puts = shelf.send(b"lost", b"lost too", TAGS="t")
    assert [put.status for put in puts] == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 2
    assert shelf.store.end == end
    (put,) = shelf.send(b"sent", TAGS="t")  # as long as the first lost one
    assert (put.status, put.queue_offset) == (OK, 1)
    shelf.disk.kill()
    shelf.open()
    assert shelf.bodies() == [b"kept" * 10, b"sent"]


def test_no_space_for_the_next_file() -> None:
    shelf = Shelf()
    shelf.send(*[b"x" * 300] * 9)
    shelf.disk.capacity = 1
    puts = shelf.send(*[b"y" * 300] * 4)
    failed = PutStatus.CREATE_MAPPED_FILE_FAILED
    assert [put.status for put in puts] == [failed] * 4 or puts[0].status is OK
    assert puts[-1].status is failed
    shelf.disk.capacity = 1 << 40
    (put,) = shelf.send(b"z")
    assert put.status is OK
    shelf.store.reput()
    assert [message.queue_offset for message in shelf.read()] == list(range(len(shelf.read())))
    assert shelf.bodies()[-1] == b"z"


def test_a_failed_write_stops_the_store() -> None:
    shelf = Shelf()
    shelf.send(b"kept")
    shelf.store.reput()
    shelf.disk.fault = lambda operation, path: StorageError("broken") if operation == "write" else None
    assert shelf.send(b"lost")[0].status is PutStatus.UNKNOWN_ERROR
    shelf.disk.fault = None
    assert shelf.send(b"more")[0].status is PutStatus.SERVICE_NOT_AVAILABLE
    assert shelf.store.refusal == "the disk failed"
    assert shelf.bodies() == [b"kept"]


@pytest.mark.parametrize("crash", [False, True])
def test_store_times_do_not_go_back_at_a_restart_with_a_clock_that_does(crash: bool) -> None:
    shelf = Shelf()
    shelf.send(*[b"%d" % number for number in range(10)], topic="Other")
    shelf.clock.ms += 3_600_000
    last_ms = shelf.clock.ms
    shelf.send(b"last")
    if crash:
        shelf.disk.kill()
    else:
        shelf.settle()
        shelf.store.close()
    shelf.clock.ms -= 1_800_000
    shelf.events.clear()
    shelf.open()
    assert [event.fields["behind_ms"] for event in shelf.events if event.kind == "clock behind the log"] == [1_800_000]
    shelf.send(b"new")
    shelf.clock.ms += 2_000_000
    shelf.send(b"newest")
    shelf.settle()
    assert [message.store_timestamp for message in shelf.read()] == [last_ms, last_ms, last_ms + 200_000]
    assert shelf.store.offset_at("Topic", 0, last_ms + 1, TimeBoundary.LOWER) == 2
