"""Which part of a server handles which request: a table of handlers by request code, and one response to each request.

A handler returns its response; or it returns None, and calls ``reply`` with the response when it has one, as for a pull
that waits for a message or a send that waits for slaves. A processor is a part of a server: it lists its handlers, and
the server adds them to the table. Nothing that a peer sends, and no bug of a handler, makes ``serve`` raise: one
request fails then, and the others of its tick are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import Flag, ResponseCode
from tallystick.runtime.events import Events

T = TypeVar("T")

_ONE_WAY = int(Flag.ONE_WAY)  # an attribute of an enum costs ten times a name, and this is looked at for each request


class Reply:
    """Sends the response to one request: call it once, on the loop. To a one-way request nothing is sent.

    It keeps nothing of the request, which may wait for long. ``due`` is True until it is called.
    """

    __slots__ = ("_code", "_events", "_one_way", "due", "link")

    def __init__(self, link: Link, command: Command, events: Events) -> None:
        self.link, self.due = link, True
        self._code, self._one_way, self._events = command.code, command.flag & _ONE_WAY, events

    def __call__(self, response: Command) -> None:
        if not self.due:  # a bug of a handler: the peer has its response
            self._events.emit("request failed", peer=self.link.peer, code=self._code, reason="answered twice")
            return
        self.due = False
        if not self._one_way:
            self._send(response)

    @property
    def is_wanted(self) -> bool:
        """Whether the peer waits for the response. The request is carried out in any case."""
        return not self._one_way and self.link.alive

    def handled(self) -> None:
        """The handler has returned, or raised; the response may come later. A subclass may note what was done."""

    def steps(self, steps: Iterable[T]) -> Iterable[T]:
        """Returns the steps in which the request goes on after its handler. A subclass may note what they do."""
        return steps

    def _send(self, response: Command) -> None:
        """Send the response; a subclass waits for something first."""
        self.link.send(response)


# Gets the connection, its request and the reply; returns the response, or None when that comes, or came, by the reply.
# It may raise: the response then has what a TallyError says.
Handler = Callable[[Link, Command, Reply], Command | None]
MakeReply = Callable[[Link, Command, Events], Reply]
Gate = Callable[[Link, Command], None]  # raises BrokerError for a request that its peer may not send


def open_gate(link: Link, command: Command) -> None:
    """Let every request pass."""


class Dispatch:
    """``add`` the handlers of processors, then ``serve`` requests."""

    def __init__(
        self, events: Events, on_response: Callable[[Link, Command, Command], None], gate: Gate = open_gate
    ) -> None:
        """``on_response`` gets each request with a response that a handler returned, before that is sent. ``gate`` is
        asked before a handler is called, or anything is said of the request's code."""
        self._events, self._on_response, self._gate = events, on_response, gate
        self._table: dict[int, tuple[Handler, MakeReply]] = {}

    def add(self, handlers: Mapping[int, Handler], reply: MakeReply = Reply) -> None:
        """Add the handlers of a processor. Raises ValueError if another has one of its codes."""
        for code, handler in handlers.items():
            if code in self._table:
                raise ValueError(f"two handlers of request code {int(code)}")
            self._table[int(code)] = (handler, reply)

    def serve(self, link: Link, command: Command) -> None:
        """Serve a request; one whose code no processor has gets the original's response to that."""
        handler, make_reply = self._table.get(command.code, _UNKNOWN)
        reply = make_reply(link, command, self._events)
        try:
            try:
                self._gate(link, command)
                response = handler(link, command, reply)
            finally:
                reply.handled()
        except Exception as error:
            response = self.failure(link, command, error)
            if not reply.due:
                return
        if response is not None:
            self._on_response(link, command, response)
            reply(response)

    def failure(self, link: Link, command: Command, error: Exception) -> Command:
        """Returns the response to a request whose handler, or its later work, raised ``error``."""
        if isinstance(error, BrokerError):
            return command.response(error.response_code, error.message)
        if isinstance(error, TallyError):  # a missing header field, a body that is none, a disk that fails
            return command.response(ResponseCode.SYSTEM_ERROR, error.message)
        self._events.emit("request failed", peer=link.peer, code=command.code, reason=repr(error))  # a bug of ours
        return command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def not_supported(command: Command) -> Command:
    """Returns the response to a request whose code the server does not know."""
    remark = f" request type {command.code} not supported"
    return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


_UNKNOWN: tuple[Handler, MakeReply] = (lambda link, command, reply: not_supported(command), Reply)
