from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from support.ha_log import MemoryLog
from support.waiting import until
from tallystick.rocketmq.ha.acks import Settle
from tallystick.rocketmq.ha.master import READ_BYTES, STRANGERS_BYTES, UNPROVEN_BYTES, WAKE_BYTES
from tallystick.rocketmq.wire.ha import ASK, REPORT
from tallystick.rocketmq.wire.values import PutStatus

if TYPE_CHECKING:
    from unit.rocketmq.ha.conftest import House


@pytest.mark.rule("H7")
async def test_h7_a_new_write_is_sent_at_once(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), heartbeat_ms=60_000)
    peer = await house.peer(master.address)
    peer.report(3)
    await until(lambda: master.port.status()[0].started if master.port.status() else False)
    master.put(b"new")
    assert await peer.frame() == (3, b"new")


@pytest.mark.rule("H7")
async def test_h7_heartbeats(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), heartbeat_ms=30)
    peer = await house.peer(master.address)
    peer.report(3)
    assert [await peer.frame() for _ in range(3)] == [(3, b"")] * 3


@pytest.mark.rule("H9")
async def test_h9_an_ack_ends_the_wait(house: House) -> None:
    master = await house.master(MemoryLog(b"old"))
    peer = await house.peer(master.address)
    peer.report(3)
    await until(lambda: master.waits.core.available(3))
    end = master.put(b"new")
    ticket = master.waits.appended(end, flush=False, replicas=True).ticket
    while (await peer.frame())[1] != b"new":
        pass
    assert master.settles == []
    peer.report(end)
    await until(lambda: bool(master.settles))
    assert master.settles == [Settle(ticket, PutStatus.PUT_OK)]


@pytest.mark.rule("H9")
async def test_h9_the_time_out_comes_by_itself(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), slave_timeout_ms=20)
    peer = await house.peer(master.address)
    peer.report(3)
    await until(lambda: master.waits.core.available(3))
    ticket = master.waits.appended(master.put(b"new"), flush=False, replicas=True).ticket
    await until(lambda: bool(master.settles))
    assert master.settles == [Settle(ticket, PutStatus.FLUSH_SLAVE_TIMEOUT)]


@pytest.mark.rule("H10")
async def test_h10_a_connection_that_said_nothing_is_no_slave(house: House) -> None:
    master = await house.master(MemoryLog(b"old"))
    await house.peer(master.address)
    await until(lambda: len(master.port.status()) == 1)
    assert not master.waits.core.available(3)
    assert master.port.status()[0].why == "it has not yet said where its log ends"


@pytest.mark.rule("H4", "H10")
async def test_h10_a_slave_without_a_byte_counts_where_it_is_and_not_where_it_will_begin(house: House) -> None:
    """It begins near the end, in the newest file; a send must not wait for one that has nothing of what is before."""
    log = MemoryLog(b"x" * 5000, file_bytes=4096)
    master = await house.master(log, max_gap_bytes=1000)
    peer = await house.peer(master.address)
    peer.report(0)
    await until(lambda: master.port.status()[0].started if master.port.status() else False)
    assert master.port.status()[0].start == 4096
    assert not master.waits.core.available(log.end)
    assert not master.port.status()[0].in_sync
    while (await peer.frame())[0] < 4096:
        pass
    peer.report(log.end)
    await until(lambda: master.waits.core.available(log.end))


@pytest.mark.rule("H6")
async def test_h6_a_silent_slave_is_closed(house: House) -> None:
    master = await house.master(housekeeping_ms=50)
    peer = await house.peer(master.address)
    assert await peer.closed() == b""
    assert "heard nothing" in master.reasons()[0]
    assert master.port.status() == []


