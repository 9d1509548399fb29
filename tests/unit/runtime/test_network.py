"""TCP as a server has it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from support.waiting import until
from tallystick.runtime.tcp import TcpNetwork

CROWD = 128


@pytest.mark.parametrize("serving", [True, False])
async def test_a_crowd_is_accepted_some_in_each_turn_and_nobody_is_lost(serving: bool) -> None:
    """All of it at once would take the process's files before a server could close those beyond its bound."""
    made = most = before = 0

    def protocol() -> asyncio.Protocol:
        nonlocal made
        made += 1
        return asyncio.Protocol()

    def all_came() -> bool:
        nonlocal most, before
        most, before = max(most, made - before), made
        return made == CROWD

    listener = await TcpNetwork().listen("127.0.0.1", 0, protocol, serving=serving)
    if not serving:
        await listener.serve()
    with contextlib.ExitStack() as stack:
        for _ in range(CROWD):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.address)
        await until(all_came, pause=0)
    assert 0 < most <= CROWD // 2
    await listener.close()
