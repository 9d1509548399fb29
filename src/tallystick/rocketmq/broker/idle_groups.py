"""Groups that made themselves and are idle: they are deleted to make room for new ones."""

from __future__ import annotations

from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.wire.values import DLQ_PREFIX, RETRY_PREFIX


def make_room_for_groups(parts: Parts) -> None:
    """Let idle groups make room for others from now on: groups without members, without offsets, and without messages
    in their retry and dead-letter topics."""

    def is_idle(group: str) -> bool:
        is_used = parts.clients.consumers(group) is not None or parts.offsets.knows_group(group)
        return not is_used and not any(parts.store.may_hold(prefix + group) for prefix in (RETRY_PREFIX, DLQ_PREFIX))

    def went(groups: list[str]) -> None:
        parts.topics.delete(*[prefix + group for group in groups for prefix in (RETRY_PREFIX, DLQ_PREFIX)])
        reason = "without members and offsets, they made room for others"
        parts.events.emit("idle groups forgotten", groups=len(groups), first=groups[0], reason=reason)

    parts.groups.is_idle, parts.groups.went = is_idle, went