@pytest.mark.rule("H6")
async def test_h6_a_silent_slave_that_reads_nothing_is_closed_too(house: House) -> None:
    """Whoever is cut off takes nothing of what is under way: to wait for that would take as long as TCP tries."""
    log = MemoryLog(bytes(64 * 1024 * 1024), file_bytes=1 << 30)
    master = await house.master(log, housekeeping_ms=300, heartbeat_ms=200)
    peer = await house.peer(master.address)
    peer.report(1)
    await until(lambda: bool(master.reasons()))
    assert "heard nothing" in master.reasons()[0]
    assert master.port.status() == []


async def test_h6_a_link_that_ends_waits_no_longer_for_a_slave_that_takes_nothing(house: House) -> None:
    """It counted as a slave for as long as TCP tried, and each send waited for it."""
    log = MemoryLog(bytes(64 * 1024 * 1024), file_bytes=1 << 30)
    master = await house.master(log, housekeeping_ms=300, heartbeat_ms=200)
    peer = await house.peer(master.address)
    peer.report(1)
    [link] = await _links(master)
    peer.report(1 + len((await peer.frame())[1]))
    await until(lambda: link._paused)
    peer.report(1 << 40)
    await until(lambda: link.closing)
    await until(lambda: bool(master.reasons()))
    assert f"the slave acknowledged {1 << 40}" in master.reasons()[0]
    assert master.port.status() == [] and not master.waits.core.available(log.end)


async def test_a_log_of_many_files_arrives_whole(house: House) -> None:
    log = MemoryLog(random.Random(5).randbytes(3_000_000), file_bytes=700_001)
    master = await house.master(log, heartbeat_ms=60_000)
    peer = await house.peer(master.address)
    peer.report(1)
    got = b""
    while len(got) < log.end - 1:
        offset, body = await peer.frame()
        assert offset == 1 + len(got)
        assert 0 < len(body) <= 32768
        assert (offset + len(body) - 1) // 700_001 == offset // 700_001, "a frame is of one file"
        got += body
        peer.report(1 + len(got))
    assert got == bytes(log.data[1:])


async def test_a_slave_that_reads_nothing_costs_no_memory(house: House) -> None:
    master = await house.master(MemoryLog(bytes(64 * 1024 * 1024), file_bytes=1 << 30))
    peer = await house.peer(master.address)
    peer.report(1)
    [link] = await _links(master)
    peer.report(1 + len((await peer.frame())[1]))
    await until(lambda: link._paused)
    sent = link._feed.position
    for _ in range(20):
        master.put(b"more")
        await asyncio.sleep(0)
    assert link._feed.position == sent
    assert link._transport.get_write_buffer_size() <= 3 * WAKE_BYTES
    assert master.port.status()[0].why == "it does not take what it is sent"


async def test_who_acknowledges_nothing_is_sent_little(house: House) -> None:
    """300 connections that came at once and took nothing got 1 MiB each in a few turns, and producers waited for it."""
    master = await house.master(MemoryLog(bytes(4 * 1024 * 1024), file_bytes=1 << 30), heartbeat_ms=60_000)
    peer, got = await house.peer(master.address), 0
    peer.report(1)
    while got < UNPROVEN_BYTES:
        got += len((await peer.frame())[1])
    [link] = await _links(master)
    peer.report(1)  # a heartbeat: it has nothing of that yet
    await until(lambda: link._feed.acked == 1)
    master.put(b"more")
    assert link._feed.position == 1 + UNPROVEN_BYTES == 1 + got
    peer.report(1 + got)
    assert len((await peer.frame())[1]) > 0, "what takes the log gets all of it"


