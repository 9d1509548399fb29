"""A handle that is to be opened: entered, awaited, and used by mistake as if it were there."""

from __future__ import annotations

import asyncio
import copy
from types import TracebackType
from typing import Any, Self

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.opening import Opening


class Handle:
    opened = 0

    def __init__(self) -> None:
        Handle.opened += 1
        self.left: list[type[BaseException] | None] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left.append(kind)


async def _open() -> Handle:
    return Handle()


def opening() -> Opening[Handle]:
    return Opening(_open, "bk.create_ledger(…)")


async def test_it_is_closed_by_who_enters_it_and_open_for_who_awaits_it() -> None:
    async with opening() as entered:
        assert entered.left == []
    assert entered.left == [None]
    assert (await opening()).left == []


async def test_the_handle_knows_how_its_block_was_left() -> None:
    with pytest.raises(ZeroDivisionError):
        async with opening() as entered:
            raise ZeroDivisionError
    assert entered.left == [ZeroDivisionError]


async def test_a_second_entry_is_refused_and_opens_nothing() -> None:
    once = opening()
    async with once as entered:
        before = Handle.opened
        with pytest.raises(UsageError, match=r"bk\.create_ledger\(…\) is opened a second time"):
            await once.__aenter__()
        assert Handle.opened == before and entered.left == []
    with pytest.raises(UsageError, match="a second time"):
        await once.__aenter__()


async def test_it_opens_one_handle_however_it_is_opened() -> None:
    awaited = opening()
    await awaited
    before = Handle.opened
    with pytest.raises(UsageError, match="is opened a second time"):
        await awaited
    with pytest.raises(UsageError, match="is opened a second time"):
        async with awaited:
            pass
    async with (entered := opening()):
        before += 1
        with pytest.raises(UsageError, match="is opened a second time"):
            await entered
    assert Handle.opened == before
    assert (await awaited.anew()).left == []


async def test_of_two_that_enter_at_once_one_is_refused() -> None:
    may_open = asyncio.Event()

    async def open_() -> Handle:
        await may_open.wait()
        return Handle()

    once, before = Opening(open_, "bk.create_ledger(…)"), Handle.opened
    first = asyncio.create_task(once.__aenter__())
    await asyncio.sleep(0)
    second = asyncio.create_task(once.__aenter__())
    await asyncio.sleep(0)
    may_open.set()
    with pytest.raises(UsageError, match="a second time"):
        await second
    await first
    assert Handle.opened == before + 1, "nobody would close the other one"


def test_use_before_it_is_open_says_how_to_open_it() -> None:
    unopened: Any = opening()
    with pytest.raises(UsageError, match="async with") as raised:
        unopened.append(b"x")
    assert raised.value.fields["asked_for"] == "append"
    with pytest.raises(UsageError, match=r"or what `await` returns: `… = await bk\.create_ledger\(…\)`"):
        aiter(unopened)
    assert "await it" in repr(unopened)
    assert not hasattr(unopened, "_other")
    copy.copy(unopened)  # what Python looks for is an attribute that is not there


def test_entered_without_async_it_says_what_to_use() -> None:
    with pytest.raises(UsageError, match=r"`async with bk\.create_ledger\(…\) as …`; tallystick.sync has"), opening():  # type: ignore[attr-defined]
        pass
