from __future__ import annotations

import asyncio
import random
import struct
from typing import TYPE_CHECKING

import pytest

from support.machines import machine
from support.waiting import until
from tallystick.rocketmq.remoting.intake import TURN_REQUESTS
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.arena import ARENA_BYTES, LEAST_READ_BYTES

if TYPE_CHECKING:
    from unit.rocketmq.remoting.conftest import Bench

MIB = 1024 * 1024


def asked(opaque: int, code: int = 34, **fields: str) -> Command:
    command = request(code, fields)
    command.opaque = opaque
    return command


async def test_each_request_is_answered_on_its_connection(bench: Bench) -> None:
    first, second = await bench.peer(), await bench.peer()
    first.send(asked(1), asked(2))
    second.send(asked(1))
    assert [response.opaque for response in await first.answers(2)] == [1, 2]
    assert [response.opaque for response in await second.answers(1)] == [1]


@pytest.mark.real_time  # written to sockets: all of it is there before the loop reads
async def test_what_all_connections_sent_meanwhile_is_one_batch(bench: Bench) -> None:
    await bench.stop_time()
    peers = [await bench.peer() for _ in range(5)]
    await until(lambda: bench.server.connections == 5)
    for peer in peers:
        peer.writer.get_extra_info("socket")._sock.send(b"".join(encode(asked(n)) for n in (1, 2)))
    for peer in peers:
        await peer.answers(2)
    assert len(bench.heard.batches) == 1
    assert len(bench.heard.batches[0]) == 10


@pytest.mark.rule("N12")
async def test_what_is_too_much_for_a_turn_waits_and_others_come_between(bench: Bench) -> None:
    """All that thousands of connections had sent was once cut and handled in one turn of many seconds."""
    crowd, small = [await bench.peer() for _ in range(4)], await bench.peer()
    await until(lambda: bench.server.connections == 5)
    each = 2 * TURN_REQUESTS
    for peer in crowd:
        peer.send(*(asked(number) for number in range(each)))
    small.send(asked(7))
    assert [response.opaque for response in await small.answers(1)] == [7]
    for peer in crowd:
        assert [response.opaque for response in await peer.answers(each)] == list(range(each))
    assert max(map(len, bench.heard.batches)) <= TURN_REQUESTS
    assert bench.server.memory.unfinished_bytes == 0


async def test_what_waits_for_a_turn_counts_and_is_not_read_on(bench: Bench) -> None:
    counted: list[int] = []
    bench.heard.react = lambda link, command: counted.append(bench.server.memory.unfinished_bytes)
    peer = await bench.peer()
    one = request(34, {}, one_way=True)
    for _ in range(40):
        peer.send(*[one] * TURN_REQUESTS)
    await until(lambda: len(counted) == 40 * TURN_REQUESTS)
    assert 0 < max(counted) <= 2 * ARENA_BYTES + len(encode(one))


async def test_requests_of_a_peer_that_has_one_put_off_stay_bytes(bench: Bench) -> None:
    links: list[Link] = []

    def put_off(link: Link, command: Command) -> None:
        if not links:
            link.busy(+1)
        links.append(link)

    bench.heard.react = put_off
    peer, other = await bench.peer(), await bench.peer()
    count = TURN_REQUESTS + 100
    peer.send(*(asked(number) for number in range(count)))
    await until(lambda: links)
    bench.heard.react, batches = lambda link, command: link.send(command.response(0)), len(bench.heard.batches)
    other.send(asked(1))
    await other.answers(1)
    assert [len(batch) for batch in bench.heard.batches[batches:]] == [1]
    left = count - len(links)
    links[0].busy(-1)
    assert len(await peer.answers(left)) == left > 0


async def test_one_read_brings_less_where_there_are_many_connections(bench: Bench) -> None:
    await bench.restart(RemotingSettings(held_limit_bytes=32 * LEAST_READ_BYTES))
    peers = [await bench.peer() for _ in range(2)]
    await until(lambda: bench.server.connections == 2)
    assert len(bench.server._arena.buffer) == 2 * LEAST_READ_BYTES
    peers += [await bench.peer() for _ in range(3)]
    await until(lambda: bench.server.connections == 5)
    assert len(bench.server._arena.buffer) == LEAST_READ_BYTES
    for peer in peers[1:]:
        peer.writer.close()
    await until(lambda: bench.server.connections == 1)
    assert len(bench.server._arena.buffer) == 4 * LEAST_READ_BYTES


