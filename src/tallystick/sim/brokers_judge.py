"""The promises of brokers, checked at each acknowledgement, delivery and start, and once more at the end.

B1 what a producer was told is on the disk is there for good; without a flush it outlives its process. B2 what it was
told is at a slave is there, also when that slave becomes the master. B3 a slave's log is a part of its master's, and no
other master takes away what it has. B4 a place in a queue is given once, and a producer's messages are in their order.
B5 consumers get what was sent, and nothing that is in no log. B6 no message is left out; a group that was set back gets
all of them again. B7 no message is doubled unless its producer was told that it may be. B8 a deleted topic's messages
never come back. B9 when the faults have ended all is delivered and copied, tables too. B10 no server holds more than
its budget: open files, bytes for its clients, calls that wait; nor has the loop too many tasks, or callbacks in a turn.
B11 see ``brokers_sinks_judge``. H12, H13 and saved: see ``brokers_tables``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn

from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.sending import SendResult, SendStatus
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.message_ids import decode_message_id
from tallystick.rocketmq.wire.record import StoredMessage
from tallystick.rocketmq.wire.values import RETRY_PREFIX
from tallystick.sim.brokers_expectation import Ack, Expectation, SlaveHoldings
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.brokers_settling import Settling
from tallystick.sim.brokers_sinks_judge import SinksJudge
from tallystick.sim.brokers_tables import TableUses
from tallystick.sim.brokers_views import (
    BrokerView,
    Queue,
    body_at,
    broker_of,
    excess,
    is_part,
    log_bytes,
    queue_messages,
    store_of,
)
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace

ATTEMPTS = 3  # of a send


class BrokersJudge:
    """Checks the promises against the brokers' disks and tables, which no client sees."""

    def __init__(self, trace: Trace, plan: BrokersPlan, now: Callable[[], float]) -> None:
        self._trace, self._plan = trace, plan
        self.expectation = Expectation(plan, now)
        self.settling = Settling(self.expectation, plan, self.fail)
        self.tables = TableUses(self.expectation, self.fail)
        self.sinks = SinksJudge(self.expectation, plan, self.fail, self.acknowledged)
        self.promise_count = 0
        self.violation: str | None = None
        self.alarm: tuple[int, Callable[[], None]] | None = None  # call this at that many acknowledgements

    @property
    def nodes(self) -> Sequence[BrokerView]:
        """Returns the brokers, the master first."""
        return self.expectation.nodes

    @nodes.setter
    def nodes(self, nodes: Sequence[BrokerView]) -> None:
        self.expectation.nodes = nodes

    def fail(self, promise: str, what: str) -> NoReturn:
        """Note a violation, if it is the first, and raise it, which ends the task that looked."""
        self._trace.note("VIOLATION", promise, what)
        self.violation = self.violation or f"{promise}: {what}"
        raise Violation(self.violation)

    # Producers.

    def sending(self, body: bytes) -> None:
        """A producer has sent a message, and has no response yet."""
        self.expectation.sent_bodies[body] = None

    def acknowledged(self, bodies: Sequence[bytes], result: SendResult, began: float) -> None:
        """A producer, which began at ``began``, was told that these messages are stored."""
        queue = result.queue.topic, result.queue.queue_id
        self._trace.note("acknowledged", queue, result.queue_offset, len(bodies), result.status.name)
        if began <= self.expectation.changed_at:
            return  # by a master that is gone
        for number, (body, place) in enumerate(zip(bodies, result.offset_id.split(","), strict=True)):
            at = decode_message_id(place)[2]
            self._acknowledge(
                Ack(
                    body,
                    queue,
                    result.queue_offset + number,
                    at,
                    result.maybe_twice,
                    result.status is SendStatus.SEND_OK,
                    self._is_synced(result, at),
                    self._holders(result, at),
                ),
                began,
            )
        if self.alarm is not None and self.promise_count >= self.alarm[0]:
            (_, call), self.alarm = self.alarm, None
            call()

    def _acknowledge(self, ack: Ack, began: float) -> None:
        if not self.expectation.holds(ack, began):
            return
        self.promise_count += 1
        before, _ = self.expectation.content_by_place.setdefault((ack.queue, ack.offset), (ack.body, ack.at))
        if before != ack.body:
            self.fail("B4", f"offset {ack.offset} of {ack.queue} was given to {before!r} and to {ack.body!r}")
        self.expectation.acks.append(ack)

    def _is_synced(self, result: SendResult, at: int) -> bool:
        """Returns whether the message is synced, also where a status (FLUSH_SLAVE_TIMEOUT, say) tells nobody."""
        durable = self.nodes[0].durable
        if not self.nodes[0].sync_flush or result.status is SendStatus.FLUSH_DISK_TIMEOUT:
            return False
        if result.status is SendStatus.SEND_OK and durable <= at:
            self.fail("B1", f"the message at {at} is said to be stored, and {durable} bytes are")
        return durable > at

    def _holders(self, result: SendResult, at: int) -> tuple[str, ...]:
        if self._plan.role is not Role.SYNC_MASTER or result.status is not SendStatus.SEND_OK:
            return ()
        holders = [node for node in self.nodes[1:] if node.reached > at]
        if not holders:
            self.fail("B2", f"the message at {at} is said to be at a slave, and is at none")
        return tuple(node.id for node in holders) if all(node.sync_flush for node in holders) else ()

    # Brokers.

    def ends(self, node: BrokerView, store: MessageStore) -> None:
        """The process of a broker is about to die."""
        self.sinks.ends(node, store)
        self.expectation.process_ends(node, store)
        self.tables.ends(node)

    def lost_power(self, node: BrokerView) -> None:
        """Bytes that were not synced may be lost, after ``ends``."""
        lost_ack = self.expectation.power_lost(node)
        if lost_ack is not None:
            self.fail("B1", f"{lost_ack.body!r} at {lost_ack.at} was not durable")

    def started(self, node: BrokerView) -> None:
        """A broker has started, and answers."""
        self.expectation.process_began(node)
        self.tables.started(node)
        self._check_acks(node)
        if not node.is_slave:
            self._check_deleted(node)
        for holdings in self.expectation.holdings:
            if holdings.node is node:
                self._check_holdings(holdings)

    def _check_acks(self, node: BrokerView) -> None:
        for ack in self.expectation.acks:
            if node.is_slave and ack.holders == (node.id,) and body_at(node, ack.at) != ack.body:
                self.fail("B2", f"{node.id} lost {ack.body!r} at {ack.at}")
            if not node.is_slave:
                self._require(node, ack)

    def _require(self, node: BrokerView, ack: Ack) -> None:
        store = store_of(node)
        if body_at(node, ack.at) != ack.body:
            self.fail("B1", f"{node.id} lost {ack.body!r} at {ack.at}: it ends at {store.end}")
        if ack.is_ok and self.expectation.changed_at < 0 and ack.queue[0] not in broker_of(node).tables.topics.all:
            self.fail("B1", f"{node.id} took {ack.body!r}, and does not know its topic any more")
        if store.reput_offset > ack.at and not store.rebuilding:
            with node.disk.undisturbed():
                units = store.queue_units(*ack.queue, ack.offset, 1)
            if not units or units[0][0] != ack.at:
                self.fail("B1", f"{node.id} shows {units} at offset {ack.offset} of {ack.queue}, and not {ack.body!r}")

    def _check_deleted(self, node: BrokerView) -> None:
        for message in self._messages(node):
            if message.physical_offset < self.expectation.deleted.get(message.topic, 0):
                self.fail("B8", f"{node.id} shows {message}, of before its topic was deleted")

    def _check_holdings(self, holdings: SlaveHoldings) -> None:
        """A slave has what it had, whatever an empty master tells it. What is not synced may go with its process."""
        node, broker = holdings.node, broker_of(holdings.node)
        log = holdings.log if broker is holdings.broker else holdings.log[: max(0, holdings.durable - holdings.first)]
        if log_bytes(node, holdings.first, holdings.first + len(log)) != log:
            self.fail("B3", f"{node.id} had {len(log)} bytes, and its master none")
        topics, groups = set(broker.tables.topics.all), set(broker.tables.offsets.committed_offsets)
        if broker is holdings.broker and not (holdings.topics <= topics and holdings.groups <= groups):
            self.fail("B3", f"{node.id} gave up tables for those of an empty master")

    def _messages(self, node: BrokerView) -> list[StoredMessage]:
        try:
            return queue_messages(node)
        except AssertionError as wrong:
            self.fail("B4", str(wrong))

    def look(self) -> None:
        """Check what holds at any time: a slave that follows has its master's bytes, and no bound is exceeded."""
        self.tables.look()
        for node in self.nodes:
            if (surplus := excess(node, self._plan)) is not None:
                self.fail("B10", f"{node.id} holds {surplus}")
        master = self.nodes[0].broker
        for node in self.nodes[1:] if master is not None else ():
            status = node.broker.log.follow_status() if node.broker is not None else None
            if master is None or status is None or not status.link or status.master_hello is None:
                continue
            if status.master_hello.instance == master.parts.identity.instance and not is_part(node, self.nodes[0]):
                self.fail("B3", f"{node.id} follows the master and has other bytes up to {status.end}")

    # Operators.

    def deleting(self, topic: str) -> None:
        """An operator asks for a topic's deletion."""
        self._trace.note("deletes", topic)
        self.expectation.deletion_asked(topic)

    def may_promote(self, node: BrokerView) -> bool:
        """Returns whether its log is a part of the master's, and not empty."""
        return store_of(node).end > 0 and is_part(node, self.nodes[0])

    def promotes(self, node: BrokerView) -> None:
        """The master is about to go for good, and this slave takes its place."""
        sync = broker_of(node).sync
        has_all = sync.status.synced_ms and not sync.status.failures
        if has_all and not store_of(node).replicated.ends_known:
            self.fail("B4", f"{node.id} has copied all tables, and does not know where its master's queues end")
        self.expectation.promoted(node)
        self.tables.another_master()

    def emptied(self) -> None:
        """The master is about to lose all that it has."""
        self.expectation.emptied()
        self.tables.another_master()

    def begins_anew(self, node: BrokerView) -> None:
        """This slave, whose log does not fit, is about to get an empty directory."""
        self.expectation.begins_anew(node)
        self.tables.forget_disk(node)

    def unsettled(self) -> str | None:
        """Returns what is still missing when no fault is left. Returns None when all is done."""
        why = self.settling.unsettled()
        if why is not None:
            return why
        slaves = [node for node in self.nodes[1:] if self.settling.may_follow(node)]
        return self.tables.unreported_commits(slaves) or self.sinks.unsettled(slaves)

    # Consumers.

    def received(self, group: str, message: ReceivedMessage) -> None:
        """A member of a group has received a message."""
        expectation, record = self.expectation, message.record
        reader, queue, offset = expectation.readers[group], (record.topic, record.queue_id), record.queue_offset
        self._trace.note("received", group, queue, offset)
        self._check_received(message.body, record.physical_offset)
        awaited = reader.next.get(queue, 0)
        if offset > awaited and not expectation.is_torn(queue):
            self.fail("B6", f"{group} got offset {offset} of {queue} and not {awaited}")
        reader.next[queue] = max(awaited, offset + 1)
        reader.bodies.add(message.body)
        reader.redeliveries.pop(message.body, None)

    def given_back(self, group: str, body: bytes) -> None:
        """A member wants this message delivered again.

        One that had it before may have finished it, and its commit come only now: to the master from a slave, say.
        """
        self._trace.note("given back", group)
        reader = self.expectation.readers[group]
        if body not in reader.finished:
            reader.redeliveries[body] = None

    def finished(self, group: str, body: bytes) -> None:
        """A member has acknowledged this message."""
        self.expectation.readers[group].finished.add(body)

    def _check_received(self, body: bytes, at: int) -> None:
        master = self.nodes[0]
        if body not in self.expectation.sent_bodies:
            self.fail("B5", f"{body!r} was received, and never sent")
        if master.sync_flush and len(self.nodes) == 1 and self.expectation.changed_at < 0 and master.durable <= at:
            self.fail("B5", f"the message at {at} was received before it was on the disk")
        running_nodes = [node for node in self.nodes if node.broker is not None]
        is_lost = any(at >= end for _, end in self.expectation.losses)  # and its consumer had it already
        if (
            not is_lost
            and len(running_nodes) == len(self.nodes)
            and at >= store_of(master).first  # else its consumer had it of the master before, whose log began earlier
            and not any(body_at(node, at) == body for node in running_nodes)
        ):
            self.fail("B5", f"{body!r} was received from {at}, where no log has it")

    # The end.

    def at_the_end(self) -> None:
        """Check what holds at the end, when all is settled."""
        self.look()
        for node in self.nodes:
            self.started(node)
            self._check_queues(node)
            if node.is_slave and is_part(node, self.nodes[0]):
                self._check_deleted(node)
        for ack in self.expectation.acks:
            holders = [node for node in self.nodes if node.id in ack.holders]
            if holders and not any(body_at(node, ack.at) == ack.body for node in holders):
                self.fail("B2", f"{ack.body!r} at {ack.at} is at none of {ack.holders} any more")
            for group, reader in self.expectation.readers.items():
                is_read = ack.queue[0] in reader.topics and not self.expectation.is_torn(ack.queue)
                if is_read and ack.body not in reader.bodies:
                    self.fail("B6", f"{group} never received {ack.body!r} at {ack.offset} of {ack.queue}")
        self._check_copies()
        self._check_order()
        self.sinks.at_the_end()

    def _check_queues(self, node: BrokerView) -> None:
        """Check that queues are in the order of the log."""
        last: dict[Queue, StoredMessage] = {}
        for message in self._messages(node):
            before = last.get((message.topic, message.queue_id))
            if before is not None and message.physical_offset <= before.physical_offset:
                self.fail("B4", f"{node.id} has {message} behind {before}")
            last[message.topic, message.queue_id] = message

    def _check_copies(self) -> None:
        """Check that each message is stored as often as it may be."""
        messages = self._messages(self.nodes[0])
        count_by_body = Counter(message.body() for message in messages if not message.topic.startswith(RETRY_PREFIX))
        sure = {ack.body for ack in self.expectation.acks if not ack.maybe_twice}
        for body, count in count_by_body.items():
            if count > (1 if body in sure else ATTEMPTS):
                self.fail("B7", f"{body!r} is stored {count} times")

    def _check_order(self) -> None:
        """Check that the places of a queue ascend as its acknowledged sends do."""
        last: dict[tuple[Queue, bytes], int] = {}
        for ack in self.expectation.acks:
            key = ack.queue, ack.body.partition(b":")[0]
            if ack.offset <= last.get(key, -1):
                self.fail("B4", f"{ack.body!r} is at offset {ack.offset} of {ack.queue}, before an older message")
            last[key] = ack.offset
