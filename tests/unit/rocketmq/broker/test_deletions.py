"""Deletions beside the loop: it serves on, the answer waits for the note alone, and a stop finishes what was asked."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

from support.message_stores import Shelf
from tallystick.errors import StorageError
from tallystick.rocketmq.broker.deletions import Deletions
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.runtime.events import Event, Events
from tallystick.runtime.worker import ThreadWorker


class Slow:
    """A deletion whose steps wait to be let go."""

    def __init__(self) -> None:
        self.may_note, self.may_unlink, self.steps = threading.Event(), threading.Event(), list[str]()

    def note(self) -> None:
        self.may_note.wait()
        self.steps.append("noted")

    def unlink(self) -> None:
        self.may_unlink.wait()
        self.steps.append("unlinked")
        raise StorageError("bad")


async def test_the_loop_goes_on_and_the_answer_waits_for_the_note_alone() -> None:
    told: list[Event] = []
    worker = ThreadWorker("test")
    deletions, slow, answered = Deletions(Events(told.append), worker), Slow(), asyncio.Event()
    outcome: list[Exception | None] = []

    def done(error: Exception | None) -> None:
        outcome.append(error)
        answered.set()

    deletions.finish(cast("Deletion", slow), done)
    await asyncio.sleep(0)
    assert (outcome, slow.steps, deletions.pending_count) == ([], [], 1)
    slow.may_note.set()
    await answered.wait()
    assert (outcome, slow.steps, deletions.pending_count) == ([None], ["noted"], 1)
    slow.may_unlink.set()
    await deletions.close()
    worker.close()
    assert slow.steps == ["noted", "unlinked"] and not deletions.pending_count
    assert [event.kind for event in told] == ["files of a deleted topic stay"]


async def test_what_is_noted_waits_for_the_disk_and_then_no_more() -> None:
    """Too many that wait are refused: one that was counted for ever would end all deletions."""
    worker = ThreadWorker("test")
    deletions, may_note, outcome = Deletions(Events(lambda event: None), worker), threading.Event(), list[object]()
    answered = asyncio.Event()

    def fail() -> None:
        may_note.wait()
        raise StorageError("bad")

    def done(error: Exception | None) -> None:
        outcome.append(error)
        answered.set()

    deletions.note(fail, done)
    assert (outcome, deletions.pending_count) == ([], 1)
    may_note.set()
    await answered.wait()
    assert [str(error) for error in outcome] == ["bad"] and not deletions.pending_count
    await deletions.close()
    worker.close()


async def test_an_answer_says_why_it_is_not_durable() -> None:
    shelf, worker = Shelf(), ThreadWorker("test")
    shelf.send(b"x")
    shelf.settle()
    deletions, outcome = Deletions(Events(shelf.events.append), worker), list[Exception | None]()
    shelf.disk.fault = lambda operation, path: StorageError("bad") if "tally-queues" in path else None
    deletions.finish(shelf.store.delete_topics(["Topic"]), outcome.append)
    await deletions.close()
    worker.close()
    (error,) = outcome
    assert isinstance(error, StorageError)
    assert not shelf.disk.sizes("/store/consumequeue/Topic/0")
