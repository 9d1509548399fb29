"""One simulated life of a master's and a slave's tables: changes, commits, copies, lost answers, crashes amid a save.

The slave runs the production copy (``MetadataSync``, ``Rounds``) against the production answers; both save to disks
that crash, and power loss takes the end of the master's log where the slave does not have it yet. Promises (H12, H13):
nobody ever sees a table that the master never had; what was saved is there after a crash; what a consumer committed on
the slave is not set back by a master that comes back, and undoes nothing that an operator set there since; the master's
offset is never beyond what was consumed of its log; a topic whose messages the slave has is soon known there; nothing
is copied from another broker that answers at the master's address while the master is away; in the end both have the
same tables.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from tallystick.errors import RequestTimeout, StorageError
from tallystick.rocketmq.broker.metadata_sync import MetadataSync
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.rounds import Rounds
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.ha.status import FollowStatus
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire.ha import MasterHello
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, TopicConfig
from tallystick.runtime.events import Events
from tallystick.sim.disk import Crashed
from tallystick.sim.invariants import Violation
from tallystick.sim.metadata_nodes import GROUP, QUEUES, ROOT, TOPIC, Node
from tallystick.sim.series import Outcome
from tallystick.sim.world import World, WorldClock

STORM_S = 90.0
CALM_S = 60.0
MAX_STEPS = 20_000
STEPS = 90
REPLICATE_S = 8.0  # a slow link
SOON_S = 6.0  # a round that runs, the distance to the next one, and that one
LATE, FOREIGN = "Late", "Foreign"
_MASTER = BrokerSettings(ROOT, "b0", "c0", port=22500)
_SLAVE = replace(_MASTER, broker_id=1, role=Role.SLAVE)


@dataclass(frozen=True)
class _Asked:
    """A request that waits for its answer."""

    command: Command
    within_s: float

    def __await__(self) -> Generator[_Asked, Command, Command]:
        answer = yield self
        return answer


Copy = Coroutine[_Asked | None, Any, None]


class _Client:
    """As much of a remoting client as the copy uses."""

    async def ask(self, address: str, command: Command, within_s: float) -> Command:
        return await _Asked(command, within_s)


class Life:
    """What happens to the two of them when."""

    def __init__(self, world: World) -> None:
        self.world, rng = world, world.random
        self.lost, self.deaths = rng.choice((0.0, 0.1, 0.4)), rng.choice((0, 2, 6))
        self.power, self.flaky = rng.choice((0.0, 0.5)), rng.choice((0.0, 0.0, 0.02))
        world.note(self.lost, self.deaths, self.power, self.flaky)
        self.strange = rng.choice((False, True))
        self.rebalance = random.Random(f"{world.seed} rebalance")
        self.master, self.slave = Node(world, _MASTER), Node(world, _SLAVE)
        self.stranger: Node | None = None
        self.link = self.links = 0
        self.proved = ""
        self._relink_soon()
        self.promised = 0
        self.known: list[Mapping[str, object]] = [
            dict(table) for table in _tables(self.slave)
        ]  # all that a slave may show
        self.states: list[list[Mapping[str, object]]] = []  # of the master's tables: what was saved, what came after
        self.master.on_saved = self._saved
        self._saved()
        self._change(self.master.tables.topics.all, TOPIC, TopicConfig(TOPIC, QUEUES, QUEUES))
        self._change(self.master.tables.groups.all, GROUP, GroupConfig(GROUP))
        self.counts, self.got = [0] * QUEUES, [0] * QUEUES
        self.set_to: list[int | None] = [None] * QUEUES  # by an operator, and nothing was committed since
        self._follow()

    def schedule(self) -> None:
        rng = self.world.random
        for _ in range(STEPS):
            self.world.after(
                rng.random() * STORM_S, rng.choice((self._produce, self._consume, self._consume, self._operate))
            )
        for _ in range(rng.choice((0, 4))):
            self.world.after(rng.random() * STORM_S, self._reset)
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

    def _produce(self) -> None:
        """At the master; its slave has it a little later, and then both have it on their disks."""
        if self.master.up:
            queue_id = self.world.random.randrange(QUEUES)
            self.master.ends[queue_id] += self.world.random.randint(1, 20)
            self.world.note("produced", queue_id, self.master.ends[queue_id])
            self.world.after(self.world.random.random() * REPLICATE_S, self._replicate)

    def _replicate(self) -> None:
        if self.master.up and self.slave.up:
            self.master.synced = list(self.master.ends)
            self.slave.ends, self.slave.synced = list(self.master.ends), list(self.master.ends)
            self._dispatch(TOPIC)

    def _consume(self) -> None:
        """One consumer, which commits where it is. A master sets it right if its log is shorter, a slave does not."""
        queue_id = self.world.random.randrange(QUEUES)
        node = self.master if self.master.up else self.slave
        if node.up:
            position, end = self.counts[queue_id], node.ends[queue_id]
            if node is self.master:
                position = max(0, min(position, end) - self._goes_back())
            position = max(position, min(position + self.world.random.randint(1, 40), end))
            self.counts[queue_id] = position
            self.got[queue_id] = max(self.got[queue_id], min(position, end))
            self.world.note(node.name, "commit", queue_id, position)
            if node is self.master and position < (node.offset(queue_id) or 0):  # or after a reset that was not saved
                self.slave.lift(queue_id)
                self.master.lift(queue_id)
            # A slave that has not heard of a reset yet has commits of the time before.
            promised = node is self.master or node.resets(queue_id) == self.master.resets(queue_id)
            if promised:
                self.set_to[queue_id] = None
            if node is self.master:
                self._regain_group()
            node.commit(queue_id, position, promised=promised)
            self.check()

    def _goes_back(self) -> int:
        """By how much: a consumer that got the queue from another one begins where that one had committed."""
        return self.rebalance.choice((0, 0, 0, 0, 0, 0, 0, 5, 50))

    def _regain_group(self) -> None:
        """The master gets a pull, which makes the group if it was killed before it had saved it."""
        groups = self.master.tables.groups.all
        if GROUP not in groups:
            after = {**groups, GROUP: GroupConfig(GROUP)}
            self.known.append(after)
            self.states[1].append(after)

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
                self.world.after(self.world.random.random(), self._dispatch, name)
                self.states[0].append(after)
            case GroupConfig():
                tables.groups.delete(name) if gone else tables.groups.put(config)
                self.states[1].append(after)
        self.world.note("changed", name, gone)
        self.promised += 1

    def _saved(self) -> None:
        self.states = [[dict(table)] for table in _tables(self.master)]

    def _reset(self) -> None:
        """An operator sets the group elsewhere at the master; its consumer begins there."""
        queue_id = self.world.random.randrange(QUEUES)
        if self.master.up and self.master.offset(queue_id) is not None:
            offset = self.world.random.randint(0, self.got[queue_id])
            self.world.note("reset", queue_id, offset)
            self.slave.lift(queue_id)
            self.master.lift(queue_id)
            self.counts[queue_id], self.set_to[queue_id] = offset, None
            self.master.tables.offsets.reset(TOPIC, GROUP, queue_id, offset)
            if self.master.save_urgent():
                self.set_to[queue_id] = offset
                self.promised += 1

    def announce(self) -> None:
        """In the calm: a new topic, whose first message comes to the slave at once."""
        self._change(self.master.tables.topics.all, LATE, TopicConfig(LATE))
        self._dispatch(LATE)
        self.world.after(SOON_S, self._expect)

    def _expect(self) -> None:
        if self.slave.tables.topics.get(LATE) is None:
            raise Violation("H12: the slave has messages of a topic that it does not know")

    # The copy

    def _follow(self) -> None:
        """A slave that was started: a name server soon tells it where its master is."""
        self.rounds, self.copying = Rounds(self.world.now), False
        self.world.after(self.world.random.random(), self._find, self.slave.life)

    def _find(self, life: int) -> None:
        if life == self.slave.life:
            self.rounds.master_found("master", self.world.now)
            self._plan()

    def _dispatch(self, topic: str) -> None:
        """Records of a topic reach the slave."""
        tables = self.slave.tables
        if self.slave.up and self.rounds.dispatched([topic], tables.topics.all, self.world.now):
            self._plan()

    def _plan(self) -> None:
        due = self.rounds.wake_at()
        if due is not None and not self.copying:
            self.world.after(max(0.0, due - self.world.now), self._copy, self.slave.life)

    def _copy(self, life: int) -> None:
        due = self.rounds.wake_at()
        if not self.slave.up or life != self.slave.life or self.copying or due is None or due > self.world.now + 1e-6:
            return  # it is not due any more: what comes then is planned
        self.copying = True
        self.rounds.began(max(due, self.world.now))
        client, clock = cast("RemotingClient", _Client()), WorldClock(self.world)
        sync = MetadataSync(client, clock, Events(), self.slave.tables, self._followed)
        self._go_on(sync, life, sync.sync("master"), None)

    def _followed(self) -> FollowStatus:
        """The slave's HA link: which process proved its log, as far as the slave has noticed."""
        end = sum(self.slave.ends)
        hello = MasterHello(0, end, end, instance=self.proved)
        return FollowStatus("master", "", self.link > 0, end, end, end, 0, 0, 0, hello, "", self.link)

    def _relink(self) -> None:
        """The slave notices whom it is linked to: a master of another log is none that it follows."""
        instance = self.master.instance if self.master.up and self.stranger is None else ""
        if instance == self.proved:
            return
        self.links += 1
        self.link, self.proved = self.links if instance else 0, instance
        if instance:
            self.rounds.followed(self.world.now)
            self._plan()

    def _relink_soon(self) -> None:
        self.world.after(self.world.random.random(), self._relink)

    def _go_on(self, sync: MetadataSync, life: int, copy: Copy, answer: Command | RequestTimeout | None) -> None:
        if not self.slave.up or life != self.slave.life:
            copy.close()
            return
        try:
            asked = copy.throw(answer) if isinstance(answer, RequestTimeout) else copy.send(answer)
        except StopIteration:
            self.copying = False
            self.rounds.ended(self.slave.tables.topics.all, self.world.now, failed=bool(sync.status.failures))
            self.check()
            self._plan()
            return
        self.check()
        if asked is None:  # it lets others have their turn
            self.world.after(0.0, self._go_on, sync, life, copy, None)
            return
        self.world.note("asks", asked.command.code)
        self.world.after(self.world.random.random() * 0.2, self._arrive, sync, life, copy, asked)

    def _arrive(self, sync: MetadataSync, life: int, copy: Copy, asked: _Asked) -> None:
        """At the master, which may do what it is told although nobody hears its answer."""
        answer: Command | RequestTimeout = RequestTimeout("no answer")
        if self.stranger is not None:
            answer = self.stranger.answer(asked.command)
        elif self.master.up and not self.world.chance(self.lost):
            if asked.command.code == RequestCode.PULL_MESSAGE:
                self._regain_group()
            told = self.master.answer(asked.command)
            self._forget_told()
            answer = answer if self.world.chance(self.lost) else told
        delay = asked.within_s if isinstance(answer, RequestTimeout) else self.world.random.random() * 0.2
        self.world.after(delay, self._go_on, sync, life, copy, answer)

    def _forget_told(self) -> None:
        for queue_id, offset in tuple(self.slave.own.items()):
            if (self.master.offset(queue_id) or 0) >= offset:
                self.slave.told(queue_id)
                self.promised += 1

    # What goes wrong

    def _kill(self, node: Node) -> None:
        if node.up and self.world.chance(0.4):
            self._die(node)
        elif node.up:  # in the middle of a save
            node.disk.crash_at = node.disk.operations + self.world.random.randint(1, 25)

    def _come(self) -> None:
        """Another broker answers at the master's address: with an empty disk, or one of somebody else."""
        if not self.master.up and any(self.slave.ends):
            self.world.note("a stranger comes")
            self.stranger = Node(self.world, _MASTER, "stranger")
            self.stranger.tables.topics.put(TopicConfig(FOREIGN))
            self.stranger.tables.groups.put(GroupConfig(FOREIGN))

    def _die(self, node: Node) -> None:
        node.up = False
        if node is self.master and self.strange:
            self.world.after(self.world.random.random(), self._come)
        self._relink_soon()
        lost_power = self.world.chance(self.power)
        self.world.note(node.name, "dies", lost_power)
        if lost_power:
            node.disk.power_loss()
            node.lose_tail()
            if node is self.master:
                self.got = [min(got) for got in zip(self.got, node.ends, strict=True)]
        else:
            node.disk.kill()
        self.world.after(self.world.random.random() * 30.0, self._start, node)

    def _start(self, node: Node) -> None:
        if node.up:
            return
        if node is self.master:
            self.stranger = None
        self._relink_soon()
        fault, node.disk.fault = node.disk.fault, None
        try:
            node.start()
        except StorageError as refused:
            raise Violation(f"saved: {node.name} does not start: {refused}") from refused
        node.disk.fault = fault
        if node is self.slave:
            self._follow()
            self.check()
            return
        self.counts = [min(count) for count in zip(self.counts, node.ends, strict=True)]  # its first pull tells it
        # An offset beyond the end of a log that lost its tail is cut, also one that was set on purpose.
        self.set_to = [None if at is None else min(at, end) for at, end in zip(self.set_to, node.ends, strict=True)]
        if not self.flaky and any(
            table not in states for table, states in zip(_tables(node), self.states, strict=True)
        ):
            raise Violation("saved: the master came back with another table than it had")
        self._saved()
        if TOPIC not in node.tables.topics.all:  # who made it had no answer before it was lost, and makes it again
            self._change(node.tables.topics.all, TOPIC, TopicConfig(TOPIC, QUEUES, QUEUES))
        self.check()

    # What must be true

    def check(self) -> None:
        for queue_id, got in enumerate(self.got):
            if self.master.up and (self.master.offset(queue_id) or 0) > got:
                raise Violation(f"H13: the master has offset {self.master.offset(queue_id)}, {got} were consumed")
            if self.master.up and self.set_to[queue_id] not in (None, self.master.offset(queue_id)):
                now = self.master.offset(queue_id)
                raise Violation(f"H13: an operator set the offset to {self.set_to[queue_id]}, it is {now}")
        if not self.slave.up:
            return
        for table in _tables(self.slave):
            if dict(table) not in self.known:
                raise Violation(f"H12: the slave shows a table that the master never had: {sorted(table)}")
        for queue_id, offset in self.slave.own.items():
            if (self.slave.offset(queue_id) or 0) < offset:
                raise Violation(f"H13: {offset} was committed on the slave, it has {self.slave.offset(queue_id)}")

    def at_the_end(self) -> None:
        master, slave = self.master.tables, self.slave.tables
        self.check()
        if self.slave.own:
            raise Violation(f"H13: the master was never told {self.slave.own}")
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
        world.after(world.random.uniform(15.0, 25.0), life.announce)
        if not life.run(STORM_S + CALM_S):
            raise Violation("H12: something spins in the calm")
        life.at_the_end()
    except Violation as found:
        violation = str(found)
    except AssertionError as broken:  # an invariant inside a core
        violation = f"core: {broken or type(broken).__name__}"
    return Outcome(seed, violation, life.promised, world.fingerprint, tuple(world.trace or ()))
