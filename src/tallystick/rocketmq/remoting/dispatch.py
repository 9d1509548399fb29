"""Which part of a server answers what: one table of handlers by request code, and one answer to each request.

A handler returns its answer; or it returns nothing, and calls ``reply`` with the answer when it has one, as for a pull
that waits for a message or a send that waits for slaves. A room, which is a part of a server, lists its handlers, and
who makes the server adds the rooms to the table. Nothing that a peer sends, and no bug of a handler, makes ``serve``
raise: one request fails then, and the others of its tick are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import Flag, ResponseCode
from tallystick.runtime.events import Events

_ONE_WAY = int(Flag.ONE_WAY)  # an attribute of an enum costs ten times a name, and this is looked at for each request


class Reply:
    """The way of one answer: call it on the loop, once, with that. To a one-way request nothing is sent.

    It keeps nothing of the request, which may wait for long. ``due``: it was not called yet.
    """

    __slots__ = ("_code", "_events", "_one_way", "due", "link")

    def __init__(self, link: Link, command: Command, events: Events) -> None:
        self.link, self.due = link, True
        self._code, self._one_way, self._events = command.code, command.flag & _ONE_WAY, events

    def __call__(self, answer: Command) -> None:
        if not self.due:  # a bug of a handler: the peer has its answer
            self._events.emit("request failed", peer=self.link.peer, code=self._code, reason="answered twice")
            return
        self.due = False
        if not self._one_way:
            self._send(answer)

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for the answer. What the request changes is changed in any case."""
        return not self._one_way and self.link.alive

    def _send(self, answer: Command) -> None:
        """The last step; what a subclass waits for comes before it."""
        self.link.send(answer)


# From the connection, its request and the way of the answer: the answer, or None when it comes, or came, by ``reply``.
# It may raise: what a TallyError says is the answer then.
Handler = Callable[[Link, Command, Reply], Command | None]
MakeReply = Callable[[Link, Command, Events], Reply]


class Dispatch:
    """``add`` the rooms, then ``serve`` requests."""

    def __init__(self, events: Events, answered: Callable[[Link, Command, Command], None]) -> None:
        """``answered`` hears of each request with the answer that it got at once, before that goes out."""
        self._events, self._answered = events, answered
        self._table: dict[int, tuple[Handler, MakeReply]] = {}

    def add(self, handlers: Mapping[int, Handler], reply: MakeReply = Reply) -> None:
        """A room's. Raises ValueError if another room has one of its codes."""
        for code, handler in handlers.items():
            if code in self._table:
                raise ValueError(f"two handlers of request code {int(code)}")
            self._table[int(code)] = (handler, reply)

    def serve(self, link: Link, command: Command) -> None:
        """A code that no room has gets the original's answer for it."""
        handler, make_reply = self._table.get(command.code, _UNKNOWN)
        reply = make_reply(link, command, self._events)
        try:
            answer = handler(link, command, reply)
        except Exception as error:
            answer = self.failure(link, command, error)
            if not reply.due:
                return
        if answer is not None:
            self._answered(link, command, answer)
            reply(answer)

    def failure(self, link: Link, command: Command, error: Exception) -> Command:
        """The answer to a request whose handler, or its later work, raised this."""
        if isinstance(error, BrokerError):
            return command.answer(error.response_code, error.message)
        if isinstance(error, TallyError):  # a missing header field, a body that is none, a disk that fails
            return command.answer(ResponseCode.SYSTEM_ERROR, error.message)
        self._events.emit("request failed", peer=link.peer, code=command.code, reason=repr(error))  # a bug of ours
        return command.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def not_supported(command: Command) -> Command:
    """What a server says to a request that it does not know."""
    remark = f" request type {command.code} not supported"
    return command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


_UNKNOWN: tuple[Handler, MakeReply] = (lambda link, command, reply: not_supported(command), Reply)
