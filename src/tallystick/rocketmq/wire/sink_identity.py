"""The identity of a message that a sink of ours sends: a broker of ours stores a message that comes again once.

It is the property ``TALLY_SINK`` of the message, parts parted by blanks, of which names are percent-encoded::

    application query batch partitions partition sequence crc brokers

``crc`` goes on from that of the message before: it stands for all that the partition sent up to this one. ``brokers``
names all sets that the application sends to, parted by commas. An original stores the property like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

from tallystick.errors import RemoteProtocolError

SINK = "TALLY_SINK"
SINK_MARK = f"{SINK}\x01".encode()
_LONGEST = 1024  # characters: a broker keeps the names
_MOST = (1 << 63) - 1


class SinkIdentity(NamedTuple):
    """The place of a message among those of an application. Names are as the property has them."""

    application: str
    query: str
    batch: int
    partitions: int  # of the batch
    partition: int
    sequence: int  # from 0 on, in the partition of the batch
    crc: int
    brokers: str

    @property
    def text(self) -> str:
        return identity_prefix(
            self.application, self.query, self.batch, self.partitions, self.partition
        ) + identity_suffix(self.sequence, self.crc, self.brokers)


def name_part(name: str) -> str:
    """Returns a name as a part of the property."""
    return quote(name, safe="")


def names_of(part: str) -> list[str]:
    """Returns the names of a part that has several."""
    return [unquote(name) for name in part.split(",")]


def brokers_part(brokers: Iterable[str]) -> str:
    """Returns names of broker sets as a part of the property."""
    return ",".join(name_part(name) for name in sorted(set(brokers)))


def identity_prefix(application: str, query: str, batch: int, partitions: int, partition: int) -> str:
    """Returns what the messages of a partition have in common."""
    return f"{application} {query} {batch} {partitions} {partition} "


def identity_suffix(sequence: int, crc: int, brokers: str) -> str:
    """Returns what each has of its own, of one size: records of one size are stored and read faster."""
    return f"{sequence:010} {crc:08x} {brokers}"


def identity_of(properties: bytes) -> SinkIdentity | None:
    """Returns the identity in the properties of a message; None if it has none. Raises RemoteProtocolError for one that
    means nothing."""
    _, mark, rest = (b"\x02" + properties).partition(b"\x02" + SINK_MARK)
    if not mark:
        return None
    text = rest.partition(b"\x02")[0].decode("ascii", "replace")
    parts = text.split(" ")
    try:
        application, query, batch, partitions, partition, sequence, crc, brokers = parts
        numbers = int(batch), int(partitions), int(partition), int(sequence), int(crc, 16)
    except ValueError:
        raise RemoteProtocolError(f"the property {SINK} has other parts than it should", value=text[:100]) from None
    if (
        not (application and query and brokers)
        or len(text) > _LONGEST
        or not 0 <= min(numbers) <= max(numbers) <= _MOST
    ):
        raise RemoteProtocolError(f"the property {SINK} is none", value=text[:100])
    if numbers[2] >= numbers[1] or numbers[4] >> 32:
        raise RemoteProtocolError(f"the property {SINK} names a partition that cannot be", value=text[:100])
    return SinkIdentity(application, query, *numbers, brokers)


def is_possible(identity: SinkIdentity) -> bool:
    """Returns whether a message can have this identity."""
    try:
        return identity_of(SINK_MARK + identity.text.encode()) == identity
    except (RemoteProtocolError, UnicodeEncodeError):
        return False


def without_identity(properties: bytes) -> bytes:
    """Returns the properties of a message without an identity: somebody copied it from another message."""
    return b"\x02".join(part for part in properties.split(b"\x02") if not part.startswith(SINK_MARK))
