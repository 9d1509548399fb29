"""The arguments and results of the store."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.codec.records import Content
from tallystick.rocketmq.wire.values import PutStatus


@dataclass(slots=True)
class PutRequest:
    """One message, or one batch, to be put into one queue; the store gives it its offsets and its store time.

    ``born_host`` is address and port as a record has them (8 or 20 bytes, ``encode_host``); the bits of
    ``sys_flag`` that tell the width of the hosts are the store's business.
    """

    topic: str
    queue_id: int
    messages: Sequence[Content]
    born_timestamp: int
    born_host: bytes
    sys_flag: int = 0
    reconsume_times: int = 0


@dataclass(slots=True)
class PutResult:
    """The result of a put (``PutMessageResult``). Unless ``status`` is PUT_OK nothing of it is in the log, and the
    numbers mean nothing.

    ``offsets`` has the physical offset of each message, ``end`` is the offset after the last: what flush and slaves
    must have reached. ``queue_offset`` is that of the first.
    """

    status: PutStatus
    offsets: Sequence[int] = ()
    end: int = 0
    queue_offset: int = 0
    store_timestamp: int = 0


class GetStatus(enum.Enum):
    """The outcome of a read from a queue (``GetMessageStatus``)."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()
    BEING_REBUILT = enum.auto()  # ours: the queue's files were lost, and what is here comes again soon
    OFFSET_RESET = enum.auto()  # an operator set the group elsewhere


@dataclass(slots=True)
class GetResult:
    """The result of a read from a queue (``GetMessageResult``). ``buffers`` are views of whole records one after
    another; a view may hold several. They stay valid while held."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview] = field(default_factory=list)
    count: int = 0
    size: int = 0
    far_behind: bool = False  # the reader is so far behind that a slave should serve it
    mark: str | None = None  # of the message before ``next_offset``, where it was asked for and is at hand


@dataclass(slots=True)
class Arrival:
    """Messages that became readable in one queue by one ``reput``: ``next_offset`` is after the last of them."""

    topic: str
    queue_id: int
    next_offset: int
    tags: list[int] = field(default_factory=list)  # the tags code of each


class TimeBoundary(enum.Enum):
    """Which message a time means if several, or none, have it."""

    LOWER = enum.auto()  # the first at or after
    UPPER = enum.auto()  # the last at or before