async def test_a_request_in_pieces_is_one_request(bench: Bench) -> None:
    peer = await bench.peer()
    for byte in encode(asked(7)):
        peer.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert [response.opaque for response in await peer.answers(1)] == [7]


async def test_answers_may_come_later_and_in_any_order(bench: Bench) -> None:
    held: list[tuple[Link, Command]] = []
    bench.heard.react = lambda link, command: held.append((link, command))
    peer = await bench.peer()
    peer.send(asked(1), asked(2))
    await until(lambda: len(held) == 2)
    for link, command in reversed(held):
        link.send(command.response(0))
    assert [response.opaque for response in await peer.answers(2)] == [2, 1]


async def test_a_server_can_ask_by_itself_and_answers_to_that_are_no_requests(bench: Bench) -> None:
    def push(link: Link, command: Command) -> None:
        link.send(request(40, one_way=True))
        link.send(command.response(0))

    bench.heard.react = push
    peer = await bench.peer()
    peer.send(asked(1))
    pushed, response = await peer.answers(2)
    assert (pushed.code, pushed.is_response, response.opaque, response.is_response) == (40, False, 1, True)
    peer.send(pushed.response(0), asked(2))
    await peer.answers(2)
    assert [command.opaque for command in bench.heard.requests] == [1, 2]


async def test_a_handler_that_fails_answers_code_1_to_those_without_answer(bench: Bench) -> None:
    def react(link: Link, command: Command) -> None:
        if command.opaque == 2:
            raise ZeroDivisionError("oh")
        link.send(command.response(0))

    bench.heard.react = react
    peer = await bench.peer()
    peer.send(asked(1), asked(2), asked(3))
    responses = {response.opaque: response for response in await peer.answers(3)}
    assert {opaque: response.code for opaque, response in responses.items()} == {1: 0, 2: 1, 3: 1}
    assert responses[2].remark == "ZeroDivisionError: oh"
    peer.send(asked(4))
    assert (await peer.answers(1))[0].code == 0
    assert [event.kind for event in bench.told] == ["request failed"]


async def test_a_failed_one_way_request_gets_no_answer(bench: Bench) -> None:
    def react(link: Link, command: Command) -> None:
        if command.is_one_way:
            raise ZeroDivisionError
        link.send(command.response(0))

    bench.heard.react = react
    peer = await bench.peer()
    command = request(15, one_way=True)
    peer.send(command)
    await until(lambda: bench.told)
    peer.send(asked(9))
    assert [response.opaque for response in await peer.answers(1)] == [9]


async def test_an_answer_too_long_for_a_frame_is_code_1_and_disturbs_no_other(bench: Bench) -> None:
    def react(link: Link, command: Command) -> None:
        link.send(command.response(0, body=bytes(17 * 1024 * 1024) if command.opaque == 2 else b"good"))

    bench.heard.react = react
    peer = await bench.peer()
    peer.send(asked(1), asked(2), asked(3))
    responses = await peer.answers(3)
    assert [(response.opaque, response.code) for response in responses] == [
        (1, 0),
        (2, ResponseCode.SYSTEM_ERROR),
        (3, 0),
    ]


@pytest.mark.rule("N6")
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 2**31 - 1),
        struct.pack(">II", 16 * 1024 * 1024, 4),
        struct.pack(">ii", -5, 3),
        struct.pack(">II", 8, 5000) + b"abcd",
        struct.pack(">II", 8, (2 << 24) | 4) + b"abcd",
        struct.pack(">II", 8, 4) + b"abcd",
    ],
)
async def test_garbage_closes_that_connection_alone(bench: Bench, garbage: bytes) -> None:
    good, bad = await bench.peer(), await bench.peer()
    bad.writer.write(garbage + bytes(64))
    assert await bad.ended()
    good.send(asked(1))
    assert [response.opaque for response in await good.answers(1)] == [1]
    assert bench.server.malformed_connections == 1
    assert bench.server.connections == 1


@pytest.mark.rule("N6")
@pytest.mark.real_time  # peers close one direction alone
async def test_random_bytes_harm_nothing_and_are_reported_once_for_each_host(bench: Bench) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    good = await bench.peer()
    for _ in range(20):
        bad = await bench.peer()
        bad.writer.write(rng.randbytes(rng.randrange(8, 2000)))
        bad.writer.write_eof()
        assert await bad.ended()
    good.send(asked(1))
    await good.answers(1)
    assert len([event for event in bench.told if event.kind == "connection closed"]) <= 1


