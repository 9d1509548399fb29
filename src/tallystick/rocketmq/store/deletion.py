"""The three steps of a topic's deletion: readers find nothing any more, it is durable, its files are deleted.

The first step is a moment of the loop. The second waits for the disk, and the response follows it: from then on no
crash brings the topic back. The third may take long, and no response waits for it; what a crash leaves of the files is
deleted at the next start. A topic of the same name may be made between any two steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.upkeep import Upkeep


class Deletion:
    """``note`` it, then ``unlink`` the files, both on one thread."""

    def __init__(
        self,
        upkeep: Upkeep,
        queues: ConsumeQueues,
        deletions: Mapping[str, int],
        detached_queues: Sequence[ConsumeQueue],
    ) -> None:
        """``detached_queues`` are those that ``detach_topics`` returned for ``deletions``. Reput has the deletions
        already."""
        self._upkeep, self._queues, self._deletions, self._detached_queues = upkeep, queues, deletions, detached_queues

    @property
    def topics(self) -> Collection[str]:
        """Returns the names of the topics."""
        return self._deletions.keys()

    def note(self) -> None:
        """THREAD. Make the deletion durable. Raises StorageError: then a crash may bring the topics back."""
        self._upkeep.note_deleted(self._deletions, self._detached_queues)

    def unlink(self) -> None:
        """THREAD. Delete the files, even if ``note`` failed. Raises StorageError: they stay until the next start."""
        for queue in self._detached_queues:
            self._queues.delete(queue)

    def run(self) -> None:
        """THREAD. Both steps."""
        try:
            self.note()
        finally:
            self.unlink()
