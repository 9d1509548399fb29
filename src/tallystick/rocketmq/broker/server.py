"""A broker's two ports for clients, and which part answers what.

All requests that came in one loop tick are handled together: their sends are one append, then the others in order. Both
have their time in each turn (``remoting/backlog.py``). The second port, two below the first, serves the same but pulls:
slaves fetch tables there, untroubled by long queues.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tallystick.errors import QueueRebuilding, RemoteProtocolError
from tallystick.rocketmq.broker.admin import Admin
from tallystick.rocketmq.broker.answers import Later
from tallystick.rocketmq.broker.client_requests import ClientRequests
from tallystick.rocketmq.broker.pull import PULLS, Pulls
from tallystick.rocketmq.broker.saves import Saves
from tallystick.rocketmq.broker.send import SENDS, Sends
from tallystick.rocketmq.broker.settings import FAST_PORT_BELOW
from tallystick.rocketmq.remoting.backlog import Backlog
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.questions import Questions
from tallystick.rocketmq.remoting.refused import Refused
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.outside import Outside


class Requests:
    """The handler of the first port. Nothing that a peer sends makes it raise."""

    def __init__(
        self, sends: Sends, pulls: Pulls, clients: ClientRequests, admin: Admin, catch_up: Callable[[], None],
        saves: Saves, clock: Clock, events: Events,
    ) -> None:  # fmt: skip
        """``catch_up()`` makes what is stored visible to those who read."""
        self._sends, self._pulls, self._clients, self._admin = sends, pulls, clients, admin
        self._saves, self._events, self._refused = saves, events, Refused(events)
        self._backlog = Backlog(clock, self._answer, catch_up)
        self._sending = Backlog(clock, sends.take, end=sends.put)

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        sends = [asked for asked in requests if asked[1].code in SENDS]
        if sends:
            self._sending.received(sends)
        if len(sends) < len(requests):
            self._backlog.received([asked for asked in requests if asked[1].code not in SENDS])

    def close(self) -> None:
        """What waits is served no more."""
        self._backlog.close()
        self._sending.close()

    def closed(self, link: Link) -> None:
        self._sends.closed(link)
        self._pulls.closed(link)
        self._clients.closed(link)

    def _answer(self, link: Link, command: Command) -> None:
        before = self._saves.changes
        try:
            if command.code in PULLS:
                self._pulls.handle(link, command)
                return
            answer = self._clients.answers.get(command.code, self._admin.handle)(link, command)
        except (RemoteProtocolError, QueueRebuilding) as error:
            answer = command.answer(ResponseCode.SYSTEM_ERROR, error.message)
        except Exception as error:  # a bug of ours: this request fails, not those of its tick
            self._events.emit("request failed", peer=link.peer, code=command.code, reason=repr(error))
            answer = command.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if isinstance(answer, Later):
            send = partial(self._saves.send, link, answer.command, before)
            wants_answer = not command.is_one_way
            answer.when(send if wants_answer else _nothing, lambda: wants_answer and link.alive, link.host)
        elif not command.is_one_way:
            self._refused.answered(link.peer, command, answer)
            self._saves.send(link, answer, before)


class FastRequests:
    """The handler of the second port."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        for link, command in requests:
            if command.code in PULLS and not command.is_one_way:
                remark = f" request type {command.code} not supported"
                link.send(command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
        self._requests.received([asked for asked in requests if asked[1].code not in PULLS])

    def closed(self, link: Link) -> None:
        self._requests.closed(link)


class BrokerServer:
    """Both ports: ``start``, then ``close``."""

    def __init__(self, outside: Outside, requests: Requests, settings: RemotingSettings, questions: Questions) -> None:
        clock, events = outside.clock, outside.events
        self.memory = Memory(clock, events, settings.held_limit_bytes, settings.stalled_s)

        def server(handler: Requests | FastRequests) -> RemotingServer:
            return RemotingServer(outside, handler, settings, self.memory, questions)

        self._main, self._fast = server(requests), server(FastRequests(requests))

    @property
    def connections(self) -> int:
        return self._main.connections + self._fast.connections

    @property
    def malformed(self) -> int:
        return self._main.malformed + self._fast.malformed

    async def start(self, host: str, port: int) -> None:
        """Raises OSError."""
        await self._main.start(host, port)
        await self._fast.start(host, port - FAST_PORT_BELOW)

    async def close(self) -> None:
        """Answers that are due go out; then all connections are closed."""
        await self._main.close()
        await self._fast.close()
        self.memory.close()


def _nothing() -> None:
    """In place of an answer that nobody wants."""
