"""How what is appended becomes the bytes of an entry: as Pulsar's producers write messages, or as it is (raw).

What takes long to encode, as it is compressed or has very many messages, is encoded beside the loop. Very many messages
are checked over several turns of it, when their entry has its place among the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.producers import LONGEST_NAME, has_numbers
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.side_thread import SideThread, compress_us
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import MESSAGE_BYTES, MOST_FIELDS, OutMessage, encode_entry
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES
from tallystick.errors import UsageError
from tallystick.runtime.arguments import MAX_INT64, mapping, payload_bytes, text, whole
from tallystick.runtime.clock import Clock

CHECKED_AT_ONCE = 1024  # messages: a millisecond or two

_MESSAGE_US = 1.0  # about what a message of a batch takes, and as much a property
_BUFFERS = frozenset((bytes, bytearray, memoryview))
_MESSAGES = frozenset((bytes, OutMessage))


class Batch(NamedTuple):
    """The messages of an entry. Of very many none is checked yet; but nobody else can change their data."""

    messages: Sequence[bytes | OutMessage]
    is_checked: bool

    def behind(self, count: int) -> Batch:
        """Returns the same without the first messages."""
        return Batch(self.messages[count:], self.is_checked)

    @property
    def data_bytes(self) -> int:
        return sum([len(one.data if isinstance(one, OutMessage) else one) for one in self.messages])


class EntryEncoder:
    """The entries of one owner. Publish times never step back; sequences that nobody gives ascend from 0."""

    __slots__ = ("_clock", "_compression", "_published_ms", "_sequence", "_thread", "is_raw", "producer")

    def __init__(self, settings: StreamSettings, producer: str, clock: Clock, thread: SideThread) -> None:
        self.is_raw, self.producer = settings.entry_format == "raw", producer
        self._compression = None if settings.compression is None else Compression.parse(settings.compression)
        self._clock, self._thread = clock, thread
        self._published_ms = self._sequence = 0

    def message(
        self,
        data: object,
        key: str | bytes | None = None,
        event_time: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> OutMessage:
        """Raises UsageError for what is no message."""
        payload = payload_bytes(data, "a message")
        if key is None and event_time is None and properties is None:
            return OutMessage(payload)
        if key is not None and not isinstance(key, bytes):
            text(key, "a key")
        event_time_ms = None if event_time is None else whole(event_time, "event_time (ms since 1970)", most=MAX_INT64)
        return OutMessage(payload, key, event_time_ms, _checked(properties))

    def checked(self, given: object) -> OutMessage:
        """Returns the OutMessage, or that of bytes. Raises UsageError for what is no message."""
        if isinstance(given, OutMessage):
            is_data_alone = given.key is None and given.event_time_ms is None and given.properties is NO_PROPERTIES
            if is_data_alone and type(given.data) is bytes:
                return given  # nobody can change it
            return self.message(given.data, given.key, given.event_time_ms, given.properties)
        return self.message(given)

    def numbered(self, producer: str | None, sequence: int | None, count: int) -> tuple[str, int]:
        """Returns both if they can be those of a numbered append of ``count`` messages. Raises UsageError."""
        if producer is None or sequence is None:
            raise UsageError("producer and sequence are given together, or neither is")
        if not text(producer, "producer"):
            raise UsageError("a producer needs a name")
        if len(producer) > LONGEST_NAME:
            raise UsageError(f"the name of a producer has {LONGEST_NAME} characters at most", characters=len(producer))
        if not has_numbers(producer):
            raise UsageError("owners and sinks have such names: nobody knows their numbers again", producer=producer)
        return producer, whole(sequence, "sequence", most=MAX_INT64 - count + 1)

    def batch(self, given: list[object]) -> Batch:
        """Returns messages, each an OutMessage or bytes. Raises UsageError for what is no message, which may come with
        the encoding where there are very many."""
        if len(given) > MOST_FIELDS:
            raise UsageError(f"a batch has {MOST_FIELDS} messages at most", messages=len(given))
        if len(given) > CHECKED_AT_ONCE:
            kinds = set(map(type, given))
            if kinds <= _BUFFERS:
                return Batch(list(map(bytes, given)), is_checked=False)  # type: ignore[arg-type]  # of all buffers
            if kinds <= _MESSAGES and all([type(one) is bytes or type(one.data) is bytes for one in given]):  # type: ignore[attr-defined]  # an OutMessage
                return Batch(given, is_checked=False)  # type: ignore[arg-type]  # of these two kinds
        return Batch([self.checked(one) for one in given], is_checked=True)

    def encode(self, messages: Sequence[OutMessage], producer: str | None, sequence: int | None) -> bytes | LateEntry:
        """Returns an entry: without a producer one of this owner's own, with its next number. Raises UsageError, which
        may come with the encoding of a late entry."""
        encode = self._encode(messages, len(messages), producer, sequence)
        if self._compression is None and len(messages) == 1:
            return encode()
        size, count = sum([len(each.data) for each in messages]), len(messages)
        if count > 1:
            count += sum([len(each.properties) for each in messages])
        if self._thread.takes(compress_us(size, self._compression) + count * _MESSAGE_US):
            return LateEntry(sum([each.size for each in messages]), encode, self._thread)
        return encode()

    def encode_batch(self, batch: Batch, producer: str | None, sequence: int | None) -> bytes | LateEntry:
        """The same of a batch."""
        if batch.is_checked:
            return self.encode(cast(Sequence[OutMessage], batch.messages), producer, sequence)
        messages, count = list[OutMessage](), len(batch.messages)
        encode = self._encode(messages, count, producer, sequence)
        checks = self._checks(batch.messages, messages)
        return LateEntry(batch.data_bytes + count * MESSAGE_BYTES, encode, self._thread, checks)

    def _encode(
        self, messages: Sequence[OutMessage], count: int, producer: str | None, sequence: int | None
    ) -> Callable[[], bytes]:
        """Returns what encodes ``count`` messages, which have their numbers and time by now."""
        if producer is None or sequence is None:
            producer, sequence = self.producer, self._sequence
            self._sequence += count
        self._published_ms = max(self._published_ms, self._clock.wall_ms())
        return partial(
            encode_entry,
            messages,
            producer=producer,
            sequence=sequence,
            publish_time_ms=self._published_ms,
            compression=self._compression,
        )

    def _checks(self, given: Sequence[bytes | OutMessage], messages: list[OutMessage]) -> Iterator[int]:
        """Yields what each part of them has beside data, and adds it to ``messages``."""
        for start in range(0, len(given), CHECKED_AT_ONCE):
            some = [self.checked(one) for one in given[start : start + CHECKED_AT_ONCE]]
            messages += some
            yield sum([one.size - MESSAGE_BYTES - len(one.data) for one in some])

    def raw(self, data: object, *fields: object) -> bytes:
        """Raises UsageError where there are ``fields``."""
        if any(field is not None for field in fields):
            raise UsageError("raw entries have no key, times, properties, producer or sequence")
        return payload_bytes(data, "an entry")


def _checked(properties: Mapping[str, str] | None) -> Mapping[str, str]:
    if properties is None:
        return NO_PROPERTIES
    return {
        text(name, "a name in properties"): text(value, "a value in properties")
        for name, value in mapping(properties, "properties").items()
    }
