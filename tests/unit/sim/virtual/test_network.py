"""The simulated network: bytes in order and in pieces, back-pressure, refusals, resets, cuts, hosts that die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from tallystick.errors import UsageError
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import Fabric, LinkFaults
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"
PORT = 7


class Peer(asyncio.Protocol):
    """Remembers what comes and how it ends; ``echo`` sends it back."""

    def __init__(self, echo: bool = False) -> None:
        self.got, self.pieces, self.flow, self._echo = b"", 0, list[str](), echo
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.pieces += 1
        if self._echo:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.flow.append("pause")

    def resume_writing(self) -> None:
        self.flow.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


class Net:
    """A server and a client process."""

    def __init__(self, loop: VirtualLoop, seed: int, faults: LinkFaults) -> None:
        self.fabric = Fabric(random.Random(seed), Trace(loop.time), faults)
        self.server, self.client = Process(loop, "server", SERVER), Process(loop, "client", CLIENT)
        self.accepted: list[Peer] = []
        self.echo = True

    def accept(self) -> Peer:
        self.accepted.append(Peer(self.echo))
        return self.accepted[-1]

    async def listen(self) -> None:
        await self.server.start(self._listen())

    async def _listen(self) -> None:
        await self.fabric.network(self.server).listen("127.0.0.1", PORT, self.accept)

    async def connect(self, port: int = PORT, within_s: float = 3.0) -> Peer:
        async def connect() -> Peer:
            peer = Peer()
            await self.fabric.network(self.client).connect(SERVER, port, lambda: peer, within_s)
            return peer

        return await self.client.start(connect())


def run(test: Callable[[Net], Coroutine[Any, Any, None]], seed: int = 1, **faults: Any) -> None:
    loop = VirtualLoop(max_seconds=1000.0, max_turns=100_000)

    async def main() -> None:
        net = Net(loop, seed, LinkFaults(**faults))
        await net.listen()
        await test(net)

    try:
        loop.run_until_complete(main())
        assert loop.errors == []
    finally:
        loop.abandon()


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_in_any_pieces(seed: int) -> None:
    async def test(net: Net) -> None:
        peer, sent = await net.connect(), b""
        for number in range(200):
            sent += (data := bytes([number]) * (number % 50))
            peer.transport.write(data)
            await asyncio.sleep(0.0005)
        await asyncio.sleep(60)
        assert peer.got == sent and peer.pieces > 1

    run(test, seed, slow=0.05, split=0.5, window_bytes=300)


def test_a_peer_that_does_not_read_stops_the_writer() -> None:
    async def test(net: Net) -> None:
        peer = await net.connect()
        net.accepted[0].transport.pause_reading()
        peer.transport.set_write_buffer_limits(high=1000, low=100)
        peer.transport.write(bytes(1400))
        assert peer.flow == [] and peer.transport.get_write_buffer_size() == 400
        peer.transport.writelines([bytes(400), bytes(400)])
        await asyncio.sleep(5)
        assert peer.flow == ["pause"] and peer.transport.get_write_buffer_size() == 1200 and not net.accepted[0].got
        net.accepted[0].transport.resume_reading()
        await asyncio.sleep(5)
        assert peer.flow == ["pause", "resume"] and len(peer.got) == 2200

    run(test, window_bytes=1000)


def test_who_does_not_listen_refuses_and_who_is_cut_off_is_silent() -> None:
    async def test(net: Net) -> None:
        with pytest.raises(ConnectionRefusedError):
            await net.connect(port=8)
        for pair in ((SERVER, CLIENT), (CLIENT, SERVER)):
            net.fabric.cut([pair])
            with pytest.raises(TimeoutError):
                await net.connect()
            net.fabric.heal()
        assert (await net.connect()).transport.get_extra_info("peername") == (SERVER, PORT)

    run(test)


def test_a_port_is_taken_once() -> None:
    async def test(net: Net) -> None:
        with pytest.raises(OSError, match="already in use"):
            await net.listen()
        net.fabric.kill(net.server)
        net.server = Process(cast("VirtualLoop", net.fabric.loop), "server", SERVER)
        await net.listen()

    run(test)


def test_a_cut_in_one_direction_holds_bytes_until_it_is_healed() -> None:
    async def test(net: Net) -> None:
        peer = await net.connect()
        net.fabric.cut([(SERVER, CLIENT)])
        peer.transport.write(b"abc")
        await asyncio.sleep(20)
        assert net.accepted[0].got == b"abc" and peer.got == b"" and not peer.lost.done()
        peer.transport.write(b"def")
        net.fabric.heal()
        await asyncio.sleep(1)
        assert peer.got == b"abcdef"

    run(test)


def test_who_is_cut_off_twice_is_until_both_cuts_are_healed() -> None:
    async def test(net: Net) -> None:
        for _ in range(2):
            net.fabric.cut([(SERVER, CLIENT)])
        net.fabric.heal([(SERVER, CLIENT)])
        assert not net.fabric.passes(SERVER, CLIENT)
        net.fabric.heal([(SERVER, CLIENT)])
        assert net.fabric.passes(SERVER, CLIENT)

    run(test)


def test_a_killed_process_ends_its_connections() -> None:
    async def test(net: Net) -> None:
        peer = await net.connect()
        net.fabric.kill(net.server)
        assert isinstance(await peer.lost, ConnectionResetError)
        assert not net.accepted[0].lost.done()
        with pytest.raises(ConnectionRefusedError):
            await net.connect()

    run(test)


def test_a_host_without_power_tells_nobody_until_it_is_back() -> None:
    async def test(net: Net) -> None:
        asking, idle = await net.connect(), await net.connect()
        net.fabric.power_off(net.server)
        asking.transport.write(b"abc")
        with pytest.raises(TimeoutError):
            await net.connect()
        assert not asking.lost.done()
        net.fabric.power_on(SERVER)
        assert isinstance(await asking.lost, ConnectionResetError)
        await asyncio.sleep(10)
        assert not idle.lost.done(), "who sends nothing learns nothing"

    run(test)


def test_a_forgotten_connection_is_silent_for_ever_and_a_new_one_is_not() -> None:
    async def test(net: Net) -> None:
        peer, paused = await net.connect(), await net.connect()
        net.client.pause()
        net.accepted[1].transport.write(b"here, and not read")
        await asyncio.sleep(1)
        net.fabric.forget_all(SERVER)
        net.client.go_on()
        peer.transport.write(b"abc")
        net.accepted[0].transport.write(b"def")
        net.fabric.kill(net.server)
        await asyncio.sleep(100)
        assert net.accepted[0].got == peer.got == paused.got == b""
        assert not peer.lost.done() and not paused.lost.done()
        net.server = Process(cast("VirtualLoop", net.fabric.loop), "server", SERVER)
        await net.listen()
        (await net.connect()).transport.write(b"ghi")
        await asyncio.sleep(1)
        assert net.accepted[2].got == b"ghi"

    run(test)


def test_a_paused_process_is_connected_to_and_reads_later() -> None:
    async def test(net: Net) -> None:
        net.server.pause()
        peer = await net.connect()
        peer.transport.write(b"abc")
        await asyncio.sleep(10)
        assert net.accepted == []
        net.server.go_on()
        await asyncio.sleep(1)
        assert peer.got == b"abc"

    run(test)


def test_a_close_comes_behind_the_bytes() -> None:
    async def test(net: Net) -> None:
        net.echo = False
        peer = await net.connect()
        peer.transport.write(bytes(5000))
        peer.transport.close()
        assert peer.transport.is_closing() and not peer.lost.done()
        assert await peer.lost is None and await net.accepted[0].lost is None
        assert len(net.accepted[0].got) == 5000

    run(test, window_bytes=700)


def test_who_closes_without_having_read_all_resets() -> None:
    async def test(net: Net) -> None:
        peer = await net.connect()
        peer.transport.write(bytes(5000))
        peer.transport.close()
        assert await peer.lost is None
        assert isinstance(await net.accepted[0].lost, ConnectionResetError)

    run(test, window_bytes=700)


def test_a_reset_ends_both_ends() -> None:
    async def test(net: Net) -> None:
        peer = await net.connect()
        net.fabric.reset_all(SERVER)
        assert isinstance(await peer.lost, ConnectionResetError)
        assert isinstance(await net.accepted[0].lost, ConnectionResetError)
        peer.transport.write(b"nothing comes of it")
        await asyncio.sleep(1)
        assert net.accepted[0].got == b""

    run(test)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_arrives_behind_a_lost_piece(seed: int) -> None:
    async def test(net: Net) -> None:
        net.echo = False
        peer, sent = await net.connect(), random.Random(seed).randbytes(2000)
        for at in range(0, len(sent), 20):
            peer.transport.write(sent[at : at + 20])
            await asyncio.sleep(0.0002)
        await asyncio.sleep(1)
        assert sent.startswith(net.accepted[0].got)

    run(test, seed, reset=0.1, window_bytes=64)


def test_a_port_that_somebody_listens_on_cannot_be_reserved() -> None:
    async def test(net: Net) -> None:
        network = net.fabric.network(net.server)
        for port, offsets in ((PORT, ()), (PORT + 2, (-2,))):
            with pytest.raises(UsageError, match="cannot listen for clients: address already in use"):
                network.reserve(SERVER, *offsets, port=port, purpose=" for clients")
        assert network.reserve(SERVER, port=PORT + 1).port == PORT + 1
        assert net.fabric.network(net.client).reserve(CLIENT, port=PORT).port == PORT
        assert network.reserve(SERVER).port != network.reserve(SERVER).port

    run(test)


def test_a_connection_that_ended_before_its_connect_returned_is_an_error() -> None:
    """A protocol that got it would never hear that it is lost."""

    async def test(net: Net) -> None:
        net.fabric.cut([(SERVER, CLIENT)])
        connecting = asyncio.create_task(net.connect())
        await asyncio.sleep(0.1)
        net.accepted[0].transport.abort()
        net.fabric.heal()
        with pytest.raises(ConnectionResetError):
            await connecting

    run(test)
