"""One table of handlers, one answer to each request: whatever a handler does with it, others are served."""

from __future__ import annotations

from typing import cast

import pytest

from support.admin_desk import Caller
from tallystick.errors import BrokerError, CorruptRecord, RemoteProtocolError
from tallystick.rocketmq.remoting.dispatch import Dispatch, Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Event, Events

ECHO, LATE, OTHER = 34, 11, 999


def echo(link: Link, command: Command, reply: Reply) -> Command:
    return command.response(0, "at once")


class Desk:
    """A table with an echo; ``replies`` are those of handlers that answer late, or never."""

    def __init__(self) -> None:
        self.told, self.replies, self.at_once, self.caller = list[Event](), list[Reply](), list[int](), Caller()
        self.dispatch = Dispatch(
            Events(self.told.append), lambda link, command, response: self.at_once.append(response.opaque)
        )
        self.dispatch.add({ECHO: echo, LATE: self._late})

    def _late(self, link: Link, command: Command, reply: Reply) -> None:
        self.replies.append(reply)

    def ask(self, code: int, opaque: int = 0, *, one_way: bool = False) -> Command:
        command = request(code, one_way=one_way)
        command.opaque = opaque
        self.dispatch.serve(cast("Link", self.caller), command)
        return command

    def sent(self) -> list[tuple[int, int, str | None]]:
        return [(response.opaque, int(response.code), response.remark) for response in self.caller.sent]

    def reasons(self) -> list[tuple[str, int, str]]:
        return [(event.kind, event.fields["code"], event.fields["reason"]) for event in self.told]


def test_a_handler_answers_at_once_or_later() -> None:
    desk = Desk()
    late = desk.ask(LATE, 1)
    desk.ask(ECHO, 2)
    (reply,) = desk.replies
    assert (desk.sent(), desk.at_once, reply.due, reply.is_wanted) == ([(2, 0, "at once")], [2], True, True)
    reply(late.response(0, "late"))
    assert (desk.sent(), desk.at_once, reply.due) == ([(2, 0, "at once"), (1, 0, "late")], [2], False)


def test_a_handler_that_never_answers_keeps_nobody_waiting() -> None:
    desk = Desk()
    desk.ask(LATE, 1)
    for opaque in range(2, 5):
        desk.ask(ECHO, opaque)
    assert ([opaque for opaque, *_ in desk.sent()], desk.told) == ([2, 3, 4], [])


def test_a_handler_that_answers_twice_is_heard_once_and_told_of() -> None:
    desk = Desk()
    late = desk.ask(LATE, 1)
    for remark in ("first", "second"):
        desk.replies[0](late.response(0, remark))

    def both(link: Link, command: Command, reply: Reply) -> Command:
        reply(command.response(0, "called"))
        return command.response(0, "returned")

    desk.dispatch.add({OTHER: both})
    desk.ask(OTHER, 2)
    assert desk.sent() == [(1, 0, "first"), (2, 0, "called")]
    assert desk.reasons() == [("request failed", code, "answered twice") for code in (LATE, OTHER)]


def test_a_bug_behind_an_answer_is_told_and_answers_nobody() -> None:
    desk = Desk()

    def broken(link: Link, command: Command, reply: Reply) -> None:
        reply(command.response(0))
        raise ZeroDivisionError("ours")

    desk.dispatch.add({OTHER: broken})
    desk.ask(OTHER, 1)
    assert desk.sent() == [(1, 0, None)]
    assert desk.reasons() == [("request failed", OTHER, "ZeroDivisionError('ours')")]


@pytest.mark.parametrize(
    ("error", "code", "remark", "is_bug"),
    [
        (BrokerError("no", response_code=ResponseCode.NO_PERMISSION), 16, "no", False),
        (RemoteProtocolError("broken"), 1, "broken", False),
        (CorruptRecord("the disk"), 1, "the disk", False),
        (ZeroDivisionError("ours"), 1, "ZeroDivisionError: ours", True),
    ],
)
def test_what_a_handler_raises_is_its_answer(error: Exception, code: int, remark: str, is_bug: bool) -> None:
    desk = Desk()

    def raising(link: Link, command: Command, reply: Reply) -> None:
        raise error

    desk.dispatch.add({OTHER: raising})
    desk.ask(OTHER, 1)
    desk.ask(ECHO, 2)
    assert desk.sent() == [(1, code, remark), (2, 0, "at once")]
    assert desk.at_once == [1, 2]
    assert [event.kind for event in desk.told] == ["request failed"] * is_bug


def test_a_code_that_nobody_has_gets_the_answer_of_the_original() -> None:
    desk = Desk()
    desk.ask(OTHER, 1)
    assert (desk.sent(), desk.at_once) == ([(1, 3, " request type 999 not supported")], [1])


def test_a_one_way_request_is_served_and_not_answered() -> None:
    desk = Desk()
    late = desk.ask(LATE, one_way=True)
    for code in (ECHO, OTHER):
        desk.ask(code, one_way=True)
    assert not desk.replies[0].is_wanted
    desk.replies[0](late.response(0))
    assert (desk.sent(), desk.told, desk.replies[0].due) == ([], [], False)


def test_nobody_waits_for_the_answer_on_a_connection_that_ended() -> None:
    desk = Desk()
    desk.ask(LATE)
    desk.caller.alive = False
    assert not desk.replies[0].is_wanted


def test_two_processors_with_one_code_are_an_error() -> None:
    desk = Desk()
    room: dict[int, Handler] = {OTHER: echo, ECHO: echo}
    with pytest.raises(ValueError, match="two handlers of request code 34"):
        desk.dispatch.add(room)
