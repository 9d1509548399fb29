"""One simulated life of a master's and a slave's tables: changes, commits, copies, lost answers, crashes amid a save.

The slave runs the production copy (``MetadataSync``) against the production answers; both save to disks that crash.
Promises (H12, H13): nobody ever sees a table that the master never had; what was saved is there after a crash; what a
consumer committed on the slave is not set back by a master that comes back, and in the end both have the same tables.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from tallystick.errors import BrokerError, RequestTimeout, StorageError
from tallystick.rocketmq.broker.broker_requests import BrokerRequests
from tallystick.rocketmq.broker.clients import Clients
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.group_requests import GroupRequests
from tallystick.rocketmq.broker.locks import QueueLocks
from tallystick.rocketmq.broker.metadata_sync import FIRST_S, PERIOD_S, MetadataSync
from tallystick.rocketmq.broker.offset_requests import OffsetRequests
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.registration import Identity
from tallystick.rocketmq.broker.saver import PERIOD_S as SAVE_S
from tallystick.rocketmq.broker.settings import BrokerSettings, Role
from tallystick.rocketmq.broker.tables import Tables
from tallystick.rocketmq.broker.topic_requests import TopicRequests
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.bodies import HaStatus
from tallystick.rocketmq.wire.headers import UpdateOffsetHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, TopicConfig
from tallystick.runtime.events import Events
from tallystick.sim.cores import Outcome
from tallystick.sim.disk import Crashed, SimDisk
from tallystick.sim.invariants import Violation
from tallystick.sim.world import World, WorldClock

STORM_S = 90.0
CALM_S = 60.0
MAX_STEPS = 20_000
STEPS = 60
TOPIC, GROUP = "Orders", "billing"
QUEUES = 2
_ROOT = "/store"
_MASTER = BrokerSettings(_ROOT, "b0", "c0", port=22500)
_SLAVE = replace(_MASTER, broker_id=1, role=Role.SLAVE)


@dataclass(frozen=True)
class _Asked:
    """A request that waits for its answer."""

    command: Command
    within_s: float

    def __await__(self) -> Generator[_Asked, Command, Command]:
        answer = yield self
        return answer


Copy = Coroutine[_Asked, Any, None]


class _Client:
    """As much of a remoting client as the copy uses."""

    async def ask(self, address: str, command: Command, within_s: float) -> Command:
        return await _Asked(command, within_s)


class Node:
    """Tables, their files, and the answers from them. ``sure`` has the offsets that a crash may not take back."""

    def __init__(self, world: World, settings: BrokerSettings) -> None:
        self.world, self.settings, self.disk = world, settings, SimDisk(world.random)
        self.name = settings.role.value
        self.life = 0
        self.up = False
        self.sure: dict[int, int] = {}
        self.disk.makedirs(_ROOT)
        self.disk.sync_dir("/")
        self.start()

    def start(self) -> None:
        self.life += 1
        clock, events, slave = WorldClock(self.world), Events(), self.settings.is_slave
        self.files = ConfigFiles(self.disk, _ROOT)
        self.tables = tables = Tables(
            self.files, self.settings.topic_defaults(), clock, events, lambda: None, slave=slave
        )
        parts = Parts(
            self.settings, Identity("c0", "b0", int(slave), "127.0.0.1:22500", "127.0.0.1:22501"), clock, events,
            cast("MessageStore", None), tables.topics, tables.groups, tables.offsets, tables.delays, Clients(),
            QueueLocks(), lambda: HaStatus(not slave, 0),
        )  # fmt: skip
        rooms = (TopicRequests, GroupRequests, OffsetRequests, BrokerRequests)
        self.answers = {code: answer for room in rooms for code, answer in room(parts).answers.items()}
        self.up = True
        for queue_id, offset in self.sure.items() if not slave else ():  # a slave's may be set back by its master's
            if (self.offset(queue_id) or 0) < offset:
                raise Violation(f"saved: {self.name} had offset {offset} on its disk, now {self.offset(queue_id)}")
        self.world.after(self.world.random.random() * SAVE_S, self._save, self.life)

    def offset(self, queue_id: int) -> int | None:
        return self.tables.offsets.get(TOPIC, GROUP, queue_id)

    def _save(self, life: int) -> None:
        if not self.up or life != self.life:
            return
        now = {queue_id: self.offset(queue_id) or 0 for queue_id in range(QUEUES)}
        failed = False
        for name, text in self.tables.unsaved().items():
            try:
                self.files.save(name, text)
            except StorageError:
                failed = True
                self.tables.failed(name)
        if not failed:
            self.sure = now
        self.world.after(SAVE_S, self._save, life)

    def commit(self, queue_id: int, offset: int) -> bool:
        """As a consumer asks for it; a slave that has copied nothing yet refuses."""
        header = UpdateOffsetHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset)
        return self.answer(request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields())).code == 0

    def answer(self, command: Command) -> Command:
        try:
            return self.answers[command.code]("127.0.0.1:1", command)
        except BrokerError as error:
            return command.answer(error.response_code, error.message)


class Life:
    """What happens to the two of them when. ``own``: commits on the slave that the master was not told."""

    def __init__(self, world: World) -> None:
        self.world, rng = world, world.random
        self.lost, self.deaths = rng.choice((0.0, 0.1, 0.4)), rng.choice((0, 2, 6))
        self.power, self.flaky = rng.choice((0.0, 0.5)), rng.choice((0.0, 0.0, 0.02))
        world.note(self.lost, self.deaths, self.power, self.flaky)
        self.master, self.slave = Node(world, _MASTER), Node(world, _SLAVE)
        self.promised = 0
        self.known: list[Mapping[str, object]] = [*_tables(self.slave)]  # all that a slave may show
        self.saved: list[Mapping[str, object]] = [*_tables(self.master)]  # what the master's changes ended in
        self._change(self.master.tables.topics.all, TOPIC, TopicConfig(TOPIC, QUEUES, QUEUES))
        self._change(self.master.tables.groups.all, GROUP, GroupConfig(GROUP))
        self.counts = [0] * QUEUES
        self.own: dict[int, int] = {}
        self._copy_soon(FIRST_S)

    def schedule(self) -> None:
        rng = self.world.random
        for _ in range(STEPS):
            self.world.after(rng.random() * STORM_S, rng.choice((self._consume, self._consume, self._operate)))
        for _ in range(self.deaths):
            self.world.after(rng.random() * STORM_S, self._kill, rng.choice((self.master, self.slave)))
        for node in (self.master, self.slave) if self.flaky else ():
            node.disk.fault = self._refuse

    def calm_down(self) -> None:
        self.lost = 0.0
        for node in (self.master, self.slave):
            node.disk.fault = node.disk.crash_at = None
            if not node.up:
                self._start(node)

    def run(self, until: float) -> bool:
        """Let things happen; who crashes in the middle of something comes back later."""
        while True:
            try:
                return self.world.run(until, MAX_STEPS)
            except Crashed:
                for node in (self.master, self.slave):
                    if node.disk.stopped:
                        self._die(node)

    def _refuse(self, operation: str, path: str) -> StorageError | None:
        return StorageError("simulated", path=path) if self.world.chance(self.flaky) and operation != "read" else None

    # What consumers and operators do

    def _consume(self) -> None:
        queue_id = self.world.random.randrange(QUEUES)
        self.counts[queue_id] += self.world.random.randint(1, 9)
        node = self.master if self.master.up else self.slave
        if node.up:
            self.world.note(node.name, "commit", queue_id, self.counts[queue_id])
            if node.commit(queue_id, self.counts[queue_id]) and node is self.slave:
                self.own[queue_id] = self.counts[queue_id]
            self.check()

    def _operate(self) -> None:
        if self.master.up:
            rng, tables = self.world.random, self.master.tables
            if rng.random() < 0.5:
                name = f"T{rng.randrange(4)}"
                self._change(tables.topics.all, name, TopicConfig(name, rng.randint(1, 8)))
            else:
                name = f"G{rng.randrange(4)}"
                self._change(tables.groups.all, name, GroupConfig(name, retry_max_times=rng.randint(1, 99)))

    def _change(self, before: Mapping[str, object], name: str, config: TopicConfig | GroupConfig) -> None:
        """Made or changed, or now and then deleted."""
        gone = name in before and self.world.chance(0.3)
        after = {other: entry for other, entry in before.items() if other != name} | ({} if gone else {name: config})
        self.known.append(after)
        tables = self.master.tables
        match config:
            case TopicConfig():
                tables.topics.delete(name) if gone else tables.topics.put(config)
                self.saved[0] = after
            case GroupConfig():
                tables.groups.delete(name) if gone else tables.groups.put(config)
                self.saved[1] = after
        self.world.note("changed", name, gone)
        self.promised += 1

    # The copy

    def _copy_soon(self, after_s: float) -> None:
        self.world.after(after_s, self._copy, self.slave.life)

    def _copy(self, life: int) -> None:
        if self.slave.up and life == self.slave.life:
            sync = MetadataSync(cast("RemotingClient", _Client()), WorldClock(self.world), Events(), self.slave.tables)
            self._go_on(life, sync.sync("master"), None)

    def _go_on(self, life: int, copy: Copy, answer: Command | RequestTimeout | None) -> None:
        if not self.slave.up or life != self.slave.life:
            copy.close()
            return
        try:
            asked = copy.throw(answer) if isinstance(answer, RequestTimeout) else copy.send(answer)
        except StopIteration:
            self.check()
            self._copy_soon(PERIOD_S)
            return
        self.check()
        self.world.note("asks", asked.command.code)
        self.world.after(self.world.random.random() * 0.2, self._arrive, life, copy, asked)

    def _arrive(self, life: int, copy: Copy, asked: _Asked) -> None:
        """At the master, which may do what it is told although nobody hears its answer."""
        answer: Command | RequestTimeout = RequestTimeout("no answer")
        if self.master.up and not self.world.chance(self.lost):
            told = self.master.answer(asked.command)
            self._forget_told()
            answer = answer if self.world.chance(self.lost) else told
        delay = asked.within_s if isinstance(answer, RequestTimeout) else self.world.random.random() * 0.2
        self.world.after(delay, self._go_on, life, copy, answer)

    def _forget_told(self) -> None:
        for queue_id, offset in tuple(self.own.items()):
            if (self.master.offset(queue_id) or 0) >= offset:
                del self.own[queue_id]
                self.promised += 1

    # What goes wrong

    def _kill(self, node: Node) -> None:
        if node.up and self.world.chance(0.4):
            self._die(node)
        elif node.up:  # in the middle of a save
            node.disk.crash_at = node.disk.operations + self.world.random.randint(1, 25)

    def _die(self, node: Node) -> None:
        node.up = False
        lost_power = self.world.chance(self.power)
        self.world.note(node.name, "dies", lost_power)
        if lost_power:
            node.disk.power_loss()
        else:
            node.disk.kill()
        self.world.after(self.world.random.random() * 30.0, self._start, node)

    def _start(self, node: Node) -> None:
        if node.up:
            return
        fault, node.disk.fault = node.disk.fault, None
        try:
            node.start()
        except StorageError as refused:
            raise Violation(f"saved: {node.name} does not start: {refused}") from refused
        node.disk.fault = fault
        if node is self.slave:
            self.own = {queue_id: min(offset, node.sure.get(queue_id, 0)) for queue_id, offset in self.own.items()}
            self._copy_soon(FIRST_S)
        elif not self.flaky and any(
            table not in (told, *self.known[-1:]) for table, told in zip(_tables(node), self.saved, strict=True)
        ):
            raise Violation("saved: the master came back with another table than it had")
        self.saved = [*_tables(self.master)] if node is self.master else self.saved
        self.check()

    # What must be true

    def check(self) -> None:
        if not self.slave.up:
            return
        for table in _tables(self.slave):
            if table not in self.known:
                raise Violation(f"H12: the slave shows a table that the master never had: {sorted(table)}")
        for queue_id, offset in self.own.items():
            if (self.slave.offset(queue_id) or 0) < offset:
                raise Violation(f"H13: {offset} was committed on the slave, it has {self.slave.offset(queue_id)}")

    def at_the_end(self) -> None:
        master, slave = self.master.tables, self.slave.tables
        self.check()
        if self.own:
            raise Violation(f"H13: the master was never told {self.own}")
        if (slave.topics.version, slave.groups.version) != (master.topics.version, master.groups.version):
            raise Violation("H12: the slave does not have the master's versions")
        if _tables(self.slave) != _tables(self.master) or slave.delays.table != master.delays.table:
            raise Violation("H12: the slave does not have the master's tables")
        if slave.offsets.table() != master.offsets.table():
            raise Violation("H12: the slave does not have the master's offsets")


def _tables(node: Node) -> tuple[Mapping[str, object], Mapping[str, object]]:
    return node.tables.topics.all, node.tables.groups.all


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    world = World(seed, keep_trace=keep_trace)
    violation, life = None, Life(world)
    try:
        life.schedule()
        if not life.run(STORM_S):
            raise Violation("H12: something spins in the storm")
        life.calm_down()
        if not life.run(STORM_S + CALM_S):
            raise Violation("H12: something spins in the calm")
        life.at_the_end()
    except Violation as found:
        violation = str(found)
    except AssertionError as broken:  # an invariant inside a core
        violation = f"core: {broken or type(broken).__name__}"
    return Outcome(seed, violation, life.promised, world.fingerprint, tuple(world.trace or ()))
