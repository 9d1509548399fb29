"""What is still to come when the faults have ended (B9): a life waits until it is nothing.

A slave that a master's loss keeps from following has nothing to come, and says so to its operator.
"""

from __future__ import annotations

from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.rocketmq.ha.proof import WIPE
from tallystick.rocketmq.store.store import MessageStore
from tallystick.sim.brokers_expectation import Expectation
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.brokers_views import BrokerView, Queue, broker_of, fits, group_offsets, messages_end, store_of
from tallystick.sim.invariants import OnViolation


class Settling:
    """Says what brokers must still do when no fault is left. ``fail`` is the judge's."""

    def __init__(self, expectation: Expectation, plan: BrokersPlan, fail: OnViolation) -> None:
        self._expectation, self._plan, self._fail = expectation, plan, fail

    def unsettled(self) -> str | None:
        """Returns what is still missing when no fault is left. Returns None when all is done."""
        for node in self._expectation.nodes:
            if node.broker is None:
                return f"{node.id} does not answer"
            store = store_of(node)
            if store.reput_offset < self._dispatchable(node) or store.rebuilding:
                return f"{node.id} has dispatched {store.reput_offset} of {store.end}"
        for node in self._expectation.nodes[1:]:
            why = self._lag(node) if self.may_follow(node) else self._silence(node)
            if why is not None:
                return why
        for group, reader in self._expectation.readers.items():
            if reader.redeliveries and self._expectation.is_whole:
                return f"{group} has given back {next(iter(reader.redeliveries))!r}, and not received it again"
        store = store_of(self._expectation.nodes[0])
        queues = ((topic, queue_id) for topic, ids in store.queues().items() for queue_id in ids)
        return next((why for queue in queues if (why := self._unread(queue, store)) is not None), None)

    def _unread(self, queue: Queue, store: MessageStore) -> str | None:
        end = store.queue_range(*queue)[1]
        for group, reader in self._expectation.readers.items():
            awaited = reader.next.get(queue, 0)
            if queue[0] in reader.topics and awaited < end and not self._expectation.is_torn(queue):
                return f"{group} has not received offset {awaited} of {queue}"
        return None

    def check_known(self, topic: str) -> None:
        """Check that slaves know a topic a while after its first message came."""
        for node in self._expectation.nodes[1:]:
            if self.may_follow(node) and broker_of(node).tables.topics.get(topic) is None:
                self._fail("H12", f"{node.id} has messages of {topic}, and does not know that topic")

    def unheard(self, group: str) -> str | None:
        """Returns which slave has other offsets of a group than its master: a member would begin there."""
        for node in self._expectation.nodes:
            if node.broker is None:
                return f"{node.id} does not answer"
            if (
                node.is_slave
                and self.may_follow(node)
                and group_offsets(node, group) != group_offsets(self._expectation.nodes[0], group)
            ):
                return f"{node.id} has other offsets of {group} than its master"
        return None

    def _dispatchable(self, node: BrokerView) -> int:
        """Returns the end of its messages: a log that does not fit may end in the middle of one for ever."""
        if not node.is_slave or self.may_follow(node):
            return store_of(node).end
        return messages_end(node, self._plan.file_bytes)

    def may_follow(self, node: BrokerView) -> bool:
        """Returns whether a slave's log fits its master's; after a loss it does not, until it is emptied."""
        if fits(node, self._expectation.nodes[0]):
            return True
        if not self._expectation.losses:
            self._fail("B3", f"{node.id} does not fit its master, which lost nothing")
        return False

    def may_confirm(self, node: BrokerView) -> bool:
        """Returns whether a slave follows, and has, or will have, whatever is sent again: one that was emptied begins
        with the newest file, and what waits may be before that."""
        if not self.may_follow(node):
            return False
        slave, master = store_of(node), store_of(self._expectation.nodes[0])
        return self._plan.whole_log or slave.first <= master.first

    def _silence(self, node: BrokerView) -> str | None:
        """Returns a text if a slave that must not follow does not say what its operator must do."""
        why = broker_of(node).log.follow_status().why
        return None if WIPE in why else f"{node.id} does not fit its master, and says: {why or 'nothing'}"

    def _lag(self, node: BrokerView) -> str | None:
        """Returns what a slave that may follow lacks yet. Returns None if nothing."""
        master, slave = broker_of(self._expectation.nodes[0]), broker_of(node)
        followed, end = slave.log.follow_status(), master.parts.store.end
        newest_file = 0 if self._plan.whole_log else end - end % self._plan.file_bytes
        if not followed.link or (followed.end or newest_file) < end:  # an empty one begins there
            return f"{node.id} has {followed.end} of {end} bytes: {followed.why}"
        if (why := _difference(slave.tables, master.tables)) is not None:
            return f"{node.id} has other {why} than its master"
        slave_store = slave.parts.store
        if any(
            at > max(slave_store.first, slave_store.replicated.deletions.get(topic, 0))
            for topic, at in master.parts.store.replicated.deletions.items()
        ):
            return f"{node.id} does not know of deletions"
        return None


def _difference(slave: BrokerTables, master: BrokerTables) -> str | None:
    if (slave.topics.version, slave.topics.all) != (master.topics.version, master.topics.all):
        return "topics"
    if (slave.groups.version, slave.groups.all) != (master.groups.version, master.groups.all):
        return "groups"
    if slave.offsets.committed_offsets != master.offsets.committed_offsets:
        return "offsets of groups"
    if slave.offsets.resets.table() != master.offsets.resets.table():
        return "counters of resets"
    return "delay offsets" if slave.delays.table != master.delays.table else None
