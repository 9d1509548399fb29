"""Up to where the messages of a stream have expired: what nobody acknowledged in time is passed over by all cursors.

The owner of the stream decides it, and keeps it beside the list, as a property of the stream: so that no two owners
decide differently, and whoever has a cursor sees it with the next change of the list.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo
from tallystick.errors import UsageError

EXPIRED_KEY = "tallystick/expired"


def expired_in(info: StreamInfo) -> Position:
    """Returns the last entry that has expired, EARLIEST if none has."""
    with contextlib.suppress(UsageError):
        return Position.parse(info.properties.get(EXPIRED_KEY, "")).of_entry
    return EARLIEST


def with_expired(info: StreamInfo, up_to: Position) -> StreamInfo:
    """Returns the list with this, or what has expired already, whichever is more."""
    if up_to <= expired_in(info):
        return info
    return replace(info, properties={**info.properties, EXPIRED_KEY: str(up_to)})


def last_before(info: StreamInfo, position: Position) -> Position:
    """Returns the last entry before this one, EARLIEST if the stream has none."""
    if position.entry > 0:
        return Position(position.ledger, position.entry - 1)
    for listed in reversed(info.ledgers):
        if listed.ledger < position.ledger and listed.entries:
            return Position(listed.ledger, listed.entries - 1)
    return EARLIEST
