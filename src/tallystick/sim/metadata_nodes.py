"""A master and a slave as the life of their tables sees them: tables, files, answers, and how long their logs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.admin import admin_rooms
from tallystick.rocketmq.broker.clients import Clients
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.locks import QueueLocks
from tallystick.rocketmq.broker.master_tables import pull_at
from tallystick.rocketmq.broker.offset_pages import OFFSETS, OffsetPages
from tallystick.rocketmq.broker.offsets import Commit
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.pull_rules import check
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.broker.registration import Identity
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.saver import PERIOD_S as SAVE_S
from tallystick.rocketmq.broker.saves import Done, Send
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.tables import Tables
from tallystick.rocketmq.remoting.dispatch import Dispatch
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.bodies import HaStatus
from tallystick.rocketmq.wire.headers import PullHeader, UpdateOffsetHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.events import Events
from tallystick.sim.disk import SimDisk
from tallystick.sim.invariants import Violation
from tallystick.sim.world import World, WorldClock

TOPIC, GROUP = "Orders", "billing"
QUEUES = 2
URGENT_S = 0.2
ROOT = "/store"


class Node:
    """Tables, their files, and the answers from them.

    ``ends`` are those of its queues, ``synced`` what of them a power loss cannot take. ``sure`` has the offsets that a
    crash may not take back. ``own`` are commits on the slave that the master was not told, ``sure_own`` those of them
    that a crash may not take back either.
    """

    def __init__(self, world: World, settings: BrokerSettings, name: str = "") -> None:
        self.world, self.settings, self.disk = world, settings, SimDisk(world.random)
        self.name = name or settings.role.value
        self.life = 0
        self.up = False
        self.ends, self.synced = [0] * QUEUES, [0] * QUEUES
        self.sure: dict[int, int] = {}
        self.own: dict[int, int] = {}
        self.sure_own: dict[int, int] = {}
        self.on_saved: Callable[[], None] = lambda: None
        self.disk.makedirs(ROOT)
        self.disk.sync_dir("/")
        self.start()

    def start(self) -> None:
        self.life += 1
        clock, events, standing = WorldClock(self.world), Events(), Standing(self.settings.role)
        slave = standing.is_slave
        self.files = ConfigFiles(self.disk, ROOT)
        self.tables = tables = Tables(self.files, self.settings, standing, clock, events, lambda: None, self._end_of)
        self._saving = False
        tables.changed = self._changed
        self.instance = f"{self.name}-{self.life}"
        identity = Identity("c0", "b0", int(slave), "127.0.0.1:22500", "127.0.0.1:22501", self.instance)
        self.parts = Parts(
            self.settings, standing, identity, clock, events, cast("MessageStore", None), tables.topics, tables.groups,
            tables.offsets, tables.delays, Clients(), QueueLocks(), lambda: HaStatus(not slave, 0),
            _Unwaited(), {OFFSETS: OffsetPages(tables.offsets)},
        )  # fmt: skip
        self.dispatch = Dispatch(events, lambda link, command, answer: None)
        for handlers in admin_rooms(self.parts):
            self.dispatch.add(handlers)
        self.up = True
        # Of several commits to a queue an earlier one may be what was saved.
        self.own = {queue: min(self.own[queue], offset) for queue, offset in self.sure_own.items()}
        self.sure = {queue_id: min(offset, self.ends[queue_id]) for queue_id, offset in self.sure.items()}
        for queue_id, offset in self.sure.items() if not slave else ():  # a slave's may be set back by its master's
            if (self.offset(queue_id) or 0) < offset:
                raise Violation(f"saved: {self.name} had offset {offset} on its disk, now {self.offset(queue_id)}")
        self.world.after(self.world.random.random() * SAVE_S, self._save, self.life)

    def _end_of(self, topic: str, queue_id: int) -> int:
        return self.ends[queue_id] if topic == TOPIC else 0

    def lose_tail(self) -> None:
        """The power fails: of what was not synced any part may be left."""
        self.ends = [self.world.random.randint(*some) for some in zip(self.synced, self.ends, strict=True)]

    def offset(self, queue_id: int) -> int | None:
        return self.tables.offsets.get(TOPIC, GROUP, queue_id)

    def _changed(self) -> None:
        """An urgent table: it is saved soon, with all that changes until then."""
        if not self._saving:
            self._saving = True
            self.world.after(self.world.random.random() * URGENT_S, self._save_urgent, self.life)

    def _save_urgent(self, life: int) -> None:
        if self.up and life == self.life:
            self.save_urgent()

    def save_urgent(self) -> bool:
        """Whether it is done: what was asked for is answered now."""
        self._saving = False
        if self._save_all(self.tables.unsaved(urgent=True)):
            self.on_saved()
            return True
        self._changed()
        return False

    def _save(self, life: int) -> None:
        if not self.up or life != self.life:
            return
        now, own = {queue_id: self.offset(queue_id) or 0 for queue_id in range(QUEUES)}, dict(self.own)
        if self._save_all(self.tables.unsaved()):
            self.sure, self.sure_own = now, own
            self.on_saved()
        self.world.after(SAVE_S, self._save, life)

    def _save_all(self, names: list[str]) -> bool:
        failed = False
        for name in names:
            try:
                self.files.save(name, *self.tables.text(name))
                self.tables.saved(name)
            except StorageError:
                failed = True
                self.tables.failed(name)
        return not failed

    def commit(self, queue_id: int, offset: int, *, promised: bool) -> None:
        """As a consumer does it, which pulls before; a slave that has copied nothing yet refuses.

        ``promised``: what is committed on the slave is never set back.
        """
        self.answer(request(RequestCode.PULL_MESSAGE, pull_at(Commit(TOPIC, GROUP, queue_id, offset)).to_fields()))
        header = UpdateOffsetHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset)
        taken = self.answer(request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields())).code == 0
        if taken and self.parts.standing.is_slave:
            self.lift(queue_id)
            if promised:
                self.own[queue_id] = min(offset, self.ends[queue_id])

    def lift(self, queue_id: int) -> None:
        """What was committed here is promised no more."""
        self.own.pop(queue_id, None)
        self.sure_own.pop(queue_id, None)
        self.sure.pop(queue_id, None)

    def resets(self, queue_id: int) -> int:
        return self.tables.offsets.resets.get(f"{TOPIC}@{GROUP}", queue_id)

    def told(self, queue_id: int) -> None:
        """The master has what was committed here."""
        del self.own[queue_id]
        self.sure_own.pop(queue_id, None)

    def answer(self, command: Command) -> Command:
        if command.code == RequestCode.PULL_MESSAGE:
            return self._pull(command)
        caller = _Caller()
        self.dispatch.serve(cast("Link", caller), command)
        (answer,) = caller.sent  # nothing here keeps one waiting
        return answer

    def _pull(self, command: Command) -> Command:
        """Where groups make themselves it makes its group. There are no messages here."""
        parts = self.parts
        allowed = check(
            PullHeader.of(command),
            command.code,
            _Caller.peer,
            parts.settings,
            parts.standing,
            parts.topics,
            parts.groups,
            parts.clients,
        )
        if isinstance(allowed, Refusal):
            return command.answer(allowed.code, allowed.remark)
        return command.answer(ResponseCode.PULL_NOT_FOUND)


class _Unwaited:
    """The answers of this world wait for nothing."""

    changes = 0

    def send(self, send: Send, answer: Command, since: int, unsaved: ResponseCode = ResponseCode.SUCCESS) -> None:
        send(answer)

    def when_saved(self, done: Done) -> None:
        done(None)


class _Caller:
    """As much of a link as the answers look at. ``sent`` are these."""

    peer, host, alive = "127.0.0.1:1", "127.0.0.1", True

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)
