"""The checks of what a sink of ours sends (SEND_SINK_BATCH, ours alone): each message is stored once, in its order.

The request is a batch whose messages have identities (``SinkIdentity``) that follow each other. What is stored already
is passed over; a batch of such messages alone waits for disk and slaves as if it were stored now. A message behind a
gap is refused: those before it are under way, or lost, and would be taken for stored. An original answers the code with
"not supported".
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from tallystick.codec.records import Content
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.broker.send_checks import CheckedSend
from tallystick.rocketmq.store.sink_table import SinkPartition, SinkState
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.headers import SendResponse
from tallystick.rocketmq.wire.record import UNIQ_KEY, IndexType, StoredMessage, decode_message, decode_properties
from tallystick.rocketmq.wire.sink_identity import SINK, SinkIdentity, identity_of
from tallystick.rocketmq.wire.values import ResponseCode

_STEPS = 16  # of a search for a message that is stored already: it is done in one turn of the loop
_FULL = (
    "this broker has all the sinks that it may (maxSinkPartitions): `tally topic sinks` lists them, and "
    "`tally topic forget-sink` makes room"
)
_EVER_MS = (1 << 62) - 1


class SinkSend(NamedTuple):
    """A batch, or the rest of one, that is to be stored at once. ``last`` is the identity of its last message; if some
    are stored already, the first of those ends at the physical offset ``first_end``, else that is None."""

    checked_send: CheckedSend
    last: SinkIdentity
    first_end: int | None


class RepeatedSend(NamedTuple):
    """A batch that is stored already, before the physical offset ``end``, its first message before ``first_end``: the
    response waits for all of it."""

    topic: str
    first_end: int
    end: int
    fields: dict[str, str]


class SinkChecks:
    """Checks one request at a time, by all that is stored before it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def check(self, checked_send: CheckedSend) -> SinkSend | RepeatedSend | Refusal:
        """Check a batch that may be stored otherwise. Raises RemoteProtocolError for messages that are none of a
        sink."""
        put_request = checked_send.put_request
        messages = put_request.messages
        first, last = _identity(messages[0]), _identity(messages[-1])
        if first[:5] != last[:5] or last.sequence - first.sequence != len(messages) - 1:
            raise RemoteProtocolError("the messages of a sink do not follow each other", first=first, last=last)
        sinks, topic = self._store.sinks, put_request.topic
        state = sinks.find(topic, first.application)
        newest: SinkPartition | None = None
        if state is not None:
            refusal = objection(state, first)
            if refusal is not None:
                return refusal
            if state.batch == first.batch:
                newest = state.partitions.get(first.partition)
        expected = 0 if newest is None else newest.sequence + 1
        if first.sequence > expected:
            return Refusal(ResponseCode.SINK_GAP, f"message {expected} of the partition comes next: {first.text}")
        repeated_count = expected - first.sequence
        if newest is not None and 0 < repeated_count <= len(messages):
            again = _identity(messages[repeated_count - 1])
            if again.crc != newest.crc:
                return Refusal(ResponseCode.SINK_DIFFERS, f"another message is stored under this number: {again.text}")
        first_end: int | None = None
        if newest is not None and repeated_count > 0:
            queue_offset, first_end = self._place(topic, messages[0], first, newest)
            if repeated_count >= len(messages):
                response = SendResponse(msg_id="", queue_id=put_request.queue_id, queue_offset=queue_offset)
                return RepeatedSend(topic, first_end, newest.end, response.to_fields())
        if newest is None and not sinks.room_for(topic, first):
            return Refusal(ResponseCode.SINK_FULL, _FULL)
        put_request.messages = messages[repeated_count:]
        return SinkSend(checked_send, last, first_end)

    def _place(self, topic: str, message: Content, first: SinkIdentity, newest: SinkPartition) -> tuple[int, int]:
        """Returns the queue offset of a request's first message, which is stored, and the physical offset behind it.

        If it is not found soon the first one is -1. As long as it may be there all the same the other one is as near to
        the log's beginning as can be, and else that of the newest message.
        """
        if first.sequence == newest.sequence:
            return newest.queue_offset, newest.end
        stored = self._in_queue(topic, first, newest) or self._in_index(topic, message)
        if stored is not None:
            return stored.queue_offset, stored.physical_offset + stored.size
        is_gone = self._store.reput_offset >= newest.end and self._store.has_whole_index
        return -1, newest.end if is_gone else 1

    def _in_queue(self, topic: str, first: SinkIdentity, newest: SinkPartition) -> StoredMessage | None:
        """Returns the message where it is if no other sender's are among those of its partition, which are in one
        queue."""
        offset = newest.queue_offset - (newest.sequence - first.sequence)
        for physical, _, _ in self._store.queue_units(topic, newest.queue_id, offset, 1) or ():
            record = self._store.record(physical)
            stored = None if record is None else decode_message(record)
            if stored is not None and stored.topic == topic and _is_place_of(first, stored.stored_properties):
                return stored
        return None

    def _in_index(self, topic: str, message: Content) -> StoredMessage | None:
        key = decode_properties(message[2]).get(UNIQ_KEY)
        if key is not None:
            records = self._store.look_for(topic, key, 1, 0, _EVER_MS, IndexType.UNIQUE)
            for record in filter(None, islice(records, _STEPS)):
                return decode_message(record)
        return None


def _is_place_of(identity: SinkIdentity, properties: bytes) -> bool:
    """Whether stored properties have this place in the same batch."""
    try:
        stored_identity = identity_of(properties)
    except RemoteProtocolError:  # an original stores whatever it is sent
        return False
    return stored_identity is not None and stored_identity[:6] == identity[:6]


def objection(state: SinkState, identity: SinkIdentity) -> Refusal | None:
    """Returns why an application whose newest batch is ``state`` cannot send this message; None if it may."""
    recorded = f"query {state.query} with batch {state.batch} in {state.partition_count} partitions is recorded"
    if state.query != identity.query or identity.batch < state.batch:
        return Refusal(ResponseCode.SINK_QUERY, f"{recorded}: {identity.text}")
    if identity.batch == state.batch and identity.partitions != state.partition_count:
        return Refusal(ResponseCode.SINK_PARTITIONS, f"{recorded}: {identity.text}")
    return None


def _identity(message: Content) -> SinkIdentity:
    identity = identity_of(message[2])
    if identity is None:
        raise RemoteProtocolError(f"a message of a sink lacks the property {SINK}")
    return identity
