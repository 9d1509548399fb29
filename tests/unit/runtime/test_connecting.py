"""A client that is to be made: entered, awaited, and used by mistake as if it were there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.connecting import Connecting


class Client:
    closed = False

    async def close(self) -> None:
        self.closed = True


async def _make() -> Client:
    return Client()


async def test_it_is_closed_by_who_enters_it_and_open_for_who_awaits_it() -> None:
    async with Connecting(_make) as entered:
        assert not entered.closed
    assert entered.closed
    assert not (await Connecting(_make)).closed


def test_use_before_it_is_made_says_how_to_make_it() -> None:
    connecting: Any = Connecting(_make)
    with pytest.raises(UsageError, match="async with") as raised:
        connecting.producer("p")
    assert raised.value.asked_for == "producer"
    assert not hasattr(connecting, "_other")
    copy.copy(connecting)  # what Python looks for is an attribute that is not there
