from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, closing

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.ports import ReservedPort

HOST = "127.0.0.1"


async def test_a_server_gets_the_port_that_was_kept_for_it() -> None:
    kept = ReservedPort(HOST, -2)
    for port in (kept.port, kept.port - 2):
        with pytest.raises(ConnectionRefusedError), socket.create_connection((HOST, port)):
            pass
        server = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, port)
        with socket.create_connection((HOST, port)):
            pass
        server.close()
        await server.wait_closed()
    kept.close()


def test_nobody_is_given_it_by_chance() -> None:
    """A broker failed to start now and then: its port was free a moment before, and somebody's by then."""
    kept = ReservedPort(HOST)
    others = [ReservedPort(HOST) for _ in range(300)]
    assert kept.port not in {other.port for other in others}
    assert len({other.port for other in others}) == 300
    for each in (kept, *others):
        each.close()
    with socket.socket() as bound:
        bound.bind((HOST, kept.port))


def test_a_port_beside_one_is_nobody_elses_either() -> None:
    """A broker failed to start where suites ran side by side: the port below its own was one that another had reserved,
    and who listened last got none. Which ports are given is chance: 400 pairs met in all runs but one of 300."""
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(ReservedPort(HOST, -2))) for _ in range(400)]
        assert len({port for each in kept for port in (each.port, each.port - 2)}) == 800


def test_a_port_that_is_kept_can_be_reserved_by_name() -> None:
    """By the server that it is kept for, which reserves its ports before it listens."""
    kept = ReservedPort(HOST, -2)
    with closing(kept), closing(ReservedPort(HOST, -2, port=kept.port)) as named:
        assert named.port == kept.port


@pytest.mark.parametrize(("host", "offsets"), [("203.0.113.1", ()), (HOST, (70_000,)), (HOST, (-70_000,))])
def test_a_host_or_ports_that_nobody_can_have(host: str, offsets: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        ReservedPort(host, *offsets)
