"""The check of a store: nothing in a good one, each kind of damage by its name and place."""

from __future__ import annotations

import struct

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.rocketmq.store.check import Problem, check_store

QUEUE = f"{ROOT}/consumequeue/Topic/0"


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    for number in range(30):
        shelf.send(b"%d" % number * 60, KEYS=f"k{number}", TAGS="t")
    shelf.settle()
    shelf.store.close()
    return shelf


def problems(shelf: Shelf) -> list[Problem]:
    return [finding.problem for finding in check_store(shelf.disk, ROOT, SMALL).findings]


def test_a_good_store(shelf: Shelf) -> None:
    report = check_store(shelf.disk, ROOT, SMALL)
    assert (report.records, report.units, report.entries, report.queues) == (30, 30, 60, 1)
    assert (report.problems, report.findings) == (0, [])


def test_a_damaged_record_and_what_hangs_on_it(shelf: Shelf) -> None:
    shelf.disk.flip(f"{ROOT}/commitlog/{0:020}", 5)
    found = problems(shelf)
    assert found[0] is Problem.DAMAGED_RECORD
    assert Problem.UNIT_WITHOUT_RECORD in found
    assert check_store(shelf.disk, ROOT, SMALL).records == 29


def test_the_last_record_damaged_after_its_sync_is_no_torn_tail(shelf: Shelf) -> None:
    """A broker refuses to start with it, and whoever asks why must not hear that it is harmless."""
    last = shelf.store.end - 20
    shelf.disk.flip(f"{ROOT}/commitlog/{last - last % 4096:020}", last % 4096 - 60)
    finding = check_store(shelf.disk, ROOT, SMALL).findings[0]
    assert finding.problem is Problem.LOST_END
    assert f"synced up to {shelf.store.end}" in finding.detail


def test_half_a_record_of_a_slave_is_a_torn_tail() -> None:
    master, slave = Shelf(), Shelf(seed=2)
    slave.store.take_role(slave=True)
    master.send(b"one" * 30, b"two" * 30)
    slave.store.append_raw(0, master.store.slice(0, master.store.end - 20))
    slave.settle()
    slave.store.close()
    assert problems(slave) in ([], [Problem.TORN_TAIL])


def test_a_wrong_unit(shelf: Shelf) -> None:
    shelf.disk.flip(f"{QUEUE}/{0:020}", 3 * 20 + 19)
    (finding,) = check_store(shelf.disk, ROOT, SMALL).findings
    assert (finding.problem, finding.path, finding.position) == (Problem.WRONG_UNIT, QUEUE, 60)


def test_a_missing_unit(shelf: Shelf) -> None:
    last = shelf.disk.listdir(QUEUE)[-1]
    shelf.disk.open(f"{QUEUE}/{last}").write([bytes(320)], 0)
    assert set(problems(shelf)) == {Problem.NO_UNIT}


def test_a_unit_beyond_the_log(shelf: Shelf) -> None:
    last = shelf.disk.listdir(QUEUE)[-1]
    shelf.disk.open(f"{QUEUE}/{last}").write([struct.pack(">qiq", 1 << 30, 99, 0)], (30 - 16) * 20)
    assert problems(shelf) == [Problem.UNIT_WITHOUT_RECORD]


def test_index_entries(shelf: Shelf) -> None:
    name = shelf.disk.listdir(f"{ROOT}/index")[0]
    path, entry = f"{ROOT}/index/{name}", 40 + 32 * 4 + 5 * 20
    for position, problem in ((0, Problem.WRONG_ENTRY), (8, Problem.ENTRY_WITHOUT_RECORD), (18, Problem.BROKEN_CHAIN)):
        shelf.disk.flip(path, entry + position)
        assert problems(shelf) == [problem]
        shelf.disk.flip(path, entry + position)
    assert problems(shelf) == []


def test_missing_and_short_files(shelf: Shelf) -> None:
    shelf.disk.open(f"{QUEUE}/{0:020}").truncate(100)
    assert Problem.FILES in problems(shelf)
    shelf.disk.unlink(f"{ROOT}/commitlog/{0:020}")
    shelf.disk.unlink(f"{ROOT}/commitlog/{4096:020}")
    assert check_store(shelf.disk, ROOT, SMALL).first >= 0


def test_the_check_writes_nothing(shelf: Shelf) -> None:
    seen: list[str] = []
    shelf.disk.fault = lambda operation, path: seen.append(operation)
    check_store(shelf.disk, ROOT, SMALL)
    assert set(seen) <= {"read", "open", "list"}
