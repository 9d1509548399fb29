"""Parts of an entry of a cursor ledger (PositionInfo): joined in this order they are the entry.

A cursor that is far behind in places has thousands of parts, and few of them change from one save to the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from tallystick.bookkeeper.wire.acked_bitmaps import WORD_BITS
from tallystick.bookkeeper.wire.stream_values import AckedRange, Position
from tallystick.bookkeeper.wire.streams_pb2 import PositionInfo
from tallystick.bookkeeper.wire.values import EntryId, LedgerId

WORD_BYTES = WORD_BITS // 8


def mark_part(mark: Position) -> bytes:
    return PositionInfo(ledgerId=mark.ledger, entryId=mark.entry).SerializePartialToString()


def ranges_part(acked: Iterable[AckedRange]) -> bytes:
    """Encode acknowledged entries as ranges: instead of all bitmaps."""
    message = PositionInfo()
    for each in acked:
        added = message.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = each.after[:2]
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = each.to[:2]
    return message.SerializePartialToString()


def properties_part(properties: Mapping[str, int]) -> bytes:
    message = PositionInfo()
    for name, value in properties.items():
        message.properties.add(name=name, value=value)
    return message.SerializePartialToString()


def batch_part(position: Position, unacked: int) -> bytes:
    """Encode which messages of a batch are not acknowledged yet: bit n is message n."""
    message = PositionInfo()
    added = message.batchedEntryDeletionIndexInfo.add(deleteSet=_signed(unacked))
    added.position.ledgerId, added.position.entryId = position[:2]
    return message.SerializePartialToString()


def bitmap_part(ledger: LedgerId, bitmap: bytes) -> bytes:
    """Encode the acknowledged entries of a ledger; the bitmap is of whole words."""
    message = PositionInfo()
    message.individualDeletedMessageRanges.add(
        key=ledger, values=struct.unpack(f"<{len(bitmap) // WORD_BYTES}q", bitmap)
    )
    return message.SerializePartialToString()


def bitmap_words(last: EntryId) -> int:
    """Returns how many words the original writes (RoaringBitmap's ``BitSetUtil``): two, where one would do."""
    return max(last, WORD_BITS) // WORD_BITS + 1


def words_of(bits: int) -> tuple[int, ...]:
    """Returns the words of a bitmap, without zeros at its end (Java's ``BitSet.toLongArray``)."""
    count = word_count(bits)
    return struct.unpack(f"<{count}Q", bits.to_bytes(count * WORD_BYTES, "little"))


def word_count(bits: int) -> int:
    return -(-bits.bit_length() // WORD_BITS)


def bits_of(words: Iterable[int]) -> int:
    """Returns the bitmap that has these words."""
    return int.from_bytes(b"".join(word.to_bytes(WORD_BYTES, "little") for word in words), "little")


def _signed(bits: int) -> tuple[int, ...]:
    count = word_count(bits)
    return struct.unpack(f"<{count}q", bits.to_bytes(count * WORD_BYTES, "little"))
