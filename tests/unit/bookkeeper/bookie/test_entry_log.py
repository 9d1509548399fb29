"""Entry logs: written once, read by chunk, every flipped bit seen."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stores import SMALL, entry_bytes
from tallystick.bookkeeper.bookie import entry_log, index
from tallystick.bookkeeper.bookie.entry_log import EntryLogs, LogWriter
from tallystick.bookkeeper.bookie.log_index import log_path
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.pages import PAGE_BITS
from tallystick.errors import CorruptRecord
from tallystick.sim.disk import SimDisk

LEDGERS = {2: range(0, 60), 7: [0, 2, 3, 5000, 1 << 60]}


def answer(ledger: int, entry: int) -> bytes:
    return v2.encode_response(v2.ReadFrame(ledger, entry), Code.OK, entry_bytes(ledger, entry))


def write(disk: SimDisk, log_id: int = 1) -> dict[int, index.Pages]:
    writer = LogWriter(disk, "/", log_id, SMALL.chunk_bytes)
    for ledger, entries in LEDGERS.items():
        frames = [answer(ledger, entry) for entry in entries]
        starts = array("Q", list(accumulate(map(len, frames), initial=0))[:-1])
        writer.add(ledger, array("q", entries), starts, b"".join(frames))
    writer.finish()
    pages: dict[int, index.Pages] = {ledger: index.Pages() for ledger in LEDGERS}
    for piece in writer.pieces:
        index.put(pages[piece.ledger], piece.page, piece.slot, piece.locations)
    return pages


def test_what_was_written_is_read_after_a_power_loss() -> None:
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    disk.power_loss()
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    for piece in logs.load(1):
        for place, location in enumerate(piece.locations):
            entry = (piece.page << PAGE_BITS) + piece.slot + place
            assert location == index.get(pages[piece.ledger], entry)
    for ledger, entries in LEDGERS.items():
        for entry in entries:
            assert logs.entry(index.get(pages[ledger], entry), ledger, entry) == entry_bytes(ledger, entry)
    assert logs.logs[1].entries == 65 and set(logs.logs[1].by_ledger) == {2, 7}


def test_a_log_that_is_written_in_several_steps_has_every_frame_in_its_place() -> None:
    """Each step ends with a whole block of the disk, wherever that cuts a frame; the rest comes with the next one."""
    disk, settings, random_sizes = SimDisk(random.Random(1)), replace(SMALL, chunk_bytes=700), random.Random(5)
    bodies = [entry_bytes(1, entry, random_sizes.randbytes(random_sizes.randrange(3000))) for entry in range(2500)]
    writer = LogWriter(disk, "/", 1, settings.chunk_bytes)
    for first in range(0, len(bodies), 50):
        frames = [
            v2.encode_response(v2.ReadFrame(1, entry), Code.OK, bodies[entry]) for entry in range(first, first + 50)
        ]
        starts = array("Q", list(accumulate(map(len, frames), initial=0))[:-1])
        writer.add(1, array("q", range(first, first + 50)), starts, b"".join(frames))
    log = writer.finish()
    assert log.size > 3 * 1024 * 1024, "several steps"
    logs, pages = EntryLogs(disk, lambda _: "/", settings), index.Pages()
    for piece in logs.load(1):
        index.put(pages, piece.page, piece.slot, piece.locations)
    assert [logs.entry(index.get(pages, entry), 1, entry) for entry in range(len(bodies))] == bodies


def test_a_run_of_reads_is_one_piece_of_the_file() -> None:
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    entry = 0
    while entry < 60:
        frames, count = logs.frames(pages[2], 2, range(entry, entry + 100), 1 << 20)
        assert count > (1 if entry < 50 else 0)
        assert frames == b"".join(answer(2, entry + step) for step in range(count))
        entry += count
    assert logs.frames(pages[2], 2, range(3), 1 << 20)[1] == 3
    two = len(answer(2, 0) + answer(2, 1))
    assert [logs.frames(pages[2], 2, range(3), room)[1] for room in (1, two - 1, two, two + 1)] == [1, 1, 2, 2]
    assert logs.frames(pages[7], 7, range(2, 102), 1 << 20)[1] == 2, "2 and 3; 4 is missing"


@given(st.sets(st.integers(0, 150), min_size=1), st.sets(st.integers(0, 150)), st.booleans(), st.integers(1, 9000))
def test_entries_with_gaps_are_read_as_they_lie(
    stored: set[int], others: set[int], same_size: bool, max_bytes: int
) -> None:
    """As a reader of a striped ledger asks for them: all that a bookie has of it, or some."""
    disk, ids = SimDisk(random.Random(1)), sorted(stored)
    bodies = {entry: entry.to_bytes(4, "big") * (20 if same_size else 20 + entry % 7) for entry in ids}
    frames = [v2.encode_response(v2.ReadFrame(3, entry), Code.OK, bodies[entry]) for entry in ids]
    disk.makedirs("/")
    writer = LogWriter(disk, "/", 1, 2048)
    writer.add(3, array("q", ids), array("Q", [0, *accumulate(map(len, frames[:-1]))]), b"".join(frames))
    writer.finish()
    logs, pages = EntryLogs(disk, lambda log: "/", SMALL), index.Pages()
    for piece in logs.load(1):
        index.put(pages, piece.page, piece.slot, piece.locations)
    by_id = dict(zip(ids, frames, strict=True))
    for asked in (ids, sorted(stored & others or stored), sorted({ids[0]} | others)):
        at = 0
        while at < len(asked) and asked[at] in stored:
            data, count = logs.frames(pages, 3, array("q", asked[at:]), max_bytes)
            assert count and all(entry in stored for entry in asked[at : at + count])
            assert data == b"".join(by_id[entry] for entry in asked[at : at + count])
            assert count == 1 or len(data) <= max_bytes
            at += count


def test_all_that_a_bookie_has_of_a_striped_ledger_is_one_piece() -> None:
    """As long as the frames are: what lies together is not put together."""
    disk, ids = SimDisk(random.Random(1)), [entry for entry in range(60) if entry % 3]
    frames = [v2.encode_response(v2.ReadFrame(3, entry), Code.OK, b"x" * 100) for entry in ids]
    writer = LogWriter(disk, "/", 1, 1 << 20)
    writer.add(3, array("q", ids), array("Q", range(0, 128 * len(ids), 128)), b"".join(frames))
    writer.finish()
    logs, pages = EntryLogs(disk, lambda log: "/", SMALL), index.Pages()
    for piece in logs.load(1):
        index.put(pages, piece.page, piece.slot, piece.locations)
    assert logs.frames(pages, 3, array("q", ids), 1 << 20) == (b"".join(frames), len(ids))
    assert logs.frames(pages, 3, array("q", ids), 128 * 7 + 127) == (b"".join(frames[:7]), 7)


@pytest.mark.rule("Q15")
def test_q15_a_flipped_bit_is_an_error_in_its_chunk_and_nowhere_else() -> None:
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    disk.flip(log_path("/", 1), logs.logs[1].chunks[1] + 40)
    failed = []
    for entry in range(60):
        try:
            assert logs.entry(index.get(pages[2], entry), 2, entry) == entry_bytes(2, entry)
        except CorruptRecord:
            failed.append(logs.logs[1].chunk_of(index.get(pages[2], entry) & index.OFFSET_MASK))
    assert set(failed) == {1}


def test_a_run_over_several_chunks_is_as_long_as_fits_and_is_not_kept() -> None:
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    frames = [answer(2, entry) for entry in range(60)]
    ends = list(accumulate(map(len, frames), initial=0))
    for first in (0, 1, 17, 58):
        for max_bytes in range(0, ends[-1] - ends[first] + 2, 50):
            count = max(1, sum(end - ends[first] <= max_bytes for end in ends[first + 1 :]))
            read, read_count = logs.frames(pages[2], 2, range(first, 60), max_bytes)
            assert read == b"".join(frames[first : first + read_count]), (first, max_bytes)
            assert read_count == count or max_bytes < SMALL.chunk_bytes, (first, max_bytes)
    kept = dict(logs._chunks)
    assert logs.frames(pages[2], 2, range(60), 1 << 20) == (b"".join(frames), 60)
    assert logs._chunks == kept


@pytest.mark.rule("Q15")
def test_q15_a_run_over_several_chunks_ends_before_a_damaged_one() -> None:
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    disk.flip(log_path("/", 1), logs.logs[1].chunks[3] + 40)
    chunks = [logs.logs[1].chunk_of(index.get(pages[2], entry) & index.OFFSET_MASK) for entry in range(60)]
    damaged, behind = chunks.index(3), chunks.index(4)
    for first in (0, damaged - 1):
        expected = b"".join(answer(2, entry) for entry in range(first, damaged))
        assert logs.frames(pages[2], 2, range(first, 60), 1 << 20) == (expected, damaged - first)
    for first in (damaged, behind - 1):
        with pytest.raises(CorruptRecord, match="damaged"):
            logs.frames(pages[2], 2, range(first, 60), 1 << 20)
    assert logs.frames(pages[2], 2, range(behind, 60), 1 << 20)[1] == 60 - behind


SCATTERED, CLOSE = 1, 1300  # bytes: what a test takes for close


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("close_bytes", [SCATTERED, CLOSE])
def test_q15_entries_of_several_chunks_end_before_a_damaged_one(
    monkeypatch: pytest.MonkeyPatch, close_bytes: int
) -> None:
    monkeypatch.setattr(entry_log, "_CLOSE_BYTES", close_bytes)
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    disk.flip(log_path("/", 1), logs.logs[1].chunks[3] + 40)
    entries = array("q", range(0, 60, 2))
    chunks = [logs.logs[1].chunk_of(index.get(pages[2], entry) & index.OFFSET_MASK) for entry in entries]
    damaged, behind = chunks.index(3), chunks.index(4)
    for first in (0, damaged - 1):
        expected = b"".join(answer(2, entry) for entry in entries[first:damaged])
        assert logs.frames(pages[2], 2, entries[first:], 1 << 20) == (expected, damaged - first)
    for first in (damaged, behind - 1):
        with pytest.raises(CorruptRecord, match="damaged"):
            logs.frames(pages[2], 2, entries[first:], 1 << 20)
    rest = b"".join(answer(2, entry) for entry in entries[behind:])
    assert logs.frames(pages[2], 2, entries[behind:], 1 << 20) == (rest, len(entries) - behind)


def test_chunks_of_scattered_entries_are_kept_and_those_of_close_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(random.Random(1))
    pages, entries = write(disk), array("q", range(0, 60, 2))
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    expected = b"".join(answer(2, entry) for entry in entries), len(entries)
    monkeypatch.setattr(entry_log, "_CLOSE_BYTES", CLOSE)
    assert logs.frames(pages[2], 2, entries, 1 << 20) == expected and not logs._chunks
    monkeypatch.setattr(entry_log, "_CLOSE_BYTES", SCATTERED)
    assert logs.frames(pages[2], 2, entries, 1 << 20) == expected
    assert len(logs._chunks) == logs.logs[1].chunk_of(index.get(pages[2], 58) & index.OFFSET_MASK) + 1
    disk.flip(log_path("/", 1), 40)
    assert logs.frames(pages[2], 2, entries, 1 << 20) == expected, "nothing is read again"


def test_one_call_reads_a_bounded_number_of_scattered_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log, "_CLOSE_BYTES", SCATTERED)
    monkeypatch.setattr(entry_log, "_SCATTERED_BYTES", SMALL.chunk_bytes + 1)
    disk = SimDisk(random.Random(1))
    pages, entries, at, calls = write(disk), array("q", range(0, 60, 2)), 0, 0
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    while at < len(entries):
        before = len(logs._chunks)
        frames, count = logs.frames(pages[2], 2, entries[at:], 1 << 20)
        assert count and frames == b"".join(answer(2, entry) for entry in entries[at : at + count])
        assert len(logs._chunks) - before <= 2
        at, calls = at + count, calls + 1
    assert calls > 2


@pytest.mark.parametrize("close_bytes", [SCATTERED, CLOSE])
def test_entries_of_several_logs_are_read_in_whatever_order_these_were_written(
    monkeypatch: pytest.MonkeyPatch, close_bytes: int
) -> None:
    """As where recovery wrote an entry again, or a log was rewritten: their locations do not ascend."""
    monkeypatch.setattr(entry_log, "_CLOSE_BYTES", close_bytes)
    disk = SimDisk(random.Random(1))
    older, newer = write(disk, 1)[2], write(disk, 2)[2]
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    pages, chance = index.Pages(), random.Random(7)
    for log in (1, 2):
        logs.load(log)
    for entry in range(60):
        index.put(pages, 0, entry, array("Q", (index.get(chance.choice((older, newer)), entry),)))
    for step in (1, 2, 7):
        entries, at = array("q", range(0, 60, step)), 0
        while at < len(entries):
            frames, count = logs.frames(pages, 2, entries[at:], 1 << 20)
            assert count and frames == b"".join(answer(2, entry) for entry in entries[at : at + count])
            at += count


def test_an_index_that_points_to_another_entry_is_noticed() -> None:
    disk = SimDisk(random.Random(1))
    pages = write(disk)
    logs = EntryLogs(disk, lambda _: "/", SMALL)
    logs.load(1)
    with pytest.raises(CorruptRecord, match="another entry"):
        logs.entry(index.get(pages[2], 4), 2, 5)


def test_missing_and_short_files_are_refused() -> None:
    disk = SimDisk(random.Random(1))
    write(disk, 1)
    write(disk, 2)
    disk.open(log_path("/", 1)).truncate(100)
    disk.unlink(log_path("/", 2))
    for log in (1, 2, 3):
        with pytest.raises(CorruptRecord):
            EntryLogs(disk, lambda _: "/", SMALL).load(log)


def test_memory_and_open_files_are_bounded() -> None:
    disk = SimDisk(random.Random(1))
    settings = replace(SMALL, read_cache_bytes=3000, open_logs=2)
    logs = EntryLogs(disk, lambda _: "/", settings)
    pages = {}
    for log in (1, 2, 3):
        pages[log] = write(disk, log)
        logs.load(log)
    for _ in range(2):
        for log in (1, 2, 3):
            for entry in range(60):
                logs.entry(index.get(pages[log][2], entry), 2, entry)
    assert len(logs._files) <= 2
    assert logs._cached_bytes == sum(map(len, logs._chunks.values())) <= 3000


def test_what_is_forgotten_makes_room_for_other_chunks() -> None:
    """What the cache had of a removed log, or of a chunk that was scrubbed, would count against its bound for ever."""
    disk = SimDisk(random.Random(1))
    logs, pages = EntryLogs(disk, lambda _: "/", replace(SMALL, read_cache_bytes=1 << 20)), {}
    for log in (1, 2):
        pages[log] = write(disk, log)[2]
        logs.load(log)
        for entry in range(60):
            logs.entry(index.get(pages[log], entry), 2, entry)
    kept_count = len(logs._chunks)
    logs.forget_chunk(index.get(pages[2], 7))
    assert len(logs._chunks) == kept_count - 1
    assert logs._cached_bytes == sum(map(len, logs._chunks.values()))
    logs.remove(1)
    assert {log for log, _ in logs._chunks} == {2}
    assert logs._cached_bytes == sum(map(len, logs._chunks.values())) > 0
