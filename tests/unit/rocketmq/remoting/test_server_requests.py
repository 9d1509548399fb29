"""How many requests to clients may wait for their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from support.machines import machine
from support.waiting import until
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.server_requests import MAX_IN_FLIGHT, MAX_OF_LINK, ServerRequests
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, request

if TYPE_CHECKING:
    from unit.rocketmq.remoting.conftest import Bench as ServerBench


class Client:
    def __init__(self) -> None:
        self.asked: list[int] = []

    def send(self, command: Command) -> None:
        self.asked.append(command.opaque)


class Bench:
    def __init__(self) -> None:
        self.server_requests, self.ended = ServerRequests(), list[Any]()

    def ask(self, client: Client) -> bool:
        return self.server_requests.ask(cast("Link", client), request(307), 60.0, self.ended.append)


async def test_one_client_that_answers_nothing_is_asked_no_more() -> None:
    """400,000 requests once waited, and each connection that ended walked through all of them."""
    bench, silent, other = Bench(), Client(), Client()
    assert [bench.ask(silent) for _ in range(MAX_OF_LINK + 2)] == [True] * MAX_OF_LINK + [False] * 2
    assert len(silent.asked) == MAX_OF_LINK and bench.ask(other)
    response = request(307).response(0)
    response.opaque = silent.asked[0]
    bench.server_requests.responded(cast("Link", other), response)  # not asked of that one
    assert bench.ended == []
    bench.server_requests.responded(cast("Link", silent), response)
    assert bench.ended == [response] and bench.ask(silent)
    bench.server_requests.closed(cast("Link", silent))
    assert bench.ended == [response] + [None] * MAX_OF_LINK and bench.server_requests.in_flight == 1
    assert bench.ask(silent)


@pytest.mark.rule("N12")
async def test_all_clients_together_are_asked_a_bounded_number() -> None:
    bench = Bench()
    clients = [Client() for _ in range(MAX_IN_FLIGHT)]
    assert all(bench.ask(client) for client in clients)
    late = Client()
    assert not bench.ask(late) and late.asked == []
    bench.server_requests.closed(cast("Link", clients[0]))
    assert bench.ask(late)
    for client in [*clients, late]:
        bench.server_requests.closed(cast("Link", client))
    assert bench.server_requests.in_flight == 0 and bench.server_requests._of_link == {}


async def test_a_client_that_was_asked_and_has_gone_is_waited_for_no_more(bench: ServerBench) -> None:
    """Its requests kept their places among all that are in flight, each for its whole time."""
    server_requests, ended = ServerRequests(), list[Command | None]()
    server = RemotingServer(machine(), bench.heard, RemotingSettings(), server_requests=server_requests)
    bench.host, bench.port = await server.start("127.0.0.1", 0)
    asked: list[bool] = []
    bench.heard.react = lambda link, command: asked.append(server_requests.ask(link, request(307), 60.0, ended.append))
    peer = await bench.peer()
    peer.send(request(34))
    await until(lambda: asked == [True])
    peer.writer.close()
    await until(lambda: ended == [None])
    assert server_requests.in_flight == 0
    await server.close()
