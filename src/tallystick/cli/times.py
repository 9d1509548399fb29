"""Times as they are typed and shown."""

from __future__ import annotations

from datetime import UTC, datetime

from tallystick.errors import UsageError

MOST_MS = (1 << 63) - 1


def parse(written: str, option: str) -> int:
    """Returns ms since 1970 of ``2026-03-01T12:00`` by the clock of this machine, ``2026-03-01T12:00Z``, or a number of
    them. Raises UsageError."""
    if written.isdecimal() and written.isascii() and int(written) <= MOST_MS:
        return int(written)
    try:
        milliseconds = round(datetime.fromisoformat(written).timestamp() * 1000)  # a float, mostly a bit beside it
    except (ValueError, OverflowError):
        raise UsageError(f"{option} is a time as 2026-03-01T12:00, or ms since 1970", given=written) from None
    if milliseconds < 0:
        raise UsageError(f"{option} is a time from 1970 on", given=written)
    return milliseconds


def shown(milliseconds: int) -> str:
    """Returns a time with its milliseconds, always three digits. Stored times are a stranger's numbers: one that is no
    date is shown as it is."""
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"
