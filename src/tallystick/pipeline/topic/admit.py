"""How much of what is new the next batch of a streaming query gets. Pure.

Each queue has a part of the limits that is as large as its part of what is not read, and one message at least: no queue
waits for the others. Sizes are estimates, since messages are not all of one size; what was decided is in the offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.pipeline.topic.offsets import Positions
from tallystick.pipeline.topic.plan import QueueExtent
from tallystick.pipeline.trigger import TriggerLimits, share


def admit(backlogs: Sequence[QueueExtent], limits: TriggerLimits) -> Positions:
    """Returns where a batch ends in each queue that has something to be read."""
    count = sum(extent.range.count for extent in backlogs)
    size = sum(extent.size for extent in backlogs)
    ends = {}
    for extent in backlogs:
        most = [extent.range.count]
        if (items := share(limits.items, extent.range.count, count)) is not None:
            most.append(items)
        if (size_share := share(limits.bytes, extent.size, size)) is not None:
            most.append(max(1, size_share // extent.message_bytes))
        ends[extent.range.queue] = extent.range.first + min(most)
    return ends
