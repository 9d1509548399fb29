from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.arguments import (
    MAX_INT64,
    check_settings,
    items,
    listener,
    mapping,
    number,
    payload_bytes,
    plain_function,
    text,
    whole,
)
from tallystick.runtime.events import Events


@pytest.mark.parametrize("data", [b"ab", bytearray(b"ab"), memoryview(b"xabx")[1:3], array("B", b"ab")])
def test_what_has_a_buffer_is_bytes(data: object) -> None:
    assert payload_bytes(data, "an entry") == b"ab"


@pytest.mark.parametrize("data", [5, [1, 2], None, 1.5])
def test_what_has_none_is_refused(data: object) -> None:
    with pytest.raises(UsageError, match=r"^an entry is bytes \(given="):
        payload_bytes(data, "an entry")


def test_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"a message's body is bytes: give text.encode\(\) \(given=str\)"):
        payload_bytes("text", "a message's body")


class Count:
    """As NumPy's numbers: whole, and no int."""

    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize("value", [0, 3, Count(), MAX_INT64])
def test_a_whole_number_is_an_int(value: object) -> None:
    found = whole(value, "first", most=MAX_INT64)
    assert type(found) is int and found in (0, 3, MAX_INT64)


@pytest.mark.parametrize("value", [-1, True, 3.0, "3", None, b"3", MAX_INT64 + 1])
def test_what_is_no_whole_number_is_named(value: object) -> None:
    with pytest.raises(UsageError, match=r"^first is a whole number from 0 to 2\^63 - 1 \(given="):
        whole(value, "first", most=MAX_INT64)


def test_the_least_counts_and_one_less_does_not() -> None:
    assert whole(1, "ensemble", least=1) == 1
    with pytest.raises(UsageError, match=r"^ensemble is a whole number from 1 \(given=0\)$"):
        whole(0, "ensemble", least=1)


@pytest.mark.parametrize("value", [-0.5, True, "1", None, float("nan"), float("inf")])
def test_what_is_no_number_is_named(value: object) -> None:
    with pytest.raises(UsageError, match=r"^delay_s is a number"):
        number(value, "delay_s")
    assert number(0, "delay_s") == 0 and number(1.5, "delay_s", above=0) == 1.5
    with pytest.raises(UsageError, match=r"^delay_s is a number above 0 \(given=0\)$"):
        number(0, "delay_s", above=0)


def test_texts_lists_and_mappings() -> None:
    assert text("T", "topic") == "T"
    assert items((n for n in range(2)), "data") == [0, 1]
    assert mapping({"a": 1}, "properties") == {"a": 1}
    for wrong in ("abc", b"abc", {"a": 1}, 5, None):
        with pytest.raises(UsageError, match=r"^data is a list \(given="):
            items(wrong, "data")  # type: ignore[arg-type]
    for wrong in (b"T", 5, None):
        with pytest.raises(UsageError, match=r"^topic is text"):
            text(wrong, "topic")
    with pytest.raises(UsageError, match=r"^properties is a dict \(given=list\)$"):
        mapping([1], "properties")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^on_revoked is a function \(given=5\)$"):
        listener(5, "on_revoked")  # type: ignore[arg-type]


class Asked:
    def __call__(self, queues: list[str]) -> None: ...

    async def later(self, queues: list[str]) -> None: ...


class AskedLater:
    async def __call__(self, queues: list[str]) -> None: ...


async def later(queues: list[str]) -> None: ...


@pytest.mark.parametrize("given", [later, partial(later, []), Asked().later, AskedLater()])
def test_a_coroutine_function_is_refused_where_nobody_awaits_what_it_returns(given: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"^on_revoked is a function, no coroutine function"):
        plain_function(given, "on_revoked")
    listener(given, "on_revoked")


def test_events_take_what_hears_them_at_once() -> None:
    events, wrong = Events(print), list[Any]([later, 5])
    for given in wrong:
        with pytest.raises(UsageError, match=r"^a listener of events is a function"):
            Events(print, given)
        with pytest.raises(UsageError, match=r"^a listener of events is a function"), events.listening(given):
            pass


def test_whatever_works_when_it_is_called_is_a_plain_function() -> None:
    functions: list[Callable[..., Any]] = [print, Asked(), Asked, [].append, partial(print, 1), lambda: None]
    for given in functions:
        plain_function(given, "on_revoked")
    for wrong in (5, None):
        with pytest.raises(UsageError, match=rf"^on_revoked is a function \(given={wrong}\)$"):
            plain_function(wrong, "on_revoked")  # type: ignore[arg-type]


def test_long_texts_are_shown_in_part_and_secrets_not_at_all() -> None:
    with pytest.raises(UsageError) as long:
        whole("7" * 1000, "first")
    assert len(str(long.value)) < 150
    with pytest.raises(UsageError, match=r"\(given=bytes\)$"):
        whole(b"secret", "first")


@dataclass(frozen=True)
class Settings:
    timeout_s: float = 1.0
    retries: int = 0
    degraded: bool = True
    delays_s: tuple[float, ...] = ()


@pytest.mark.parametrize(
    "wrong", [{"timeout_s": 0}, {"timeout_s": "1"}, {"retries": -1}, {"retries": 0.5}, {"degraded": "no"}]
)
def test_settings_are_what_they_are_declared_to_be(wrong: dict[str, object]) -> None:
    check_settings(Settings(timeout_s=1, delays_s=(-1,)), may_be_zero=("retries",))
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} is "):
        check_settings(Settings(**wrong), may_be_zero=("retries",))  # type: ignore[arg-type]
