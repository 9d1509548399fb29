"""All ConsumeQueues of a store: loaded or adopted, made, synced when they change, and detached when their topic goes.

Source: ``ConsumeQueueStore``.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.queue_state import Queue, QueueRow
from tallystick.runtime.disk import Disk

_SYNC_ALL_FROM = 64  # queues: from here on one sync of the file system costs less than theirs


class ConsumeQueues:
    """All queues of a store."""

    def __init__(self, disk: Disk, root: str, file_units: int, handles: Handles | None = None) -> None:
        self._disk, self._root, self._file_units, self._handles = disk, root, file_units, handles
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._naming = threading.Lock()  # a queue is entered, or its folders go because there is none
        self._dirty: deque[ConsumeQueue] = deque()
        # Detached, and their files may still be there. By topic: one may have 65,536, and goes in a turn of the loop.
        self._leaving: dict[str, dict[int, ConsumeQueue]] = {}

    def load(self, dispatched: int, log: CommitLog, *, repair: bool) -> None:
        """Load all queues on the disk; see ``ConsumeQueue.load``."""
        for topic, queue_id in list_queues(self._disk, self._root):
            queue = ConsumeQueue(
                self._disk,
                root=self._root,
                topic=topic,
                queue_id=queue_id,
                file_units=self._file_units,
                handles=self._handles,
            )
            queue.load(dispatched, log, repair=repair)
            self._enter(queue)

    def adopt(self, rows: Iterable[QueueRow]) -> None:
        """Adopt the queues that a checkpoint noted, and no others; see ``ConsumeQueue.adopt``."""
        for row in rows:
            self.of(*row.key).adopt(row)

    def remove_unknown(self) -> None:
        """Delete the files that no checkpoint noted: of deleted topics, or of what is to be dispatched again."""
        for topic, queue_id in list_queues(self._disk, self._root):
            queue = self.find(topic, queue_id)
            if queue is None or not queue.has_files:
                remove_files(self._disk, self._root, topic, queue_id)
                self._remove_folders(topic, queue_id)
        for topic in self._disk.listdir(self._root):
            if topic not in self._topics:
                self._disk.remove_folder(os.path.join(self._root, topic))

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter([queue for queues in list(self._topics.values()) for queue in list(queues.values())])

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Returns the queue, and makes it if it is missing."""
        queue = self.find(topic, queue_id)
        if queue is None:
            if (old := self._leaving.get(topic, {}).get(queue_id)) is not None:
                old.delete()  # its files have the names of the new ones: should this fail, they are still to go first
                self._left(old)
            queue = ConsumeQueue(
                self._disk,
                root=self._root,
                topic=topic,
                queue_id=queue_id,
                file_units=self._file_units,
                handles=self._handles,
            )
            self._enter(queue)
        return queue

    def _enter(self, queue: ConsumeQueue) -> None:
        with self._naming:
            self._topics.setdefault(queue.topic, {})[queue.queue_id] = queue

    def fillers_of_new(self, queue_offset: int) -> int:
        """Returns how many fillers a queue gets that begins there: as the original's, from the start of the file."""
        return queue_offset % self._file_units

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def of_topic(self, topic: str) -> Mapping[int, ConsumeQueue]:
        """Returns the queues of a topic, by number."""
        return self._topics.get(topic, {})

    def mark(self, queue: ConsumeQueue) -> None:
        """Mark a queue with units that are not synced."""
        if not queue.dirty:
            queue.dirty = True
            self._dirty.append(queue)

    def take(self) -> list[ConsumeQueue]:
        """Returns the marked queues, to be synced, and takes the marks off."""
        queues = list(self._dirty)
        self._dirty.clear()
        for queue in queues:
            queue.dirty = False
        return queues

    def sync(self, queues: Sequence[ConsumeQueue]) -> None:
        """Make queues durable as they are now. On a thread. After an error ``mark`` them again."""
        if len(queues) < _SYNC_ALL_FROM:
            for queue in queues:
                queue.sync()
            return
        before = [(queue, queue.filled, queue.born) for queue in queues]
        for queue in queues:
            queue.flush()
        self._disk.sync_all(self._root)
        for queue, filled, born in before:
            queue.synced(filled, born)

    def detach_topics(self, deletions: Mapping[str, int]) -> list[ConsumeQueue]:
        """Forget the queues that have nothing from behind the deletion of their topic; ``delete`` what is returned.

        ``deletions``: by topic its physical offset.
        """
        detached: list[ConsumeQueue] = []
        for topic, at in deletions.items():
            queues = self._topics.pop(topic, {})
            kept_queues = {number: queue for number, queue in queues.items() if queue.last_physical >= at}
            for number, queue in kept_queues.items():
                del queues[number]
                if queue.forget_deleted(at):  # a slave hears of it after it dispatched what came then
                    self.mark(queue)
            if kept_queues:
                self._topics[topic] = kept_queues
            if queues:
                detached += queues.values()
                with self._naming:
                    self._leaving.setdefault(topic, queues).update(queues)
        return detached

    def delete(self, detached: ConsumeQueue) -> None:
        """Delete a detached queue's files and, unless the queue exists anew, its folder. On any thread, and more than
        once."""
        detached.delete()
        self._left(detached)
        self._remove_folders(detached.topic, detached.queue_id)

    def _left(self, detached: ConsumeQueue) -> None:
        """A detached queue has no files any more."""
        with self._naming:
            queues = self._leaving.get(detached.topic, {})
            if queues.get(detached.queue_id) is detached:
                del queues[detached.queue_id]
                if not queues:
                    del self._leaving[detached.topic]

    def _remove_folders(self, topic: str, queue_id: int) -> None:
        """Remove the folders that nobody needs."""
        folder = os.path.join(self._root, topic)
        with self._naming:  # whoever makes a folder has entered its queue
            if self.find(topic, queue_id) is None:
                self._disk.remove_folder(os.path.join(folder, str(queue_id)))
            if topic not in self._topics:
                self._disk.remove_folder(folder)

    def close(self) -> None:
        for queue in self:
            queue.close()


def remove_files(disk: Disk, root: str, topic: str, queue_id: int) -> None:
    """Delete the files in a queue's folder, if there is one."""
    folder = os.path.join(root, topic, str(queue_id))
    for name in disk.sizes(folder):
        disk.unlink(os.path.join(folder, name))


def list_queues(disk: Disk, root: str) -> Iterator[Queue]:
    """Yields the queues that have a folder."""
    for topic in disk.listdir(root):
        for queue_id in disk.listdir(os.path.join(root, topic)):
            if queue_id.isdecimal():
                yield topic, int(queue_id)
