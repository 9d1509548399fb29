from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from support.admin_desk import Caller
from tallystick.rocketmq.broker import responses
from tallystick.rocketmq.broker.responses import respond_in_slices
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.slices import at_once
from tallystick.rocketmq.wire.remoting import request
from tallystick.runtime.events import Events

if TYPE_CHECKING:
    from tallystick.rocketmq.broker.parts import Parts
    from tallystick.rocketmq.remoting.link import Link

ASKED = request(1, {})


def test_an_answer_that_nobody_waits_for_any_more_is_not_made() -> None:
    parts = cast("Parts", SimpleNamespace(make_slices=at_once))
    asker, made, refused = Caller(), list[int](), list[str]()

    def pieces() -> Iterator[bytes]:
        for number in range(10):
            asker.alive = number < 6
            made.append(number)
            yield b"%d" % number

    respond_in_slices(parts, ASKED.response(0), pieces(), "too long", reply_to(asker), failed=refused.append)
    assert (made, asker.sent, refused) == ([0, 1, 2, 3, 4, 5, 6], [], [])
    asker.alive = True
    respond_in_slices(parts, ASKED.response(0), [b"a", b"b"], "too long", reply_to(asker))
    assert [bytes(answer.body) for answer in asker.sent] == [b"ab"]


@pytest.mark.parametrize(("last", "code"), [(b"bc", 0), (b"bcd", 1)])
def test_an_answer_may_fill_a_frame_and_not_more(monkeypatch: pytest.MonkeyPatch, last: bytes, code: int) -> None:
    monkeypatch.setattr(responses, "MAX_BODY_BYTES", 3)
    parts, asker, refused = cast("Parts", SimpleNamespace(make_slices=at_once)), Caller(), list[str]()
    respond_in_slices(parts, ASKED.response(0), [b"a", last], "too long", reply_to(asker), failed=refused.append)
    (answer,) = asker.sent
    assert (bytes(answer.body), answer.code, len(refused)) == (b"" if code else b"abc", code, code)


def reply_to(asker: Caller) -> Reply:
    return Reply(cast("Link", asker), ASKED, Events())
