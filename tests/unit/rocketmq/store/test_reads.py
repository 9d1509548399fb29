"""Reads: statuses and limits, tags, times, keys."""

from __future__ import annotations

import dataclasses

import pytest

from support.message_stores import SMALL, Shelf
from tallystick.codec.records import java_hash
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.values import GetStatus, TimeBoundary
from tallystick.rocketmq.wire.record import IndexType, decode_message


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    for number in range(40):
        shelf.send(b"%02d" % number * 20, TAGS="even" if number % 2 == 0 else "odd", KEYS=f"k{number} all")
        shelf.clock.ms += 1000 if number % 4 == 3 else 0  # four messages a second
    shelf.store.reput()
    return shelf


def test_statuses_and_next_offsets(shelf: Shelf) -> None:
    def outcome(offset: int, queue_id: int = 0) -> tuple[str, int, int, int]:
        found = shelf.store.get("Topic", queue_id, offset, 32, 1 << 20)
        return found.status.name, found.next_offset, found.min_offset, found.max_offset

    assert outcome(0) == ("FOUND", 32, 0, 40)
    assert outcome(40) == ("OFFSET_OVERFLOW_ONE", 40, 0, 40)
    assert outcome(50) == ("OFFSET_OVERFLOW_BADLY", 40, 0, 40)
    assert outcome(-1) == ("OFFSET_TOO_SMALL", 0, 0, 40)
    assert outcome(7, queue_id=5) == ("NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.rule("H13")
def test_h13_a_slave_leaves_wrong_offsets_alone(shelf: Shelf) -> None:
    shelf.store.take_role(slave=True)
    assert shelf.store.get("Topic", 0, 50, 32, 1 << 20).next_offset == 50
    assert shelf.store.get("Topic", 0, -1, 32, 1 << 20).next_offset == -1
    assert shelf.store.get("Topic", 5, 7, 32, 1 << 20).next_offset == 7
    assert shelf.store.get("Topic", 0, 0, 32, 1 << 20).count == 32


def test_exactly_as_many_as_asked_for_in_few_views(shelf: Shelf) -> None:
    for asked in (32, 20, 10, 1):
        found = shelf.store.get("Topic", 0, 0, asked, 1 << 20)
        assert (found.count, found.next_offset) == (asked, asked)
        assert sum(len(view) for view in found.buffers) == found.size
        assert len(found.buffers) <= 1 + found.size // SMALL.commit_log_file_bytes + 1


def test_bytes_are_limited_but_the_first_message_always_comes(shelf: Shelf) -> None:
    assert shelf.store.get("Topic", 0, 0, 32, 1).count == 1
    three = shelf.store.get("Topic", 0, 0, 3, 1 << 20).size
    assert shelf.store.get("Topic", 0, 0, 32, three).count == 3
    assert shelf.store.get("Topic", 0, 0, 32, three - 1).count == 2


def test_old_messages_come_in_smaller_portions() -> None:
    shelf = Shelf(dataclasses.replace(SMALL, memory_bytes=100, memory_percent=10, max_count_on_disk=8))
    shelf.send(*[b"x" * 50] * 30)
    shelf.store.reput()
    found = shelf.store.get("Topic", 0, 0, 32, 1 << 20)
    assert (found.count, found.far_behind) == (8, True)


def test_tags_select(shelf: Shelf) -> None:
    found = shelf.store.get("Topic", 0, 1, 5, 1 << 20, frozenset([java_hash("even")]))
    bodies = [decode_message(bytes(view)).stored_body[:2] for view in found.buffers]
    assert bodies == [b"02", b"04", b"06", b"08", b"10"]
    assert found.next_offset == 11
    none = shelf.store.get("Topic", 0, 0, 5, 1 << 20, frozenset([java_hash("none")]))
    assert (none.status, none.next_offset, none.count) == (GetStatus.NO_MATCHED_MESSAGE, 40, 0)


def test_times(shelf: Shelf) -> None:
    start = shelf.store.stored_at("Topic", 0, 0)
    assert shelf.store.stored_at("Topic", 0, 4) == start + 1000
    assert shelf.store.stored_at("Topic", 0, 40) == shelf.store.stored_at("Topic", 9, 0) == -1
    lower, upper = TimeBoundary.LOWER, TimeBoundary.UPPER

    def at(ms: int, boundary: TimeBoundary) -> int:
        return shelf.store.offset_at("Topic", 0, start + ms, boundary)

    assert [at(ms, lower) for ms in (-9999, 0, 1, 1000, 9000, 99_999)] == [0, 0, 4, 4, 36, 40]
    assert [at(ms, upper) for ms in (-9999, 0, 1, 1000, 9000, 99_999)] == [0, 3, 3, 7, 39, 39]
    assert shelf.store.offset_at("None", 0, start, lower) == 0


def test_keys(shelf: Shelf) -> None:
    always = (0, 1 << 60)

    def bodies(key: str, kind: IndexType = IndexType.KEY, count: int = 64) -> list[bytes]:
        return [
            decode_message(record).stored_body[:2] for record in shelf.store.query("Topic", key, count, *always, kind)
        ]

    assert bodies("k7") == [b"07"]
    assert bodies("all", count=3) == [b"39", b"38", b"37"]
    assert len(bodies("all")) == 40  # over several index files
    assert len(bodies("odd", IndexType.TAG)) == 20
    assert bodies("odd") == bodies("no such key") == bodies("k7", IndexType.UNIQUE) == []
    start = shelf.store.stored_at("Topic", 0, 0)
    assert len(shelf.store.query("Topic", "all", 64, start + 2000, start + 3000)) in (8, 12)  # whole seconds


@pytest.mark.parametrize(("tags", "passed"), [(frozenset([1]), 800), (None, 512)])
def test_a_read_looks_at_no_more_of_a_queue_however_many_messages_are_asked_for(
    tags: frozenset[int] | None, passed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(dataclasses.replace(SMALL, commit_log_file_bytes=1 << 18, consume_queue_file_units=512))
    shelf.send(*[b"" for _ in range(1000)])
    shelf.settle()
    looked: list[int] = []
    read = ConsumeQueue.read

    def watched(queue: ConsumeQueue, offset: int, count: int) -> bytes:
        looked.append(count)
        return read(queue, offset, count)

    monkeypatch.setattr(ConsumeQueue, "read", watched)
    assert shelf.store.get("Topic", 0, 0, 0x7FFFFFFF, 1 << 20, tags).next_offset == passed
    assert looked == [passed]


def test_a_key_that_very_many_messages_have_is_looked_for_in_short_steps() -> None:
    """Its chain may have millions of entries of other times, and each is a read of the disk."""
    shelf = Shelf(dataclasses.replace(SMALL, index_entries=4000, commit_log_file_bytes=65536))
    shelf.send(b"early", KEYS="other")
    shelf.clock.ms += 60_000
    for _ in range(10):
        shelf.send(b"late", KEYS=" ".join(["k"] * 300))
    shelf.settle()
    steps = list(shelf.store.look_for("Topic", "k", 32, 0, shelf.clock.ms - 50_000))
    assert not any(steps) and len(steps) > 20
    assert [len(found) > 0 for found in shelf.store.look_for("Topic", "k", 10, 0, 1 << 60)].count(True) == 1


def test_records_by_physical_offset(shelf: Shelf) -> None:
    message = shelf.read()[5]
    record = shelf.store.record(message.physical_offset)
    assert record is not None
    assert decode_message(record) == message
    for offset in (message.physical_offset + 1, -1, shelf.store.end, 1 << 40):
        assert shelf.store.record(offset) is None


@pytest.mark.parametrize("is_slave", [False, True])
def test_a_read_with_a_mark_compares_it_and_has_the_one_of_its_last_message(shelf: Shelf, is_slave: bool) -> None:
    store, tags = shelf.store, frozenset([java_hash("odd")])
    store.take_role(slave=is_slave)
    marks = [store.mark_before("Topic", 0, offset) or "" for offset in range(42)]
    assert marks.count("") == 2
    for offset in (0, 1, 2, 20, 39, 40, 41):
        for seen in (
            *marks[:3],
            *marks[19:22],
            marks[40],
            f"{offset - 1}.00000000",
            f"{offset}.00000000",
            "41.00000000",
        ):
            for wanted_tags in (None, tags):
                result = store.get("Topic", 0, offset, 7, 1 << 20, wanted_tags, mark=seen)
                if seen and store.knows_other("Topic", 0, seen):
                    places = result.next_offset, result.min_offset, result.max_offset
                    assert (result.status, places) == (GetStatus.OFFSET_RESET, (offset, 0, 40)) and not result.buffers
                    continue
                plain = store.get("Topic", 0, offset, 7, 1 << 20, wanted_tags)
                assert plain.mark is None
                assert result.mark == (marks[result.next_offset] if result.next_offset > offset else None)
                assert dataclasses.replace(result, mark=None) == plain


def test_a_filler_before_the_messages_is_no_other_than_the_marked_one(shelf: Shelf) -> None:
    """Where a queue's offsets jump nobody knows which message was at the places between."""
    [key] = shelf.store.replicated.next_offsets
    shelf.store._appender.next_offsets[key] += 3
    shelf.send(b"behind the gap")
    shelf.store.reput()
    result = shelf.store.get("Topic", 0, 43, 7, 1 << 20, mark="42.00000000")
    assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 1, 44)


def test_a_mark_names_one_message_and_what_cannot_be_compared_is_no_other(shelf: Shelf) -> None:
    store = shelf.store
    mark = store.mark_before("Topic", 0, 20)
    assert mark is not None
    assert mark.startswith("19.")
    assert store.mark_before("Topic", 0, 0) is store.mark_before("Topic", 0, 41) is None
    other = Shelf()
    for _ in range(20):
        other.send(bytes(40))
    other.store.reput()
    assert (store.knows_other("Topic", 0, mark), other.store.knows_other("Topic", 0, mark)) == (False, True)
    for strange in ("", "x.1", "-3.0", "9" * 40 + ".0", "\u0663.0"):
        assert not store.knows_other("Topic", 0, strange)
    assert store.knows_other("Topic", 0, "40.00000000"), "a master's queue ends before it"
    store.take_role(slave=True)
    assert not store.knows_other("Topic", 0, "40.00000000"), "a slave lags"
