"""How far a streaming query is, as Spark's checkpoint keeps it: the form that the formats share. Pure.

::

    {"v": 1, KEY: …}        equal offsets have equal texts: what is in it ascends
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tallystick.errors import UsageError

VERSION = 1

Offset = dict[str, Any]
T = TypeVar("T")


def stamped(key: str, content: object) -> Offset:
    """Returns what Spark stores as JSON."""
    return {"v": VERSION, key: content}


def content_of(offset: Any, key: str, format_name: str, decode: Callable[[Any], T]) -> T:
    """Returns what ``decode`` makes of the content; it raises AttributeError, TypeError or ValueError for what is none.

    Raises UsageError for an offset that this version of the format did not write.
    """
    version = offset.get("v") if isinstance(offset, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UsageError(
            "the checkpoint has offsets of a newer tallystick: run the query with that version, or with a checkpoint "
            "of its own",
            offset_version=version,
            newest_known=VERSION,
        )
    try:
        if version != VERSION or set(offset) != {"v", key}:
            raise ValueError
        return decode(offset[key])
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f"the checkpoint has no offsets of {format_name}", offset=offset) from None
