from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from support.black_hole import BlackHole
from support.machines import machine
from support.ports import free_port
from support.waiting import until
from tallystick.errors import ConnectionLost, LocalProtocolError, RequestTimeout, TallyError, Unavailable, UsageError
from tallystick.rocketmq.remoting.client import MAX_OPAQUE, RemotingClient, parse_address
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.runtime.events import Event, Events

if TYPE_CHECKING:
    from unit.rocketmq.remoting.conftest import Bench


class Caller:
    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.lost: list[str] = []
        self.told: list[Event] = []
        self.client = RemotingClient(
            machine(Events(self.told.append)),
            RemotingSettings(),
            lambda link, command: self.asked.append(command),
            self.lost.append,
        )


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller()
    yield caller
    await caller.client.close()


@pytest.mark.rule("N13")
async def test_answers_find_their_questions_in_any_order(bench: Bench, caller: Caller) -> None:
    held: list[tuple[Link, Command]] = []

    def react(link: Link, command: Command) -> None:
        held.append((link, command))
        if len(held) == 3:
            for link, command in reversed(held):
                link.send(command.response(0, fields={"echo": str(command.code)}))

    bench.heard.react = react
    asks = [caller.client.ask(bench.address, request(code), 5) for code in (10, 11, 12)]
    responses = await asyncio.gather(*asks)
    assert [response.fields["echo"] for response in responses] == ["10", "11", "12"]
    assert bench.server.connections == 1


async def test_questions_of_one_tick_are_one_read_of_the_server(bench: Bench, caller: Caller) -> None:
    await caller.client.ask(bench.address, request(34), 5)
    responses = [caller.client.ask(bench.address, request(34), 5) for _ in range(50)]
    await asyncio.gather(*responses)
    assert [len(batch) for batch in bench.heard.batches] == [1, 50]


async def test_a_request_that_cannot_be_encoded_fails_alone(bench: Bench, caller: Caller) -> None:
    """Those queued with it are other tasks'. It was never sent: nothing is in doubt, and none waits for a time-out."""
    await caller.client.ask(bench.address, request(34), 5)
    asked = [request(10), request(11, {"topic": "a\udcff"}), request(12)]
    first, wrong, last = await asyncio.gather(
        *(caller.client.ask(bench.address, command, 5) for command in asked), return_exceptions=True
    )
    assert isinstance(first, Command) and isinstance(last, Command)
    assert isinstance(wrong, LocalProtocolError) and not wrong.ambiguous
    assert (len(bench.heard.requests), caller.lost) == (3, [])


async def test_an_answer_that_cannot_be_encoded_becomes_an_error_and_takes_no_other_with_it(
    bench: Bench, caller: Caller
) -> None:
    bench.heard.react = lambda link, command: link.send(
        command.response(0, remark="a\udcff" if command.code == 11 else None)
    )
    await caller.client.ask(bench.address, request(34), 5)
    responses = await asyncio.gather(*(caller.client.ask(bench.address, request(code), 5) for code in (10, 11, 12)))
    assert [response.code for response in responses] == [0, 1, 0]


async def test_no_answer_in_time_is_ambiguous_and_a_silent_peer_is_disconnected(bench: Bench, caller: Caller) -> None:
    bench.heard.react = lambda link, command: None
    with pytest.raises(RequestTimeout) as caught:
        await caller.client.ask(bench.address, request(10), 0.05)
    assert caught.value.ambiguous
    await until(lambda: bench.server.connections == 0)


async def test_an_attempt_to_connect_ends_with_the_questions_that_wait_for_it(bench: Bench) -> None:
    """Else each question that times out before a black hole leaves one more behind."""
    network = BlackHole()
    client = RemotingClient(machine(network=network), RemotingSettings())
    for _ in range(3):
        with pytest.raises(RequestTimeout):
            await client.ask(bench.address, request(10), 0.02)
    for _ in range(5):  # turns of the loop: the attempts were cancelled and end by themselves
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    network.passes = True
    assert (await client.ask(bench.address, request(10), 5)).code == 0
    assert network.attempts == 4
    await client.close()


async def test_closing_while_connecting_leaves_nothing_behind(bench: Bench) -> None:
    client = RemotingClient(machine(network=BlackHole()), RemotingSettings())
    asked = asyncio.ensure_future(client.ask(bench.address, request(10), 5))
    await asyncio.sleep(0)
    began_at = asyncio.get_running_loop().time()
    await client.close()
    assert asyncio.get_running_loop().time() == began_at, "it waited for nothing"
    with pytest.raises(Unavailable):
        await asked
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.real_time  # a resolver refuses the name
async def test_a_host_that_no_name_can_be_is_unavailable_at_once(caller: Caller) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await caller.client.ask(f"{'x' * 70}.example:1", request(10), 5)


@pytest.mark.rule("N13")
async def test_a_late_answer_is_dropped_and_a_peer_that_answers_others_stays(bench: Bench, caller: Caller) -> None:
    held: list[tuple[Link, Command]] = []
    bench.heard.react = lambda link, command: (
        held.append((link, command)) if command.code == 10 else link.send(command.response(0))
    )
    late = asyncio.ensure_future(caller.client.ask(bench.address, request(10), 0.1))
    await until(lambda: held)
    await caller.client.ask(bench.address, request(11), 5)
    with pytest.raises(RequestTimeout):
        await late
    held[0][0].send(held[0][1].response(0))
    await caller.client.ask(bench.address, request(11), 5)
    assert bench.server.connections == 1


