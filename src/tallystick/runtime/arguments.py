"""What a caller gives, checked where it comes in: Python itself would notice a wrong type much later, or never.

Each function returns the value, or raises UsageError that names the argument, what it must be, and what was given.
Values are shown only of numbers and texts; of all else, which may be secret or long, the type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from inspect import iscoroutinefunction
from operator import index
from typing import Any, TypeVar

from tallystick.errors import UsageError

K = TypeVar("K")
T = TypeVar("T")
MAX_INT64 = (1 << 63) - 1
MAX_INT32, MIN_INT32 = (1 << 31) - 1, -(1 << 31)
SHOWN_CHARACTERS = 60


def payload_bytes(data: object, what: str) -> bytes:
    """The bytes of ``data``, which has a buffer. Raises UsageError for anything else, which names ``what`` it was for.

    ``bytes()`` alone would make a number so many zeros.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]  # refused below if it has no buffer
    except TypeError:
        hint = ": give text.encode()" if isinstance(data, str) else ""
        raise UsageError(f"{what} is bytes{hint}", given=type(data).__name__) from None


def whole(value: object, what: str, *, least: int = 0, most: int | None = None) -> int:
    """A whole number from ``least`` to ``most``, both included; NumPy's count too, True and 3.0 do not."""
    if type(value) is int and value >= least and (most is None or value <= most):
        return value  # nearly always, and a planner asks 100,000 times
    try:
        number = least - 1 if isinstance(value, bool) else index(value)  # type: ignore[arg-type]  # else TypeError
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        end = "" if most is None else f" to {_POWERS.get(most, most)}"
        raise UsageError(f"{what} is a whole number from {_POWERS.get(least, least)}{end}", given=_description(value))
    return number


def number(value: object, what: str, *, above: float | None = None) -> float:
    """A finite number of at least 0, or above ``above``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{what} is a number", given=_description(value))
    if value < 0 or (above is not None and value <= above):
        raise UsageError(
            f"{what} is a number {'from 0' if above is None else f'above {above}'}", given=_description(value)
        )
    return value


def text(value: object, what: str, *, may_be_path: bool = False) -> str:
    """A text. Bytes are none; nor, but in a path, are halves of characters, which ``os.fsdecode`` and JSON let in."""
    if not isinstance(value, str):
        hint = ", not bytes: give it decoded" if isinstance(value, bytes | bytearray) else ""
        raise UsageError(f"{what} is text{hint}", given=_description(value))
    if not (may_be_path or value.isascii()):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{what} is text that UTF-8 can carry, without halves of characters (surrogates)",
                given=_description(value),
            ) from None
    return value


def instance(value: object, kind: type[T], what: str) -> T:
    """A value of this class."""
    if not isinstance(value, kind):
        raise UsageError(f"{what} is of type {kind.__name__}", given=_description(value))
    return value


def optional(value: object, kind: type[T], what: str) -> T | None:
    """None, or a value of this class."""
    return None if value is None else instance(value, kind, what)


def items(value: Iterable[T], what: str, form: str = "a list") -> list[T]:
    """Several, as a list. A text, bytes or a mapping could be iterated over too, but nobody means that."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {form}", given=_description(value))
    return list(value)


def mapping(value: Mapping[K, T], what: str) -> Mapping[K, T]:
    """A dict, or what can be used as one."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{what} is a dict", given=_description(value))
    return value


def listener(value: Callable[..., Any] | None, what: str) -> None:
    """None, or what can be called."""
    if value is not None and not callable(value):
        raise UsageError(f"{what} is a function", given=_description(value))


def plain_function(value: Callable[..., Any], what: str) -> None:
    """What can be called, and does its work in the call: what a coroutine function returns would never run."""
    if not callable(value):
        raise UsageError(f"{what} is a function", given=_description(value))
    if iscoroutinefunction(value) or iscoroutinefunction(type(value).__call__):
        raise UsageError(f"{what} is a function, no coroutine function: nobody would await it")


def check_settings(settings: Any, *, may_be_zero: Iterable[str] = ()) -> None:
    """Each field of a dataclass of settings is what its annotation says: ``bool``, ``int`` or ``float``, above 0.

    Fields of other types are left to who calls.
    """
    for field in fields(settings):
        value, least = getattr(settings, field.name), 0 if field.name in may_be_zero else 1
        if field.type == "int":
            whole(value, field.name, least=least)
        elif field.type == "float":
            number(value, field.name, above=0 if least else None)
        elif field.type == "bool":
            instance(value, bool, field.name)


_POWERS = {MAX_INT64: "2^63 - 1", MAX_INT32: "2^31 - 1", MIN_INT32: "-2^31"}


def _description(value: object) -> str:
    if not isinstance(value, str | int | float | type(None)):
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
