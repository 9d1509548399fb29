from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.ha_log import MemoryLog
from support.machines import machine
from support.waiting import until
from tallystick.errors import DiskFull
from tallystick.rocketmq.wire.ha import ASK, HEAD
from tallystick.runtime.network import ProtocolFactory

if TYPE_CHECKING:
    from unit.rocketmq.ha.conftest import House


def frame(offset: int, body: bytes = b"") -> bytes:
    return HEAD.pack(offset, len(body)) + body


@pytest.mark.rule("H4", "H5")
async def test_h4_h5_an_original_master_gets_reports(house: House) -> None:
    met: asyncio.Queue[Any] = asyncio.Queue()
    slave = house.slave(await house.raw_master(met.put_nowait), MemoryLog(b"have"))
    peer = await met.get()
    assert [await peer.heard(), await peer.heard()] == [ASK, 4]
    peer.writer.write(frame(4, b"more"))
    while (ack := await peer.heard()) != 8:
        assert ack == 4
    assert await peer.heard() == 8, "each interval again"
    assert bytes(slave.log.data) == b"havemore"
    assert [event.kind for event in slave.events] == ["follows master", "master is unproven"]


@pytest.mark.rule("H6")
async def test_h6_it_tries_again_for_ever(house: House) -> None:
    met: asyncio.Queue[Any] = asyncio.Queue()
    slave = house.slave(await house.raw_master(met.put_nowait))
    for _ in range(3):
        peer = await met.get()
        assert await peer.heard() == ASK
        peer.writer.close()
    assert [event.fields["reason"] for event in slave.events] == ["the master closed the link"], "told once"


async def test_no_master_there(house: House) -> None:
    gone = await house.master()
    await gone.port.close()
    slave = house.slave(gone.address)
    await until(lambda: "cannot connect" in slave.link.status().why)
    assert slave.link.status().state == "not connected"


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", ":1", "[::1]:1"])
async def test_an_address_that_is_none(house: House, address: str) -> None:
    slave = house.slave(address)
    await until(lambda: "cannot connect" in slave.link.status().why)
    assert slave.link.status().state == "not connected"


@pytest.mark.rule("H8")
async def test_h8_a_wrong_offset_closes_and_appends_nothing(house: House) -> None:
    met: asyncio.Queue[Any] = asyncio.Queue()
    slave = house.slave(await house.raw_master(met.put_nowait), MemoryLog(b"have"))
    peer = await met.get()
    while await peer.heard() != 4:
        pass
    peer.writer.write(frame(5, b"wrong"))
    await peer.closed()
    assert slave.log.end == 4
    await until(lambda: slave.link.status().why == "the master sent offset 5, and the log ends at 4")
    assert await (await met.get()).heard() == ASK


@pytest.mark.rule("H4")
async def test_h4_a_log_without_a_byte_begins_wherever_the_master_does(house: House) -> None:
    """Found by the simulator: a full disk took nothing of the first bytes, and the slave stayed where they began."""
    met: asyncio.Queue[Any] = asyncio.Queue()
    house.slave(await house.raw_master(met.put_nowait), MemoryLog(start=8192))
    peer = await met.get()
    assert [await peer.heard(), await peer.heard()] == [ASK, 0]


async def test_a_full_disk_ends_the_link_and_is_tried_again(house: House) -> None:
    master = await house.master(MemoryLog(b"data"))
    log = MemoryLog()
    log.failure = DiskFull("no space")
    slave = house.slave(master.address, log)
    await until(lambda: "no space" in slave.link.status().why)
    log.failure = None
    await until(lambda: log.end == 4)
    assert slave.link.status().why == ""


async def test_it_follows_another_master_at_once(house: House) -> None:
    one, other = await house.master(MemoryLog(b"abc")), await house.master(MemoryLog(b"abcdef"))
    slave = house.slave(one.address, retry_ms=60_000)
    await until(lambda: slave.log.end == 3)
    slave.link.follow(one.address)
    assert slave.link.status().state == "following", "the same again is no change"
    slave.link.follow(other.address)
    await until(lambda: slave.log.end == 6)
    assert slave.followed == 2
    slave.link.follow(None)
    await until(lambda: slave.link.status().state == "not connected")
    assert slave.link.status().why == "no master is known"
    slave.link.follow(one.address)
    await until(lambda: "the master lost its end" in slave.link.status().why)


class Slow:
    """Connects over a machine's network when it may."""

    def __init__(self) -> None:
        self.asked, self.may_connect = asyncio.Event(), asyncio.Event()
        self._network = machine().network

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        self.asked.set()
        await self.may_connect.wait()
        return await self._network.connect(host, port, factory, within_s)


async def test_a_master_that_was_left_while_it_was_connected_to_is_not_followed(house: House) -> None:
    first, second = await house.master(MemoryLog(b"old")), await house.master(MemoryLog(b"new"))
    slave, network = house.slave(None), Slow()
    slave.link._network = network  # type: ignore[assignment]  # it only connects
    slave.link.follow(first.address)
    await network.asked.wait()
    slave.link.follow(second.address)
    network.may_connect.set()
    await until(lambda: slave.log.end > 0)
    assert bytes(slave.log.slice(0, 100)) == b"new"


async def test_a_slave_stops_at_once_in_any_state(house: House) -> None:
    met: asyncio.Queue[Any] = asyncio.Queue()
    for address in (None, await house.raw_master(met.put_nowait), "127.0.0.1:1"):
        slave = house.slave(address, retry_ms=60_000)
        await asyncio.sleep(0.01)
        await asyncio.wait_for(slave.link.close(), 1.0)
        await asyncio.wait_for(slave.link.close(), 1.0)
        assert slave.link.status().state == "not connected"
