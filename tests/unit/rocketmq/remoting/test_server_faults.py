"""A fault of ours in the middle of a server's turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.waiting import until
from tallystick.rocketmq.wire.remoting import Command, encode, request

if TYPE_CHECKING:
    from tallystick.rocketmq.remoting.link import Link
    from unit.rocketmq.remoting.conftest import Bench


async def test_a_fault_where_requests_of_one_are_cut_leaves_the_others_their_turn(bench: Bench) -> None:
    _, other = await bench.peer(), await bench.peer()
    await until(lambda: bench.server.connections == 2)
    broken, link = bench.server._links

    def fail(**bounds: int) -> list[Command]:
        raise ZeroDivisionError

    broken._reader.take = fail  # type: ignore[method-assign, assignment]
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for each in (broken, link):
        each._reader.put(encode(request(34)))
        bench.server._received(each)
    assert len(await other.answers(1)) == 1


async def test_a_response_that_comes_later_leaves_after_a_fault_in_the_turn_before(bench: Bench) -> None:
    peer, kept = await bench.peer(), list[Command]()

    def fail(link: Link, command: Command) -> None:
        kept.append(command)
        raise ZeroDivisionError

    bench.heard.react = fail
    peer.send(request(34))
    assert [answer.code for answer in await peer.answers(1)] == [1]
    (link,) = bench.server._links
    link.send(kept[0].response(0))
    assert [answer.code for answer in await peer.answers(1)] == [0]
