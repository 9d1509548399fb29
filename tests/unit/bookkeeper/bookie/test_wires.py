"""In which protocol a connection is."""

from __future__ import annotations

import pytest

from support.bookies import Home, Peer, adds, codes, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code

V3 = bytes.fromhex("000000400a06")  # the beginning of a protobuf


async def began(bookie: Bookie, peer: Peer, data: bytes) -> None:
    """The bookie has read these, the first bytes of the connection."""
    peer.writer.write(data)
    (session,) = bookie._server._sessions
    await until(lambda: session._size == len(data))


@pytest.mark.parametrize("size", range(1, 5))
async def test_protocol_version_3_is_told_apart_by_its_first_byte(home: Home, size: int) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        await began(bookie, peer, V3[:size])
        assert not home.heard("connection closed")
        assert await peer.ask(V3[size:]) is None
        (closed,) = home.heard("connection closed")
        assert "useV2WireProtocol=true" in closed.fields["reason"]
        assert (bookie.counts.v3_refused, bookie.counts.malformed) == (1, 0)


@pytest.mark.parametrize("size", range(1, 9))
async def test_a_connection_is_served_whatever_its_first_read_brings(home: Home, size: int) -> None:
    frame = adds(1, [0])
    async with home.running() as bookie, talking(bookie) as peer:
        await began(bookie, peer, frame[:size])
        assert codes(await peer.ask(frame[size:]) or b"") == [(v2.Op.ADD, Code.OK, 1, 0)]
        assert await peer.code(read(1, 0)) == Code.OK


@pytest.mark.parametrize("length", ["00000000", "7fffffff", "ffffffff"])
async def test_a_length_that_no_frame_may_have_is_refused_by_itself(home: Home, length: str) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.ask(bytes.fromhex(length)) is None
        assert (bookie.counts.v3_refused, bookie.counts.malformed) == (0, 1)


async def test_a_connection_stays_in_its_protocol(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
        assert await peer.ask(V3 + bytes(62)) is None
        assert (bookie.counts.v3_refused, bookie.counts.malformed) == (0, 1)
