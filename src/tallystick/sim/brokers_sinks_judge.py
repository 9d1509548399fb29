"""What brokers promise to sinks (B11): each message is in the log once, in the order of its partition and without gaps;
batches follow each other; what was acknowledged keeps the promises that producers get; and a broker knows of exactly
what its log has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.rocketmq.client.sending import SendResult, SendStatus
from tallystick.rocketmq.client.sinking import SinkPlace
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.record import StoredMessage
from tallystick.rocketmq.wire.sink_identity import SinkIdentity, identity_of
from tallystick.rocketmq.wire.values import RETRY_PREFIX, MessageQueue
from tallystick.sim.brokers_expectation import Expectation
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.brokers_views import BrokerView, records, store_of
from tallystick.sim.invariants import OnViolation

Newest = dict[tuple[str, str], tuple[int, dict[int, int]]]  # by topic and application: batch, sequence by partition


class SinksJudge:
    """``tell`` is told of what is acknowledged: the messages, what a producer would hear, and since when it waited."""

    def __init__(
        self, expectation: Expectation, plan: BrokersPlan, fail: OnViolation,
        tell: Callable[[Sequence[bytes], SendResult, float], None],
    ) -> None:  # fmt: skip
        self._expectation, self._plan, self.fail, self._tell = expectation, plan, fail, tell
        self._batches: dict[str, int] = {}  # by application: the newest that was begun

    # Applications.

    def began(self, application: str, batch: int) -> None:
        self._batches[application] = batch

    def sending(self, bodies: Sequence[bytes]) -> None:
        self._expectation.sent_bodies |= dict.fromkeys(bodies)

    def heard_of_a_later_batch(self, place: SinkPlace) -> None:
        """An attempt was told that a later batch, or another query, is recorded."""
        if place.batch >= self._batches[place.application]:
            self.fail("B11", f"a batch that nobody has begun is recorded behind {place}")

    def acknowledged(self, place: SinkPlace, queue: MessageQueue, bodies: Sequence[bytes], began: float) -> None:
        """An attempt, which began a send at ``began``, was told that these messages are stored."""
        master = self._expectation.master
        if master.broker is None or began <= self._expectation.changed_at:
            return  # nobody can tell where
        stored = {message.body(): message for _, message in self._sent(master, store_of(master), place.application)}
        prefix = bodies[0].partition(b":")[0] + b":"
        last_offset = max((ack.at for ack in self._expectation.acks if ack.body.startswith(prefix)), default=-1)
        for body in bodies:
            if (message := stored.get(body)) is None:
                self._require_loss(place, body, began)
            elif message.physical_offset > last_offset:  # it is new, or was lost
                result = SendResult(
                    SendStatus.SEND_OK,
                    "",
                    message.offset_id,
                    MessageQueue(message.topic, queue.broker, message.queue_id),
                    message.queue_offset,
                )
                self._tell([body], result, began)

    def _require_loss(self, place: SinkPlace, body: bytes, began: float) -> None:
        if (
            not any(when >= began for when, _ in self._expectation.losses)
            and not store_of(self._expectation.master).first
        ):
            self.fail("B11", f"{body!r} of {place} is said to be stored, and is in no log")

    # Brokers.

    def ends(self, node: BrokerView, store: MessageStore) -> None:
        """The process of a broker is about to die."""
        if node is self._expectation.master and store.flushed < store.end:  # one that is closed cannot be read
            self._newest(node, store)

    def at_the_end(self) -> None:
        """Check the logs and tables when all is settled."""
        for node in self._expectation.nodes:
            store = store_of(node)
            newest, table = self._newest(node, store), _known(store)
            for key, (batch, sequences) in newest.items():
                known_batch, known_sequences = table.get(key, (-1, {}))
                if known_batch != batch or any(known_sequences.get(part, -1) != at for part, at in sequences.items()):
                    self.fail("B11", f"{node.id} takes {table.get(key)} of {key} for stored, and has {newest[key]}")
            lost = [key for key in table if key not in newest and not store.first]
            if lost:
                self.fail("B11", f"{node.id} takes messages of {lost} for stored, and has none")

    def unsettled(self, slaves: Sequence[BrokerView]) -> str | None:
        """Returns which of these slaves knows less of sinks than its master. Returns None if none does. One that will
        begin with the master's newest file, which has no byte yet, has no place in its log for what was before."""
        table = _known(store_of(self._expectation.master))
        begun = [node for node in slaves if store_of(node).end]
        return next(
            (f"{node.id} has other sinks than its master" for node in begun if _known(store_of(node)) != table), None
        )

    def _newest(self, node: BrokerView, store: MessageStore) -> Newest:
        """Returns what a log has of sinks. Fails for one that has a message twice, or not in its order."""
        newest: Newest = {}
        for identity, message in self._sent(node, store):
            key = message.topic, identity.application
            batch, sequences = newest.get(key, (-1, {}))
            if identity.batch < batch:
                self.fail("B11", f"{node.id} has {message.body()!r} behind batch {batch}")
            if identity.batch > batch:
                batch, sequences = identity.batch, {}
            before = sequences.get(identity.partition, None if store.first else -1)
            if before is not None and identity.sequence != before + 1:
                self.fail("B11", f"{node.id} has {message.body()!r} behind message {before} of its partition")
            newest[key] = batch, {**sequences, identity.partition: identity.sequence}
        return newest

    def _sent(
        self, node: BrokerView, store: MessageStore, application: str | None = None
    ) -> list[tuple[SinkIdentity, StoredMessage]]:
        """Returns the messages of sinks in a log."""
        sent = list[tuple[SinkIdentity, StoredMessage]]()
        for message in records(node, store, store.first, self._plan.file_bytes):
            identity = None if message.topic.startswith(RETRY_PREFIX) else identity_of(message.stored_properties)
            if identity is not None and application in (None, identity.application):
                sent.append((identity, message))
        return sent


def _known(store: MessageStore) -> Newest:
    """Returns what a broker takes for stored."""
    return {
        row.key: (row.batch, {last.partition: last.sequence for last in row.partitions}) for row in store.sinks.rows()
    }
