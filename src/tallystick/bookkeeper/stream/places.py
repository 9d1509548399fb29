"""Where a caller wants to read: positions and times, checked where they come in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.errors import UsageError
from tallystick.runtime.arguments import MAX_INT32, MAX_INT64, whole

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def place(value: Position | str | None, what: str, forms: str) -> Position | None:
    """Returns the position that was given, or written ``ledger:entry``; None for none and for that before all others.

    Entry -1 of a ledger is its beginning. ``forms``: what else the caller takes. Raises UsageError.
    """
    if value is None:
        return None
    ledger, entry, index = position_of(value, f'{what} is a Position, or a text "ledger:entry" ({forms})')
    if (ledger, entry) == EARLIEST[:2]:
        return None
    return Position(
        whole(ledger, f"the ledger of {what}", most=MAX_ID),
        max(0, whole(entry, f"the entry of {what}", least=-1, most=MAX_ID)),
        whole(index, f"the batch index of {what}", least=-1, most=MAX_INT32),
    )


def position_of(value: Position | str, must_be: str) -> Position:
    """Returns the position that was given, or written; its numbers are not checked. A tuple of numbers is none: it says
    neither that it is a position, nor which one. Raises UsageError, which says what it ``must_be``."""
    if isinstance(value, Position):
        return value
    if not isinstance(value, str):
        raise UsageError(must_be, given=type(value).__name__)
    try:
        return Position.parse(value)
    except UsageError:
        raise UsageError(must_be, given=value) from None


def time_ms(value: datetime | int | None, what: str) -> int | None:
    """Returns a time in ms since 1970. Raises UsageError for what is none, and for a datetime without time zone."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(f"{what} needs a time zone: datetime.now(UTC), or .astimezone()", given=str(value))
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return whole(value, f"{what} (a datetime, or ms since 1970)", most=MAX_INT64)