@pytest.mark.real_time  # turns of one moment have no end in virtual time
async def test_strangers_share_the_bytes_of_a_turn_and_all_have_their_turns(house: House) -> None:
    """32 that said that they took what they were sent were sent 1 MiB each in one turn of the loop."""
    master = await house.master(MemoryLog(bytes(8 * 1024 * 1024), file_bytes=1 << 30), heartbeat_ms=60_000)
    peers = [await house.peer(master.address) for _ in range(16)]
    for peer in peers:
        peer.report(1)
    links = await _links(master, len(peers))
    await until(lambda: all(link._feed.position == 1 + UNPROVEN_BYTES for link in links))
    for peer in peers:
        peer.report(1 + UNPROVEN_BYTES)
    sent_bytes = [16 * UNPROVEN_BYTES]  # behind each turn
    while min(link._feed.position for link in links) == 1 + UNPROVEN_BYTES:
        await asyncio.sleep(0)
        sent_bytes.append(sum(link._feed.position - 1 for link in links))
    assert max(after - before for before, after in pairwise(sent_bytes)) == STRANGERS_BYTES


async def test_of_who_says_much_a_turn_reads_a_little(house: House) -> None:
    """A loop reads on as long as reads are full: 30 strangers that reported without end were turns of 260 ms of CPU."""
    master = await house.master(MemoryLog(b"old"), heartbeat_ms=60_000)
    await house.peer(master.address)
    (link,) = await _links(master, 1)
    reports = REPORT.pack(3) * (READ_BYTES // REPORT.size)
    for size, reads_on in ((READ_BYTES, False), (READ_BYTES - REPORT.size, True)):
        buffer = link.get_buffer(-1)
        assert len(buffer) == READ_BYTES
        buffer[:size] = reports[:size]
        link.buffer_updated(size)
        assert link._transport.is_reading() == reads_on and link._feed.acked == (-1 if not reads_on else 3)
        await asyncio.sleep(0)
        assert link._transport.is_reading()


async def test_a_known_slave_is_fed_though_strangers_have_nothing_left_of_a_turn(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), heartbeat_ms=60_000)
    known = house.slave(master.address, MemoryLog(b"old"), slave_id="b:1")
    await until(lambda: known.followed == 1)
    stranger = await house.peer(master.address)
    stranger.report(3)
    known_link, stranger_link = await _links(master, 2)
    await until(lambda: stranger_link._feed.feeding)
    master.port.turn_bytes(stranger_link).spend(STRANGERS_BYTES)
    end = master.put(b"new")
    assert (known_link._feed.position, stranger_link._feed.position) == (end, 3)
    assert await stranger.frame() == (3, b"new")


async def _links(master: Any, count: int = 1) -> list[Any]:
    await until(lambda: len(master.port._links) == count)
    return list(master.port._links)


async def test_two_connections_are_two_slaves_until_one_leaves(house: House) -> None:
    master = await house.master(MemoryLog(b"old"))
    one, other = await house.peer(master.address), await house.peer(master.address)
    one.report(3)
    other.report(3)
    await until(lambda: master.waits.core.in_sync(3) == 2)
    one.writer.close()
    await until(lambda: master.waits.core.in_sync(3) == 1)
    assert [status.started for status in master.port.status()] == [True]


@pytest.mark.parametrize(
    "data", [b"\x93" * 8, random.Random(1).randbytes(64), REPORT.pack(-5), REPORT.pack(1 << 62)], ids=len
)
async def test_random_bytes_end_their_link_and_nothing_else(house: House, data: bytes) -> None:
    """#1155, #3015: eight bytes from anywhere once made every send look replicated."""
    print("sent", data.hex())
    master = await house.master(MemoryLog(b"old"))
    good = await house.peer(master.address)
    good.report(3)
    await until(lambda: master.waits.core.available(3))
    bad = await house.peer(master.address)
    bad.writer.write(data)
    await bad.closed()
    assert master.waits.core.replicated(3) == -1
    assert master.waits.core.in_sync(3) == 1
    end = master.put(b"x")
    ticket = master.waits.appended(end, flush=False, replicas=True).ticket
    while (await good.frame())[1] != b"x":
        pass
    good.report(end)
    await until(lambda: master.settles == [Settle(ticket, PutStatus.PUT_OK)])


