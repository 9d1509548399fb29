"""The name server: it serves requests, and unregisters brokers that are silent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable, Iterator
from functools import partial

from tallystick.codec.steps import Steps
from tallystick.errors import UsageError
from tallystick.rocketmq.nameserver.access import NameGate
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.metrics import registry
from tallystick.rocketmq.nameserver.registrations import Responder, peer_of
from tallystick.rocketmq.nameserver.requests import CHANGES, NameRequests
from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.backlog import Backlog
from tallystick.rocketmq.remoting.dispatch import Dispatch, Gate, Reply, open_gate
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.refusals import Refusals
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.remoting.slices import SLICE_S, Slices
from tallystick.rocketmq.remoting.tls import with_tls
from tallystick.rocketmq.wire.remoting import Command, held_bytes
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.health import HealthPages, serve_health
from tallystick.runtime.network import Listener
from tallystick.runtime.outside import Outside
from tallystick.runtime.turn_steps import TurnSteps

UNREGISTER_EACH_TURN = 200  # brokers of connections that ended: some milliseconds
_WAITING_BYTES = 1024  # that a request takes beside its content while it is answered
OTHER_FILES = 128  # that are no connections of clients and brokers
_CODES = frozenset(map(int, RequestCode))


class NameServer:
    """``start`` it on a running loop, then ``close`` it. Raises UsageError for a damaged configuration file,
    and for files of TLS and of users that cannot be used."""

    def __init__(self, settings: NameServerSettings, outside: Outside) -> None:
        outside = with_tls(outside, settings.tls)
        clock, events, open_files = outside.clock, outside.events, outside.open_files
        self.routes = RoutesCore(
            delete_missing_topics=settings.delete_topic_with_registration,
            acting_masters=settings.support_acting_master,
            host_of=_host_of,
            later=lambda steps: self._chores.make(steps, lambda _: None),
        )
        self._settings, self._network, self._clock, self._events = settings, outside.network, clock, events
        self._config = KvConfig(outside.disk, settings.kv_config_path, partial(outside.workers, "tally-kv"))
        self._requests = NameRequests(self.routes, self._config, settings, clock, events)
        gate: Gate = open_gate
        self._gate: NameGate | None = None
        if settings.users_file:
            gate = self._gate = NameGate(settings.users_file, outside, lets_unsigned_pass=settings.anonymous)
        self._dispatch = Dispatch(events, self._on_response, gate)
        for responders in (self._requests.brokers.responders, self._requests.responders):
            self._dispatch.add({code: partial(self._in_steps, responder) for code, responder in responders.items()})
        self._dispatch.add(dict.fromkeys(CHANGES, self._change))
        # connections leave some files to the process
        room = min(RemotingSettings().max_connections, max(open_files - OTHER_FILES, open_files // 4))
        self._server = RemotingServer(outside, self, RemotingSettings(max_connections=room))
        self._refusals = Refusals(events)
        self._registering, self._slices = Slices(clock, most=room), Slices(clock, most=room)  # of requests
        self._chores = Slices(clock, most=sys.maxsize)  # no more than there are brokers
        self._scanner: asyncio.TimerHandle | None = None
        self._kept_of_link: dict[Link, int] = {}  # what its memory was told of its brokers
        self._counting = False  # that, again
        self._counts: dict[int, int] = {}  # of requests, by code; 0: unknown ones
        self._http: Listener | None = None
        self.http_address: tuple[str, int] | None = None

    async def start(self) -> tuple[str, int]:
        """Listen. Returns the host and port. Raises OSError, and UsageError if it cannot listen for HTTP."""
        settings = self._settings
        self._backlog = Backlog(self._clock, self._dispatch.serve)
        self._unregistering = TurnSteps(UNREGISTER_EACH_TURN)
        address = await self._server.start(settings.bind_host, settings.port)
        if settings.http_enabled:
            pages = HealthPages(
                registry(self.routes, self._server, self._counts, lambda: self._requests.brokers.refused_count),
                self._state,
            )
            try:
                self._http = await serve_health(self._network, settings.http_host, settings.http_port, pages)
            except OSError as error:
                await self._server.close()
                reason = f"cannot listen for HTTP: {error.strerror}"
                raise UsageError(reason, metricsPromExporterPort=settings.http_port) from error
            self.http_address = self._http.address
        self._scan()
        return address

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
        if self._scanner is not None:
            self._scanner.cancel()
        await self._server.close()
        self._unregistering.close()
        self._backlog.close()
        if self._gate is not None:
            self._gate.close()
        for slices in (self._registering, self._slices):
            await slices.close()
        await self._chores.close()
        await self._config.close()
        if self._scanner is not None:
            self._scanner = None
            self._events.emit("name server stopped", reason="asked to; brokers register again with the next one")

    @property
    def kept_bytes(self) -> int:
        """Returns about what names of brokers and topics, and waiting requests, take in memory."""
        return self._server.memory.kept_bytes

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        self._backlog.received(requests)

    def _in_steps(self, responder: Responder, link: Link, command: Command, reply: Reply) -> Command | None:
        """Answer at once, or between other requests if it takes longer; until then no more is read of the peer."""
        steps = responder(link, command)
        if isinstance(steps, Command):
            return steps
        ends_at = self._clock.now() + SLICE_S
        while True:
            try:
                next(steps)
            except StopIteration as end:
                response: Command = end.value
                return response
            if self._clock.now() >= ends_at:
                break
        self._go_on(steps, link, command, reply)
        return None

    def _go_on(self, steps: Steps[Command], link: Link, command: Command, reply: Reply) -> None:
        respond_later = self._put_off(link, command, reply)

        def finished(results: list[Command | None] | Exception) -> None:
            if isinstance(results, Exception):
                respond_later(self._dispatch.failure(link, command, results))
            else:
                respond_later(results[-1] if results else None)

        # A registration may take some hundred milliseconds, and each broker has one: no client waits for all of them.
        slices = self._registering if command.code == RequestCode.REGISTER_BROKER else self._slices
        slices.make(_while_there(link, steps), finished, link.host)

    def _change(self, link: Link, command: Command, reply: Reply) -> None:
        self._requests.change(command, link.host, self._put_off(link, command, reply))

    def _put_off(self, link: Link, command: Command, reply: Reply) -> Callable[[Command | None], None]:
        """Returns a function to call with the response, or None: until then no more is read of the peer."""
        size = held_bytes(command) + _WAITING_BYTES
        link.keep(size)
        link.busy(+1)

        def respond_later(response: Command | None) -> None:
            link.keep(-size)
            link.busy(-1)
            if response is not None:
                self._on_response(link, command, response)
                reply(response)

        return respond_later

    def _on_response(self, link: Link, command: Command, response: Command) -> None:
        code = command.code if command.code in _CODES else 0
        self._counts[code] = self._counts.get(code, 0) + 1
        if code == RequestCode.REGISTER_BROKER:
            self._tell_kept(link)
        self._refusals.responded(link.peer, command, response)

    def _tell_kept(self, link: Link) -> None:
        """Count what connections make it hold: the one that holds most is closed first when it is too much."""
        size, before = self.routes.held_bytes(link), self._kept_of_link.pop(link, 0)
        if size:
            self._kept_of_link[link] = size
        if size != before:
            link.keep(size - before)

    def closed(self, link: Link) -> None:
        self._kept_of_link.pop(link, None)
        self._unregistering.run(self._unregister_all(link))

    def _unregister_all(self, link: Link) -> Iterator[None]:
        for announcement in self.routes.closed(link):
            self._tell_gone(announcement, "its connection ended", peer=link.peer)
            yield

    def _state(self) -> dict[str, object]:
        return {
            "healthy": True,
            "brokers": len(self.routes.sets),  # names take any length: bodies of 30 MB for each visit
            "topics": self.routes.topic_count,
        }

    def _scan(self) -> None:
        self._scanner = asyncio.get_running_loop().call_later(self._settings.scan_interval_s, self._scan)
        for announcement in self.routes.expire(self._clock.now()):
            self._tell_gone(announcement, "it was silent for too long")
        if not self._counting:
            self._counting = True
            self._chores.make(self._count_kept(), lambda _: None)

    def _count_kept(self) -> Steps[None]:
        """Topics may be another connection's now."""
        for link in tuple(self._kept_of_link):
            if link in self._kept_of_link:
                self._tell_kept(link)
            yield
        self._counting = False

    def _tell_gone(self, announcement: Announcement, reason: str, **peer: str) -> None:
        self._events.emit(
            "broker unregistered",
            broker=announcement.name,
            id=announcement.broker_id,
            at=announcement.address,
            reason=reason,
            **peer,
        )


def _while_there(link: Link, steps: Steps[Command]) -> Iterator[Command | None]:
    """Yields None, and at last the response. Nothing more is done for a peer that went meanwhile."""
    while link.alive:
        try:
            next(steps)
        except StopIteration as end:
            yield end.value
            return
        yield None


def _host_of(link: Hashable) -> str:
    peer = peer_of(link)
    return peer.rpartition(":")[0] or peer
