"""In which protocol a connection is."""

from __future__ import annotations

import pytest

from support.bookies import Home, Peer, adds, codes, read, talking
from support.v3_frames import adds_v3, codes_v3, read_v3
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.wires import run_end
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code

START_TLS = bytes.fromhex("0000000b0a0608031009180cd20600")


async def began(bookie: Bookie, peer: Peer, data: bytes) -> None:
    """The bookie has read these, the first bytes of the connection."""
    peer.writer.write(data)
    (session,) = bookie._server._sessions
    await until(lambda: session._unserved.size == len(data))


@pytest.mark.parametrize("size", range(1, 9))
async def test_a_connection_is_served_whatever_its_first_read_brings(home: Home, size: int) -> None:
    frame = adds(1, [0])
    async with home.running() as bookie, talking(bookie) as peer:
        await began(bookie, peer, frame[:size])
        assert codes(await peer.ask(frame[size:]) or b"") == [(v2.Op.ADD, Code.OK, 1, 0)]
        assert await peer.code(read(1, 0)) == Code.OK


@pytest.mark.parametrize("size", range(1, 9))
async def test_version_3_is_told_apart_by_its_first_byte(home: Home, size: int) -> None:
    frame = adds_v3(1, [0])
    async with home.running() as bookie, talking(bookie) as peer:
        await began(bookie, peer, frame[:size])
        assert codes_v3(await peer.ask(frame[size:]) or b"") == [(1, Code.OK)]
        assert codes_v3(await peer.ask(read_v3(1, 0, number=2)) or b"") == [(2, Code.OK)]


@pytest.mark.rule("N6")
@pytest.mark.parametrize("length", ["00000000", "7fffffff", "ffffffff"])
async def test_a_length_that_no_frame_may_have_is_refused_by_itself(home: Home, length: str) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.ask(bytes.fromhex(length)) is None
        assert bookie.counts.malformed == 1


async def test_a_connection_stays_in_version_2(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
        assert await peer.ask(read_v3(1, 0)) is None
        assert bookie.counts.malformed == 1


async def test_a_client_of_version_2_that_begins_with_tls_goes_on_in_its_version(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert codes_v3(await peer.ask(START_TLS) or b"") == [(12, Code.BAD_REQUEST)]
        assert await peer.code(adds(1, [0])) == Code.OK
        assert await peer.code(read(1, 0)) == Code.OK
        assert await peer.ask(read_v3(1, 0)) is None, "for good"


async def test_frames_of_both_that_come_with_one_read_are_served(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        peer.writer.write(adds_v3(1, [0], number=7) + adds(1, [1]) + read(1, 1))
        answers = sorted([await peer.frame() or b"" for _ in range(3)], key=lambda frame: frame[4:6])
        assert codes(b"".join(answers[:2])) == [(v2.Op.ADD, Code.OK, 1, 1), (v2.Op.READ, Code.OK, 1, 1)]
        assert codes_v3(answers[2]) == [(7, Code.OK)]


def test_a_frame_that_is_longer_than_what_is_stored_at_a_time_is_looked_at_as_a_whole() -> None:
    data = (500).to_bytes(4, "big") + bytes(2000)
    assert run_end(data, 0, len(data), 300) == 504
    assert run_end(data, 0, len(data), 800) == 800
    assert run_end(data, 0, 400, 300) == 400, "not all of it has come"
    assert run_end(data, 1990, len(data), 300) == len(data)
    assert run_end(b"\xff" * 100, 0, 100, 10) == 100
