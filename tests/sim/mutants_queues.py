"""Planted bugs of queues: deletions, lost files, promotion; as in ``mutants.py``."""

from __future__ import annotations

from sim.mutants import Mutant

STORE = "rocketmq/store/"

QUEUE_MUTANTS = (
    Mutant(
        "a topic made anew shares files with the one that is going",
        STORE + "consume_queues.py",
        "if (old := self._take_leaving(topic, queue_id)) is not None:",
        "if (old := self._take_leaving(topic, -1)) is not None:",
        "tests/unit/rocketmq/store/test_deletion.py",
    ),
    Mutant(
        "a deletion that is noted late takes the queue that was made anew",
        STORE + "upkeep.py",
        "if row is not None and row.last_physical <= queue.last_physical\n",
        "if row is not None\n",
        "tests/unit/rocketmq/store/test_deletion.py",
    ),
    Mutant(
        "a start does not know what was deleted",
        STORE + "opening.py",
        "reput.deleted_topics = DeletedTopics(queue_state.deletions, queue_state.forgotten_up_to)",
        "reput.deleted_topics = DeletedTopics({})",
        "tests/sim/test_store.py",
    ),
    Mutant(
        "a deleted queue leaves its hole to the next of its name",
        STORE + "queue_state.py",
        "[hole for hole in batch.holes if self._has(hole)]",
        "list(batch.holes)",
        "tests/unit/rocketmq/store/test_queue_state.py",
    ),
    Mutant(
        "a queue that was read may begin anywhere",
        STORE + "consume_queue.py",
        "        self.learn_born()\n",
        "",
        "tests/unit/rocketmq/store/test_rebuild.py",
    ),
    Mutant(
        "a queue of which nothing is known is built of the oldest messages",
        STORE + "rebuild.py",
        "self._begin_offsets[key] = offset + run.positions[number]",
        "self._begin_offsets.setdefault(key, offset + run.positions[number])",
        "tests/unit/rocketmq/store/test_rebuild.py",
    ),
    Mutant(
        "a rebuild goes on where it was whatever was lost meanwhile",
        STORE + "queue_opening.py",
        " and (hole.next, hole.stop) == (queue.hole_next, queue.hole_stop)",
        "",
        "tests/unit/rocketmq/store/test_rebuild.py",
    ),
    Mutant(
        "a shorter tally-queues passes for a torn one",
        STORE + "queue_state.py",
        " or (noted_durable[0] == self.durable[0] and self._size < noted_durable[1])",
        "",
        "tests/unit/rocketmq/store/test_queue_state.py",
    ),
    Mutant(
        "deletions behind a damaged batch are forgotten",
        STORE + "queue_state.py",
        "                state.take(decoder.decode(payload))\n",
        "                pass\n",
        "tests/unit/rocketmq/store/test_queue_state.py",
    ),
    Mutant(
        "a tally-queues may begin as the one before",
        STORE + "queue_state.py",
        "            self.state.number += 1\n",
        "",
        "tests/unit/rocketmq/store/test_queue_state.py",
    ),
    Mutant(
        "what a topic got after a deletion that nobody told of is refused",
        STORE + "reput.py",
        "        if queue_offset < group.next:\n",
        "        if 0 < queue_offset < group.next:\n            return False\n        if queue_offset < group.next:\n",
        "tests/sim/test_store.py",
    ),
    Mutant(
        "a deletion told late does not last",
        STORE + "queue_opening.py",
        "            queue.forget_deleted(queue_state.deletions.get(queue.topic, 0))",
        "            pass",
        "tests/unit/rocketmq/store/test_promotion.py",
    ),
    Mutant(
        "after power loss files are believed whosever they are",
        STORE + "queue_opening.py",
        "            queue.distrust()\n",
        "            pass\n",
        "tests/unit/rocketmq/store/test_promotion.py",
    ),
    Mutant(
        "units that are lost count as given though the log lost its end",
        STORE + "consume_queue.py",
        "again = min(physical, max(self.born, self.hole_physical())) if self.has_hole else physical",
        "again = physical",
        "tests/unit/rocketmq/store/test_promotion.py",
    ),
    Mutant(
        "a rebuild ends where reput begins again",
        STORE + "queue_opening.py",
        "stop = log.end if max(lasts, default=-1) >= reput.offset else reput.offset",
        "stop = reput.offset",
        "tests/unit/rocketmq/store/test_promotion.py",
    ),
    Mutant(
        "a promoted store whose queues are read is taken for a slave's",
        STORE + "queue_opening.py",
        "sync_record.start > queue_state.dispatched and",
        "sync_record.start and",
        "tests/unit/rocketmq/store/test_promotion.py",
    ),
    Mutant(
        "a slave that becomes master does not go on where its master's queues ended",
        STORE + "promotion.py",
        "        queues.of(topic, queue_id).advance(end)\n",
        "        pass\n",
        "tests/sim/test_store.py",
    ),
    Mutant(
        "units that are lost are read",
        STORE + "consume_queue.py",
        "            stop = min(stop, self.hole_next)\n",
        "            pass\n",
        "tests/sim/test_store.py",
    ),
    Mutant(
        "a file that makes room for another is never closed",
        STORE + "handles.py",
        "                if file is not None:\n                    file.close()\n                return\n",
        "                return\n",
        "tests/sim/test_store.py",
    ),
    Mutant(
        "fillers between messages hide those before them",
        STORE + "units.py",
        "if self.unit(last)[1] != FILLER_SIZE:",
        "if True:",
        "tests/unit/rocketmq/store/test_consume_queue.py",
    ),
)  # fmt: skip
