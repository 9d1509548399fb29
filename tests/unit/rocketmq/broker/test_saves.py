"""Which changes a response waits for: those that its own request made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from support.admin_desk import Caller
from tallystick.errors import StorageError
from tallystick.rocketmq.broker.saves import NO_CHANGE, OnSaved, SavedReply, SendCommand
from tallystick.rocketmq.remoting.dispatch import Dispatch, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Events

ASKED = request(1, {})


class Numbers:
    """Saves nothing; ``awaited`` are the changes that responses wait for."""

    def __init__(self) -> None:
        self.changes, self.awaited = 5, list[int]()

    def change(self) -> int:
        self.changes += 1
        return self.changes

    def send(
        self, send: SendCommand, answer: Command, change: int, unsaved: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        self.awaited.append(change)

    def when_saved(self, done: OnSaved) -> None:
        raise AssertionError("a reply says for which change it waits")


@pytest.fixture
def saves() -> Numbers:
    return Numbers()


def served(saves: Numbers, handle: Callable[[Reply], Command | None]) -> Reply:
    """The reply to a request, whose handler has returned."""
    replies: list[Reply] = []

    def handler(link: Link, command: Command, reply: Reply) -> Command | None:
        replies.append(reply)
        return handle(reply)

    dispatch = Dispatch(Events(), lambda link, command, response: None)
    dispatch.add({1: handler}, lambda link, command, events: SavedReply(saves, link, command, events))
    dispatch.serve(cast("Link", Caller()), ASKED)
    return replies[0]


def change_only(saves: Numbers) -> None:
    """The response comes later."""
    saves.change()


def test_a_response_that_is_made_at_once_waits_for_what_its_handler_changed(saves: Numbers) -> None:
    def changing(reply: Reply) -> Command:
        saves.change()
        saves.change()
        return ASKED.response(0)

    served(saves, changing)
    served(saves, lambda reply: ASKED.response(0))
    assert saves.awaited == [7, NO_CHANGE]


def test_a_handler_may_respond_before_it_returns_and_may_raise(saves: Numbers) -> None:
    def responding(reply: Reply) -> None:
        saves.change()
        reply(ASKED.response(0))

    def raising(reply: Reply) -> None:
        saves.change()
        raise StorageError("the log is away")

    served(saves, responding)
    served(saves, raising)
    assert saves.awaited == [6, 7]


def test_what_others_change_before_a_later_response_is_not_waited_for(saves: Numbers) -> None:
    question = served(saves, lambda reply: None)
    order = served(saves, lambda reply: change_only(saves))
    saves.change()
    question(ASKED.response(0))
    order(ASKED.response(0))
    assert saves.awaited == [NO_CHANGE, 6]


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_changed_in_steps_is_waited_for_and_nothing_that_comes_between(saves: Numbers, fails: bool) -> None:
    def steps() -> Iterator[None]:
        yield
        saves.change()
        yield
        if fails:
            saves.change()
            raise StorageError("the log is away")

    reply = served(saves, lambda reply: change_only(saves))
    following = iter(reply.steps(steps()))
    next(following)
    saves.change()  # by another
    next(following)
    saves.change()
    if fails:
        with pytest.raises(StorageError):
            next(following)
    else:
        assert list(following) == []
    saves.change()
    reply(ASKED.response(0))
    assert saves.awaited == [10 if fails else 8]