async def test_a_lost_connection_fails_all_its_questions_and_the_next_one_connects_anew(
    bench: Bench, caller: Caller
) -> None:
    bench.heard.react = lambda link, command: link.close() if command.code == 10 else None
    results = await asyncio.gather(
        *(caller.client.ask(bench.address, request(code), 5) for code in (11, 12, 10)), return_exceptions=True
    )
    assert [type(result) for result in results] == [ConnectionLost] * 3
    assert caller.lost == [bench.address]
    bench.heard.react = lambda link, command: link.send(command.response(0))
    assert (await caller.client.ask(bench.address, request(10), 5)).code == 0


async def test_a_port_that_refuses_is_not_ambiguous(caller: Caller) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable) as caught:
        await caller.client.ask(address, request(10), 5)
    assert not caught.value.ambiguous
    assert caught.value.address == address
    assert caller.lost == [address]


async def test_that_a_peer_is_not_reached_is_said_once(caller: Caller) -> None:
    address = f"127.0.0.1:{free_port()}"
    for _ in range(3):
        with pytest.raises(Unavailable):
            await caller.client.ask(address, request(10), 5)
    assert [event.kind for event in caller.told] == ["not reached"]


async def test_what_the_server_asks_is_told_apart_from_answers_by_its_flag(bench: Bench, caller: Caller) -> None:
    def react(link: Link, command: Command) -> None:
        push = request(40, one_way=True)
        push.opaque = command.opaque  # both directions count for themselves
        link.send(push)
        link.send(command.response(0))

    bench.heard.react = react
    response = await caller.client.ask(bench.address, request(34), 5)
    assert response.is_response
    assert [command.code for command in caller.asked] == [40]


async def test_telling_needs_no_answer(bench: Bench, caller: Caller) -> None:
    caller.client.tell(bench.address, request(15, one_way=True))
    await until(lambda: bench.heard.requests)
    assert bench.heard.requests[0].is_one_way


async def test_done_is_called_once_and_never_inside_the_call(bench: Bench, caller: Caller) -> None:
    results: list[Command | TallyError] = []
    caller.client.ask_nowait(f"127.0.0.1:{free_port()}", request(1), 5, results.append)
    caller.client.ask_nowait(bench.address, request(1), 5, results.append)
    assert not results
    await until(lambda: len(results) == 2)
    await caller.client.close()
    assert len(results) == 2


async def test_a_peer_that_breaks_the_protocol_is_unavailable(caller: Caller) -> None:
    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    listener = await machine().network.listen(
        "127.0.0.1", 0, lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), garble)
    )
    host, port = listener.address
    with pytest.raises(ConnectionLost, match="broke the protocol"):
        await caller.client.ask(f"{host}:{port}", request(1), 5)
    await listener.close()


async def test_closing_fails_what_is_outstanding(bench: Bench, caller: Caller) -> None:
    bench.heard.react = lambda link, command: None
    waiting = asyncio.ensure_future(caller.client.ask(bench.address, request(1), 5))
    await until(lambda: bench.heard.requests)
    await caller.client.close()
    with pytest.raises(ConnectionLost):
        await waiting
    with pytest.raises(UsageError):
        await caller.client.ask(bench.address, request(1), 5)


@pytest.mark.rule("N13")
async def test_opaques_begin_again_before_they_outgrow_an_int(bench: Bench, caller: Caller) -> None:
    caller.client._opaque = MAX_OPAQUE - 1
    for _ in range(3):
        await caller.client.ask(bench.address, request(34), 5)
    assert [command.opaque for command in bench.heard.requests] == [MAX_OPAQUE, 0, 1]


@pytest.mark.parametrize("wrong", ["", "host", "host:", ":9876", "host:x", "host:70000", "host:" + "9" * 5000])
def test_an_address_is_host_and_port(wrong: str) -> None:
    with pytest.raises(UsageError):
        parse_address(wrong)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9876") == ("127.0.0.1", 9876)
    assert parse_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.real_time  # written to sockets that nobody reads
@pytest.mark.parametrize("says_no_more", [False, True], ids=["the client is closed", "the server says no more"])
async def test_a_client_does_not_wait_for_a_server_that_takes_nothing_once_it_gets_no_response(
    says_no_more: bool,
) -> None:
    """What is queued for it would be waited for as long as it is stopped."""
    held: list[asyncio.StreamWriter] = []

    def stop_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        held.append(writer)

    client, results = RemotingClient(machine(), RemotingSettings()), list[Command | TallyError]()
    async with await asyncio.start_server(stop_reading, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for _ in range(16):
            client.ask_nowait(address, request(10, body=bytes(1024 * 1024)), 60, results.append)
        await until(lambda: bool(held) and any(link.full for link in client._of_link))
        if says_no_more:
            held[0].write_eof()
            await until(lambda: len(results) == 16)
        async with asyncio.timeout(10):
            await client.close()
        await until(lambda: len(results) == 16)
        assert {type(result) for result in results} == {ConnectionLost}
        for writer in held:
            writer.transport.abort()
