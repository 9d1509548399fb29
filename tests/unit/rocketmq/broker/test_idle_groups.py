"""Where a broker has no room for a group, one that made itself and of which nothing is known goes."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from support.admin_desk import MASTER, Caller, Desk
from tallystick.rocketmq.broker.groups import SYSTEM_GROUPS
from tallystick.rocketmq.broker.idle_groups import make_room_for_groups
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, Language


def test_groups_with_members_offsets_or_messages_stay() -> None:
    desk = Desk(replace(MASTER, max_groups=len(SYSTEM_GROUPS) + 5))
    make_room_for_groups(desk.parts)
    groups, topics = desk.tables.groups, desk.tables.topics
    for name in ("member", "committed", "pulled", "retries", "idle"):
        assert groups.get(name, f"{name}:1") is not None
        topics.create_retry(f"%RETRY%{name}")
    beat = Heartbeat("c", consumers=(ConsumerGroup("member"),))
    desk.parts.clients.heartbeat_received(cast("Link", Caller()), beat, beat.consumers, Language.JAVA, 513, 0.0)
    desk.tables.offsets.commit("T", "committed", 0, 0)
    desk.tables.offsets.set_pull_offset("T", "pulled", 0, 0)
    desk.shelf.send(b"again", topic="%RETRY%retries")
    desk.shelf.settle()
    assert groups.get("new", "other:1") is not None
    assert "idle" not in groups.all and topics.get("%RETRY%idle") is None
    desk.tables.offsets.commit("T", "new", 0, 0)
    assert groups.get("more", "third:1") is None
    assert {"member", "committed", "pulled", "retries", "new"} <= groups.all.keys()
    assert topics.get("%RETRY%retries") is not None
    assert [event["first"] for event in desk.said("idle groups forgotten")] == ["idle"]
