"""The promises of brokers' tables, checked at each change, look and start.

H12: nobody ever sees a table that no master had, and what an operator was told is so stays so. H13: the master's offset
of a group is nowhere beyond its log, or beyond what the group consumed of that; what it committed at a slave is not set
back by a master that comes back, and undoes nothing that an operator set since. saved: offsets that the disk has are
there after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, RESETS
from tallystick.rocketmq.broker.offset_keys import split
from tallystick.rocketmq.broker.offsets import SavedOffsets
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, TopicConfig
from tallystick.runtime.disk import read_file
from tallystick.sim.brokers_expectation import Expectation
from tallystick.sim.brokers_views import BrokerView, broker_of, store_of
from tallystick.sim.invariants import OnViolation

Place = tuple[str, str, int]  # topic, group and queue id
Config = TopicConfig | GroupConfig
Name = tuple[type[Config], str]
_ANY = 1 << 62  # a counter that nobody knows


@dataclass(frozen=True)
class OnDisk:
    """What a broker's files had while nothing was to be written; ``own``: what was committed at the slave till then."""

    offsets: SavedOffsets
    resets: ResetTable
    own: Mapping[Place, int]


class TableUses:
    """``fail`` is the judge's. Groups and names of a ``TablesUser`` are its own: nobody else uses them."""

    def __init__(self, expectation: Expectation, fail: OnViolation) -> None:
        self._expectation, self._fail = expectation, fail
        self._master_tables: dict[tuple[type[Config], DataVersion], list[dict[str, Config]]] = {}  # at any time
        self._configs: dict[Name, Config | None] = {}  # as an operator was told last; None: there is none
        self._consumed_offsets: dict[Place, int] = {}  # so far a group has consumed, at most
        self._set_to: dict[Place, int] = {}  # by an operator, and nothing was committed since
        self._counters: dict[Place, int] = {}  # of resets, at the master
        self._own: dict[str, dict[Place, int]] = {}  # by slave: committed there, and not told to the master yet
        self._on_disk: dict[str, OnDisk] = {}  # by broker
        self.promise_count = 0

    # Brokers.

    def changed(self, node: BrokerView, broker: Broker) -> None:
        """Topics or groups of a broker have changed, and clients see them."""
        tables = broker.tables
        self._shows(node, TopicConfig, tables.topics.version, dict(tables.topics.all), tables.topics.system)
        self._shows(node, GroupConfig, tables.groups.version, dict(tables.groups.all), tables.groups.system)

    def _shows(
        self,
        node: BrokerView,
        kind: type[Config],
        version: DataVersion,
        table: dict[str, Any],
        system: Mapping[str, Any],
    ) -> None:
        states = self._master_tables.setdefault((kind, version), [])
        if table in states or table == system:  # which every broker begins with
            return
        if node.is_slave:
            self._fail("H12", f"{node.id} shows a {kind.__name__} table that no master had: {sorted(table)}")
        states.append(table)

    def started(self, node: BrokerView) -> None:
        """A broker has started, and answers."""
        self.changed(node, broker_of(node))
        before = self._on_disk.pop(node.id, None)
        if node.is_slave:
            self._restore(node, before)
            return
        if before is not None:
            self._check_saved(node, before)
        for (kind, name), config in self._configs.items():
            if _config(node, kind, name) != config:
                self._fail("H12", f"{node.id} came back with {_config(node, kind, name)}, and not {config} as {name}")
        # An offset beyond the end of a log that lost its tail is cut, also one that was set on purpose.
        self._consumed_offsets = {
            place: min(offset, _end(node, place)) for place, offset in self._consumed_offsets.items()
        }
        self._set_to = {place: min(offset, _end(node, place)) for place, offset in self._set_to.items()}
        self._counters = {place: _counter(node, place) for place in self._consumed_offsets}

    def _restore(self, node: BrokerView, before: OnDisk | None) -> None:
        """Of several commits to a queue an earlier one may be what was saved."""
        saved_offsets = before.own if before is not None else {}
        own = self._own.get(node.id, {})
        self._own[node.id] = {
            place: min(offset, saved_offsets[place], _end(node, place))
            for place, offset in own.items()
            if place in saved_offsets
        }

    def _check_saved(self, node: BrokerView, before: OnDisk) -> None:
        for place, offset in _places(before.offsets.offsets).items():
            topic, group, queue_id = place
            saved_counter = before.resets.of_key(f"{topic}@{group}")(queue_id)
            if _counter(node, place) < saved_counter:
                self._fail("saved", f"{node.id} forgot that {group} was reset in queue {queue_id} of {topic}")
            least = min(offset, _end(node, place))
            if _counter(node, place) == saved_counter and (_offset(node, place) or 0) < least:
                self._fail("saved", f"{node.id} had {offset} of {place} on its disk, now {_offset(node, place)}")

    def ends(self, node: BrokerView) -> None:
        """The process of a broker is about to die."""
        if node is self._expectation.master and node.broker is not None and not broker_of(node).standing.is_slave:
            self._count_taken(node)

    def forget_disk(self, node: BrokerView) -> None:
        """A broker is about to get an empty disk."""
        self._on_disk.pop(node.id, None)
        self._own.pop(node.id, None)

    def another_master(self) -> None:
        """Another broker is the master, which may have less than the one before."""
        self._configs.clear()
        self._set_to.clear()
        self._own.clear()
        self._on_disk.clear()

    # What is true at any time.

    def look(self) -> None:
        """Check the tables between two turns of the loop."""
        master = self._expectation.master
        for node in self._expectation.nodes:
            if node.broker is not None:
                self._see_disk(node)
        if master.broker is not None and not broker_of(master).standing.is_slave:  # else it is about to take over
            self._look_at_master(master)
        for node in self._expectation.nodes:
            for place, offset in self._own.get(node.id, {}).items() if node.broker is not None else ():
                if (_offset(node, place) or 0) < offset:
                    self._fail("H13", f"{offset} of {place} was committed at {node.id}, it has {_offset(node, place)}")

    def _see_disk(self, node: BrokerView) -> None:
        broker = broker_of(node)
        if broker.tables.unsaved_files() or any(worker.pending_count for worker in node.workers):
            return
        folder = os.path.join(broker.settings.store_dir, "config")
        with node.disk.undisturbed():
            texts = [
                read_file(node.disk, path) if node.disk.exists(path) else b"{}"
                for path in (os.path.join(folder, name) for name in (CONSUMER_OFFSETS, RESETS))
            ]
        if texts[0] != b"{}":
            offsets = dialect.read_as(texts[0], SavedOffsets, bounded=False)
            if offsets.offsets == broker.tables.offsets.committed_offsets:  # else a save failed, which it is told soon
                resets = dialect.read_as(texts[1], ResetTable, bounded=False)
                self._on_disk[node.id] = OnDisk(offsets, resets, dict(self._own.get(node.id, {})))

    def _look_at_master(self, master: BrokerView) -> None:
        for place, offset in _places(broker_of(master).tables.offsets.committed_offsets).items():
            topic, group, queue_id = place
            if offset > _end(master, place):
                self._fail("H13", f"the master has {offset} of {place}, where its log has {_end(master, place)}")
            reader = self._expectation.readers.get(group)
            if reader is not None and topic in reader.topics and not self._expectation.is_torn((topic, queue_id)):
                self._check_consumed(place, offset, reader.next.get((topic, queue_id), 0))
        for place, consumed_offset in self._consumed_offsets.items():
            offset = _offset(master, place) or 0
            self._check_consumed(place, offset, consumed_offset)
            if offset != self._set_to.get(place, offset):
                self._fail("H13", f"an operator set {place} to {self._set_to[place]}, it is {offset}")
        self._count_taken(master)

    def _count_taken(self, master: BrokerView) -> None:
        """What the master has taken of a slave's commits is as what was committed there: not on its disk yet."""
        for own in self._own.values():
            for place in [place for place, offset in own.items() if offset <= (_offset(master, place) or 0)]:
                del own[place]
                self.promise_count += 1

    def _check_consumed(self, place: Place, offset: int, consumed_offset: int) -> None:
        if offset > consumed_offset:
            self._fail("H13", f"the master has {offset} of {place}, and {consumed_offset} were consumed")

    def unreported_commits(self, slaves: Sequence[BrokerView]) -> str | None:
        """Returns which commits at these slaves the master lacks yet. Returns None if none."""
        unreported_commits = {node.id: own for node in slaves if (own := self._own.get(node.id))}
        return f"the master was never told {unreported_commits}" if unreported_commits else None

    # Who uses them.

    def ordering(self, kind: type[Config], name: str) -> None:
        """An operator is about to ask for it, or to delete it: who knows what is there meanwhile."""
        self._configs.pop((kind, name), None)

    def ordered(self, kind: type[Config], name: str, config: Config | None) -> None:
        """An operator was told that its order is done."""
        self._configs[kind, name] = config
        self.promise_count += 1

    def committing(self, node: BrokerView, place: Place, offset: int) -> bool:
        """A group is about to; whether this broker has heard of all resets. What goes back makes up for what the group
        had committed anywhere."""
        self._consumed_offsets[place] = max(self._consumed_offsets.get(place, 0), offset)
        for own in self._own.values():
            if own.get(place, 0) > offset:
                del own[place]
        return node.broker is not None and _counter(node, place) >= self._counters.get(place, 0)

    def committed(self, node: BrokerView, place: Place, offset: int, *, has_heard: bool) -> None:
        """A group was told by this broker that it has committed."""
        if not node.is_slave or node.broker is None:
            self._set_to.pop(place, None)
            self.responded(node, place)
        elif has_heard:
            self._set_to.pop(place, None)
            self._own.setdefault(node.id, {})[place] = min(offset, _end(node, place))

    def setting(self, place: Place, offset: int) -> None:
        """An operator is about to set a group there, whatever it consumed, and be it of a log that was lost."""
        self._consumed_offsets[place] = max(self._consumed_offsets.get(place, 0), offset)
        self.in_doubt(place)

    def in_doubt(self, place: Place) -> None:
        """A request of unknown outcome was made: nothing is sure of its subject any more."""
        self._set_to.pop(place, None)
        self._counters[place] = _ANY
        for own in self._own.values():
            own.pop(place, None)

    def responded(self, master: BrokerView, place: Place) -> None:
        """A request has its response: it is done, or never will be."""
        if master.broker is not None:
            self._counters[place] = _counter(master, place)

    def was_set(self, master: BrokerView, place: Place, offset: int) -> None:
        """An operator was told that the group is set."""
        if master.broker is not None:
            self._set_to[place] = offset
            self.promise_count += 1


def _places(offsets: Mapping[str, Mapping[int, int]]) -> dict[Place, int]:
    return {(*split(key), queue): offset for key, queues in offsets.items() for queue, offset in queues.items()}


def _end(node: BrokerView, place: Place) -> int:
    return store_of(node).queue_range(place[0], place[2])[1]


def _offset(node: BrokerView, place: Place) -> int | None:
    return broker_of(node).tables.offsets.get(*place)


def _counter(node: BrokerView, place: Place) -> int:
    topic, group, queue_id = place
    return broker_of(node).tables.offsets.resets.get(f"{topic}@{group}", queue_id)


def _config(node: BrokerView, kind: type[Config], name: str) -> Config | None:
    tables = broker_of(node).tables
    return (tables.topics if kind is TopicConfig else tables.groups).all.get(name)
