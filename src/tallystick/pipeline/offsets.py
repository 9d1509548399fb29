"""How far a streaming query is, as Spark's checkpoint keeps it: the form that the formats share. Pure.

::

    {"v": 1, KEY: …}        equal offsets have equal texts: what is in it ascends
"""

from __future__ import annotations

import json
from collections.abc import Callable
from traceback import walk_tb
from typing import Any, TypeVar

from tallystick.errors import UsageError

VERSION = 1
REMEDY = "restore the newest files of its folder offsets from a copy, or run the query with a checkpoint of its own"

Offset = dict[str, Any]
T = TypeVar("T")


def stamped(key: str, content: object) -> Offset:
    """Returns what Spark stores as JSON."""
    return {"v": VERSION, key: content}


def content_of(offset: Any, key: str, format_name: str, decode: Callable[[Any], T]) -> T:
    """Returns what ``decode`` makes of the content; it raises AttributeError, LookupError, TypeError or ValueError for
    what is none.

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
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UsageError(f"the checkpoint has no offsets of {format_name}: {REMEDY}", offset=offset) from None


def require_json(error: BaseException | None, format_name: str) -> None:
    """Raises UsageError if ``error``, by which a reader is stopped, says that an offset of the checkpoint is no JSON:
    Spark decodes it before it calls a method of the reader."""
    if isinstance(error, json.JSONDecodeError) and not _is_of(error, "tallystick"):
        reason = f"the checkpoint has an offset of {format_name} that is no JSON: {REMEDY}"
        raise UsageError(reason, offset=error.doc, at=error.pos) from None


def _is_of(error: BaseException, package: str) -> bool:
    """Whether an error went through a module of a package."""
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    return any(name.partition(".")[0] == package for name in modules)