async def test_a_peer_that_takes_no_answers_is_not_read_any_more(bench: Bench) -> None:
    bench.heard.react = lambda link, command: link.send(command.response(0, body=bytes(64 * 1024)))
    peer = await bench.peer()
    peer.transport.pause_reading()
    wanted, answered = 500, 0
    for _ in range(wanted):
        peer.send(asked(1))
        await asyncio.sleep(0.0005)  # a read of the server for each

    async def settled() -> bool:
        nonlocal answered
        before, answered = answered, len(bench.heard.requests)
        await asyncio.sleep(0.05)
        return before == answered

    await until(settled)
    assert answered < wanted
    peer.transport.resume_reading()
    assert len(await peer.answers(wanted)) == wanted


async def test_a_peer_that_takes_nothing_costs_what_one_piece_does(bench: Bench) -> None:
    """200 pulls of a reader that took none of the answers once held 46 MB for ever."""
    log = memoryview(bytes(64 * 1024))
    bench.heard.react = lambda link, command: link.send(command.response(0, parts=[log] * 16))
    peer = await bench.peer()
    peer.transport.pause_reading()
    peer.send(*(asked(number) for number in range(200)))
    await until(lambda: len(bench.heard.requests) == 200)
    await asyncio.sleep(0)
    assert 0 < bench.server.memory.unsent_bytes < 8 * bench.settings.write_high_bytes
    peer.transport.resume_reading()
    assert [response.opaque for response in await peer.answers(200)] == list(range(200))
    await until(lambda: bench.server.memory.unsent_bytes == 0)


@pytest.mark.rule("N12")
async def test_who_holds_most_is_closed_and_the_others_are_served(bench: Bench) -> None:
    await bench.restart(RemotingSettings(held_limit_bytes=24 * MIB))
    bench.heard.react = lambda link, command: link.send(command.response(0, body=bytes(int(command.fields["size"]))))
    small, large, good = await bench.peer(), await bench.peer(), await bench.peer()
    for peer, size in ((small, 8 * MIB), (large, 12 * MIB)):
        peer.transport.pause_reading()
        peer.send(*(asked(number, size=str(size)) for number in range(1 if peer is small else 3)))
        good.send(asked(1, size="1"))
        await good.answers(1)
    await until(lambda: bench.server.connections == 2)
    assert bench.server.memory.dropped_connections == 1
    large.transport.resume_reading()
    assert await large.ended()
    small.transport.resume_reading()
    await small.answers(1)
    [event] = bench.told
    assert (event.kind, "this peer has most of them" in event.fields["reason"]) == ("connection closed", True)


async def test_many_large_answers_of_one_read_stop_at_the_limit(bench: Bench) -> None:
    await bench.restart(RemotingSettings(held_limit_bytes=40 * MIB))
    held: list[int] = []
    queued: list[bool] = []

    def react(link: Link, command: Command) -> None:
        link.send(command.response(0, body=bytes(8 * MIB)))
        held.append(bench.server.memory.unsent_bytes)
        queued.append(link.alive)

    bench.heard.react = react
    peer = await bench.peer()
    peer.transport.pause_reading()
    peer.send(*(asked(number) for number in range(20)))
    await until(lambda: bench.heard.closed_links)
    assert max(held) <= 40 * MIB
    assert sum(queued) == 4, "the memory hears of the fifth at once, and the link takes no more"
    assert bench.server.memory.unsent_bytes == 0


@pytest.mark.rule("N12")
async def test_unfinished_frames_of_all_connections_have_one_bound(bench: Bench) -> None:
    """60 connections with 15 of 16 MiB of a frame once took 900 MB."""
    await bench.restart(RemotingSettings(held_limit_bytes=4 * MIB))
    good = await bench.peer()
    part = encode(request(34, {}, bytes(MIB)))[:-1]
    peers = [await bench.peer() for _ in range(12)]
    for peer in peers:
        peer.writer.write(part)
        await peer.writer.drain()
    await until(lambda: bench.server.memory.dropped_connections >= 8)
    assert bench.server.memory.unfinished_bytes <= 4 * MIB
    assert bench.server.memory._freed._freed_bytes >= 8 * MIB
    good.send(asked(1))
    await good.answers(1)
    peers[-1].writer.write(b"x")
    assert len(await peers[-1].answers(1)) == 1, "whoever is not the largest goes on"


