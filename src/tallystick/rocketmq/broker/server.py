"""A broker's two ports for clients, and the part that serves each request.

All requests that came in one loop tick are handled together: their sends are one append, then come the others in order.
Both have their time in each turn (``remoting/backlog.py``). The second port, two below the first, serves the same
requests without pulls: slaves fetch tables there, undisturbed by long queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from tallystick.rocketmq.broker.access.access import BrokerAccess
from tallystick.rocketmq.broker.client_requests import ClientRequests
from tallystick.rocketmq.broker.pull import PULLS, Pulls
from tallystick.rocketmq.broker.saves import SavedReply, Saves
from tallystick.rocketmq.broker.send import SENDS, Sends
from tallystick.rocketmq.broker.settings import FAST_PORT_BELOW
from tallystick.rocketmq.remoting.backlog import Backlog
from tallystick.rocketmq.remoting.dispatch import Dispatch, Handler, not_supported
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.refusals import Refusals
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.server_requests import ServerRequests
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.outside import Outside


class Requests:
    """Receives the requests of the first port. No request of a peer makes it raise."""

    def __init__(
        self,
        sends: Sends,
        *,
        pulls: Pulls,
        clients: ClientRequests,
        processors: Iterable[Mapping[int, Handler]],
        catch_up: Callable[[], None],
        saves: Saves,
        access: BrokerAccess,
        clock: Clock,
        events: Events,
    ) -> None:
        """``processors`` have the handlers of all else. ``catch_up()`` makes what is stored visible to readers."""
        self._sends, self._pulls, self._clients, self._refusals = sends, pulls, clients, Refusals(events)
        access.when_revoked(pulls.revoked)
        dispatch = Dispatch(events, self._responded, access.gate)
        for handlers in (sends.handlers, pulls.handlers):  # they wait for what they have to themselves
            dispatch.add(handlers)
        for handlers in (clients.handlers, *processors):
            dispatch.add(handlers, partial(SavedReply, saves))
        dispatch.add(access.requests.handlers, partial(SavedReply, access.saver))
        self._backlog = Backlog(clock, dispatch.serve, catch_up)
        self._sending = Backlog(clock, dispatch.serve, end=sends.put)

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        sends = [entry for entry in requests if entry[1].code in SENDS]
        if sends:
            self._sending.received(sends)
        if len(sends) < len(requests):
            self._backlog.received([entry for entry in requests if entry[1].code not in SENDS])

    def close(self) -> None:
        """Drop the requests that wait."""
        self._backlog.close()
        self._sending.close()

    def closed(self, link: Link) -> None:
        self._backlog.closed(link)
        self._sending.closed(link)
        self._sends.closed(link)
        self._pulls.closed(link)
        self._clients.closed(link)

    def _responded(self, link: Link, command: Command, response: Command) -> None:
        if not command.is_one_way:
            self._refusals.responded(link.peer, command, response)


class FastRequests:
    """Receives the requests of the second port."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        for link, command in requests:
            if command.code in PULLS and not command.is_one_way:
                link.send(not_supported(command))
        self._requests.received([entry for entry in requests if entry[1].code not in PULLS])

    def closed(self, link: Link) -> None:
        self._requests.closed(link)


class BrokerServer:
    """Both ports: ``start``, then ``close``."""

    def __init__(
        self, outside: Outside, requests: Requests, settings: RemotingSettings, server_requests: ServerRequests
    ) -> None:
        """``rooms`` have the handlers of all other requests. ``catch_up()`` dispatches what is stored, before it is
        read."""
        clock, events = outside.clock, outside.events
        self.memory = Memory(clock, events, settings.held_limit_bytes, settings.stalled_s)

        def server(handler: Requests | FastRequests) -> RemotingServer:
            return RemotingServer(outside, handler, settings, self.memory, server_requests)

        self._main, self._fast = server(requests), server(FastRequests(requests))

    @property
    def connections(self) -> int:
        return self._main.connections + self._fast.connections

    @property
    def malformed(self) -> int:
        return self._main.malformed_connections + self._fast.malformed_connections

    async def start(self, host: str, port: int) -> None:
        """Listen at both ports. Raises OSError."""
        await self._main.start(host, port)
        await self._fast.start(host, port - FAST_PORT_BELOW)

    async def close(self) -> None:
        """Send the responses that are due, then close all connections."""
        await self._main.close()
        await self._fast.close()
        self.memory.close()
