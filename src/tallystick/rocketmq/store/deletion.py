"""A topic's deletion in three steps: readers find nothing any more, it is durable, its files go.

The first is a moment of the loop. The second waits for the disk, and the response comes behind it: from then on no
crash brings the topic back. The third may take long, and nobody waits for it; what a crash leaves of it goes at the
next start. A topic of the same name may be made between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.upkeep import Upkeep


class Deletion:
    """``note`` it, then ``unlink`` the files, on one thread."""

    def __init__(
        self,
        upkeep: Upkeep,
        queues: ConsumeQueues,
        deletions: Mapping[str, int],
        detached_queues: Sequence[ConsumeQueue],
    ) -> None:
        """``detached_queues``: as ``detach_topics`` returned them for ``deletions``. Reput knows of the deletion."""
        self._upkeep, self._queues, self._deletions, self._detached_queues = upkeep, queues, deletions, detached_queues

    def note(self) -> None:
        """THREAD. Durable when it returns. Raises StorageError: then a crash may bring them back."""
        self._upkeep.note_deleted(self._deletions, self._detached_queues)

    def unlink(self) -> None:
        """THREAD. Also when it could not be noted. Raises StorageError: then they stay until the next start."""
        for queue in self._detached_queues:
            self._queues.delete(queue)

    def run(self) -> None:
        """THREAD. Both."""
        try:
            self.note()
        finally:
            self.unlink()
