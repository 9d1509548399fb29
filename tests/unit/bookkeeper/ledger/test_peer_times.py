"""Which bookies are slow beside their peers, and what becomes of them."""

from __future__ import annotations

import pytest

from support.clocks import ManualClock
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger import peer_times
from tallystick.bookkeeper.ledger.peer_times import PeerTimes, SlowBookie, slow_bookies
from tallystick.bookkeeper.wire.values import BookieId


def medians(**seconds: float) -> dict[BookieId, list[float]]:
    return {bookie: [each] * peer_times.LEAST_TIMES for bookie, each in seconds.items()}


@pytest.mark.rule("Q4")
def test_q4_a_bookie_is_slow_beside_its_peers_and_a_third_of_all_at_most() -> None:
    assert slow_bookies(medians(a=0.01, b=0.02, c=2.0), 0.5) == [SlowBookie("c", 2.0, 0.015)]
    assert not slow_bookies(medians(a=0.01, b=0.02, c=0.4), 0.5), "not that slow"
    assert not slow_bookies(medians(a=1.0, b=1.5, c=4.0), 0.5), "all are slow"
    assert not slow_bookies(medians(a=0.01, c=2.0), 0.5), "of two nobody knows which"
    several = medians(a=0.01, b=0.01, c=0.01, d=0.01, e=2.0, f=3.0, g=4.0)
    assert [slow.bookie for slow in slow_bookies(several, 0.5)] == ["g", "f"]
    few = medians(a=0.01, b=0.02, c=2.0)
    few["c"].pop()
    assert not slow_bookies(few, 0.5)


def test_times_are_judged_every_ten_seconds_and_then_forgotten() -> None:
    clock, slow = ManualClock(), list[SlowBookie]()
    times = PeerTimes(clock, 0.5)
    times.report = slow.append

    def all_took() -> None:
        for bookie, seconds in (("a", 0.0), ("b", 0.0), ("c", 1.0)):
            for _ in range(peer_times.MOST_TIMES + 1):
                times.took(bookie, clock.now() - seconds)

    all_took()
    assert not slow
    clock.time += peer_times.EVERY_S
    times.took("a", clock.now())
    assert [each.bookie for each in slow] == ["c"]
    clock.time += peer_times.EVERY_S
    times.took("a", clock.now())
    assert len(slow) == 1


@pytest.mark.rule("Q4")
async def test_q4_a_slow_bookie_gets_no_new_ledger_where_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_times, "LEAST_TIMES", 2)
    cluster = await SmallCluster().start(4)
    client = cluster.client(slow_add_s=0.5)
    try:
        times = client.context.bookies.times
        assert times is not None
        for _ in range(12):
            async with client.create_ledger() as writer:
                await writer.append(b"one")
                await writer.append(b"two")
        assert sorted(times._times) == ["b0", "b1", "b2", "b3"]
        assert all(0 <= took < 0.5 for each in times._times.values() for took in each)
        times._times["b2"] = [3.0] * 2
        times._judged_at -= peer_times.EVERY_S
        times.took("b0", times.now())
        for _ in range(10):
            async with client.create_ledger() as writer:
                assert "b2" not in (await client.ledger_metadata(writer.id)).ensemble
        assert client.metrics()["ledger_slow_bookies_total"] == 1
    finally:
        await client.close()
        await cluster.close()