@pytest.mark.rule("N12")
async def test_who_takes_nothing_for_a_time_is_closed(bench: Bench) -> None:
    await bench.restart(RemotingSettings(stalled_s=0.2))
    bench.heard.react = lambda link, command: link.send(command.response(0, body=bytes(12 * MIB)))
    peer = await bench.peer()
    peer.transport.pause_reading()
    peer.send(asked(1))
    await until(lambda: bench.heard.closed_links)
    assert bench.server.memory.unsent_bytes == 0
    assert "took none of its answers" in bench.told[0].fields["reason"]


async def test_what_waits_to_be_served_counts_until_it_is_or_its_connection_ends(bench: Bench) -> None:
    bench.heard.react = lambda link, command: link.keep(1000)
    peer = await bench.peer()
    peer.send(asked(1), asked(2))
    await until(lambda: bench.server.memory.kept_bytes == 2000)
    peer.writer.close()
    await until(lambda: bench.heard.closed_links)
    assert bench.server.memory.kept_bytes == 0
    bench.heard.closed_links[0].keep(-1000)
    assert bench.server.memory.kept_bytes == 0


@pytest.mark.rule("N12")
async def test_connections_beyond_the_limit_are_refused(bench: Bench) -> None:
    await bench.restart(RemotingSettings(max_connections=2))
    first, second = await bench.peer(), await bench.peer()
    first.send(asked(1))
    second.send(asked(1))
    await first.answers(1)
    await second.answers(1)
    third = await bench.peer()
    assert await third.ended()
    assert bench.server.connections == 2
    first.send(asked(2))
    await first.answers(1)


async def test_a_host_with_all_connections_makes_room_for_another_host(bench: Bench) -> None:
    await bench.restart(RemotingSettings(max_connections=2))
    quiet, busy = await bench.peer(), await bench.peer()
    for opaque, peer in enumerate((quiet, busy)):
        peer.send(asked(opaque))
        await peer.answers(1)
    guest = await bench.peer(machine().network)
    guest.send(asked(1))
    await guest.answers(1)
    assert await quiet.ended()
    assert bench.server.connections == 2
    busy.send(asked(2))
    await busy.answers(1)


async def test_who_asked_for_nothing_makes_room_and_who_did_keeps_its_place(bench: Bench) -> None:
    await bench.restart(RemotingSettings(max_connections=2))
    busy, half = await bench.peer(), await bench.peer()
    busy.send(asked(1))
    await busy.answers(1)
    half.writer.write(b"\0\0\0")
    guest = await bench.peer()
    guest.send(asked(1))
    await guest.answers(1)
    assert await half.ended()
    busy.send(asked(2))
    await busy.answers(1)


async def test_an_idle_connection_is_closed_and_a_busy_one_not(bench: Bench) -> None:
    await bench.restart(RemotingSettings(idle_s=1.0))
    idle, busy = await bench.peer(), await bench.peer()
    ended = asyncio.ensure_future(idle.ended())
    opaque = 0
    while not ended.done():
        opaque += 1
        busy.send(asked(opaque))
        await busy.answers(1)
        await asyncio.sleep(0.05)
    assert ended.result()
    busy.send(asked(opaque + 1))
    await busy.answers(1)


async def test_a_handler_hears_of_each_end_once(bench: Bench) -> None:
    peer = await bench.peer()
    peer.send(asked(1))
    await peer.answers(1)
    peer.writer.close()
    await until(lambda: bench.heard.closed_links)
    link = bench.heard.closed_links[0]
    link.send(asked(1).response(0))  # dropped
    link.close()
    await asyncio.sleep(0)
    assert bench.heard.closed_links == [link]


async def test_closing_sends_what_is_queued(bench: Bench) -> None:
    def react(link: Link, command: Command) -> None:
        link.send(command.response(0))
        link.close()

    bench.heard.react = react
    peer = await bench.peer()
    peer.send(asked(3))
    assert [response.opaque for response in await peer.answers(1)] == [3]
    assert await peer.ended()


async def test_a_notice_that_cannot_be_encoded_is_left_out_and_takes_no_answer_with_it(bench: Bench) -> None:
    """Nobody waits for it: a server asks its peers nothing that it must hear of."""
    peer = await bench.peer()

    def react(link: Link, command: Command) -> None:
        link.send(request(40, {"group": "a\udcff"}))
        link.send(command.response(0))

    bench.heard.react = react
    peer.send(asked(1))
    assert [response.opaque for response in await peer.answers(1)] == [1]
