"""Group commit over a storage that does what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.waiting import until
from tallystick.bookkeeper.bookie import committer as module
from tallystick.bookkeeper.bookie.committer import STAGED_BYTES, Committer
from tallystick.bookkeeper.bookie.journal import Commit
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.turn_steps import TurnSteps


@dataclass
class Paper:
    """A storage whose commits wait for the test; a worker as well."""

    staged_bytes: int = 0
    taken: int = 0
    outcomes: list[Any] = field(default_factory=list)  # of the commits that were submitted
    done: list[str] = field(default_factory=list)

    def stage(self, size: int = 1) -> None:
        self.staged_bytes += size

    @property
    def staged(self) -> bool:
        return self.staged_bytes > 0

    def take(self) -> Commit:
        self.taken += 1
        size, self.staged_bytes = self.staged_bytes, 0
        return Commit(self.taken, (), size)

    @property
    def newest_commit(self) -> int:
        return self.taken + self.staged

    def commit(self, commit: Commit) -> None:
        self.write(commit)
        self.sync()

    def write(self, commit: Commit) -> None:
        self.done.append(f"write {commit.number}")

    def sync(self) -> None:
        self.done.append("sync")

    def submit(self, call: Any, done: Any) -> None:
        self.outcomes.append((call, done))

    def finish(self, error: Exception | None = None) -> None:
        call, done = self.outcomes.pop(0)
        call()
        done(None, error)


@dataclass(eq=False)
class Connection:
    peer: str = "127.0.0.1"
    got: list[bytes] = field(default_factory=list)
    resumed: int = 0

    def deliver(self, answers: Sequence[bytes]) -> None:
        self.got += answers

    def resume(self) -> None:
        self.resumed += 1


@dataclass
class Desk:
    paper: Paper
    committer: Committer
    full: list[DiskFull | None]
    failed: list[Exception]
    counts: Counts

    async def hold(self, connection: Connection, answer: bytes, size: int = 1) -> None:
        self.paper.stage(size)
        self.committer.hold(connection, [answer], self.paper.newest_commit)
        await asyncio.sleep(0)

    async def defer(self, connection: Connection, answer: bytes) -> None:
        self.paper.stage()
        self.committer.hold_until_written(connection, [answer], self.paper.newest_commit)
        await asyncio.sleep(0)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    paper, counts = Paper(), Counts()
    full: list[DiskFull | None] = []
    failed: list[Exception] = []
    committer = Committer(
        paper,  # type: ignore[arg-type]  # as much of both as is used
        paper,  # type: ignore[arg-type]
        SystemClock(),
        counts,
        full=full.append,
        committed=lambda: None,
        failed=failed.append,
    )
    yield Desk(paper, committer, full, failed, counts)
    committer.close()


async def test_an_answer_leaves_when_its_commit_returned(desk: Desk) -> None:
    one = Connection()
    await desk.hold(one, b"a")
    assert not one.got
    assert not desk.committer.idle.is_set()
    desk.paper.finish()
    assert one.got == [b"a"]
    assert desk.committer.idle.is_set()
    assert desk.counts.commits == 1


async def test_what_piles_up_during_a_commit_is_the_next_one(desk: Desk) -> None:
    one, two = Connection(), Connection()
    await desk.hold(one, b"a")
    for answer in (b"b", b"c"):
        await desk.hold(one, answer)
        await desk.hold(two, answer)
    assert desk.paper.taken == 1
    desk.paper.finish()
    assert desk.paper.taken == 2
    assert (one.got, two.got) == ([b"a"], [])
    desk.paper.finish()
    assert (one.got, two.got) == ([b"a", b"b", b"c"], [b"b", b"c"])


@pytest.mark.rule("Q11")
async def test_q11_a_repeated_fence_waits_for_the_commit_that_is_under_way(desk: Desk) -> None:
    """The second fence stages nothing; the first one's commit may still fail."""
    one, two = Connection(), Connection()
    await desk.hold(one, b"first fence")
    await desk.hold(two, b"second fence", size=0)
    assert not two.got
    desk.paper.finish()
    assert two.got == [b"second fence"]
    three = Connection()
    await desk.hold(three, b"third fence", size=0)
    assert three.got == [b"third fence"]
    assert desk.paper.taken == 1


@pytest.mark.rule("P1")
async def test_who_waits_for_an_older_commit_takes_no_sync_from_a_newer_one(desk: Desk) -> None:
    """What the newer one had was written and never answered, until something else came."""
    older, newer = Connection(), Connection()
    await desk.hold(older, b"a")
    await desk.hold(newer, b"b")
    desk.committer.hold(older, [b"a again"], 1)
    for _ in range(2):
        desk.paper.finish()
        await asyncio.sleep(0)
    assert (older.got, newer.got) == ([b"a", b"a again"], [b"b"])


