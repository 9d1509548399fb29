"""The compactions of a simulated life of a storage, a step at a time, between all that else happens to it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan
from tallystick.bookkeeper.bookie.compaction import Compaction, UnreadableLog
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.codec.steps import finished
from tallystick.errors import StorageError
from tallystick.sim.virtual.trace import Trace


class Rewrites:
    """Call ``step`` where ``is_due`` says so, and ``crashed`` after a crash."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self._random, self._trace = random.Random(seed + 2), trace  # of its own: the others' turns stay as they were
        self.happens = seed % 7 in (0, 3)
        self._compaction: Compaction | None = None
        self._is_copied = False

    def is_due(self) -> bool:
        return self.happens and self._random.random() < 0.4

    def crashed(self) -> None:
        self._compaction = None

    def step(self, storage: Storage, plan: CheckpointPlan | None) -> CheckpointPlan | None:
        """Take one step beside the checkpoint or collection that is under way. Returns the one that is then."""
        checkpoints, compaction = storage.checkpoints, self._compaction
        if compaction is None:
            groups = finished(checkpoints.groups_to_rewrite())
            if plan is None and groups and not finished(checkpoints.lacks_room(groups[0])):
                compaction = self._compaction = checkpoints.begin_compaction(groups[0])
                self._is_copied = False
                self._try(compaction, compaction.load)
                finished(checkpoints.choosing(compaction))
        elif not self._is_copied:
            self._is_copied = self._try(compaction, compaction.copy) is None
        elif plan is None:
            self._compaction = None
            return checkpoints.replacing(compaction)
        return plan

    def _try(self, compaction: Compaction, step: Callable[[], object]) -> object:
        """Take a step of a compaction; it is abandoned if that fails. Returns what the step does, or the error."""
        try:
            return step()
        except (StorageError, UnreadableLog) as error:
            self._trace.note("  not copied:", error)
            with contextlib.suppress(StorageError):
                compaction.abandon()
            self._compaction = None
            return error
