"""A broker without its ports: tables and a small store on a simulated disk, and its answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from support.message_stores import Shelf
from tallystick.errors import StorageError
from tallystick.rocketmq.broker.admin import admin_processors
from tallystick.rocketmq.broker.clients import ClientsCore
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.lock_file import LockFile
from tallystick.rocketmq.broker.offset_pages import OFFSETS, OffsetPages
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.queue_pages import QUEUE_ENDS, QueuePages
from tallystick.rocketmq.broker.registration import BrokerIdentity
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.saves import OnSaved, SendCommand
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.rocketmq.remoting.dispatch import Dispatch
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.slices import at_once
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import HaStatus
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Events

MASTER = BrokerSettings("/store", "b0", "c0", port=22500)
SLAVE = replace(MASTER, broker_id=1, role=Role.SLAVE)


@dataclass(eq=False)
class Caller:
    """As much of a link as those processors look at. ``sent`` are its answers."""

    peer: str = "127.0.0.1:4711"
    host: str = "127.0.0.1"
    alive: bool = True
    sent: list[Command] = field(default_factory=list)

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def keep(self, size: int) -> None: ...


class _Saved:
    """All is saved before anybody could be answered."""

    changes = 0

    def send(
        self, send: SendCommand, answer: Command, change: int, unsaved: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        send(answer)

    def when_saved(self, done: OnSaved) -> None:
        done(None)


class Desk:
    """``ask`` it. ``restart`` loses what was not saved."""

    def __init__(self, settings: BrokerSettings = MASTER, store: StoreSettings | None = None) -> None:
        self.shelf = Shelf(store) if store is not None else Shelf()
        self.settings, self.disk, self.clock = settings, self.shelf.disk, self.shelf.clock
        self.events = Events(self.shelf.events.append)
        self.files = ConfigFiles(self.disk, "/store")
        self.topics_changed = 0
        self.instance = "first"  # of the process
        self.sliced = 0  # answers that a broker would make in slices
        self.ends: dict[tuple[str, int], int] = {}  # of queues that are not as long as consumers say
        self.restart()

    def restart(self) -> None:
        self.standing = Standing(self.settings.role)
        slave = self.standing.is_slave
        self.tables = BrokerTables(
            self.files,
            settings=self.settings,
            standing=self.standing,
            clock=self.clock,
            events=self.events,
            topics_changed=self._changed,
            end_of=self._end_of,
        )
        self.tables.cut_offsets(slave=slave)
        self._save(self.tables.unsaved_files())
        self.lock_file = LockFile(self.files, self.clock, self.standing)
        self.lock_file.take_role(is_new=True)
        self.lock_file.changed = self._save_locks
        self.tables.changed = self._save_urgent
        self.shelf.store.take_role(slave=slave)
        tables = self.tables
        identity = BrokerIdentity("c0", "b0", "127.0.0.1:22500", self.instance)
        self.parts = Parts(
            settings=self.settings,
            standing=self.standing,
            identity=identity,
            clock=self.clock,
            events=self.events,
            store=self.shelf.store,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            delays=tables.delays,
            clients=ClientsCore[Link](),
            locks=self.lock_file.locks,
            ha_status=lambda: HaStatus(master=not slave, end=self.shelf.store.end),
            saves=_Saved(),
            tables_by_name={OFFSETS: OffsetPages(tables.offsets), QUEUE_ENDS: QueuePages(self.shelf.store)},
            make_slices=self._in_slices,
        )
        self.dispatch = Dispatch(self.events, lambda link, command, answer: None)
        for handlers in admin_processors(self.parts):
            self.dispatch.add(handlers)

    def _in_slices(self, parts: Iterable[Any], done: Callable[[list[Any] | Exception], None], host: str) -> None:
        self.sliced += 1
        at_once(parts, done, host)

    def _end_of(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), sys.maxsize)

    def _changed(self) -> None:
        self.topics_changed += 1

    def save(self) -> None:
        self._save(self.tables.unsaved_files())
        self._save_locks()

    def _save_urgent(self) -> None:
        """Before the answer: there is none here that could wait."""
        self._save(self.tables.unsaved_files(urgent=True))

    def _save_locks(self) -> None:
        for name in self.lock_file.unsaved_files():
            self.files.save(name, *self.lock_file.text(name))

    def _save(self, names: list[str]) -> None:
        for name in names:
            try:
                self.files.save(name, *self.tables.text(name))
                self.tables.saved(name)
            except StorageError:
                self.tables.failed(name)

    def handle(self, command: Command) -> Command:
        caller = Caller()
        self.dispatch.serve(cast("Link", caller), command)
        (answer,) = caller.sent  # nobody keeps an answer waiting here
        return answer

    def ask(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> Command:
        return self.handle(request(code, {name: str(value) for name, value in (fields or {}).items()}, body))

    def read(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> Any:
        """The body of a good answer."""
        answer = self.ask(code, fields, body)
        assert answer.code == 0, answer.remark
        return dialect.read(bytes(answer.body))

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [event.fields for event in self.shelf.events if event.kind == kind]