async def test_p1_a_failed_commit_answers_nothing_ever(desk: Desk) -> None:
    one = Connection()
    await desk.hold(one, b"a")
    await desk.hold(one, b"b")
    desk.paper.finish(StorageError("the sync failed"))
    await desk.hold(one, b"c")
    assert not one.got
    assert [str(error) for error in desk.failed] == ["the sync failed"]
    assert not desk.paper.outcomes


async def test_a_full_disk_delays_the_same_commit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    one = Connection()
    await desk.hold(one, b"a")
    await desk.hold(one, b"b")
    desk.paper.finish(DiskFull("full"))
    await until(lambda: bool(desk.paper.outcomes))
    assert desk.paper.taken == 1
    assert isinstance(desk.full[0], DiskFull)
    assert not one.got
    desk.paper.finish()
    assert desk.full[1] is None
    assert one.got == [b"a"]
    desk.paper.finish()
    assert one.got == [b"a", b"b"]


async def test_a_commit_that_waits_for_space_is_not_tried_again_after_the_close(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    one = Connection()
    await desk.hold(one, b"a")
    desk.paper.finish(DiskFull("full"))
    desk.committer.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not desk.paper.outcomes and not one.got


async def test_connections_wait_while_too_much_is_staged(desk: Desk) -> None:
    one = Connection()
    await desk.hold(one, b"a", STAGED_BYTES + 1)
    assert desk.committer.congested
    desk.committer.block(one)
    assert one.resumed == 0
    desk.paper.finish()
    assert not desk.committer.congested
    assert one.resumed == 1


async def test_connections_wait_while_too_much_is_held_elsewhere_and_go_on_without_a_commit(desk: Desk) -> None:
    one = Connection()
    desk.committer.reserve(STAGED_BYTES + 1)
    assert desk.committer.congested
    desk.committer.block(one)
    desk.committer.reserve(-STAGED_BYTES)
    assert not desk.committer.congested
    assert one.resumed == 1


async def test_it_is_not_idle_while_a_flush_is_due_for_which_nobody_waits(desk: Desk) -> None:
    class Looking(Connection):
        def deliver(self, answers: Sequence[bytes]) -> None:
            super().deliver(answers)
            desk.paper.stage()
            desk.committer.flush()

    await desk.hold(Looking(), b"a")
    desk.paper.finish()
    assert not desk.committer.idle.is_set()
    await asyncio.sleep(0)
    assert desk.paper.taken == 2
    desk.paper.finish()
    assert desk.committer.idle.is_set()
    assert desk.paper.done[2:] == ["write 2", "sync"], "it is durable, though nobody waits for that"


async def test_connections_wait_while_checkpoints_do_not_keep_up(desk: Desk) -> None:
    one = Connection()
    desk.committer.press(True)
    desk.committer.block(one)
    await desk.hold(one, b"a")
    desk.paper.finish()
    assert one.resumed == 0
    desk.committer.press(False)
    assert one.resumed == 1


async def test_answers_of_an_older_commit_leave_before_those_of_a_newer_one(desk: Desk) -> None:
    """An add that waited for a look is answered with the commit that it had then."""
    one = Connection()
    await desk.hold(one, b"first")
    await desk.hold(one, b"second")
    desk.paper.finish()
    desk.committer.hold(one, [b"of the first commit"], 1)
    desk.paper.finish()
    assert one.got == [b"first", b"of the first commit", b"second"]


async def test_the_next_commit_is_written_while_the_answers_of_this_one_are_sent(desk: Desk) -> None:
    taken: list[int] = []

    class Taking(Connection):
        def deliver(self, answers: Sequence[bytes]) -> None:
            taken.append(desk.paper.taken)

    for _ in range(2):
        await desk.hold(Taking(), b"a")
    desk.paper.finish()
    assert taken == [2]


async def test_a_deferred_add_is_answered_when_it_is_written_and_nobody_syncs_it(desk: Desk) -> None:
    one = Connection()
    for entry in (b"a", b"b"):
        await desk.defer(one, entry)
        assert entry not in one.got, "a process that is killed now has lost it"
        assert not desk.committer.idle.is_set()
        desk.paper.finish()
        assert one.got[-1] == entry
        assert desk.committer.idle.is_set()
    assert desk.paper.done == ["write 1", "write 2"]
    assert desk.counts.commits == 2


async def test_a_force_is_answered_after_the_sync_of_what_was_deferred(desk: Desk) -> None:
    one = Connection()
    await desk.defer(one, b"a")
    desk.paper.finish()
    await desk.hold(one, b"force", size=0)
    assert one.got == [b"a"]
    desk.paper.finish()
    assert one.got == [b"a", b"force"]
    await desk.hold(one, b"force again", size=0)
    assert one.got[-1] == b"force again", "there is nothing to sync"
    assert desk.paper.done == ["write 1", "sync"]


async def test_a_force_that_comes_while_the_adds_are_written(desk: Desk) -> None:
    one = Connection()
    await desk.defer(one, b"a")
    await desk.hold(one, b"force", size=0)
    desk.paper.finish()
    assert one.got == [b"a"]
    desk.paper.finish()
    assert one.got == [b"a", b"force"]
    assert desk.paper.done == ["write 1", "sync"]
    assert desk.committer.idle.is_set()


async def test_deferred_adds_do_not_wait_for_the_sync_that_others_of_their_commit_wait_for(desk: Desk) -> None:
    one, two = Connection(), Connection()
    await desk.hold(two, b"first")
    await desk.defer(one, b"deferred")
    await desk.hold(two, b"add")
    desk.paper.finish()
    assert two.got == [b"first"]
    await desk.defer(one, b"later")
    desk.paper.finish()
    assert (one.got, two.got) == ([b"deferred"], [b"first"])
    desk.paper.finish()
    assert (one.got, two.got) == ([b"deferred"], [b"first", b"add"]), "the next is not written before this sync"
    desk.paper.finish()
    assert one.got == [b"deferred", b"later"]
    assert desk.paper.done == ["write 1", "sync", "write 2", "sync", "write 3"]


async def test_a_plain_add_syncs_what_was_deferred_before_it(desk: Desk) -> None:
    one = Connection()
    await desk.defer(one, b"a")
    desk.paper.finish()
    await desk.hold(one, b"b")
    desk.paper.finish()
    await desk.hold(one, b"force", size=0)
    assert one.got == [b"a", b"b", b"force"]
    assert desk.paper.done == ["write 1", "write 2", "sync"]


async def test_a_deferred_add_waits_for_space_and_is_still_not_synced(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    one = Connection()
    await desk.defer(one, b"a")
    desk.paper.finish(DiskFull("full"))
    assert not one.got
    await until(lambda: bool(desk.paper.outcomes))
    desk.paper.finish()
    assert one.got == [b"a"]
    assert desk.full[1] is None
    assert "sync" not in desk.paper.done


@pytest.mark.parametrize("held", [True, False], ids=["with a deferred add", "without"])
async def test_p1_a_sync_that_fails_answers_no_force_ever(desk: Desk, held: bool) -> None:
    one = Connection()
    if held:
        await desk.defer(one, b"a")
        desk.paper.finish()
        await desk.hold(one, b"force", size=0)
        desk.paper.finish(StorageError("the sync failed"))
        assert one.got == [b"a"]
    else:
        await desk.hold(one, b"b")
        desk.paper.finish(StorageError("the sync failed"))
        assert not one.got
    await desk.hold(one, b"force", size=0)
    assert b"force" not in one.got and len(desk.failed) == 1


async def test_no_sync_begins_after_the_close(desk: Desk) -> None:
    """The journal is closed by then."""
    one = Connection()
    await desk.defer(one, b"a")
    await desk.defer(one, b"b")
    await desk.hold(one, b"force", size=0)
    desk.paper.finish()
    desk.committer.close()
    desk.paper.finish()
    assert one.got == [b"a", b"b"] and not desk.paper.outcomes


async def test_acks_of_very_many_connections_leave_over_many_turns_and_hosts_have_theirs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 of them, behind a disk that was late, were a turn of 94 ms."""
    monkeypatch.setattr(module, "DELIVER_EACH_TURN", 4)
    first, crowd, other = Connection(), [Connection() for _ in range(20)], Connection("127.0.0.9")
    await desk.hold(first, b"first")
    for connection in (*crowd, other):
        await desk.hold(connection, b"one")
    desk.paper.finish()
    desk.paper.finish()

    def answered() -> int:
        return sum(bool(connection.got) for connection in (*crowd, other))

    assert first.got and other.got and answered() == 4 and not desk.committer.idle.is_set()
    await desk.hold(crowd[-1], b"two")
    gone = crowd.pop(-2)
    desk.committer.forget(gone)
    while not desk.committer.idle.is_set():
        before = answered()
        if desk.paper.outcomes:
            desk.paper.finish()  # what comes while some are late is late, too
        await asyncio.sleep(0)
        assert answered() - before <= 4
    assert answered() == 20 and not gone.got
    assert crowd[-1].got == [b"one", b"two"]


async def test_very_many_connections_that_waited_for_room_go_on_over_many_turns_while_there_is_some(desk: Desk) -> None:
    desk.committer._resumes = TurnSteps(4)
    connections = [Connection() for _ in range(9)]

    def resumed() -> int:
        return sum(connection.resumed for connection in connections)

    desk.committer.press(True)
    for connection in connections:
        desk.committer.block(connection)
    desk.committer.press(False)
    assert resumed() == 4
    desk.committer.press(True)
    for _ in range(3):
        await asyncio.sleep(0)
    assert resumed() == 4, "there is no room again"
    desk.committer.press(False)
    await until(lambda: resumed() == 9)


async def test_the_next_crowd_is_answered_as_the_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELIVER_EACH_TURN", 4)
    for _ in range(2):
        for connection in (crowd := [Connection() for _ in range(9)]):
            await desk.hold(connection, b"one")
        desk.paper.finish()
        desk.paper.finish()
        await asyncio.wait_for(desk.committer.idle.wait(), 20)
        assert all(connection.got for connection in crowd)
