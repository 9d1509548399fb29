from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from support.admin_desk import Caller
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker import answers
from tallystick.rocketmq.broker.answers import PAGE_ENTRIES, answer_in_slices, page
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.slices import at_once
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import DataVersion
from tallystick.runtime.events import Events

if TYPE_CHECKING:
    from tallystick.rocketmq.broker.parts import Parts
    from tallystick.rocketmq.remoting.link import Link

ASKED = request(1, {})
VERSION = DataVersion(0, 5, 1)
SAME = dialect.write(VERSION).decode()
TABLE = {name: name for name in "dbace"}


def test_an_answer_that_nobody_waits_for_any_more_is_not_made() -> None:
    parts = cast("Parts", SimpleNamespace(sliced=at_once))
    asker, made, refused = Caller(), list[int](), list[str]()

    def pieces() -> Iterator[bytes]:
        for number in range(10):
            asker.alive = number < 6
            made.append(number)
            yield b"%d" % number

    answer_in_slices(parts, ASKED.response(0), pieces(), "too long", reply_to(asker), failed=refused.append)
    assert (made, asker.sent, refused) == ([0, 1, 2, 3, 4, 5, 6], [], [])
    asker.alive = True
    answer_in_slices(parts, ASKED.response(0), [b"a", b"b"], "too long", reply_to(asker))
    assert [bytes(answer.body) for answer in asker.sent] == [b"ab"]


@pytest.mark.parametrize(("last", "code"), [(b"bc", 0), (b"bcd", 1)])
def test_an_answer_may_fill_a_frame_and_not_more(monkeypatch: pytest.MonkeyPatch, last: bytes, code: int) -> None:
    monkeypatch.setattr(answers, "MAX_BODY_BYTES", 3)
    parts, asker, refused = cast("Parts", SimpleNamespace(sliced=at_once)), Caller(), list[str]()
    answer_in_slices(parts, ASKED.response(0), [b"a", last], "too long", reply_to(asker), failed=refused.append)
    (answer,) = asker.sent
    assert (bytes(answer.body), answer.code, len(refused)) == (b"" if code else b"abc", code, code)


def reply_to(asker: Caller) -> Reply:
    return Reply(cast("Link", asker), ASKED, Events())


def test_pages_are_in_the_order_of_the_names() -> None:
    assert list(page(TABLE, VERSION, None, 0, 2)) == ["a", "b"]
    assert list(page(TABLE, VERSION, SAME, 2, 2)) == ["c", "d"]
    assert list(page(TABLE, VERSION, SAME, 4, 2)) == ["e"]
    assert list(page(TABLE, VERSION, SAME, 5, 2)) == []


def test_a_table_that_changed_begins_again() -> None:
    other = dialect.write(DataVersion(0, 5, 2)).decode()
    assert list(page(TABLE, VERSION, other, 3, 2)) == ["a", "b"]
    assert list(page(TABLE, VERSION, "", 3, 2)) == ["a", "b"]


def test_odd_numbers_do_no_harm() -> None:
    assert list(page(TABLE, VERSION, SAME, -3, 2)) == ["a", "b"]
    assert list(page(TABLE, VERSION, SAME, 0, -1)) == []
    long = {f"{number:05}": 0 for number in range(PAGE_ENTRIES + 1)}
    assert len(page(long, VERSION, None, 0, None)) == len(page(long, VERSION, None, 0, 10**6)) == PAGE_ENTRIES
    with pytest.raises(RemoteProtocolError):
        page(TABLE, VERSION, "{", 0, 2)


def test_the_version_of_a_page_is_short() -> None:
    """Half a megabyte that is no strict JSON was a turn of the loop of 460 ms."""
    long = "{'counter':1,'x':[" + "1," * 600 + "1]}"
    with pytest.raises(RemoteProtocolError, match="at most 1024 bytes"):
        page(TABLE, VERSION, long, 0, 2)
