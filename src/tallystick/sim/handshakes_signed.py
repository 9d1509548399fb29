"""What is judged of signed requests: each counts once at each server, and only as who has the secret signed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.remoting import Command, FrameReader
from tallystick.rocketmq.wire.signature import ONCE
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.sim import brokers_hosts as brokers
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.transport import SimTransport

_Content = tuple[int, tuple[tuple[str, str], ...], bytes]


class SignedRequests:
    """``wrote`` all that goes to and comes from name servers and brokers. See A1, A2 and A4 of ``handshakes_judge``."""

    def __init__(self, fail: Callable[[str, str], NoReturn], trace: Trace) -> None:
        self._fail, self._trace = fail, trace
        self.signers: dict[str, bool] = {}  # by address: whether its secret is right; others repeat what they heard
        self._readers: dict[SimTransport, FrameReader] = {}
        self._waiting: dict[tuple[SimTransport, int], Command] = {}  # by the server's end, and opaque
        self._signed: dict[_Content, None] = {}  # what who has a right secret ever sent
        self._counted: dict[tuple[str, str], None] = {}  # by process of a server: none remembers another one's
        self._names: dict[str, SimTransport] = {}  # of connections that sign
        self._numbers: dict[str, None] = {}

    def wrote(self, end: SimTransport, data: bytes) -> None:
        """Hear what an end of a connection has written. Raises Violation."""
        try:
            commands = self._readers.setdefault(end, FrameReader()).take(data)
        except RemoteProtocolError:
            return
        is_server = end.here[1] in (brokers.PORT, brokers.NAMES_PORT)
        for command in commands:
            if is_server and command.is_response:
                request = self._waiting.pop((end, command.opaque), None)
                if request is not None:
                    self._answered(end, request, command)
            elif not is_server and not command.is_response:
                self._asked(end, command)

    def _asked(self, end: SimTransport, request: Command) -> None:
        self._waiting[end.peer, request.opaque] = request
        if not self.signers.get(end.here[0]):
            return
        self._signed[_content(request)] = None
        once = request.fields.get(ONCE, "")
        name, _, _ = once.partition(".")
        if self._names.setdefault(name, end) is not end or once in self._numbers:
            self._fail("A4", f"{end.process.name} signs as {once}, which was used before")
        self._numbers[once] = None

    def _answered(self, end: SimTransport, request: Command, response: Command) -> None:
        host, once = end.there[0], request.fields.get(ONCE, "")
        if response.code == ResponseCode.NO_PERMISSION:
            self._trace.note("not signed so", host)
            return
        if self.signers.get(host) is False or _content(request) not in self._signed:
            self._fail("A1", f"request {request.code} of {host} counts, which nobody signed who may")
        if (end.process.name, once) in self._counted:
            self._fail("A2", f"request {request.code} of {host} counts, and counted before")
        self._counted[end.process.name, once] = None


def _content(request: Command) -> _Content:
    return request.code, tuple(sorted(request.fields.items())), bytes(request.body)
