"""Entries of messages, decoded without a reader."""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.bookkeeper.wire.pulsar_messages import InMessage, iter_messages, open_entry, plain_payload
from tallystick.bookkeeper.wire.stream_values import Position


def iter_entry(data: bytes | memoryview, *, position: Position, max_bytes: int) -> Iterator[list[InMessage]]:
    """Yields the messages of an entry, some thousands at most in each list. Raises as the parts of it do."""
    entry = open_entry(data, position=position)
    yield from iter_messages(entry, plain_payload(entry, max_bytes=max_bytes))


def decode_entry(data: bytes | memoryview, *, position: Position, max_bytes: int) -> list[InMessage]:
    """Decode all messages of an entry. Raises as ``iter_entry`` does."""
    return [message for step in iter_entry(data, position=position, max_bytes=max_bytes) for message in step]
