"""Random schedules of two message stores, a master's and a slave's, on disks that crash: what their queues promise.

The stores are those that brokers run. Judges, at every look: a queue has what the log has of its topic, without what
was deleted, though files were lost and crashes came at any operation; no queue offset that a master told of is given
out again by the slave that follows it as master; open files and what is held in memory stay within their bounds.

A slave that becomes master before it heard of a deletion has the deleted messages again: nothing else may be lost by
it. What its topic got since is read, from the first record on that steps back; only a deletion makes a log step back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from support.message_stores import SMALL, Shelf
from tallystick.codec.records import scan_records
from tallystick.errors import UsageError
from tallystick.rocketmq.store.handles import LEAST
from tallystick.sim.disk import Crashed, SimDisk
from tallystick.sim.disk_content import apply_write

SETTINGS = replace(SMALL, max_open_files=LEAST, consume_queue_file_units=8)
TOPICS, QUEUES = ("A", "B", "C"), (0, 1)
FILE_BYTES = SETTINGS.commit_log_file_bytes
BESIDE = 5  # files open beside those in the bound: checkpoint, tally-synced, tally-queues old and new, abort
MOST_HELD = 4096
STEPS = 60

Queue = tuple[str, int]
Message = tuple[int, int, bytes]  # queue offset, physical offset, body


class WholeHeaders(SimDisk):
    """Power loss leaves no hole in the log: headers have no checksum."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.losses = random.Random(0)  # not the schedule's: a seed that failed before goes on as it did

    def power_loss(self) -> None:
        for path, inode in self._names.items():
            if inode is not None and "commitlog" in path:
                kept = inode.pending[: self.losses.randint(0, len(inode.pending))]
                inode.pending[:] = []
                for change in kept:
                    apply_write(inode.durable, change)
        super().power_loss()


class Node(Shelf):
    """One store, and what is known of it: ``deleted`` by topic, ``told`` by queue where its master's ended.

    ``deletions``: all that happened to its log, by topic and physical offset, whether the store heard of them or not.
    """

    def __init__(self, rng: random.Random, *, slave: bool) -> None:
        self.rng = rng
        self.deleted: dict[str, int] = {}
        self.deletions: set[tuple[str, int]] = set()
        self.told: dict[Queue, int] = {}
        self.told_at = 0  # the physical offset of which that is true
        self.ends_known = False
        self.unlinks: list[Callable[[], None]] = []
        super().__init__(SETTINGS, rng.randrange(1 << 30), slave=slave, disk=WholeHeaders(rng))

    def again(self, *, slave: bool | None = None) -> None:
        """Open it after a crash; opening may crash too."""
        while True:
            try:
                if self.rng.random() < 0.3:
                    self.disk.crash_at = self.disk.operations + self.rng.randrange(1, 60)
                self.open(slave=slave)
                self.disk.crash_at = None
                return
            except Crashed:
                self.crash()

    def crash(self) -> None:
        self.unlinks.clear()
        self.disk.power_loss() if self.rng.random() < 0.5 else self.disk.kill()

    def judge(self) -> None:
        """What can be read is right at any time, and whole when all was dispatched and built again."""
        self.store.reput()
        expected = self.expected()
        while self.store.rebuilding:
            for queue in (*expected, *((topic, 0) for topic in TOPICS)):
                found = self.found(*queue)
                assert set(found) <= set(expected.get(queue, ())), f"{queue}: {found} is read where units are lost"
            self.store.rebuild(700)
        for topic in TOPICS:
            for queue_id in QUEUES:
                found, wanted = self.found(topic, queue_id), expected.get((topic, queue_id), [])
                assert self.may_be_read(topic, found, wanted), f"{topic} {queue_id}: {found} are read, not {wanted}"
                assert [offset for offset, *_ in found] == sorted({offset for offset, *_ in found}), "an offset twice"
                if self.store.slave and found:
                    end = self.store.queue_range(topic, queue_id)[1]
                    assert end == found[-1][0] + 1, f"{topic} {queue_id}: a slave's queue ends at {end}: {found}"
        self.budgets()

    def found(self, topic: str, queue_id: int) -> list[Message]:
        messages = self.read(topic, queue_id)
        return [(message.queue_offset, message.physical_offset, message.stored_body) for message in messages]

    def may_be_read(self, topic: str, found: list[Message], wanted: list[Message]) -> bool:
        """All of ``wanted``; but what was deleted need not be there, though the store was not told: it may have seen
        the topic begin anew, and lost the end of its log that showed it."""
        deletion = max((offset for name, offset in self.deletions if name == topic), default=0)
        missing = [message for message in wanted if message not in found]
        kept = [message for message in wanted if message in found]
        return found == kept and all(physical < deletion for _, physical, _ in missing)

    def expected(self) -> dict[Queue, list[Message]]:
        """By the log alone, and by the deletions that the store heard of."""
        found: dict[Queue, list[Message]] = {}
        at = self.store.first
        while at < self.store.end:
            data = bytes(self.store.slice(at, FILE_BYTES))
            run = scan_records(data, at)
            columns = zip(run.positions, run.topics, run.queue_ids, run.queue_offsets, strict=True)
            for position, name, queue_id, queue_offset in columns:
                topic, size_at = name.decode(), position + 84
                if at + position >= self.deleted.get(topic, 0):
                    size = int.from_bytes(data[size_at : size_at + 4], "big")
                    units = found.setdefault((topic, queue_id), [])
                    if units and queue_offset <= units[-1][0]:
                        anew = range(units[-1][1] + 1, at + position + 1)
                        was_deleted = any(name == topic and offset in anew for name, offset in self.deletions)
                        assert was_deleted, f"{topic} {queue_id}: {queue_offset} was given out twice"
                        units.clear()
                    units.append((queue_offset, at + position, data[size_at + 4 :][:size]))
            at += max(run.end, 1) if run.end == len(data) else FILE_BYTES - at % FILE_BYTES
        return found

    def has_made_anew(self, queue: Queue) -> bool:
        """Whether its log shows a topic that was deleted, and got messages again, since it was told where the queue
        ended: the queue counts from 0 again, and goes on behind those messages."""
        anew = [offset for topic, offset in self.deletions if topic == queue[0] and offset >= self.told_at]
        return any(physical >= min(anew) for _, physical, _ in self.expected().get(queue, ())) if anew else False

    def budgets(self) -> None:
        disk, parts = self.disk, self.store._parts
        assert isinstance(disk, WholeHeaders)
        assert len(disk.open_files) <= SETTINGS.max_open_files + BESIDE, [file._path for file in disk.open_files]
        held = [queue._files._held_bytes for queue in parts.queues]
        assert sum(len(run[1]) for run in held if run is not None) <= MOST_HELD * len(held)
        assert len(parts.queues._leaving) <= len(TOPICS) * len(QUEUES)
        assert len(self.store._borders) <= 64
        assert len(self.store.replicated.next_offsets) <= len(TOPICS) * len(QUEUES)