async def test_links_that_only_greet_do_not_keep_a_slave_out(house: House) -> None:
    """128 of them, a unit each 10 s, once kept every slave out."""
    master = await house.master(MemoryLog(b"old"), max_strangers=8)
    for _ in range(40):
        (await house.peer(master.address)).report(ASK)
    await until(lambda: len(master.port.status()) == 8)
    slave = house.slave(master.address, MemoryLog(b"old"))
    await until(lambda: slave.followed == 1)
    assert len(master.port.status()) == 8
    assert master.waits.core.available(3)


async def test_strangers_that_claim_to_be_slaves_do_not_keep_one_out(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), max_strangers=4)
    known = house.slave(master.address, MemoryLog(b"old"), slave_id="b:1")
    await until(lambda: known.followed == 1)
    for _ in range(20):
        (await house.peer(master.address)).report(3)
    await until(lambda: len(master.port.status()) == 5)
    known.link.follow(None)
    await until(lambda: master.waits.core.in_sync(3) == 4)
    known.link.follow(master.address)
    await until(lambda: known.followed == 2)
    end = master.put(b"new")
    await until(lambda: known.log.end == end)
    await until(lambda: master.waits.core.replicated(end) == end)
    assert len(master.port.status()) == 5


async def test_a_stranger_that_took_something_keeps_its_place(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), max_strangers=1)
    original = await house.peer(master.address)
    original.report(0)
    assert await original.frame() == (0, b"old")
    original.report(3)
    await until(lambda: master.waits.core.replicated(3) == 3)
    late = await house.peer(master.address)
    late.report(3)
    await late.closed()
    assert [status.acked for status in master.port.status()] == [3]


async def test_a_stranger_that_only_reports_again_and_again_gives_its_place_to_the_next(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), max_strangers=1)
    idle = await house.peer(master.address)
    idle.report(3)
    await until(lambda: master.waits.core.in_sync(3) == 1)
    idle.report(3)
    await until(lambda: master.waits.core.replicated(3) == 3)
    late = await house.peer(master.address)
    late.report(3)
    await idle.closed()
    assert await late.frame() == (3, b"")


async def test_an_original_slave_is_warned_about_once(house: House) -> None:
    master = await house.master(MemoryLog(b"old"))
    for _ in range(2):
        peer = await house.peer(master.address)
        peer.report(3)
        await peer.frame()
    assert [event.kind for event in master.events].count("slave is unproven") == 1


async def test_status_says_how_far_each_slave_is(house: House) -> None:
    master = await house.master(MemoryLog(bytes(100)), max_gap_bytes=50)
    peer = await house.peer(master.address)
    peer.report(40)
    await peer.frame()
    [status] = master.port.status()
    assert (status.start, status.sent_offset, status.acked, status.behind_bytes, status.in_sync) == (
        40,
        100,
        -1,
        60,
        False,
    )
    assert "too far" in status.why
    peer.report(90)
    await until(lambda: master.port.status()[0].in_sync)
    assert master.port.status()[0].why == "it catches up"
    peer.report(100)
    await until(lambda: master.port.status()[0].why == "it has everything")
    assert master.port.status()[0].behind_s == 0.0


@pytest.mark.real_time
async def test_the_port_obeys_its_address(house: House) -> None:
    """D19: the original's listens everywhere."""
    assert (await house.master()).address.startswith("127.0.0.1:")


async def test_status_says_that_a_late_slave_is_not_waited_for(house: House) -> None:
    master = await house.master(MemoryLog(b"old"), slave_timeout_ms=20, out_of_sync_when_late=True)
    peer = await house.peer(master.address)
    peer.report(3)
    await until(lambda: master.waits.core.available(3))
    end = master.put(b"new")
    master.waits.appended(end, flush=False, replicas=True)
    await until(lambda: bool(master.settles))
    [status] = master.port.status()
    assert not status.in_sync
    assert "did not acknowledge in time" in status.why
    peer.report(end)
    await until(lambda: master.port.status()[0].in_sync)
