"""Deletions that are remembered: in the log's order, and no more than so many."""

from __future__ import annotations

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.rocketmq.store import deleted_topics
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.deleted_topics import DeletedTopics
from tallystick.rocketmq.store.queue_state import QUEUE_STATE, read_queue_state


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "MOST", 8)


def test_they_rise_whatever_comes() -> None:
    table = DeletedTopics({"b": 20, "a": 10})
    assert (list(table.offsets), table.last, table.get("a"), table.get("c")) == (["a", "b"], 20, 10, 0)
    table.add({"c": 30})
    before = table.offsets
    table.add({"a": 40})  # deleted again
    assert (list(table.offsets.items()), table.last) == ([("b", 20), ("c", 30), ("a", 40)], 40)
    assert before["a"] == 10, "who copies the table on another thread misses nothing"
    table.add({"d": 25})  # told late
    assert (list(table.offsets.values()), table.last) == ([20, 25, 30, 40], 40)
    table.forget_before(25)
    assert (list(table.offsets), table.forgotten_up_to) == (["c", "a"], 0)


@pytest.mark.rule("H12")
@pytest.mark.parametrize(("master", "end", "left"), [("a", 10, 20), ("b", 10, 10), ("", 10, 10), ("a", 0, 0)])
def test_what_was_told_ahead_holds_for_a_log_of_who_told_it(master: str, end: int, left: int) -> None:
    """A slave without a byte takes tables of whoever is there, so nothing says that they are of this log."""
    table = DeletedTopics({"T": 20}, told_by="a")
    assert table.follow(master, end) == table.cuts == (left < 20)
    assert (table.get("T"), table.last, table.told_by) == (left, left, master)


@pytest.mark.usefixtures("few")
def test_of_many_the_oldest_go_once_nothing_dispatches_their_records_again() -> None:
    table = DeletedTopics({str(number): number for number in range(1, 9)})
    assert table.is_full(0) and not table.is_full(1)
    table.make_room(0)
    assert (len(table.offsets), table.forgotten_up_to) == (8, 0)
    table.make_room(100)
    assert (next(iter(table.offsets)), table.forgotten_up_to) == ("2", 1)
    table.make_room(0)
    assert (len(table.offsets), table.forgotten_up_to) == (7, 1)


@pytest.mark.usefixtures("few")
def test_a_store_forgets_the_oldest_and_brings_none_back() -> None:
    shelf = Shelf()
    for number in range(30):
        shelf.send(b"%03d" % number, topic=f"T{number}")
        shelf.settle()
        assert not shelf.store.replicated.is_full
        shelf.store.delete_topics([f"T{number}"]).run()
        assert len(shelf.store.replicated.deletions) <= 8
    shelf.disk.power_loss()
    shelf.open()
    assert [number for number in range(30) if shelf.bodies(f"T{number}")] == []
    with shelf.disk.undisturbed():
        assert check_store(shelf.disk, ROOT, SMALL).findings == []


@pytest.mark.usefixtures("few")
def test_without_a_checkpoint_none_is_forgotten() -> None:
    shelf = Shelf()
    for number in range(8):
        shelf.send(b"x", topic=f"T{number}")
        shelf.store.reput()
        shelf.store.delete_topics([f"T{number}"]).run()
    assert shelf.store.replicated.is_full
    shelf.settle()
    assert not shelf.store.replicated.is_full and len(shelf.store.replicated.deletions) == 8


@pytest.mark.usefixtures("few")
def test_a_slave_takes_what_it_forgot_for_no_news() -> None:
    master, slave = Shelf(), Shelf(slave=True)
    for number in range(12):
        master.send(b"x", topic=f"T{number}")
    master.store.reput()
    slave.store.append_raw(0, master.log())
    slave.settle()
    told = {f"T{number}": 100 * number + 100 for number in range(12)}
    deletion = slave.store.replicated.learn_deletions(told)
    assert deletion is not None
    deletion.run()
    slave.store.delete_topics(["other"]).run()  # makes room
    assert slave.store.replicated.learn_deletions(told) is None


def test_a_deletion_is_noted_by_itself_not_with_all_that_were() -> None:
    """Notes of 1,000 deletions were as long as a million rows of a table."""
    shelf = Shelf()
    shelf.store.delete_topics([f"T{number:04}" for number in range(2000)]).run()
    sizes = []
    for topic in ("A", "B"):
        shelf.send(b"x", topic=topic)
        shelf.settle()
        before = shelf.disk.size(f"{ROOT}/{QUEUE_STATE}") or 0
        shelf.store.delete_topics([topic]).run()
        sizes.append((shelf.disk.size(f"{ROOT}/{QUEUE_STATE}") or 0) - before)
    assert max(sizes) < 200
    known = read_queue_state(shelf.disk, ROOT)
    assert known.deletions == shelf.store.replicated.deletions and {"A", "B"} <= known.deletions.keys()


def test_a_note_drops_what_is_forgotten_from_time_to_time() -> None:
    shelf = Shelf()
    shelf.store.delete_topics([f"T{number:04}" for number in range(2000)]).run()
    shelf.send(b"x")
    shelf.settle()
    shelf.store._reput.deleted_topics.forget_before(shelf.store.end - 1)
    shelf.store.delete_topics(["Topic"]).run()
    assert read_queue_state(shelf.disk, ROOT).deletions.keys() == {"Topic"}