class Schedule:
    """``run`` raises AssertionError for a broken promise."""

    def __init__(self, seed: int, *, runs_on: bool = False) -> None:
        """``runs_on``: a slave that becomes master is not started anew for it."""
        self.rng, self.patience, self._runs_on = random.Random(seed), random.Random(seed), runs_on
        self.master, self.slave = Node(self.rng, slave=False), Node(self.rng, slave=True)
        self.slave.deletions = self.master.deletions  # it has the same log
        self.number = self.promotions = self.deletions = self.losses = 0

    def steps(self) -> list[tuple[Callable[[], None], int]]:
        """What may happen, and how often."""
        return [
            (self.send, 10), (self.settle, 4), (self.copy, 6), (self.tell, 3), (self.delete, 2), (self.crash, 3),
            (self.lose, 1), (self.promote, 1), (self.look, 3), (self.unlink, 2),
        ]  # fmt: skip

    def run(self) -> None:
        steps = self.steps()
        for _ in range(STEPS):
            (step,) = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])
            step()
        self.look()

    def send(self) -> None:
        topic, queue_id = self.rng.choice(TOPICS), self.rng.choice(QUEUES)
        for _ in range(self.rng.randrange(1, 12)):
            self.number += 1
            (put,) = self.master.send(b"%d" % self.number, topic=topic, queue_id=queue_id)
            least = self.master.told.get((topic, queue_id), 0)
            assert put.queue_offset >= least, f"{topic} {queue_id}: {put.queue_offset} was given out up to {least}"
        self.master.store.reput()

    def node(self) -> Node:
        return self.rng.choice((self.master, self.slave))

    def settle(self) -> None:
        self.node().settle()

    def copy(self) -> None:
        """What is durable at the master; a slave begins with any file."""
        self.master.store.flush()
        store, files = self.slave.store, self.rng.randrange(1, 4)
        if store.end == 0:
            at = self.rng.choice(range(self.master.store.first, self.master.store.end + 1, FILE_BYTES))
        else:
            at = store.end
        for _ in range(files):
            data = bytes(self.master.store.slice(at, FILE_BYTES))[: self.rng.choice((FILE_BYTES, 300))]
            if not data or at + len(data) > self.master.store.flushed:
                break
            store.append_raw(at, data)
            at += len(data)
        store.reput()

    def tell(self) -> None:
        """Ends and deletions, as a slave's round copies them."""
        master, slave = self.master, self.slave
        deletion = slave.store.replicated.learn_deletions(master.store.replicated.deletions)
        for topic, offset in master.store.replicated.deletions.items():
            if offset > max(slave.store.first, slave.deleted.get(topic, 0)):
                slave.deleted[topic] = offset
        if deletion is not None:
            deletion.run()
        slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end)
        slave.told, slave.told_at = dict(master.store.replicated.next_offsets), master.store.end
        slave.ends_known = slave.store.end > 0 or self.slave.store.first > 0 or slave.ends_known

    def delete(self) -> None:
        self.deletions += 1
        master, topic = self.master, self.rng.choice(TOPICS)
        at = master.store.end
        deletion = master.store.delete_topics([topic])
        for queue_id in QUEUES:
            master.told.pop((topic, queue_id), None)
        master.deleted[topic] = at
        master.deletions.add((topic, at))
        if self.rng.random() < 0.5:
            self.send()
            master.settle()
        deletion.note()
        if self.rng.random() < 0.5:
            deletion.unlink()
        else:
            master.unlinks.append(deletion.unlink)

    def unlink(self) -> None:
        while self.master.unlinks:
            self.master.unlinks.pop()()

    def crash(self) -> None:
        """At any operation of a checkpoint. A slave may lose the end of its log, and gets it again."""
        node = self.node()
        if node is self.master or self.patience.random() < 0.5:
            node.store.flush()
        node.disk.crash_at = node.disk.operations + self.rng.randrange(1, 40)
        try:
            node.store.reput()
            node.store.maintain(node.clock.ms)
        except Crashed:
            pass
        node.crash()
        node.again()
        self.judge(node)

    def judge(self, node: Node) -> None:
        """Now, or when more has happened to what is still being built again."""
        node.judge() if self.patience.random() < 0.5 else node.store.rebuild(self.patience.randrange(1, 900))

    def lose(self) -> None:
        """Somebody deletes a file of a queue, or of the index, of a store that was killed."""
        self.losses += 1
        node = self.node()
        node.settle()
        node.disk.kill()
        node.unlinks.clear()
        paths = [
            path for path, inode in node.disk._names.items() if inode and ("consumequeue" in path or "/index/" in path)
        ]
        for path in self.rng.sample(paths, min(len(paths), 2)):
            node.disk.unlink(path)
        node.again()
        self.judge(node)

    def promote(self) -> None:
        """The master is lost; its slave goes on, and another begins."""
        slave = self.slave
        try:
            self.take_over(slave) if self._runs_on else self.start_as_master(slave)
        except UsageError:
            assert slave.store._parts.log.start > 0, "a whole log is all that a master needs"
            slave.disk.kill()
            return slave.again(slave=True)
        self.promotions += 1
        slave.deleted = {topic: min(offset, slave.store.end) for topic, offset in slave.deleted.items()}
        slave.deletions = {(topic, min(offset, slave.store.end)) for topic, offset in self.master.deletions}
        slave.told = {queue: end for queue, end in slave.told.items() if not slave.has_made_anew(queue)}
        self.master, self.slave = slave, Node(self.rng, slave=True)
        self.slave.deletions = slave.deletions  # it has the same log
        self.master.judge()

    def start_as_master(self, slave: Node) -> None:
        """Raises UsageError."""
        slave.settle()
        slave.crash()
        slave.again(slave=False)

    def take_over(self, slave: Node) -> None:
        """A crash at any operation leaves what may be started as a slave's or a master's. Raises UsageError."""
        slave.disk.crash_at = slave.disk.operations + self.patience.randrange(1, 80)
        try:
            slave.store.promote()
            slave.disk.crash_at = None
            slave.store.take_role(slave=False)
        except Crashed:
            slave.crash()
            slave.again(slave=False)

    def look(self) -> None:
        for node in (self.master, self.slave):
            node.settle()
            node.judge()
