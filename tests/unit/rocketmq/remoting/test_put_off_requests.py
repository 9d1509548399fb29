"""A peer with requests that are put off: its link reads no more until all of them are served."""

from __future__ import annotations

from support.remoting_links import Transport, surroundings
from tallystick.rocketmq.remoting.link import Link


async def test_a_peer_is_not_read_while_any_of_its_requests_is_put_off() -> None:
    link, transport = Link(surroundings()), Transport()
    link.connection_made(transport)
    reads = []
    for change in (+1, +1, -1, -1):
        link.busy(change)
        reads.append(transport.reads)
    assert reads == [False, False, False, True]
