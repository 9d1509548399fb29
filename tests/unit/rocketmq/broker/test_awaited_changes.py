"""Real brokers whose responses wait for the changes of their own requests, while others change tables too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers import benched
from support.saving import GatedDisk, answered, beat, create
from support.waiting import until
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import RequestCode


async def test_who_made_a_topic_waits_for_no_change_that_came_after_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the name servers first. Where others change tables all the time it waited for two more saves."""
    announcements: list[Callable[[], None]] = []
    monkeypatch.setattr(Broker, "_when_announced", lambda broker, done: announcements.append(done))
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer, other = await bench.peer(broker), await bench.peer(broker)
        made = peer.send(create("New"))
        await until(lambda: announcements and broker._saver._saved_change == broker._saver.changes)
        with disk.shut():
            await answered(other, other.send(beat(1)))
            announcements[0]()
            assert await answered(peer, made)
        assert (await peer.answer(made)).code == 0


async def test_a_question_that_is_answered_in_steps_does_not_fail_with_what_others_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    disk = GatedDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer, other = await bench.peer(broker), await bench.peer(broker)
        assert (await other.ask(create("Old", queues=2000))).code == 0
        disk.full = True
        asked = peer.send(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Old"}))
        changes = [other.send(create(f"New{number}")) for number in range(20)]
        assert (await peer.answer(asked)).code == 0
        assert {(await other.answer(change)).code for change in changes} == {1}
